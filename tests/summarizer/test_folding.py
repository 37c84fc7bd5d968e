"""Everything is shown, in order, in chunks that fit."""

import re
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.summarizer.folding import LEAST_ROOM, SEPARATOR_TOKENS, Chunk, Entry, chunks, shortened
from app.tokens import TokenCounter

MARK = re.compile(r"\n\[… ([0-9,]+) characters left out here …\]\n")


def count(text: str) -> int:
    return len(text) // 4 + 1


def entries_of(turns: Sequence[Sequence[str]]) -> list[Entry]:
    told = [(text, index == 0) for turn in turns for index, text in enumerate(turn)]
    return [Entry(seq=seq, text=text, starts_turn=starts) for seq, (text, starts) in enumerate(told, 3)]


def cost(entries: Sequence[str]) -> int:
    return sum(count(entry) + SEPARATOR_TOKENS for entry in entries)


def cut(turns: Sequence[Sequence[str]], *, first_room: int = 100, room: int = 100) -> list[Chunk]:
    return chunks(entries_of(turns), count=count, first_room=first_room, room=room)


def are_at_turns(made: Sequence[Chunk], turns: Sequence[Sequence[str]]) -> list[bool]:
    """Say of each chunk whether a turn ends with it."""
    ends = set(accumulate(map(len, turns)))
    return [shown in ends for shown in accumulate(len(chunk.entries) for chunk in made)]


texts = st.integers(0, 800).map(lambda length: ("word " * 200)[:length])
conversations = st.lists(st.lists(texts, min_size=1, max_size=6), max_size=12)
rooms = st.integers(LEAST_ROOM, 400)


@given(conversations, rooms, rooms)
def test_every_entry_is_shown_once_in_order_and_every_chunk_fits(
    turns: list[list[str]], first_room: int, room: int
) -> None:
    made = cut(turns, first_room=first_room, room=room)
    shown = [text for chunk in made for text in chunk.entries]
    entries = entries_of(turns)
    assert len(shown) == len(entries)
    for text, entry in zip(shown, entries, strict=True):
        assert text == entry.text or MARK.search(text)
    for index, chunk in enumerate(made):
        assert chunk.entries
        assert cost(chunk.entries) <= (room if index else first_room)


@given(conversations, rooms, rooms)
def test_a_chunk_says_where_it_ends(turns: list[list[str]], first_room: int, room: int) -> None:
    entries = entries_of(turns)
    shown = 0
    for chunk in cut(turns, first_room=first_room, room=room):
        shown += len(chunk.entries)
        assert chunk.last_seq == entries[shown - 1].seq


@given(conversations, rooms)
def test_chunks_end_where_turns_end_when_every_turn_fits(turns: list[list[str]], room: int) -> None:
    fitting = [turn for turn in turns if cost(turn) <= room]
    assert all(are_at_turns(cut(fitting, first_room=room, room=room), fitting))


@given(conversations, rooms)
def test_only_what_does_not_fit_alone_is_shortened(turns: list[list[str]], room: int) -> None:
    shown = [text for chunk in cut(turns, first_room=room, room=room) for text in chunk.entries]
    for text, entry in zip(shown, entries_of(turns), strict=True):
        assert (text == entry.text) == (cost([entry.text]) <= room)


def test_no_turns_make_no_chunks() -> None:
    assert cut([]) == []


def test_turns_fill_a_chunk_and_the_first_has_its_own_room() -> None:
    turn = ["x" * 100, "y" * 80]
    made = cut([turn] * 5, first_room=70, room=110)
    assert [len(chunk.entries) for chunk in made] == [2, 4, 4]


def test_a_large_turn_is_cut_between_its_events_and_the_next_turn_follows_in_its_last_chunk() -> None:
    turns = [["a"], ["b" * 200] * 3, ["c"]]
    made = cut(turns)
    assert [len(chunk.entries) for chunk in made] == [1, 1, 1, 2]
    assert are_at_turns(made, turns) == [True, False, False, True]


def test_each_entry_is_counted_once_when_all_fit() -> None:
    counted: list[str] = []

    def counting(text: str) -> int:
        counted.append(text)
        return count(text)

    entries = entries_of([[f"{turn} {event}" for event in range(3)] for turn in range(50)])
    chunks(entries, count=counting, first_room=100, room=100)
    assert counted == [entry.text for entry in entries]


def test_an_event_of_megabytes_is_counted_whole_once() -> None:
    counted: list[int] = []

    def counting(text: str) -> int:
        counted.append(len(text))
        return count(text)

    big = "line of a log\n" * 300_000
    chunks(entries_of([[big]]), count=counting, first_room=1000, room=1000)
    assert counted[0] == len(big)
    assert sum(counted[1:]) < 100_000


@pytest.mark.parametrize("small", [{"room": LEAST_ROOM - 1}, {"first_room": LEAST_ROOM - 1}])
def test_a_room_for_nothing_is_refused(small: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        cut([["a"]], **small)


def test_what_fits_is_not_shortened() -> None:
    assert shortened("short", count=count, room=LEAST_ROOM) == "short"


@given(st.text(min_size=400), st.integers(LEAST_ROOM, 90))
def test_a_shortened_text_is_its_head_and_tail_and_says_what_is_missing(text: str, room: int) -> None:
    made = shortened(text, count=count, room=room)
    assert count(made) <= room
    assert_is_shortened(made, text)


def assert_is_shortened(made: str, text: str) -> None:
    if made == text:
        return
    # The text may hold what looks like a mark, so the real one is the one that adds up.
    splits = [(made[: one.start()], one[1], made[one.end() :]) for one in MARK.finditer(made)]
    assert any(
        text.startswith(head) and text.endswith(tail) and int(left.replace(",", "")) == len(text) - len(head + tail)
        for head, left, tail in splits
    )


HARD = [
    # Prose, code, blanks, and a script that costs a token a character.
    "The quick brown fox jumps over the lazy dog. " * 3000,
    'print("hello", end="")\n' * 3000,
    " " * 90_000,
    "汉字" * 30_000,
    # Emoji of many code points, and marks without end.
    "👨\u200d👩\u200d👧\u200d👦" * 4000,
    "e" + "\u0301" * 20_000,
    # Cheap at its head, dear at its tail.
    "a" * 50_000 + "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f" * 3000,
]


@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
@pytest.mark.parametrize("room", [LEAST_ROOM, 1000])
def test_real_tokens_fit_too(text: str, room: int) -> None:
    tokens = TokenCounter().text
    made = shortened(text, count=tokens, room=room)
    assert tokens(made) <= room
    assert_is_shortened(made, text)


def test_most_of_the_room_is_used() -> None:
    tokens = TokenCounter().text
    assert tokens(shortened(HARD[0], count=tokens, room=5000)) > 4000


def test_emoji_stay_whole() -> None:
    family = "👨\u200d👩\u200d👧\u200d👦"
    head, _, tail = MARK.split(shortened(family * 500, count=count, room=LEAST_ROOM))
    assert head
    assert tail
    assert not (head + tail).replace(family, "")
