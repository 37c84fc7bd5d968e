import pytest

from app.domain import turn
from app.domain.event import Event
from tests.domain.logs import events


@pytest.mark.parametrize(
    ("words", "starts"),
    [
        ("", []),  # an empty log
        ("S1 P1", []),  # nobody asked anything yet
        ("U1 A1 U2 A2", [0, 2]),  # question and answer
        ("S1 P1 U1 A1", [2]),  # prompt and preamble come before the first turn
        ("U1 U2", [0, 1]),  # two user messages in a row are two turns
        ("U1 A1 U2", [0, 2]),  # an unanswered question is a turn
        ("U1 X1 C1 R1 A1", [0]),  # neither custom events nor tool results start one
    ],
)
def test_a_turn_starts_at_each_real_user_message(words: str, starts: list[int]) -> None:
    assert turn.starts(events(words)) == starts


def test_a_summary_turn_is_no_turn() -> None:
    assert (
        turn.starts([Event(seq=1, role="user", synthetic=True), Event(seq=2, role="assistant", synthetic=True)]) == []
    )


def calling(*ids: str) -> Event:
    return Event(seq=1, role="assistant", calls=ids)


def answering(call: str) -> Event:
    return Event(seq=1, role="tool", answers=call)


ASKED = Event(seq=1, role="user")


@pytest.mark.parametrize(
    ("said", "pairs"),
    [
        ([], []),  # nothing said
        ([calling("a"), answering("a")], [(0, 1)]),  # a call and its result
        ([calling("a", "b"), answering("b"), answering("a")], [(0, 1), (0, 2)]),  # parallel, answered in any order
        ([calling("a")], []),  # a call that never got its result
        ([answering("a")], []),  # a result whose call never was
        ([answering("a"), calling("a")], []),  # a result before its call is not its result
        ([calling("a"), ASKED, answering("a")], [(0, 2)]),  # a late result, in the next turn
        ([calling("a"), answering("a"), calling("a"), answering("a")], [(0, 1), (2, 3)]),  # the id again, later
        ([calling("a"), calling("a"), answering("a"), answering("a")], [(1, 2), (0, 3)]),  # the newest open call first
        ([calling("a", "a"), answering("a"), answering("a")], [(0, 1), (0, 2)]),  # an id twice in one message
        ([calling("a"), answering("a"), answering("a")], [(0, 1), (0, 2)]),  # a provisional result, then the final one
        ([calling("a"), calling("a"), answering("a"), answering("a"), answering("a")],
         [(1, 2), (0, 3), (0, 4)]),  # one more result than calls: it belongs to the call answered last
        ([calling("a"), answering("b"), answering("a")], [(0, 2)]),  # another id is another call
    ],
)  # fmt: skip
def test_a_result_belongs_to_the_newest_open_call_of_its_id(said: list[Event], pairs: list[tuple[int, int]]) -> None:
    assert turn.pairs(said) == pairs
