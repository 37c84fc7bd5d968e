"""A view taken apart in the words of the window rules (rules 13 and 17)."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from app.domain.event import Event
from app.domain.view import View

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(Generic[E]):
    """A view taken apart in the words of the window rules; every part is in view order."""

    prompt: E | None
    superseded: tuple[E, ...]
    preamble: tuple[E, ...]
    summaries: tuple[E, ...]
    turns: tuple[E, ...]


def take_apart(view: View[E]) -> Parts[E]:
    """Split a view into prompt, superseded system messages, preamble, summaries and turns."""
    system = [event for event in view.events if event.is_system]
    rest = [event for event in view.events if not event.is_system and not event.synthetic]
    first_turn = next((at for at, event in enumerate(rest) if event.starts_turn), len(rest))
    prompt = max(system, key=lambda event: event.seq, default=None)
    return Parts(
        prompt=prompt,
        superseded=tuple(event for event in system if event is not prompt),
        preamble=tuple(rest[:first_turn]),
        summaries=tuple(event for event in view.events if event.synthetic),
        turns=tuple(rest[first_turn:]),
    )
