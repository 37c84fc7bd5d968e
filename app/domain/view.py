"""The view: what the model should be sent. The pure replay here is its definition (rules 12 to 16)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from app.domain.event import COMPACTION, Event
from app.domain.ranges import NOTHING, Ranges

E = TypeVar("E", bound=Event)
E_co = TypeVar("E_co", bound=Event, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Generic[E_co]):
    """What a model should be sent at ``version``, in that order.

    ``boundary`` is the seq of the newest boundary up to that version, None when nothing was compacted yet;
    ``covered`` is its cumulative coverage.
    """

    version: int
    boundary: int | None
    covered: Ranges
    events: tuple[E_co, ...]

    @property
    def turns(self) -> int:
        """Count the real user messages of the view."""
        return sum(event.starts_turn for event in self.events)

    @property
    def tokens(self) -> int:
        """Add up the token counts of the view's events, a summary's included (rule 34)."""
        return sum(event.token_count for event in self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Which versions of a view somebody has already; ``any`` is all of them."""

    versions: tuple[int, ...] = ()
    any: bool = False


NOTHING_KNOWN: Final = Known()


def replay(log: Sequence[E], version: int | None = None) -> View[E]:
    """Rebuild the view from the log, as it was at ``version`` (None: now).

    Only the newest boundary matters, for coverage is cumulative.
    """
    known = [event for event in log if version is None or event.seq <= version]
    boundary = next((event for event in reversed(known) if event.type == COMPACTION), None)
    covered = (boundary and boundary.covered) or NOTHING
    shown = (event for event in known if event.is_message and event.seq not in covered)
    at = boundary.seq if boundary else None
    return View(
        version=version if version is not None else (known[-1].seq if known else 0),
        boundary=at,
        covered=covered,
        events=ordered(shown, at),
    )


def ordered(shown: Iterable[E], boundary: int | None) -> tuple[E, ...]:
    """Put the events that are not covered into the order of rule 13.

    The order is by seq, save that the system messages stored before the boundary come first and the summaries
    follow the preamble. The summary turn that a boundary wrote has larger seqs than the boundary itself.
    """
    by_seq = sorted(shown, key=lambda event: event.seq)
    if boundary is None:
        return tuple(by_seq)
    before = [event for event in by_seq if event.seq < boundary and not event.synthetic]
    spoken = [event for event in before if not event.is_system]
    first_turn = next((at for at, event in enumerate(spoken) if event.starts_turn), len(spoken))
    return (
        *(event for event in before if event.is_system),
        *spoken[:first_turn],
        *(event for event in by_seq if event.synthetic),
        *spoken[first_turn:],
        *(event for event in by_seq if event.seq > boundary and not event.synthetic),
    )


def last(events: Sequence[E], count: int) -> tuple[E, ...]:
    """Return the newest ``count`` events, extended back to the start of the turn they land in.

    Where no turn starts at or before that place, just the newest ``count``.
    """
    landed = max(0, len(events) - count)
    start = next((at for at in range(min(landed, len(events) - 1), -1, -1) if events[at].starts_turn), landed)
    return tuple(events[start:])
