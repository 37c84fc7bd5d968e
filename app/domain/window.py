"""How much of the recent conversation a compaction keeps, and where that puts the cut (rules 17 to 20)."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from app.domain import turn
from app.domain.event import Event


class Rule(StrEnum):
    """What a window's size counts."""

    LAST_EVENTS = "last_events"
    LAST_TURNS = "last_turns"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 - tokens of text, not of access


@dataclass(frozen=True, slots=True)
class Window:
    """Keep the newest ``size`` events or turns, or as much as fits into ``size`` tokens. ``size`` is at least 1."""

    rule: Rule
    size: int


def raw_cut(window: Window, turns: Sequence[Event], reserved: int) -> int:
    """Return the position in ``turns`` from which the window keeps everything; 0 when all of it fits (rule 17).

    ``turns`` are the events of the turns, starting with a user message. ``reserved`` are the tokens that a budget has
    to spend on pinned events and on the summary to come; the other windows ignore it.
    """
    match window.rule:
        case Rule.LAST_EVENTS:
            return max(0, len(turns) - window.size)
        case Rule.LAST_TURNS:
            starts = turn.starts(turns)
            return starts[-window.size] if window.size < len(starts) else 0
        case Rule.TOKEN_BUDGET:
            return _budget_cut(turns, window.size - reserved)
        case _:
            assert_never(window.rule)


def _budget_cut(turns: Sequence[Event], left: int) -> int:
    """Walk back from the newest event while the sum fits; the kept part is a contiguous suffix."""
    for at in range(len(turns) - 1, -1, -1):
        left -= turns[at].token_count
        if left < 0:
            return at + 1
    return 0


def turn_cut(turns: Sequence[Event], cut: int) -> int:
    """Move a raw cut to a turn start: forward to the next one, else back to the newest turn's (rule 18)."""
    starts = turn.starts(turns)
    return next((start for start in starts if start >= cut), starts[-1])


def safe_cut(turns: Sequence[Event], cut: int) -> int:
    """Move a cut back, turn by turn, while it parts a tool call from its result (rule 19); 0 when nothing else helps.

    The cut that is safe is the latest turn start at or before ``cut`` that no pair spans, which one walk over the pairs
    from the newest call back finds: a pair that spans the cut moves it to the start of the turn that holds the call.
    """
    starts = turn.starts(turns)
    for call, result in sorted(turn.pairs(turns), reverse=True):
        if call < cut <= result:
            cut = starts[bisect_right(starts, call) - 1]
    return cut
