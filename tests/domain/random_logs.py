"""Random logs, and random series of compactions run on them, with every kind of event, window and summary."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from app.domain import compaction
from app.domain.compaction import Plan, Unchanged
from app.domain.event import Event
from app.domain.policy import LlmSummarizer, Policy, TextSummarizer
from app.domain.trigger import Always, TokenCount, TurnCount
from app.domain.view import View
from app.domain.window import Rule, Window
from tests.domain.logs import Log

COUNTS = (0, 1, 7, 20)
CALLS = (("a",), ("b",), ("a", "b"), ("a", "a"), ("b", "c", "a"))

# One draw an event keeps the examples cheap. Their seq is a placeholder.
USER = [Event(seq=0, role="user", token_count=count) for count in COUNTS]
ANSWER = [Event(seq=0, role="assistant", token_count=count) for count in COUNTS]
CALL = [Event(seq=0, role="assistant", token_count=5, calls=calls) for calls in CALLS]
RESULT = [Event(seq=0, role="tool", token_count=9, answers=call) for call in ("a", "a", "b", "c")]
OTHER = [
    Event(seq=0, role="system", token_count=8),
    Event(seq=0, role="developer", token_count=3),
    Event(seq=0, type="ACME.AUDIT"),
]
SAID = st.sampled_from([*USER, *USER, *ANSWER, *CALL, *RESULT, *OTHER])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A compaction to run. ``summary`` are the tokens of the two messages, None when the summarizer writes nothing;
    ``meanwhile`` is appended between plan and write."""

    policy: Policy
    summary: tuple[int, int] | None
    meanwhile: tuple[Event, ...]


POLICIES = st.builds(
    Policy,
    window=st.one_of(
        st.builds(Window, st.just(Rule.LAST_EVENTS), st.integers(1, 10)),
        st.builds(Window, st.just(Rule.LAST_TURNS), st.integers(1, 4)),
        st.builds(Window, st.just(Rule.TOKEN_BUDGET), st.integers(1, 90)),
    ),
    trigger=st.sampled_from([*[Always()] * 8, TurnCount(1), TurnCount(3), TokenCount(1), TokenCount(60)]),
    summarizer=st.one_of(
        st.none(),
        st.just(TextSummarizer(text="so far")),
        st.builds(LlmSummarizer, max_tokens=st.none() | st.integers(1, 40)),
    ),
)
PASSES = st.builds(
    Pass,
    policy=POLICIES,
    summary=st.sampled_from([None, (0, 0), (1, 2), (2, 5), (2, 5), (6, 12), (6, 90)]),
    meanwhile=st.just(()) | st.lists(SAID, max_size=4).map(tuple),
)
APPENDS = st.just([]) | st.lists(SAID, min_size=4, max_size=14) | st.lists(SAID, min_size=4, max_size=14)
Steps = list[tuple[list[Event], Pass]]
STEPS: st.SearchStrategy[Steps] = st.lists(st.tuples(APPENDS, PASSES), min_size=2, max_size=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A pass that was run: the view it was planned on, what came of it, and the view it left."""

    asked: Pass
    before: View[Event]
    planned: Plan | Unchanged
    outcome: Plan | Unchanged
    after: View[Event]
    version: int

    @property
    def alone(self) -> bool:
        """Nothing was appended between plan and write."""
        return not self.asked.meanwhile


@dataclass(slots=True)
class Walk:
    """A log while steps are taken on it, with the figures that a session keeps of its view."""

    log: Log = field(default_factory=Log)
    done: list[Done] = field(default_factory=list)
    served: dict[int, View[Event]] = field(default_factory=dict)
    events: int = 0
    turns: int = 0
    tokens: int = 0

    def append(self, said: Sequence[Event]) -> None:
        for event in said:
            self.log.add(replace(event, seq=self.log.version + 1))
            self.events += event.is_message
            self.turns += event.starts_turn
            self.tokens += event.token_count
        self.serve()

    def compact(self, asked: Pass) -> None:
        before = self.log.view
        planned = compaction.plan(before, asked.policy)
        outcome = planned
        if isinstance(planned, Plan):
            summary = None if asked.policy.summarizer is None else asked.summary
            outcome = compaction.seal(planned, asked.policy, sum(summary) if summary else None)
            self.append(asked.meanwhile)
            if isinstance(outcome, Plan):
                self.log.write(outcome, summary)
                self.events += (2 if summary else 0) - outcome.covered_events
                self.turns -= outcome.covered_turns
                self.tokens += sum(summary or ()) - outcome.covered_tokens
        self.serve()
        self.done.append(
            Done(
                asked=asked,
                before=before,
                planned=planned,
                outcome=outcome,
                after=self.log.view,
                version=self.log.version,
            )
        )

    def serve(self) -> None:
        self.served[self.log.version] = self.log.view


def walk(steps: Steps) -> Walk:
    """Take the steps."""
    walked = Walk()
    for said, asked in steps:
        walked.append(said)
        walked.compact(asked)
    return walked


def written(steps: Steps) -> Iterator[tuple[Done, Plan]]:
    """Take the steps and return the passes that wrote a boundary."""
    for done in walk(steps).done:
        if isinstance(done.outcome, Plan):
            yield done, done.outcome


def shown_seqs(view: View[Event]) -> list[int]:
    return [event.seq for event in view.events]
