"""Random conversations through the real service: whatever happens, SQL says what the pure replay of the log says.

The views come from SQL that reads only what is visible; `app.domain.view.replay` is their definition. Plans are checked
against `app.domain.compaction` in the same way, on a view replayed from the log that the service gives back.
"""

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct

from app.domain import compaction
from app.domain.compaction import Plan, Reason, Unchanged
from app.domain.event import Event
from app.domain.policy import Policy, TextSummarizer
from app.domain.ranges import Ranges
from app.domain.view import View, replay
from app.domain.window import Rule, Window
from tests.talk import Talk, assistant, custom, developer, seqs_in, system, tool, user

some = settings(max_examples=20, deadline=None)
_numbers = itertools.count(1)

MESSAGES = (
    user("Where is my order?"),
    user("And the other one?\0"),
    user("😀 " * 20),
    user("Thanks."),
    {"role": "user", "content": [{"type": "text", "text": "see"}], "exact": 2**70},
    assistant("On its way."),
    assistant("A long story. " * 12),
    assistant(a="look"),
    assistant("Both at once", a="look", b="find"),
    {**assistant(a="look"), "tool_calls": assistant(a="look")["tool_calls"] * 2},
    tool("a", "shipped"),
    tool("a", None),
    tool("b", "lost"),
    tool("c", "nobody asked"),
    system("Be brief."),
    developer("Be exact."),
)
COUNTED = tuple({"message": message, "token_count": 60} for message in MESSAGES)
SAID = st.sampled_from([*MESSAGES[:5], *COUNTED, *COUNTED, custom(action="exported")])
APPENDED = st.lists(SAID, min_size=1, max_size=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A compaction; the caller looked ``seen`` events ago, so that the newer ones were appended meanwhile."""

    window: Window
    summary: str | None
    seen: int


@dataclass(frozen=True, slots=True)
class Remember:
    """An add to the chat memory of the same session, which writes boundaries of its own."""

    messages: tuple[dict[str, Any], ...]
    size: int


WINDOWS = st.sampled_from(
    [
        *(Window(Rule.LAST_TURNS, size) for size in (1, 2, 1, 3)),
        *(Window(Rule.LAST_EVENTS, size) for size in (3, 1, 6)),
        *(Window(Rule.TOKEN_BUDGET, size) for size in (200, 50, 400)),
    ]
)
PLAIN = st.builds(Pass, window=WINDOWS, summary=st.none(), seen=st.sampled_from([0, 0, 2]))
SUMMARIZED = st.builds(
    Pass,
    window=WINDOWS,
    summary=st.sampled_from(["They spoke."] * 4 + [" \n", "word " * 2000]),
    seen=st.sampled_from([0, 1, 0, 4]),
)
REMEMBERED = st.builds(
    Remember, st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=3).map(tuple), st.sampled_from([1, 5, 9])
)
Step = list[dict[str, Any]] | Pass | Remember
# Every kind of boundary has its place in a round, for small examples are much alike.
ROUNDS = st.lists(
    st.tuples(APPENDED, SUMMARIZED, APPENDED, st.one_of(PLAIN, SUMMARIZED), APPENDED, PLAIN | REMEMBERED),
    min_size=1,
    max_size=3,
)
CONVERSATIONS = st.tuples(st.lists(SAID, min_size=4, max_size=12), ROUNDS)


class ViewBytes(Struct):
    """The events of a view as the bytes they were sent as."""

    version: int
    events: list[Raw]


@dataclass
class Conversation:
    """A session while steps are taken on it, with every view it has been seen to have, byte for byte."""

    talk: Talk
    served: dict[int, bytes] = field(default_factory=dict)
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    def take(self, step: Step) -> None:
        if isinstance(step, Pass):
            self.compact(step)
        elif isinstance(step, Remember):
            self.talk.http.post(
                f"/v1/chat-memory/{self.talk.id}/messages",
                params={"max_messages": step.size},
                json={"messages": list(step.messages)},
            ).raise_for_status()
        else:
            self.talk.append(*step)
        self.look()

    def compact(self, asked: Pass) -> None:
        log = self.log()
        version = max(0, len(log) - asked.seen)
        window = {asked.window.rule.value: asked.window.size}
        answer = self.talk.compact(summary=asked.summary, expected_version=version, **window)
        if answer["status"] == "applied":
            self.outcomes.append(answer)
        check_against_rules(answer, log, version, asked)

    def look(self) -> None:
        served = self.bytes()
        self.served[msgspec.json.decode(served, type=ViewBytes).version] = served

    def bytes(self, **params: Any) -> bytes:
        response = self.talk.http.get(f"{self.talk.path}/view", params={"format": "events", **params})
        assert response.status_code == httpx.codes.OK, response.text
        return response.content

    def log(self) -> list[Event]:
        return [as_event(logged) for logged in self.talk.log()]


def as_event(logged: dict[str, Any]) -> Event:
    """Return an event of the log as the rules look at it."""
    message = logged.get("message") or {}
    covered = logged["payload"]["covered"] if logged["type"] == "COMPACTION" else None
    return Event(
        seq=logged["seq"],
        type=logged["type"],
        role=message.get("role"),
        synthetic=logged["synthetic"],
        token_count=logged["token_count"],
        calls=tuple(call["id"] for call in message.get("tool_calls") or ()),
        answers=message.get("tool_call_id"),
        covered=None if covered is None else Ranges.joined((first, last) for first, last in covered),
    )


def check_against_rules(answer: dict[str, Any], log: Sequence[Event], version: int, asked: Pass) -> None:
    """Hold the answer of a compaction to the plan that the pure domain makes on the log as it was."""
    version = settled(log, version)
    if replay(log, version).boundary != replay(log).boundary:
        assert (answer["status"], answer["reason"]) == ("unchanged", Reason.LOST_RACE)
        return
    summarizer = None if asked.summary is None else TextSummarizer(text=asked.summary)
    policy = Policy(window=asked.window, summarizer=summarizer)
    planned = compaction.plan(replay(log, version), policy)
    if isinstance(planned, Plan) and asked.summary is not None and not asked.summary.strip():
        planned = compaction.seal(planned, policy, None)
    if isinstance(planned, Unchanged):
        assert (answer["status"], answer["reason"]) == ("unchanged", planned.reason)
        assert answer["over_budget"] is planned.over_budget
        assert answer["tokens"] == {"before": planned.tokens, "after": planned.tokens, "saved": 0}
        return
    if answer["status"] == "unchanged":
        assert answer["reason"] == Reason.DOES_NOT_SHRINK
        assert asked.summary is not None
        return
    assert [tuple(pair) for pair in answer["covered"]["ranges"]] == list(planned.newly_covered.pairs)
    assert [tuple(pair) for pair in answer["preserved"]["ranges"]] == list(planned.preserved.pairs)
    assert tuple(answer["pinned"]) == planned.pinned
    assert answer["covered"]["events"] == planned.covered_events
    assert answer["preserved"]["events"] == planned.preserved_events
    assert answer["boundary"] == len(log) + 1
    assert answer["version"] == len(log) + (1 if asked.summary is None else 3)
    assert answer["summary"] == asked.summary


def settled(log: Sequence[Event], version: int) -> int:
    """Return the version with the whole summary turn, for one between a boundary and the end of the turn it wrote.

    Boundary and summary are one transaction, so no log was ever at a version between them.
    """
    boundary = replay(log, version).boundary or 0
    within = boundary and version < boundary + 2 and any(e.seq == boundary + 2 and e.synthetic for e in log)
    return boundary + 2 if within else version


def shown(view: View[Event]) -> list[int]:
    return [event.seq for event in view.events]


@some
@given(CONVERSATIONS)
def test_whatever_happens_a_session_is_what_the_pure_replay_of_its_log_says(
    http: httpx.Client, conversation: tuple[list[dict[str, Any]], list[tuple[Step, ...]]]
) -> None:
    first, rounds = conversation
    had = Conversation(Talk(http, f"replay{os.getpid()}-{next(_numbers)}"))
    for step in [first, *itertools.chain.from_iterable(rounds)]:
        had.take(step)
    logged = had.talk.log()
    log = [as_event(one) for one in logged]
    every_view_is_the_replay_and_is_read_again_byte_for_byte(had, logged, log)
    between_two_boundaries_a_view_only_grows_at_its_end(had, log)
    figures_and_covered_flags_are_those_of_the_view(had, logged, log)
    boundaries_stay_as_they_were_answered_and_coverage_only_grows(had, logged)


def every_view_is_the_replay_and_is_read_again_byte_for_byte(
    had: Conversation, logged: list[dict[str, Any]], log: list[Event]
) -> None:
    for version in range(len(log) + 1):
        read = had.bytes(at_version=version)
        assert had.served.get(version, read) == read
        view = json.loads(read)
        expected = replay(log, version)
        assert (view["version"], view["boundary"]) == (version, expected.boundary)
        assert (view["turns"], view["token_count"]) == (expected.turns, expected.tokens)
        assert view["events"] == [{**logged[seq - 1], "covered": False} for seq in shown(expected)]
    had.talk.get("/view", status=422, params={"at_version": len(log) + 1})


def between_two_boundaries_a_view_only_grows_at_its_end(had: Conversation, log: list[Event]) -> None:
    for version, following in itertools.pairwise(sorted(had.served)):
        if replay(log, version).boundary != replay(log, following).boundary:
            continue
        before, after = (msgspec.json.decode(had.served[one], type=ViewBytes).events for one in (version, following))
        assert [bytes(event) for event in after[: len(before)]] == [bytes(event) for event in before]


def figures_and_covered_flags_are_those_of_the_view(
    had: Conversation, logged: list[dict[str, Any]], log: list[Event]
) -> None:
    expected, session = replay(log), had.talk.session()
    assert session["version"] == len(log)
    assert session["view"] == {
        "events": len(expected.events),
        "turns": expected.turns,
        "tokens": expected.tokens,
        "boundary": expected.boundary,
    }
    visible = set(shown(expected))
    assert [one["seq"] for one in logged] == list(range(1, len(log) + 1))
    for one in logged:
        assert one["covered"] is (one["type"] == "MESSAGE" and one["seq"] not in visible)
    assert [one["seq"] for one in had.talk.log(active="true")] == shown(expected)
    assert had.talk.get(f"/events/{logged[0]['id']}") == logged[0]


def boundaries_stay_as_they_were_answered_and_coverage_only_grows(
    had: Conversation, logged: list[dict[str, Any]]
) -> None:
    boundaries = [one for one in logged if one["type"] == "COMPACTION"]
    listed = had.talk.get("/compactions", params={"limit": 1000})["data"]
    assert [one["boundary"] for one in listed] == [one["seq"] for one in reversed(boundaries)]
    by_hand = {outcome["boundary"]: outcome for outcome in had.outcomes}
    assert [one for one in reversed(listed) if one["boundary"] in by_hand] == had.outcomes
    covered: set[int] = set()
    for boundary in boundaries:
        payload = boundary["payload"]
        now = set(seqs_in(payload["covered"]))
        assert covered < now
        assert set(seqs_in(payload["newly_covered"])) <= now - covered
        covered = now
        summary = [logged[seq - 1] for seq in payload["summary"]]
        assert [one["message"]["role"] for one in summary] == (["user", "assistant"] if summary else [])
        assert all(one["synthetic"] for one in summary)
        if summary:
            assert summary[1]["message"]["content"] == by_hand[boundary["seq"]]["summary"]
            assert payload["tokens"]["saved"] > 0
        before, after = payload["tokens"]["before"], payload["tokens"]["after"]
        assert payload["tokens"]["saved"] == before - after


@pytest.mark.parametrize("summary", [None, "They spoke."])
def test_a_caller_who_names_the_version_it_saw_covers_nothing_newer(
    http: httpx.Client, session_id: str, summary: str | None
) -> None:
    talk = Talk(http, session_id)
    talk.append(user("one " * 200), assistant("two"), user("three"), assistant("four"))
    talk.append(user("five"), assistant("six"), system("Be kind."))
    answer = talk.compact(last_turns=1, expected_version=4, summary=summary)
    assert answer["covered"] == {"ranges": [[1, 2]], "events": 2}
    head = [7] if summary is None else [7, 9, 10]
    assert talk.seqs() == [*head, 3, 4, 5, 6]
