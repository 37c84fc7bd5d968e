"""Reading a log: which of its events, and which part of them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.domain.event import MESSAGE, Event, StoredEvent

Order: TypeAlias = Literal["asc", "desc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which events of a log to read; None everywhere means all of them. ``types`` and ``roles`` are any-of lists."""

    types: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None
    synthetic: bool | None = None

    @property
    def can_start_turn(self) -> bool:
        """Whether a real user message can be among the matches."""
        return (
            (self.types is None or MESSAGE in self.types)
            and (self.roles is None or "user" in self.roles)
            and self.synthetic is not True
        )

    def match(self, event: Event) -> bool:
        """Say whether an event passes every filter."""
        return (
            (self.types is None or event.type in self.types)
            and (self.roles is None or event.role in self.roles)
            and (self.synthetic is None or event.synthetic == self.synthetic)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which part of the matches: after and before a seq (exclusive), in which order, how many at most."""

    after: int | None = None
    before: int | None = None
    order: Order = "asc"
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An event as a page of the log shows it; ``covered`` says whether the newest boundary hides it."""

    event: StoredEvent
    covered: bool
