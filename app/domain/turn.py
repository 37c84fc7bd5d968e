"""Turns, and the tool calls that tie their events together."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from app.domain.event import Event


def starts(events: Sequence[Event]) -> list[int]:
    """Return the positions in ``events`` (not the seqs) at which a turn starts (rule 9)."""
    return [at for at, event in enumerate(events) if event.starts_turn]


def pairs(events: Iterable[Event]) -> list[tuple[int, int]]:
    """Match tool results with their calls and return the positions of both, as (call, result).

    Ids repeat: in later turns, and even inside one message. A result therefore belongs to the newest call of its id
    that is still open, and when none is, to the one answered last (a provisional result followed by
    the final one). A result whose call never was, and a call that never got its result, are in no pair.
    """
    still_open: dict[str, list[int]] = defaultdict(list)
    answered: dict[str, int] = {}
    result: list[tuple[int, int]] = []
    for at, event in enumerate(events):
        for call in event.calls:
            still_open[call].append(at)
        if event.answers is None:
            continue
        if still_open[event.answers]:
            answered[event.answers] = still_open[event.answers].pop()
        if event.answers in answered:
            result.append((answered[event.answers], at))
    return result
