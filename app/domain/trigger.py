"""When a compaction should happen. Triggers look at the view, never at the log (rule 24)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, assert_never


@dataclass(frozen=True, slots=True)
class Always:
    """Fires on every view."""


@dataclass(frozen=True, slots=True)
class TurnCount:
    """Fires when the view has more than ``threshold`` turns."""

    threshold: int


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Fires when the view has at least ``threshold`` tokens."""

    threshold: int


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Fires when one of a non-empty list does."""

    of: tuple["Trigger", ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """Fires when each of a non-empty list does."""

    of: tuple["Trigger", ...]


Trigger: TypeAlias = Always | TurnCount | TokenCount | AnyOf | AllOf


def fires(trigger: Trigger, *, turns: int, tokens: int) -> bool:
    """Say whether ``trigger`` fires on a view of so many turns and tokens."""
    match trigger:
        case Always():
            return True
        case TurnCount(threshold):
            return turns > threshold
        case TokenCount(threshold):
            return tokens >= threshold
        case AnyOf(of):
            return any(fires(one, turns=turns, tokens=tokens) for one in of)
        case AllOf(of):
            return all(fires(one, turns=turns, tokens=tokens) for one in of)
        case _:
            assert_never(trigger)


class Mark(NamedTuple):
    """A high-water mark: a view is over it when it has at least so many turns and at least so many tokens."""

    turns: int
    tokens: int


# As many marks as a session's row has room for.
MOST_MARKS: Final = 4
# What all of two triggers need is worked out pair by pair.
_MOST_AT_ONCE: Final = 32


def marks(trigger: Trigger) -> tuple[Mark, ...]:
    """Return a trigger as marks of which a view has to be over one, so that a database can judge it by its columns.

    There are at most ``MOST_MARKS``. A trigger that would need more gets its last ones replaced by a lower one, so its
    marks may be passed a little before it fires, and never after.
    """
    return _lowered(_marks(trigger), MOST_MARKS)


def _lowered(found: tuple[Mark, ...], most: int) -> tuple[Mark, ...]:
    """Put one lower mark in the place of the last ones, so that there are at most so many."""
    if len(found) <= most:
        return found
    kept, rest = found[: most - 1], found[most - 1 :]
    return (*kept, Mark(min(mark.turns for mark in rest), min(mark.tokens for mark in rest)))


def _marks(trigger: Trigger) -> tuple[Mark, ...]:
    match trigger:
        case Always():
            return (Mark(0, 0),)
        case TurnCount(threshold):
            return (Mark(threshold + 1, 0),)
        case TokenCount(threshold):
            return (Mark(0, threshold),)
        case AnyOf(of):
            return _least(mark for one in of for mark in _marks(one))
        case AllOf(of):
            over: tuple[Mark, ...] = (Mark(0, 0),)
            for one in of:
                inner = _lowered(_marks(one), _MOST_AT_ONCE)
                both = _least(Mark(max(a.turns, b.turns), max(a.tokens, b.tokens)) for a in over for b in inner)
                over = _lowered(both, _MOST_AT_ONCE)
            return over
        case _:
            assert_never(trigger)


def _least(found: Iterable[Mark]) -> tuple[Mark, ...]:
    """Leave out every mark that cannot be passed without passing another one; turns rise and tokens fall."""
    kept: list[Mark] = []
    for mark in sorted(found):
        if not kept or mark.tokens < kept[-1].tokens:
            kept.append(mark)
    return tuple(kept)


def fires_again(trigger: Trigger, *, turns: int, tokens: int) -> bool:
    """Say whether ``trigger`` still fires on a view that was just compacted to so many turns and tokens.

    Only what counts is looked at: ``always`` fires on everything, and means whenever the window does not fit.
    """
    match trigger:
        case Always():
            return False
        case AnyOf(of):
            return any(fires_again(one, turns=turns, tokens=tokens) for one in of)
        case AllOf(of):
            return all(isinstance(one, Always) or fires_again(one, turns=turns, tokens=tokens) for one in of) and any(
                not isinstance(one, Always) for one in of
            )
        case _:
            return fires(trigger, turns=turns, tokens=tokens)
