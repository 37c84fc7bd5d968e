"""MessageWindowChatMemory, the older kind of chat memory, as a rule over the log (rule 37)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from app.domain import exact_json
from app.domain.event import Event
from app.domain.exact_json import Json

E = TypeVar("E", bound=Event)

DEFAULT_MAX_MESSAGES: Final = 20


@dataclass(frozen=True, slots=True)
class Remembered:
    """A message of the memory: its event, and a system message as a JSON value; the others are never compared."""

    event: Event
    message: Json


def in_memory_order(events: Sequence[E]) -> list[E]:
    """Return a view's events in the order of the memory: as they were added, system messages not moved.

    Summaries that a compaction of the same session wrote come first, for they tell what lies before everything else.
    """
    return sorted(events, key=lambda event: (not event.synthetic, event.seq))


def evicted(memory: Sequence[Remembered], added: Sequence[Remembered], max_messages: int) -> list[Event]:
    """Return which events leave when ``added`` joins ``memory``; those just added can be among them.

    A system message that differs from every one in the memory drops the earlier system messages; an equal one does
    not. Then, while there are more than ``max_messages``, the oldest non-system messages leave, and after them more
    until the next non-system message is a user message or none is left. System messages never leave that way and do
    count.
    """
    dropped = _superseded(memory, added)
    kept = [one.event for one in memory if one.event not in dropped] + [one.event for one in added]
    excess = len(kept) - max_messages
    if excess <= 0:
        return dropped
    others = [event for event in kept if not event.is_system]
    gone = min(excess, len(others))
    while gone < len(others) and others[gone].role != "user":
        gone += 1
    return dropped + others[:gone]


def _superseded(memory: Sequence[Remembered], added: Sequence[Remembered]) -> list[Event]:
    earlier = [one for one in memory if one.event.is_system]
    new = [one for one in added if one.event.is_system]
    known = all(any(exact_json.equal(one.message, other.message) for other in earlier) for one in new)
    return [] if known else [one.event for one in earlier]
