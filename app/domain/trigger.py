"""When a compaction should happen. Triggers look at the view, never at the log (rule 24)."""

from dataclasses import dataclass
from typing import TypeAlias, assert_never


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
