"""Cutting a transcript into chunks that each fit one request, so that all of it is shown (rule 28). Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.summarizer import graphemes

# The blank line between two entries, and a token that two texts may cost more together than apart.
SEPARATOR_TOKENS: Final = 3
# In less than this, an event that is shortened would say nothing beside the mark.
LEAST_ROOM: Final = 64

# The rest of an event's room, about two fifths, is for its tail: results and errors often end with what matters.
_HEAD_SHARE: Final = 0.6
_CHARACTERS_PER_TOKEN: Final = 4
# Filled so far, a search for more would only cost time.
_FULL: Final = 0.95
_TRIES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event as a transcript paragraph."""

    seq: int
    text: str
    starts_turn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What one request shows; ``last_seq`` is the newest event in it."""

    entries: tuple[str, ...]
    last_seq: int


def chunks(entries: Sequence[Entry], *, count: Callable[[str], int], first_room: int, room: int) -> list[Chunk]:
    """Cut entries, oldest first, into chunks of at most ``room`` tokens; the first has ``first_room``.

    Chunks end where turns end, unless a turn alone is too large: then between its events. Only an event that is too
    large on its own is ``shortened``. Every entry is in exactly one chunk and costs ``SEPARATOR_TOKENS`` beside its
    text.

    Raises:
        ValueError: a room is smaller than ``LEAST_ROOM``.
    """
    if min(first_room, room) < LEAST_ROOM:
        raise ValueError(f"a chunk needs room for at least {LEAST_ROOM} tokens")
    filling = _Filling(count=count, rooms=(first_room, room))
    for turn in _turns(entries):
        costs = [count(entry.text) + SEPARATOR_TOKENS for entry in turn]
        if not filling.has_room_for(sum(costs)):
            filling.close()
        for entry, cost in zip(turn, costs, strict=True):
            filling.add(entry, cost)
    filling.close()
    return filling.closed


def shortened(text: str, *, count: Callable[[str], int], room: int) -> str:
    """Return the text if it fits, or else its head and tail and, between them, a mark that says how much is missing.

    The cuts are between characters as a reader sees them. ``room`` is at least ``LEAST_ROOM``.
    """
    return text if count(text) <= room else _cut(text, count=count, room=room)


@dataclass(slots=True, kw_only=True)
class _Filling:
    """The chunks that are closed, and the one being filled."""

    count: Callable[[str], int]
    rooms: tuple[int, int]
    closed: list[Chunk] = field(default_factory=list)
    open: list[Entry] = field(default_factory=list)
    used: int = 0

    @property
    def room(self) -> int:
        return self.rooms[1] if self.closed else self.rooms[0]

    def has_room_for(self, cost: int) -> bool:
        return self.used + cost <= self.room

    def add(self, entry: Entry, cost: int) -> None:
        if not self.has_room_for(cost):
            self.close()
        if not self.has_room_for(cost):
            text = _cut(entry.text, count=self.count, room=self.room - SEPARATOR_TOKENS)
            entry, cost = Entry(seq=entry.seq, text=text, starts_turn=entry.starts_turn), self.room
        self.open.append(entry)
        self.used += cost

    def close(self) -> None:
        if self.open:
            texts = tuple(entry.text for entry in self.open)
            self.closed.append(Chunk(entries=texts, last_seq=self.open[-1].seq))
        self.open, self.used = [], 0


def _turns(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    turn: list[Entry] = []
    for entry in entries:
        if entry.starts_turn and turn:
            yield turn
            turn = []
        turn.append(entry)
    if turn:
        yield turn


def _cut(text: str, *, count: Callable[[str], int], room: int) -> str:
    """Shorten a text that does not fit, counting only texts of about the size of the room.

    What is kept is guessed from the tokens that the last try had per character, between a number of characters that
    fitted and one that did not.
    """
    best, fits, too_many = _mark(len(text)), 0, len(text)
    kept = min(too_many - 1, room * _CHARACTERS_PER_TOKEN)
    for _ in range(_TRIES):
        tried = _with_mark(text, kept)
        tokens = count(tried)
        if tokens > room:
            too_many = kept
        else:
            best, fits = tried, kept
            if tokens >= room * _FULL:
                break
        if too_many - fits <= 1:
            break
        guess = int(kept * room / max(1, tokens) * (1 + _FULL) / 2)
        kept = guess if fits < guess < too_many else (fits + too_many) // 2
    return best


def _with_mark(text: str, kept: int) -> str:
    head = graphemes.before(text, int(kept * _HEAD_SHARE))
    tail = graphemes.after(text, len(text) - (kept - int(kept * _HEAD_SHARE)))
    return text[:head] + _mark(tail - head) + text[tail:]


def _mark(characters: int) -> str:
    return f"\n[… {characters:,} characters left out here …]\n"
