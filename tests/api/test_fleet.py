"""Compaction of the fleet over HTTP: what is asked, what is answered, and how a model that fails is told of."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.asking import INSTANT, SECRET, pointers, problem
from tests.api.test_compactions import FIELDS
from tests.conftest import rows
from tests.field.modelled import KEY, LLM, PROVIDERS, Modelled, attempts, condense, long_turns, modelled, state
from tests.model_server import Reply
from tests.talk import Talk, turns, user

PLAIN: dict[str, Any] = {
    "window": {"rule": "last_turns", "size": 1},
    "trigger": {"type": "turn_count", "threshold": 2},
}
SUMMED: dict[str, Any] = {**PLAIN, "summarizer": LLM}
REPORT = {"due", "applied", "unchanged", "failed", "deferred", "remaining", "results"}


@pytest.fixture(scope="module", params=PROVIDERS)
def each(request: pytest.FixtureRequest, postgres: str, template: str) -> Iterator[Modelled]:
    """One service with a model for each protocol."""
    with modelled(postgres, template, request.param, asks={"timeout": 4}) as running:
        yield running


@pytest.fixture
def either(each: Modelled) -> Modelled:
    """A service with a model that has been asked nothing yet, where the protocol matters."""
    return as_new(each)


@pytest.fixture(scope="module")
def stub(postgres: str, template: str) -> Iterator[Modelled]:
    """One service with a model."""
    with modelled(postgres, template) as running:
        yield running


@pytest.fixture
def model(stub: Modelled) -> Modelled:
    """The service with a model that has been asked nothing yet, and no session."""
    return as_new(stub)


def as_new(stub: Modelled) -> Modelled:
    """Return the service without a session, and its model as it was in the beginning."""
    rows(stub.url, "DELETE FROM sessions")
    return stub.reset()


def with_policy(model: Modelled, name: str, policy: dict[str, Any], *said: Any, **metadata: Any) -> Talk:
    """Make a session with a policy under which it is due."""
    talk = model.talk(name)
    assert talk.http.put(talk.path, json={"policy": policy, "metadata": metadata}).status_code == 201
    talk.append(*(said or long_turns(4)))
    return talk


# What a scheduler asks and is told.


@pytest.mark.parametrize("body", [None, {}, {"limit": 1, "max_seconds": 0.5, "metadata": {}}], ids=str)
def test_a_run_over_nothing_answers_in_full(model: Modelled, body: Any) -> None:
    response = model.http.post("/v1/compact", json=body) if body is not None else model.http.post("/v1/compact")
    assert (response.status_code, response.json()) == (
        200,
        {"due": 0, "applied": 0, "unchanged": 0, "failed": 0, "deferred": 0, "remaining": 0, "results": []},
    )


def test_a_run_tells_what_became_of_each_session(model: Modelled) -> None:
    with_policy(model, "plain", PLAIN, *({"message": one, "token_count": 10} for one in turns(4)))
    with_policy(model, "stuck", {"window": PLAIN["window"]}, user("hello"))
    with_policy(model, "bad", SUMMED)
    model.server.answer = Reply(status=400)
    answer = model.http.post("/v1/compact").json()
    assert set(answer) == REPORT
    assert {field: answer[field] for field in REPORT - {"results"}} == {
        "due": 3, "applied": 1, "unchanged": 1, "failed": 1, "deferred": 1, "remaining": 0,
    }  # fmt: skip
    results = {one.pop("session_id"): one for one in answer["results"]}
    tokens = model.talk("bad").session()["view"]["tokens"]
    hello = model.talk("stuck").session()["view"]["tokens"]
    assert results == {
        "plain": {"status": "applied", "reason": None, "tokens": {"before": 80, "after": 20, "saved": 60}},
        "stuck": {
            "status": "unchanged", "reason": "fits-window", "tokens": {"before": hello, "after": hello, "saved": 0},
        },
        "bad": {
            "status": "failed", "reason": "refused-request", "retry_seconds": 30,
            "tokens": {"before": tokens, "after": tokens, "saved": 0},
        },
    }  # fmt: skip


def test_a_run_with_the_model_tells_the_tokens_with_the_summary(model: Modelled) -> None:
    talk = with_policy(model, "summed", SUMMED)
    before = talk.session()["view"]["tokens"]
    [result] = model.http.post("/v1/compact").json()["results"]
    after = talk.session()["view"]["tokens"]
    assert after == talk.view()["token_count"] < before
    assert result == {
        "session_id": "summed",
        "status": "applied",
        "reason": None,
        "tokens": {"before": before, "after": after, "saved": before - after},
    }


def test_the_due_sessions_are_listed_with_their_figures(model: Modelled) -> None:
    small, large = with_policy(model, "small", PLAIN), with_policy(model, "large", SUMMED, *long_turns(6))
    listed = {"session_id": "large", "version": 12, "view": large.session()["view"]}
    assert model.http.get("/v1/compact/due").json() == {
        "due": 2,
        "deferred": 0,
        "data": [listed, {"session_id": "small", "version": 8, "view": small.session()["view"]}],
    }
    assert model.http.get("/v1/compact/due", params={"limit": 1}).json() == {"due": 2, "deferred": 0, "data": [listed]}
    assert model.server.requests == []


BAD_RUNS: list[tuple[Any, str]] = [
    ([], ""),  # a list is no body
    ("all", ""),  # nor a string
    ({"limit": 0}, "/limit"),  # nothing
    ({"limit": -1}, "/limit"),  # less
    ({"limit": 10_001}, "/limit"),  # more than a run takes
    ({"limit": 1.5}, "/limit"),  # no whole number
    ({"limit": "100"}, "/limit"),  # a string
    ({"limit": True}, "/limit"),  # no number
    ({"limit": None}, "/limit"),  # null
    ({"max_seconds": -1}, "/max_seconds"),  # less than no time
    ({"max_seconds": 3601}, "/max_seconds"),  # more than an hour
    ({"max_seconds": "30"}, "/max_seconds"),  # a string
    ({"max_seconds": None}, "/max_seconds"),  # null
    ({"metadata": []}, "/metadata"),  # a list
    ({"metadata": None}, "/metadata"),  # null
    ({"metadata": {"agent": 7}}, "/metadata"),  # a number: filters are strings, as in the list of sessions
    ({"metadata": {"agent": None}}, "/metadata"),  # null
    ({"metadata": {"a": "b", "agent": {"x": "y"}}}, "/metadata"),  # an object
    ({"session_id": "s"}, "/session_id"),  # not known here
    ({"window": {"rule": "last_turns", "size": 1}}, "/window"),  # the policies have it
]


@pytest.mark.parametrize(("body", "pointer"), BAD_RUNS, ids=str)
def test_a_bad_run_is_refused_and_nothing_is_compacted(model: Modelled, body: Any, pointer: str) -> None:
    talk = with_policy(model, "s", PLAIN)
    assert pointers(model.http.post("/v1/compact", json=body)) == [pointer]
    assert talk.session()["version"] == 8


def test_a_run_whose_body_cannot_be_read_is_refused(model: Modelled) -> None:
    for body in (b"{", b"\xff", b"{} {}", b'{"max_seconds": NaN}'):
        problem(model.http.post("/v1/compact", content=body), 400, "malformed-request")


@pytest.mark.parametrize(
    "metadata",
    [
        {"a\0b": "c"},  # a NUL in a key, which no label has
        {"agent": "a\0b"},  # and in a value
        {"": ""},  # nothing at all
        {"agent": "x" * 10_000},  # a long one
        {"'; DROP TABLE sessions; --": "%"},  # not code
    ],
)
def test_metadata_that_no_session_can_have_finds_none(model: Modelled, metadata: dict[str, str]) -> None:
    with_policy(model, "s", PLAIN)
    response = model.http.post("/v1/compact", json={"metadata": metadata})
    assert response.status_code == 200, response.text
    assert response.json()["due"] == 0


@pytest.mark.parametrize("limit", [0, -1, 1001, "many", 1.5, ""])
def test_a_list_of_due_sessions_has_a_limit_within_bounds(model: Modelled, limit: Any) -> None:
    assert pointers(model.http.get("/v1/compact/due", params={"limit": limit})) == ["limit"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/compact?limit=1"),  # it belongs into the body
        ("GET", "/v1/compact/due?metadata=x"),  # not known
        ("GET", "/v1/compact/due?Limit=1"),  # misspelt
        ("GET", "/v1/sessions/s/compactions?attempt=true"),  # misspelt
    ],
)
def test_a_query_that_is_not_known_is_refused(model: Modelled, method: str, path: str) -> None:
    with_policy(model, "s", PLAIN)
    problem(model.http.request(method, path), 400, "malformed-request")


def test_a_session_shows_when_it_is_tried_again_only_while_it_waits(model: Modelled) -> None:
    talk = with_policy(model, "s", SUMMED)
    assert "retry_at" not in talk.session()
    model.server.answer = Reply(status=400)
    model.http.post("/v1/compact")
    waiting = talk.session()
    assert INSTANT.fullmatch(waiting["retry_at"])
    [listed] = model.http.get("/v1/sessions").json()["data"]
    assert listed["retry_at"] == waiting["retry_at"]
    # The wait is for schedulers: appends and reads go on, and so does what is asked for by hand.
    talk.append(*turns(1, first=5))
    assert talk.session()["retry_at"] == waiting["retry_at"]
    assert talk.compact(last_turns=3)["status"] == "applied"
    assert "retry_at" not in talk.session()


# Attempts.


ATTEMPT = {
    "id", "status", "reason", "error", "version", "boundary", "model", "prompt", "calls", "tokens", "started_at",
    "ended_at", "duration_ms",
}  # fmt: skip


def test_every_attempt_that_reached_the_model_is_listed_newest_first(either: Modelled) -> None:
    talk = either.talk("s")
    talk.append(*long_turns(3), user(SECRET), *turns(1))
    either.server.answer = Reply(text="Told.", usage=(120, 7))
    assert condense(talk, last_turns=3)["status"] == "applied"
    either.server.answer = Reply(
        text="cut", stop="length" if either.server.requests[0].provider == "openai" else "max_tokens"
    )
    condense(talk, 502, last_turns=1)
    either.server.answer = Reply(text="blah " * 900)
    assert condense(talk, last_turns=1)["reason"] == "does-not-shrink"
    # A plain window does not reach the model, and nor does a plan that comes to nothing.
    assert talk.compact(last_turns=2)["status"] == "applied"
    assert condense(talk, last_turns=2)["status"] == "unchanged"
    answer = talk.get("/compactions", params={"attempts": "true"})
    assert (answer["has_more"], answer["next_cursor"]) == (False, None)
    found = answer["data"]
    for one in found:
        assert set(one) == ATTEMPT
        assert (one["model"], one["prompt"], one["calls"]) == ("stub-1", "1", 1)
        assert INSTANT.fullmatch(one["started_at"])
        assert INSTANT.fullmatch(one["ended_at"])
        assert one["duration_ms"] >= 0
    assert [(one["status"], one["reason"], one["error"]) for one in found] == [
        ("unchanged", "does-not-shrink", None),
        ("failed", None, "cut-off"),
        ("applied", None, None),
    ]
    assert found[-1]["tokens"] == {"input": 120, "output": 7}
    boundary = talk.get("/compactions")["data"][-1]["boundary"]
    assert [(one["version"], one["boundary"]) for one in found] == [(12, boundary), (12, boundary), (9, None)]
    assert SECRET not in str(answer)


def test_the_list_of_attempts_has_pages(model: Modelled) -> None:
    talk = model.talk("s")
    talk.append(*long_turns(3))
    model.server.answer = Reply(status=400)
    for _ in range(5):
        condense(talk, 502, last_turns=1)
    everything = [one["id"] for one in attempts(talk)]
    assert everything == sorted(everything, reverse=True)
    seen: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = talk.get("/compactions", params={"attempts": "true", "limit": 2, **cursor})
        seen += [one["id"] for one in page["data"]]
        if not page["has_more"]:
            break
        assert len(page["data"]) == 2
        cursor = {"cursor": page["next_cursor"]}
    assert seen == everything


def test_a_session_that_never_reached_the_model_has_no_attempts(model: Modelled) -> None:
    talk = model.talk("s")
    talk.append(*turns(1))
    empty = {"data": [], "has_more": False, "next_cursor": None}
    assert talk.get("/compactions", params={"attempts": "true"}) == empty
    assert talk.get("/compactions", params={"attempts": "false"}) == empty
    assert pointers(talk.http.get(talk.path + "/compactions", params={"attempts": "perhaps"})) == ["attempts"]
    problem(talk.http.get("/v1/sessions/nobody/compactions?attempts=true"), 404, "session-not-found")


# The model by hand.


def test_a_compaction_by_the_model_answers_as_every_other_does(model: Modelled) -> None:
    talk = model.talk("s")
    talk.append(*long_turns(3))
    before = talk.session()["view"]["tokens"]
    answer = condense(talk, last_turns=1)
    assert set(answer) == FIELDS
    after = talk.view()["token_count"]
    assert answer == {
        "status": "applied",
        "reason": None,
        "detail": None,
        "version": 9,
        "boundary": 7,
        "covered": {"ranges": [[1, 4]], "events": 4},
        "pinned": [],
        "preserved": {"ranges": [[5, 6]], "events": 2},
        "summary": "A summary.",
        "tokens": {"before": before, "after": after, "saved": before - after},
        "over_budget": False,
    }
    assert talk.get("/compactions")["data"] == [answer]
    told = talk.view()["events"][:2]
    for event in told:
        known = event["metadata"]
        assert (known["boundary"], known["model"], known["prompt"]) == (7, "stub-1", "1")
        assert known["usage"]["calls"] == 1
        assert known["tokens"]["covered"] > known["tokens"]["summary"] > 0


def test_instructions_and_the_limit_reach_the_model_in_their_own_place(model: Modelled) -> None:
    talk = model.talk("s")
    talk.append(*long_turns(3))
    summarizer = {"type": "llm", "instructions": "Write like a pirate.", "max_tokens": 77}
    assert talk.compact(last_turns=1, summarizer=summarizer)["status"] == "applied"
    [request] = model.server.requests
    assert request.user.count("Write like a pirate.") == 1
    assert request.user.index("</transcript") < request.user.index("Write like a pirate.")
    assert request.json.get("max_tokens", request.json.get("max_completion_tokens")) == 77


def test_a_dry_run_calls_nobody(model: Modelled) -> None:
    talk = with_policy(model, "s", SUMMED)
    before = state(talk)
    for body in ({"dry_run": True}, {"window": PLAIN["window"], "summarizer": LLM, "dry_run": True}):
        answer = talk.post("/compact", body)
        assert (answer["status"], answer["boundary"], answer["summary"]) == ("planned", None, None)
        assert answer["covered"] == {"ranges": [[1, 6]], "events": 6}
    assert state(talk) == before
    assert model.server.requests == []
    assert attempts(talk) == []


FAILURES: list[tuple[Reply, int, str, str]] = [
    (Reply(status=400, error=SECRET), 502, "summarizer-failed", "refused-request"),  # a bad request
    (Reply(status=401, error=f"bad key {KEY}"), 502, "summarizer-failed", "not-authorized"),  # echoes the key
    (Reply(status=400, error=f"prompt is too long: {SECRET}"), 502, "summarizer-failed", "context-length"),  # too long
    (Reply(body=SECRET.encode()), 502, "summarizer-failed", "unreadable"),  # no JSON
    (Reply(text=" "), 502, "summarizer-failed", "empty"),  # nothing said
    (Reply(text=f"<think>{SECRET}"), 502, "summarizer-failed", "unclosed-think"),  # thoughts
    (Reply(text=None, calls_tool=True), 502, "summarizer-failed", "tool-call"),  # a call
    (Reply(hangs=True), 504, "summarizer-timeout", "timeout"),  # no answer in time
]


@pytest.mark.parametrize(("reply", "status", "code", "cause"), FAILURES)
def test_a_failure_of_the_model_has_a_cause_and_leaks_nothing(
    either: Modelled, reply: Reply, status: int, code: str, cause: str
) -> None:
    talk = either.talk("s")
    talk.append(*long_turns(3), user(SECRET), user("x"))
    before = state(talk)
    either.server.answer = reply
    body = {"window": PLAIN["window"], "summarizer": LLM}
    response = talk.http.post(talk.path + "/compact", json=body)
    found = problem(response, status, code)
    assert found["cause"] == cause
    assert set(found) == {"type", "title", "status", "detail", "code", "request_id", "cause"}
    for word in (SECRET, KEY, either.server.url):
        assert word not in response.text
    assert state(talk) == before


def test_a_model_that_is_not_there_is_a_failure(either: Modelled) -> None:
    talk = either.talk("s")
    talk.append(*long_turns(3))
    either.server.answer = Reply(hangs_up=True)
    found = problem(
        talk.http.post(talk.path + "/compact", json={"window": PLAIN["window"], "summarizer": LLM}),
        502,
        "summarizer-failed",
    )
    assert found["cause"] == "unreachable"


def test_capabilities_show_the_model_and_never_the_key(model: Modelled) -> None:
    response = model.http.get("/v1/capabilities")
    assert response.json()["summarizer"] == {
        "configured": True,
        "model": "stub-1",
        "max_tokens": 2048,
        "max_input_tokens": 100_000,
        "timeout_seconds": 30.0,
    }
    for path in ("/v1/capabilities", "/openapi.json", "/metrics"):
        text = model.http.get(path).text
        assert KEY not in text
        assert model.server.url not in text


def test_the_metrics_tell_what_became_of_summaries_and_of_the_fleet(model: Modelled) -> None:
    with_policy(model, "s", SUMMED)
    model.http.post("/v1/compact")
    names = {
        line.split("{")[0].split(" ")[0] for line in model.http.get("/metrics").text.splitlines() if line[:1] != "#"
    }
    assert any("due" in name for name in names)
    assert any("summar" in name for name in names)


BY_HAND = [
    {"window": PLAIN["window"], "summarizer": LLM},
    {"window": PLAIN["window"], "summarizer": LLM, "dry_run": True},
]


@pytest.mark.parametrize("body", BY_HAND, ids=["real", "dry"])
def test_a_server_without_a_model_names_the_settings_that_bring_one(
    http: httpx.Client, talk: Talk, body: dict[str, Any]
) -> None:
    talk.append(*long_turns(3))
    response = http.post(talk.path + "/compact", json=body)
    [wrong] = problem(response, 422, "invalid-request")["errors"]
    assert wrong["pointer"] == "/summarizer"
    for name in ("TURNLOG_SUMMARIZER_PROVIDER", "TURNLOG_SUMMARIZER_MODEL", "TURNLOG_SUMMARIZER_API_KEY"):
        assert name in wrong["detail"]
    assert talk.session()["version"] == 6


@pytest.mark.parametrize(
    "summarizer",
    [
        {"type": "llm", "url": "http://127.0.0.1:1"},  # never from a request
        {"type": "llm", "base_url": "http://127.0.0.1:1"},  # nor so
        {"type": "llm", "api_key": "sk-1"},  # nor a key
        {"type": "llm", "model": "gpt-9"},  # nor another model
    ],
)
def test_no_request_brings_a_url_a_key_or_a_model(model: Modelled, summarizer: dict[str, str]) -> None:
    talk = model.talk("s")
    talk.append(*long_turns(3))
    [unknown] = [name for name in summarizer if name != "type"]
    response = talk.http.post(talk.path + "/compact", json={"window": PLAIN["window"], "summarizer": summarizer})
    assert pointers(response) == [f"/summarizer/{unknown}"]
    stored = talk.http.patch(talk.path, json={"policy": {**PLAIN, "summarizer": summarizer}})
    assert pointers(stored) == [f"/policy/summarizer/{unknown}"]
    assert model.server.requests == []
