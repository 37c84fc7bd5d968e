"""Rule 37, with every one of its quirks. A letter after the name of a system message is what it says: `Sa`, `Sb`."""

import pytest

from app.domain import chat_memory
from app.domain.chat_memory import DEFAULT_MAX_MESSAGES, Remembered
from app.domain.event import Event, Role
from app.domain.exact_json import Json

ROLES: dict[str, Role] = {"S": "system", "D": "developer", "U": "user", "A": "assistant", "T": "tool"}


def remembered(words: str, first: int = 1) -> list[Remembered]:
    return [
        Remembered(Event(seq=seq, role=ROLES[word[0]]), {"role": ROLES[word[0]], "content": word[1:]})
        for seq, word in enumerate(words.split(), start=first)
    ]


def memory_after(memory: str, added: str, max_messages: int) -> str:
    """Return the memory, in the same words, after an add."""
    words = [*memory.split(), *added.split()]
    before = remembered(memory)
    gone = chat_memory.evicted(before, remembered(added, first=len(before) + 1), max_messages)
    assert len({event.seq for event in gone}) == len(gone), "nothing leaves twice"
    return " ".join(word for seq, word in enumerate(words, start=1) if seq not in {event.seq for event in gone})


def test_a_memory_holds_twenty_messages_unless_asked_otherwise() -> None:
    assert DEFAULT_MAX_MESSAGES == 20


@pytest.mark.parametrize(
    ("memory", "added", "after"),
    [
        ("", "Sa U1", "Sa U1"),  # the first one drops nothing
        ("Sa U1", "Sa", "Sa U1 Sa"),  # an equal one is added again
        ("Sa U1", "Sb", "U1 Sb"),  # a different one drops the earlier one
        ("Sa U1 Sa A1", "Sb", "U1 A1 Sb"),  # drops all earlier ones
        ("Sa U1 Sb", "Sa", "Sa U1 Sb Sa"),  # equal to any one of the memory: nothing is dropped
        ("Sa U1", "Sb Sc", "U1 Sb Sc"),  # two at once: only those of the memory are dropped, not the ones just added
        ("Sa U1", "Sa Sb", "U1 Sa Sb"),  # one of them differs: the equal one in the memory goes too
        ("Sa U1", "Sb Sb", "U1 Sb Sb"),  # equal to each other, but not to any in the memory
        ("Sa U1", "U2 A2", "Sa U1 U2 A2"),  # no system message, nothing dropped
        ("Sa U1", "Da", "U1 Da"),  # a developer message is a system message; it says its role, so it differs
        ("Ua", "Sa", "Ua Sa"),  # a user message with the same text is no system message
    ],
)
def test_a_system_message_that_differs_from_all_drops_the_earlier_ones(memory: str, added: str, after: str) -> None:
    assert memory_after(memory, added, 100) == after


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"role": "system", "content": "a"}, {"content": "a", "role": "system"}, True),  # key order says nothing
        ({"role": "system", "content": "a", "n": 1}, {"role": "system", "content": "a", "n": True}, False),
    ],
)
def test_system_messages_are_compared_as_json_values(one: Json, other: Json, equal: bool) -> None:
    earlier = Remembered(Event(seq=1, role="system"), one)
    later = Remembered(Event(seq=2, role="system"), other)
    assert chat_memory.evicted([earlier], [later], 100) == ([] if equal else [earlier.event])


@pytest.mark.parametrize(
    ("memory", "added", "size", "after"),
    [
        ("U1 A1", "U2 A2", 4, "U1 A1 U2 A2"),  # exactly full
        ("U1 A1", "U2 A2", 3, "U2 A2"),  # one too many: then on to the next user message
        ("U1 A1 U2 A2", "U3", 3, "U2 A2 U3"),  # two too many, and a user message is next
        ("U1 U2 U3", "U4", 3, "U2 U3 U4"),  # a user message is next at once: no more leave
        ("U1 A1 T1 T1 A1", "U2", 5, "U2"),  # calls and results go with their question
        ("U1 A1 U2 A2", "A3", 1, ""),  # no user message behind the oldest: all leave, those just added too
        ("", "U1 A1 A2 A3", 2, ""),  # a single add that is too large for the memory
        ("", "U1 A1 U2", 1, "U2"),  # those just added can leave at once, as far as need be
        ("A1 A2 U1 A3", "A4", 4, "U1 A3 A4"),  # what came before the first question leaves first
        ("U1", "A1", 1, ""),  # an answer without its question does not stay
    ],
)
def test_the_oldest_leave_until_the_next_one_is_a_user_message(memory: str, added: str, size: int, after: str) -> None:
    assert memory_after(memory, added, size) == after


@pytest.mark.parametrize(
    ("memory", "added", "size", "after"),
    [
        ("Sa U1 A1", "U2", 3, "Sa U2"),  # it counts: one too many
        ("Sa U1 A1", "U2", 4, "Sa U1 A1 U2"),  # exactly full, itself included
        ("U1 Sa A1", "U2", 3, "Sa U2"),  # it stays where it stands in the order, and is stepped over
        ("U1 A1 Sa U2 A2 U3", "A3", 4, "Sa U3 A3"),  # in the middle too
        ("Sa Sa", "Sa", 1, "Sa Sa Sa"),  # they never leave, however many there are
        ("Sa Sa U1", "A1", 1, "Sa Sa"),  # though no room is left for anything else
        ("Sa U1 A1", "Sb U2", 2, "Sb U2"),  # the dropped one counts no more
        ("Sa U1 A1", "Sb U2", 4, "U1 A1 Sb U2"),  # so there is room again
        ("Da U1 A1", "U2", 2, "Da U2"),  # developer messages are system messages
    ],
)
def test_system_messages_count_but_never_leave_for_want_of_room(memory: str, added: str, size: int, after: str) -> None:
    assert memory_after(memory, added, size) == after


def test_the_memory_is_in_the_order_of_adding_with_summaries_first() -> None:
    question = Event(seq=6, role="user", synthetic=True)
    answer = Event(seq=7, role="assistant", synthetic=True)
    asked, prompt, later = Event(seq=3, role="user"), Event(seq=4, role="system"), Event(seq=8, role="user")
    view = [prompt, question, answer, asked, later]
    assert chat_memory.in_memory_order(view) == [question, answer, asked, prompt, later]
