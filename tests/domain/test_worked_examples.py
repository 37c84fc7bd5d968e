"""Every worked example, planned, sealed, written and replayed in the pure domain."""

import pytest

from app.domain.compaction import Plan, Reason, Unchanged
from app.domain.policy import Policy, TextSummarizer
from app.domain.window import Rule, Window
from tests import cases
from tests.cases import Append, Case, Compact
from tests.conftest import shared
from tests.domain.logs import Log

CASES = cases.read(shared(cases.EXAMPLES))


def test_all_cases_of_the_file_are_found() -> None:
    assert [case.number for case in CASES] == list(range(1, cases.EXAMPLES_COUNT + 1))
    assert all(any(isinstance(step, Compact) for step in case.steps) for case in CASES)
    assert sum(case.has_summary for case in CASES) == 5


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_pure_domain_gives_the_worked_example(case: Case) -> None:
    log = Log()
    for step in case.steps:
        if isinstance(step, Append):
            for one in step.said:
                log.append(f"{one.name}:{one.tokens}")
        else:
            compact(log, step)


def compact(log: Log, step: Compact) -> None:
    before = log.view
    policy = Policy(
        window=Window(Rule(step.rule), step.size),
        summarizer=TextSummarizer(text="so far") if step.summary else None,
    )
    outcome = log.compact(policy, step.summary)
    assert log.shown() == step.names("view")
    if step.unchanged:
        assert isinstance(outcome, Unchanged)
        assert outcome.reason is Reason(step.unchanged)
        assert outcome.tokens == before.tokens
        return
    assert isinstance(outcome, Plan)
    assert log.newly_covered(outcome, before) == step.names("covered")
    assert log.names(outcome.pinned) == step.names("pinned")
    assert log.preserved(outcome) == step.names("preserved")
    assert outcome.covered_events == len(step.names("covered"))
    assert outcome.preserved_events == len(step.names("preserved"))
    assert outcome.tokens.saved == step.saved
    assert outcome.tokens == (before.tokens, log.view.tokens)
