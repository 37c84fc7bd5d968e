"""A log as a list of events, written in the notation of the worked examples and compacted in the pure domain."""

from collections.abc import Iterable

from app.domain import compaction
from app.domain.compaction import Plan, Unchanged
from app.domain.event import COMPACTION, Event
from app.domain.policy import Policy
from app.domain.ranges import Ranges
from app.domain.view import View, replay
from tests.cases import Said, said


class Log:
    """What the service does with a log, without the service: append, plan, seal, write a boundary and its summary."""

    def __init__(self, words: str = "") -> None:
        self.events: list[Event] = []
        self.name_of: dict[int, str] = {}
        self.append(words)

    def append(self, words: str) -> "Log":
        """Append events in the notation."""
        for one in said(words):
            self.add(event_of(one, self.version + 1), one.name)
        return self

    def add(self, event: Event, name: str = "") -> None:
        """Append one event, whose seq must be the next."""
        assert event.seq == self.version + 1
        self.events.append(event)
        self.name_of[event.seq] = name or f"{event.type}{event.seq}"

    @property
    def version(self) -> int:
        return len(self.events)

    @property
    def view(self) -> View[Event]:
        return replay(self.events)

    def names(self, seqs: Iterable[int]) -> list[str]:
        """Return the names of events, in the order given."""
        return [self.name_of[seq] for seq in seqs]

    def shown(self) -> list[str]:
        """Return the names of the view's events, in view order."""
        return self.names(event.seq for event in self.view.events)

    def newly_covered(self, plan: Plan, before: View[Event]) -> list[str]:
        """Return the names of the events that a plan takes out of a view; its ranges may bridge others as well."""
        hidden = {event.seq for event in before.events}
        return self.names(seq for seq in plan.newly_covered if seq in hidden)

    def preserved(self, plan: Plan) -> list[str]:
        """Return the names of the message events that a plan preserves."""
        return self.names(seq for seq in plan.preserved if self.events[seq - 1].is_message)

    def write(self, plan: Plan, summary: tuple[int, int] | None = None) -> None:
        """Append the boundary of a plan and, for a summary of so many tokens, its two synthetic events."""
        number = 1 + sum(name.startswith("QU") for name in self.name_of.values())
        self.add(boundary(self.version + 1, plan.covered), f"B{self.version + 1}")
        if summary is not None:
            question, answer = summary
            self.add(synthetic(self.version + 1, "user", question), f"QU{number}")
            self.add(synthetic(self.version + 1, "assistant", answer), f"QA{number}")

    def compact(self, policy: Policy, summary: tuple[int, int] | None = None) -> Plan | Unchanged:
        """Run a whole pass. ``summary`` are the tokens of the two messages that the policy's summarizer writes."""
        planned = compaction.plan(self.view, policy)
        if isinstance(planned, Unchanged):
            return planned
        sealed = compaction.seal(planned, policy, sum(summary) if summary else None)
        if isinstance(sealed, Plan):
            self.write(sealed, summary)
        return sealed


def event_of(one: Said, seq: int) -> Event:
    """Return a word of the notation as a stored event."""
    if one.role is None:
        return Event(seq=seq, type="ACME.CLICK")
    return Event(seq=seq, role=one.role, token_count=one.tokens, calls=one.calls, answers=one.answers)


def boundary(seq: int, covered: Ranges) -> Event:
    """Return a boundary."""
    return Event(seq=seq, type=COMPACTION, covered=covered)


def synthetic(seq: int, role: str, tokens: int) -> Event:
    """Return one message of a summary turn."""
    assert role in {"user", "assistant"}
    return Event(seq=seq, role=role, synthetic=True, token_count=tokens)  # type: ignore[arg-type]


def events(words: str) -> list[Event]:
    """Return words of the notation as the events of a log."""
    return Log(words).events
