"""Every worked example over HTTP.

A summary has its own token count here. So, as the file says, the counts of a case with a summary are multiplied by 50
and names are compared, not `saved`; the summary's text is as many words long as the case gives its answer tokens.
"""

from typing import Any

import httpx
import pytest

from tests import cases
from tests.cases import Append, Case, Compact
from tests.conftest import shared
from tests.talk import Talk, seqs_in

CASES = cases.read(shared(cases.EXAMPLES))
SCALE_WITH_SUMMARY = 50


def test_all_cases_of_the_file_are_found() -> None:
    assert len(CASES) == cases.EXAMPLES_COUNT


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_service_gives_the_worked_example(case: Case, http: httpx.Client, session_id: str) -> None:
    run = Run(Talk(http, session_id), SCALE_WITH_SUMMARY if case.has_summary else 1)
    for step in case.steps:
        if isinstance(step, Append):
            run.talk.append(*(one.as_event(run.scale) for one in step.said))
        else:
            run.compact(step)


class Run:
    """One case on one session."""

    def __init__(self, talk: Talk, scale: int) -> None:
        self.talk = talk
        self.scale = scale

    def compact(self, step: Compact) -> None:
        size = step.size * (self.scale if step.rule == "token_budget" else 1)
        window: dict[str, Any] = {step.rule: size}
        summary = "word " * (step.summary[1] * self.scale) if step.summary else None
        before = self.talk.view()
        foretold = self.talk.compact(dry_run=True, summary=summary, **window)
        assert self.talk.view() == before
        answer = self.talk.compact(summary=summary, **window)
        names = self.names()
        view = self.talk.view()
        assert [names[event["seq"]] for event in view["events"]] == step.names("view")
        assert foretold["status"] == ("unchanged" if step.unchanged else "planned")
        told = ("reason", "detail", "covered", "pinned", "preserved", "tokens", "over_budget")
        assert {key: foretold[key] for key in told} == {key: answer[key] for key in told}
        if step.unchanged:
            assert (answer["status"], answer["reason"]) == ("unchanged", step.unchanged)
            assert answer["boundary"] is None
            assert view == before
            return
        self.applied(step, answer, {event["seq"] for event in before["events"]}, names)
        assert answer["tokens"] == {
            "before": before["token_count"],
            "after": view["token_count"],
            "saved": before["token_count"] - view["token_count"],
        }
        assert answer["summary"] == summary

    def applied(self, step: Compact, answer: dict[str, Any], shown: set[int], names: dict[int, str]) -> None:
        assert (answer["status"], answer["reason"]) == ("applied", None)
        covered = [seq for seq in seqs_in(answer["covered"]["ranges"]) if seq in shown]
        preserved = [seq for seq in seqs_in(answer["preserved"]["ranges"]) if seq in shown]
        assert [names[seq] for seq in covered] == step.names("covered")
        assert [names[seq] for seq in answer["pinned"]] == step.names("pinned")
        assert [names[seq] for seq in preserved] == step.names("preserved")
        assert answer["covered"]["events"] == len(covered)
        assert answer["preserved"]["events"] == len(preserved)
        if self.scale == 1:
            assert answer["tokens"]["saved"] == step.saved

    def names(self) -> dict[int, str]:
        """Return what every event of the log is called: its text, or the number of its summary turn."""
        found: dict[int, str] = {}
        summaries = 0
        for event in self.talk.log():
            if event["synthetic"]:
                summaries += event["message"]["role"] == "user"
                found[event["seq"]] = f"Q{event['message']['role'][0].upper()}{summaries}"
            elif event["type"] == "MESSAGE":
                found[event["seq"]] = event["message"]["content"]
        return found
