"""Many compactions of one session, and compactions of many sessions, each done once whoever asks for them."""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from uuid import UUID

import httpx
import pytest

from app.domain import retry
from app.storage.sessions import key_of
from tests.conftest import SHARED, Service, cloned, execute, rows, settings_for, wait_until
from tests.field.modelled import LLM, Modelled, attempts, long_turns, modelled, state, told, variables
from tests.formats.validators import CHECKS
from tests.journeys.processes import Serving
from tests.journeys.replayed import boundaries
from tests.model_server import ModelServer, Reply, Request
from tests.talk import Message, Talk, assistant, seqs_in, system, tool, turns, user

Policy = dict[str, Any]


# Many compactions of one session.

ROUNDS = 33
FACTS = ("ORD-4711-XK", "2026-03-02", "https://shop.example/orders/4711?full=1", "ada@example.org", "/srv/in/4711.csv")
WINDOWS = [("last_turns", 2), ("last_events", 10), ("token_budget", 700)]


def work(number: int) -> list[dict[str, Any]]:
    """Return a turn of 250 tokens: a question, two calls at once, their results in another order, an answer."""
    one, two = f"a{number}", f"b{number}"
    said = [
        user(f"do step {number}"), assistant("both at once", **{one: "find", two: "book"}),
        tool(two, f"step {number} is booked"), tool(one, f"step {number} is found"), assistant(f"step {number} done"),
    ]  # fmt: skip
    return [{"message": message, "token_count": 50} for message in said]


def assert_every_format_takes(talk: Talk) -> None:
    """Hold the view in every format to its provider's rules."""
    for output, check in CHECKS.items():
        assert check(talk.view(output)) == [], output


@pytest.fixture(scope="module")
def stub(postgres: str, template: str) -> Iterator[Modelled]:
    """A service with a model, on a database of its own."""
    with modelled(postgres, template) as running:
        yield running


@pytest.mark.parametrize("summarizer", [None, LLM], ids=["plain", "summed"])
@pytest.mark.parametrize(("rule", "size"), WINDOWS)
def test_33_compactions_in_a_row_leave_a_valid_view_and_lose_no_fact(
    stub: Modelled, rule: str, size: int, summarizer: Any
) -> None:
    stub.reset()
    talk = stub.talk()
    talk.append(
        system("You book things."),
        {"message": user("My order is " + " and ".join(FACTS)), "token_count": 150},
        {"message": assistant("Noted."), "token_count": 150},
    )
    before: set[int] = set()
    for number in range(1, ROUNDS + 1):
        talk.append(*work(2 * number), *work(2 * number + 1))
        stub.server.answer = f"Told for the {number}th time."
        outcome = talk.compact(window={"rule": rule, "size": size}, summarizer=summarizer)
        assert (outcome["status"], outcome["over_budget"]) == ("applied", False), outcome
        assert outcome["tokens"]["after"] < outcome["tokens"]["before"]
        assert_every_format_takes(talk)
        events = talk.view()["events"]
        assert talk.session()["view"]["tokens"] == sum(event["token_count"] for event in events)
        assert talk.session()["view"]["tokens"] == outcome["tokens"]["after"]
        shown = [event["seq"] for event in events if not event["synthetic"] and event["seq"] > 1]
        log = talk.log()
        real = [event["seq"] for event in log if event["type"] == "MESSAGE" and not event["synthetic"]][1:]
        assert shown == real[-len(shown) :]
        now = set(real) - set(shown)
        assert before < now
        assert now <= set(seqs_in(boundaries(log)[-1]["payload"]["covered"]))
        before = now
        if summarizer:
            assert told(talk) == [f"Told for the {number}th time."]
            assert sum(event["synthetic"] for event in events) == 2
            content = next(e["message"]["content"] for e in events if e["synthetic"] and e["message"]["role"] != "user")
            assert [fact for fact in FACTS if fact not in content] == []
        else:
            assert not any(event["synthetic"] for event in events)
    assert len(boundaries(talk.log())) == ROUNDS
    assert len(stub.server.requests) == len(attempts(talk)) == (ROUNDS if summarizer else 0)


# The fleet.

PLAIN: Policy = {"window": {"rule": "last_turns", "size": 2}, "trigger": {"type": "turn_count", "threshold": 3}}
SUMMED: Policy = {**PLAIN, "summarizer": LLM}
SMALLER: Policy = {"window": {"rule": "last_turns", "size": 1}, "trigger": {"type": "turn_count", "threshold": 1}}
TOKENS: Policy = {
    "window": {"rule": "token_budget", "size": 2000},
    "trigger": {"type": "all", "of": [{"type": "always"}, {"type": "token_count", "threshold": 2500}]},
}
SESSIONS = 2000
SUMMED_SESSIONS = 60
CALLERS = 10
POISON = "the-poisoned-well"


def conversations(count: int) -> list[list[Message]]:
    """Return real conversations of six long turns and more where they are beside the project, else made up ones."""
    file = SHARED / "data/tau-bench-airline.jsonl"
    if not file.exists():
        return [[system("You book flights."), *long_turns(number % 5 + 40)] for number in range(count)]
    found = [json.loads(line)["messages"] for line in file.read_text(encoding="utf-8").splitlines()]
    long = [
        said
        for said in found
        if sum(message["role"] == "user" for message in said) >= 6
        and sum(len(message["content"] or "") for message in said) > 14_000
    ]
    return long[:count]


def multiply(url: str, copies: dict[str, Sequence[str]]) -> None:
    """Copy whole sessions, rows as they are, under new ids."""
    kept = {
        table: ", ".join(
            row["column_name"]
            for row in rows(
                url,
                "SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND is_generated = 'NEVER'"
                " AND column_name NOT IN ('session_key', 'session_id') ORDER BY ordinal_position",
                table,
            )
        )
        for table in ("sessions", "events")
    }

    def key(session_id: str) -> UUID:
        return key_of("default", session_id)

    for original, ids in copies.items():
        keys = [key(one) for one in ids]
        rows(
            url,
            f"INSERT INTO sessions (session_key, session_id, {kept['sessions']})"  # noqa: S608
            f" SELECT copy.key, copy.id, {kept['sessions']}"
            " FROM sessions, unnest($2::uuid[], $3::text[]) AS copy (key, id) WHERE session_key = $1",
            key(original), keys, [*ids],
        )  # fmt: skip
        rows(
            url,
            f"INSERT INTO events (session_key, {kept['events']}) SELECT copy.key, {kept['events']}"  # noqa: S608
            " FROM events, unnest($2::uuid[]) AS copy (key) WHERE session_key = $1",
            key(original), keys,
        )  # fmt: skip


def seed(url: str, http: httpx.Client, policies: Sequence[tuple[Policy, int]]) -> list[str]:
    """Make so many sessions with each policy, and return their ids. The first of each kind are made over the API."""
    ids: list[str] = []
    copies: dict[str, list[str]] = {}
    said = conversations(12)
    for kind, (policy, count) in enumerate(policies):
        names = [f"kind-{kind}-{number}" for number in range(count)]
        first = names[: len(said)]
        for name, messages in zip(first, said, strict=False):
            talk = Talk(http, name)
            assert http.put(talk.path, json={"policy": policy, "metadata": {"kind": f"{kind}"}}).status_code == 201
            talk.append(*messages)
        for number, name in enumerate(names[len(first) :]):
            copies.setdefault(first[number % len(first)], []).append(name)
        ids += names
    multiply(url, copies)
    return ids


def run(http: httpx.Client, **asked: Any) -> Any:
    """Call the endpoint for schedulers."""
    response = http.post("/v1/compact", json=asked)
    assert response.status_code == 200, response.text
    report = response.json()
    statuses = Counter(result["status"] for result in report["results"])
    assert {status: report[status] for status in ("applied", "unchanged", "failed")} == {
        status: statuses[status] for status in ("applied", "unchanged", "failed")
    }
    return report


class Poisoned(NamedTuple):
    """Three sessions whose compaction fails, each in another way."""

    model: str
    policy: str
    event: str


def poison(url: str, http: httpx.Client) -> Poisoned:
    """Make a session that the model refuses, one whose policy is broken, and one with a row that cannot be read."""
    sessions = Poisoned("poisoned-model", "poisoned-policy", "poisoned-event")
    for name in sessions:
        talk = Talk(http, name)
        policy = SUMMED if name == sessions.model else PLAIN
        assert http.put(talk.path, json={"policy": policy}).status_code == 201
        talk.append(user(POISON), *long_turns(6))
    rows(url, "UPDATE sessions SET policy = $1 WHERE session_id = $2", '{"window": 7}', sessions.policy)
    # The calls of an assistant's message are a list.
    broken = "UPDATE events SET call_ids = '17' WHERE session_key = $1 AND seq = 4"
    rows(url, broken, key_of("default", sessions.event))
    return sessions


def refusing_poison(request: Request) -> Reply:
    """Answer as a model does that one session makes fail."""
    return Reply(status=400) if POISON in request.user else Reply(text="What they wanted, briefly.", delay=0.05)


BOUNDARIES = """
    SELECT s.session_id, count(e.seq) AS boundaries
      FROM sessions s LEFT JOIN events e ON e.session_key = s.session_key AND e.type = 'COMPACTION'
     GROUP BY s.session_id
"""


def boundaries_of(url: str) -> dict[str, int]:
    """Count every session's boundaries."""
    return {row["session_id"]: row["boundaries"] for row in rows(url, BOUNDARIES)}


class Replicated(NamedTuple):
    """Two replicas on one database, and the model that both ask."""

    url: str
    server: ModelServer
    replicas: tuple[Serving, Serving]
    http: httpx.Client


@pytest.fixture
def replicated(postgres: str, template: str) -> Iterator[Replicated]:
    with (
        cloned(postgres, template) as url,
        ModelServer() as server,
        Serving(database_url=url, **variables(server)) as one,
        Serving(database_url=url, **variables(server)) as other,
        one.client() as http,
    ):
        yield Replicated(url, server, (one, other), http)


def schedule(replicated: Replicated, meanwhile: Callable[[httpx.Client], None]) -> list[dict[str, Any]]:
    """Let ten schedulers call until nothing is due, do something meanwhile, and return the results of all of them."""
    done: list[dict[str, Any]] = []
    started = threading.Barrier(CALLERS + 1)

    def call(number: int) -> None:
        with replicated.replicas[number % 2].client() as own:
            own.get("/healthz")
            started.wait(60)
            while (report := run(own, limit=200, max_seconds=20))["due"]:
                done.extend(report["results"])

    def do() -> None:
        with replicated.replicas[1].client() as own:
            started.wait(60)
            meanwhile(own)

    with ThreadPoolExecutor(CALLERS + 1) as threads:
        working = [threads.submit(do), *(threads.submit(call, number) for number in range(CALLERS))]
        for one in working:
            one.result(120)
    return done


def test_ten_schedulers_at_once_compact_a_fleet_of_two_thousand_each_session_once(replicated: Replicated) -> None:
    url, server, _, http = replicated
    server.answer = refusing_poison
    plain = (SESSIONS - SUMMED_SESSIONS) // 2
    good = seed(url, http, [(PLAIN, plain), (TOKENS, plain), (SUMMED, SUMMED_SESSIONS)])
    bad = poison(url, http)
    assert http.get("/v1/compact/due").json()["due"] == SESSIONS + len(bad) == len(good) + len(bad)

    def converse(own: httpx.Client) -> None:
        """Go on with sessions while they are compacted: a turn is too little to make one due again."""
        for name in good[:plain:9]:
            talk = Talk(own, name)
            talk.append({"message": user(f"still there, {name}?"), "token_count": 1})
            assert talk.texts()[-1] == f"still there, {name}?"

    done = schedule(replicated, converse)

    results = Counter((result["session_id"], result["status"]) for result in done)
    assert results == Counter([*((name, "applied") for name in good), *((name, "failed") for name in bad)])
    found = boundaries_of(url)
    assert {name: found[name] for name in good} == dict.fromkeys(good, 1)
    assert {found[name] for name in bad} == {0}
    tried = rows(url, "SELECT status, count(*) AS count FROM compaction_attempts GROUP BY status ORDER BY status")
    assert tried == [{"status": "applied", "count": SUMMED_SESSIONS}, {"status": "failed", "count": 1}]
    assert len(server.requests) == SUMMED_SESSIONS + 1
    for name in good[::100]:
        assert_every_format_takes(Talk(http, name))
    check_pauses(url, http, bad, done)
    # The one that the model refuses takes a summary by hand as soon as there is one, and waits no longer.
    server.answer = "It was a well."
    assert Talk(http, bad.model).post("/compact", {})["status"] == "applied"
    assert "retry_at" not in http.get(f"/v1/sessions/{bad.model}").json()


def test_a_scheduler_that_stands_still_loses_its_sessions_to_another_and_writes_nothing_when_it_goes_on(
    replicated: Replicated,
) -> None:
    """As when its machine is suspended: its leases run out, and what it had the model write comes too late."""
    url, server, (stopped, _), _ = replicated
    names = [f"s{number}" for number in range(6)]
    thought = threading.Event()

    def think(_: object) -> str:
        assert thought.wait(60)
        return "Too late."

    with replicated.replicas[1].client() as http, stopped.client() as own, ThreadPoolExecutor(1) as thread:
        for name in names:
            assert http.put(f"/v1/sessions/{name}", json={"policy": SUMMED}).status_code == 201
            Talk(http, name).append(*long_turns(5))
        server.answer = think
        running = thread.submit(run, own)
        try:
            # As many as one process has the model summarize at once.
            server.wait_for(4)
            os.kill(stopped.pid, signal.SIGSTOP)
            server.answer = "In time."
            first = run(http)
            assert (first["applied"], first["deferred"]) == (2, 4), first
            wait_until(lambda: len(due_ids(http.get("/v1/compact/due").json())) == 4)
            assert run(http)["applied"] == 4
        finally:
            thought.set()
            os.kill(stopped.pid, signal.SIGCONT)
        late = running.result(60)
        assert late["applied"] == late["failed"] == 0
        assert {(one["status"], one["reason"]) for one in late["results"]} <= {("unchanged", "lost-race")}
        assert boundaries_of(url) == dict.fromkeys(names, 1)
        assert [told(Talk(http, name)) for name in names] == [["In time."]] * len(names)
        found = Counter(attempt["status"] for name in names for attempt in attempts(Talk(http, name)))
        assert found == {"applied": 6, "abandoned": 4}
        assert due(http) == []


def check_pauses(url: str, http: httpx.Client, bad: Poisoned, done: Sequence[dict[str, Any]]) -> None:
    """Check that sessions which failed once wait visibly, are not taken meanwhile, and longer each time they fail."""
    reasons = {result["session_id"]: result["reason"] for result in done if result["status"] == "failed"}
    assert reasons == {bad.model: "refused-request", bad.policy: "internal-error", bad.event: "internal-error"}
    assert {name: pause(url, name) for name in bad} == dict.fromkeys(bad, (1, retry.FIRST_PAUSE_SECONDS))
    again = run(http)
    assert (again["due"], again["results"], again["deferred"]) == (0, [], len(bad))
    for failures in (2, 3):
        assert all(http.get(f"/v1/sessions/{name}").json()["retry_at"] for name in bad)
        let_try_again(url)
        report = run(http)
        pauses = dict.fromkeys(bad, (failures, retry.pause_seconds(failures)))
        assert {name: pause(url, name) for name in bad} == pauses
        assert [one["retry_seconds"] for one in report["results"]] == [retry.pause_seconds(failures)] * len(bad)
    assert {boundaries_of(url)[name] for name in bad} == {0}


def pause(url: str, session_id: str) -> tuple[int, int]:
    """Return how often a session has failed in a row, and how long it was told to wait, in steps of thirty seconds."""
    [row] = rows(
        url,
        "SELECT failures, extract(epoch FROM retry_at - now())::int AS left FROM sessions WHERE session_id = $1",
        session_id,
    )
    return row["failures"], -(-row["left"] // 30) * 30


def let_try_again(url: str) -> None:
    """Let every pause be over."""
    execute(url, "UPDATE sessions SET retry_at = now() - interval '1s' WHERE retry_at IS NOT NULL")


# One scheduler and what it takes.


@pytest.fixture
def fleet(postgres: str, template: str) -> Iterator[Modelled]:
    """A fleet of the test's own, with a model."""
    with modelled(postgres, template, compact_concurrency=2) as running:
        yield running


def standing(fleet: Modelled, name: str, policy: Policy | None, *said: Any, **metadata: str) -> Talk:
    """Make a session with a policy."""
    talk = fleet.talk(name)
    body: dict[str, Any] = {"metadata": metadata}
    if policy is not None:
        body["policy"] = policy
    assert talk.http.put(talk.path, json=body).status_code == 201
    talk.append(*(said or long_turns(5)))
    return talk


def due(http: httpx.Client) -> list[str]:
    """Return the sessions that are due, in order."""
    answer = http.get("/v1/compact/due", params={"limit": 1000}).json()
    assert answer["due"] == len(answer["data"])
    return [one["session_id"] for one in answer["data"]]


def taken(report: Any) -> list[str]:
    """Return the sessions that a run took, in order."""
    return [result["session_id"] for result in report["results"]]


def test_a_run_ends_in_time_and_what_the_model_is_at_work_on_is_finished_afterwards(fleet: Modelled) -> None:
    thought = threading.Event()

    def think(_: object) -> str:
        assert thought.wait(60)
        return "A summary."

    talks = [standing(fleet, f"s{number}", SUMMED) for number in range(5)]
    fleet.server.answer = think
    try:
        report = run(fleet.http, max_seconds=1)
        # Two are with the model, and nobody has begun the other three.
        assert (report["due"], report["results"], report["deferred"], report["remaining"]) == (5, [], 2, 3)
        assert len(fleet.server.requests) == 2
        # Another scheduler finds them taken, and no free hand here.
        other = run(fleet.http, max_seconds=0.5)
        assert (other["due"], other["results"], other["deferred"], other["remaining"]) == (3, [], 2, 3)
        assert sum(len(talk.get("/compactions")["data"]) for talk in talks) == 0
    finally:
        thought.set()
    wait_until(lambda: sum(len(talk.get("/compactions")["data"]) for talk in talks) == 2)
    rest = run(fleet.http)
    assert (rest["due"], rest["applied"], rest["deferred"], rest["remaining"]) == (3, 3, 0, 0)
    assert [len(talk.get("/compactions")["data"]) for talk in talks] == [1] * 5
    assert len(fleet.server.requests) == 5


def test_a_run_that_finds_nothing_for_the_model_does_not_wait_for_those_who_use_it(fleet: Modelled) -> None:
    thought = threading.Event()

    def think(_: object) -> str:
        assert thought.wait(60)
        return "A summary."

    for number in range(2):
        standing(fleet, f"s{number}", SUMMED)
    fleet.server.answer = think
    with fleet.service.client() as own, ThreadPoolExecutor(1) as thread:
        try:
            assert run(fleet.http, max_seconds=0.5)["deferred"] == 2
            standing(fleet, "plain", PLAIN)
            # Nothing but the plain one is due, and the model goes on thinking.
            running = thread.submit(run, own, max_seconds=40)
            assert running.result(15)["applied"] == 1
        finally:
            thought.set()


def test_a_run_without_time_takes_nothing(fleet: Modelled) -> None:
    standing(fleet, "plain", PLAIN)
    standing(fleet, "summed", SUMMED)
    report = run(fleet.http, max_seconds=0)
    assert (report["due"], report["results"], report["remaining"]) == (2, [], 2)
    assert fleet.server.requests == []
    assert run(fleet.http)["applied"] == 2


@pytest.mark.parametrize("policy", [PLAIN, SUMMED], ids=["plain", "summed"])
def test_the_sessions_with_most_tokens_are_taken_first_up_to_the_limit(fleet: Modelled, policy: Policy) -> None:
    for number in (4, 9, 6, 8, 5, 7):
        standing(fleet, f"s{number}", policy, *long_turns(number))
    assert due(fleet.http) == ["s9", "s8", "s7", "s6", "s5", "s4"]
    seen: list[str] = []
    for limit, left in ((1, 5), (2, 3), (2, 1), (2, 0)):
        expected = due(fleet.http)[:limit]
        report = run(fleet.http, limit=limit)
        assert sorted(taken(report)) == sorted(expected)
        assert report["remaining"] == left == len(due(fleet.http))
        seen += expected
    assert seen == ["s9", "s8", "s7", "s6", "s5", "s4"]


def test_what_is_listed_as_due_is_what_a_run_takes(fleet: Modelled) -> None:
    for number in range(6):
        standing(fleet, f"s{number}", (PLAIN, SUMMED)[number % 2], *long_turns(3 + number // 2))
    listed = fleet.http.get("/v1/compact/due").json()
    assert due(fleet.http) == [one["session_id"] for one in listed["data"]]
    for one in listed["data"]:
        session = fleet.talk(one["session_id"]).session()
        assert (one["version"], one["view"]) == (session["version"], session["view"])
    report = run(fleet.http)
    assert (report["due"], sorted(taken(report))) == (4, sorted(due_ids(listed)))
    assert due(fleet.http) == []


def due_ids(listed: Any) -> list[str]:
    """Return the ids of a list of due sessions."""
    return [one["session_id"] for one in listed["data"]]


def test_a_run_may_be_held_to_sessions_with_certain_metadata(fleet: Modelled) -> None:
    standing(fleet, "one", PLAIN, agent="helpdesk", region="eu")
    standing(fleet, "two", SUMMED, agent="helpdesk", region="us")
    standing(fleet, "three", PLAIN, agent="sales", region="eu")
    report = run(fleet.http, metadata={"agent": "helpdesk", "region": "us"})
    assert (report["due"], taken(report), report["remaining"]) == (1, ["two"], 0)
    report = run(fleet.http, metadata={"agent": "nobody"})
    assert (report["due"], taken(report), report["remaining"]) == (0, [], 0)
    report = run(fleet.http, metadata={"agent": "helpdesk"})
    assert (report["due"], taken(report), report["remaining"]) == (1, ["one"], 0)
    assert taken(run(fleet.http)) == ["three"]


UNSAFE = [user("go on"), assistant(None, c="f"), *turns(4), tool("c", "late"), assistant("there")]
# A policy that fires, on a view which it can make no smaller.
STUCK: list[tuple[Policy, list[Message], str]] = [
    # One turn that is over the mark.
    (
        {"window": {"rule": "token_budget", "size": 10}, "trigger": {"type": "token_count", "threshold": 20}},
        long_turns(1),
        "newest-turn-only",
    ),
    # A call whose result came turns later.
    ({**PLAIN, "trigger": {"type": "turn_count", "threshold": 2}}, UNSAFE, "no-safe-cut"),
    # A window that everything fits, under a trigger that fires on everything.
    ({"window": {"rule": "last_turns", "size": 50}}, turns(3), "fits-window"),
    # Turns that are shorter than any summary.
    (SUMMED, turns(5), "does-not-shrink"),
]


@pytest.mark.parametrize(("policy", "said", "reason"), STUCK, ids=[reason for *_, reason in STUCK])
def test_a_session_that_cannot_shrink_is_left_alone_until_its_next_turn(
    fleet: Modelled, policy: Policy, said: list[Message], reason: str
) -> None:
    fleet.server.answer = "blah " * 100
    talk = standing(fleet, "s", policy, *said)
    [result] = run(fleet.http)["results"]
    assert (result["status"], result["reason"]) == ("unchanged", reason)
    before = state(talk)
    calls = len(fleet.server.requests)
    for _ in range(3):
        report = run(fleet.http)
        assert (report["due"], report["deferred"], report["results"]) == (0, 0, [])
        assert due(fleet.http) == []
    assert state(talk) == before
    talk.append(assistant("and more of the same turn"))
    assert due(fleet.http) == []
    talk.append(user("a new turn"))
    assert due(fleet.http) == ["s"]
    assert len(fleet.server.requests) == calls


def test_a_compacted_session_is_due_again_when_its_trigger_fires_again(fleet: Modelled) -> None:
    talk = standing(fleet, "s", PLAIN)
    assert taken(run(fleet.http)) == ["s"]
    # Two turns are left, and the trigger fires beyond three.
    for number, expected in ((6, []), (7, ["s"])):
        talk.append(*turns(1, first=number))
        assert due(fleet.http) == expected
    assert taken(run(fleet.http)) == ["s"]
    assert len(talk.get("/compactions")["data"]) == 2


def test_the_default_policy_stands_for_sessions_without_one_also_those_that_were_there_before(
    postgres: str, template: str
) -> None:
    with cloned(postgres, template) as url:
        with Service(settings_for(url)) as service, service.client() as http:
            for name in ("old", "untouched"):
                Talk(http, name).append(*long_turns(5))
            http.put("/v1/sessions/own", json={"policy": {**PLAIN, "trigger": {"type": "turn_count", "threshold": 9}}})
            Talk(http, "own").append(*long_turns(5))
            assert due(http) == []
        with Service(settings_for(url, default_policy=json.dumps(PLAIN))) as service, service.client() as http:
            assert due(http) == ["old", "untouched"] or due(http) == ["untouched", "old"]
            Talk(http, "new").append(*long_turns(9))
            assert due(http)[0] == "new"
            # Its own policy is the one that counts, until it has none.
            assert "own" not in due(http)
            assert taken(run(http, limit=1)) == ["new"]
            assert http.patch("/v1/sessions/own", json={"policy": None}).status_code == 200
            assert sorted(taken(run(http))) == ["old", "own", "untouched"]
            assert Talk(http, "old").view()["turns"] == 2
            Talk(http, "old").append(*long_turns(5))
        with Service(settings_for(url)) as service, service.client() as http:
            assert due(http) == []
            assert run(http)["due"] == 0


def test_a_policy_that_is_changed_makes_a_session_due_or_not_at_once(fleet: Modelled) -> None:
    talk = standing(fleet, "s", None)
    calm = {**PLAIN, "trigger": {"type": "turn_count", "threshold": 9}}
    for policy, expected in ((PLAIN, ["s"]), (calm, []), (SUMMED, ["s"]), (None, []), (PLAIN, ["s"])):
        assert talk.http.patch(talk.path, json={"policy": policy}).status_code == 200
        assert due(fleet.http) == expected
    assert run(fleet.http)["applied"] == 1
    # A window that is smaller than before finds more to cover, and no new turn is needed for that.
    assert talk.http.patch(talk.path, json={"policy": SMALLER}).status_code == 200
    assert due(fleet.http) == ["s"]
    assert run(fleet.http)["applied"] == 1
    assert talk.view()["turns"] == 1


@pytest.mark.parametrize("by_hand", [False, True], ids=["fleet", "by-hand"])
def test_a_policy_that_is_changed_while_the_model_works_has_its_say_afterwards(fleet: Modelled, by_hand: bool) -> None:
    talk = standing(fleet, "s", SUMMED)

    def change(_: object) -> str:
        assert talk.http.patch(talk.path, json={"policy": SMALLER}).status_code == 200
        return "A summary."

    fleet.server.answer = change
    with fleet.service.client() as own:
        if by_hand:
            assert Talk(own, "s").post("/compact", {})["status"] == "applied"
            assert talk.view()["turns"] == 2
            # By the policy that stands now that is one turn too many.
            assert due(fleet.http) == ["s"]
            assert run(own)["applied"] == 1
        else:
            # The same run comes back to it.
            assert run(own)["applied"] == 2
    assert talk.view()["turns"] == 1


def test_expired_sessions_are_not_due(fleet: Modelled) -> None:
    standing(fleet, "alive", PLAIN)
    standing(fleet, "expired", PLAIN)
    execute(fleet.url, "UPDATE sessions SET expires_at = now() - interval '1s' WHERE session_id = 'expired'")
    assert due(fleet.http) == ["alive"]
    report = run(fleet.http)
    assert (report["due"], taken(report), report["deferred"], report["remaining"]) == (1, ["alive"], 0, 0)
    assert boundaries_of(fleet.url) == {"alive": 1, "expired": 0}


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made-again"])
def test_a_session_that_is_deleted_during_a_run_is_no_failure(fleet: Modelled, again: bool) -> None:
    standing(fleet, "gone", SUMMED, *long_turns(9))
    standing(fleet, "other", SUMMED)

    def delete(request: Request) -> str:
        if "question 7" in request.user:
            assert fleet.http.delete("/v1/sessions/gone").status_code == 204
            if again:
                standing(fleet, "gone", SUMMED, *long_turns(2))
        return "A summary."

    fleet.server.answer = delete
    with fleet.service.client() as own:
        report = run(own)
    assert (report["due"], taken(report), report["remaining"], report["deferred"]) == (2, ["other"], 0, 0)
    assert boundaries_of(fleet.url) == {"other": 1} | ({"gone": 0} if again else {})
    if again:
        assert fleet.talk("gone").seqs() == [1, 2, 3, 4]
        assert "retry_at" not in fleet.talk("gone").session()


def test_a_failure_is_seen_on_the_session_and_a_call_by_hand_ends_its_wait(fleet: Modelled) -> None:
    talk = standing(fleet, "s", SUMMED)
    fleet.server.answer = Reply(status=400)
    [result] = run(fleet.http)["results"]
    assert (result["status"], result["reason"]) == ("failed", "refused-request")
    assert result["tokens"]["before"] == result["tokens"]["after"] == talk.session()["view"]["tokens"]
    assert talk.session()["retry_at"]
    listed = fleet.http.get("/v1/compact/due").json()
    assert (listed["due"], listed["deferred"], listed["data"]) == (0, 1, [])
    assert "turnlog_" in fleet.http.get("/metrics").text
    fleet.server.answer = "At last."
    assert talk.post("/compact", {})["status"] == "applied"
    assert "retry_at" not in talk.session()
    talk.append(*long_turns(4, first=6))
    assert due(fleet.http) == ["s"]
    fleet.server.answer = Reply(status=400)
    # The count began anew.
    assert run(fleet.http)["results"][0]["retry_seconds"] == retry.FIRST_PAUSE_SECONDS


def test_a_compaction_by_hand_with_another_window_does_not_hide_a_session_from_the_fleet(fleet: Modelled) -> None:
    talk = standing(fleet, "s", PLAIN, *long_turns(9))
    assert talk.compact(last_turns=6)["status"] == "applied"
    assert due(fleet.http) == ["s"]
    assert talk.compact(last_turns=20)["status"] == "unchanged"
    assert due(fleet.http) == ["s"]
    assert run(fleet.http)["applied"] == 1
    assert talk.view()["turns"] == 2


def test_a_fleet_without_a_model_lets_the_sessions_that_need_one_wait(postgres: str, template: str) -> None:
    with cloned(postgres, template) as url, Service(settings_for(url)) as service, service.client() as http:
        for name, policy in (("plain", PLAIN), ("summed", SUMMED)):
            http.put(f"/v1/sessions/{name}", json={"policy": policy})
            Talk(http, name).append(*long_turns(5))
        results = {one["session_id"]: (one["status"], one["reason"]) for one in run(http)["results"]}
        assert results == {"plain": ("applied", None), "summed": ("failed", "no-summarizer")}
        assert run(http)["deferred"] == 1


def turn_count(threshold: int) -> dict[str, Any]:
    return {"type": "turn_count", "threshold": threshold}


def token_count(threshold: int) -> dict[str, Any]:
    return {"type": "token_count", "threshold": threshold}


def standing_policy(rule: str, size: int, trigger: Any, summarizer: Any = None) -> Policy:
    policy = {"window": {"rule": rule, "size": size}, "trigger": trigger}
    return policy if summarizer is None else {**policy, "summarizer": summarizer}


# A policy, and whether its own window would fire its trigger again.
STANDING: list[tuple[Policy, bool]] = [
    (standing_policy("last_turns", 3, turn_count(3)), False),  # fires beyond what the window leaves
    (standing_policy("last_turns", 4, turn_count(3)), True),  # four turns are more than three
    (standing_policy("last_turns", 4, turn_count(3), LLM), True),  # with a summary, too
    (standing_policy("last_turns", 50, token_count(10)), False),  # who knows how large turns are
    (standing_policy("token_budget", 99, token_count(100)), False),  # one token less
    (standing_policy("token_budget", 100, token_count(100)), True),  # a full budget fires
    (standing_policy("token_budget", 100, token_count(100), LLM), True),  # with a summary, too
    (standing_policy("token_budget", 9000, turn_count(3)), False),  # who knows how many turns that is
    (standing_policy("last_events", 10, turn_count(3)), False),  # four turns of three events or of one
    (standing_policy("last_events", 4, token_count(100)), False),  # who knows how large events are
    (standing_policy("last_turns", 4, {"type": "any", "of": [turn_count(3), token_count(9000)]}), True),  # one will do
    (standing_policy("last_turns", 4, {"type": "all", "of": [turn_count(3), token_count(9000)]}), False),  # not both
    (standing_policy("last_turns", 4, {"type": "all", "of": [turn_count(3), {"type": "always"}]}), True),  # both
    (standing_policy("last_turns", 4, {"type": "always"}), False),  # whenever it does not fit
]  # fmt: skip


@pytest.mark.parametrize(("policy", "refused"), STANDING)
def test_a_policy_whose_own_window_fires_its_trigger_again_is_refused(
    stub: Modelled, policy: Policy, refused: bool
) -> None:
    talk = stub.talk()
    answers = [
        stub.http.put(talk.path, json={"policy": policy}),
        stub.http.post("/v1/sessions", json={"id": talk.id + "-posted", "policy": policy}),
    ]
    stub.http.put(talk.path, json={})
    answers.append(stub.http.patch(talk.path, json={"policy": policy}))
    for answer in answers:
        assert answer.status_code == (422 if refused else (200 if answer is answers[2] else 201)), answer.text
        if refused:
            assert [one["pointer"] for one in answer.json()["errors"]] == ["/policy/window"]


def test_a_backlog_that_is_done_in_portions_waits_after_a_failure_too(postgres: str, template: str) -> None:
    small = {"max_input_tokens": 2000, "max_tokens": 200}
    with modelled(postgres, template, asks=small) as fleet:
        said = [{"message": message, "token_count": 5000} for message in turns(12)]
        talk = standing(fleet, "s", SUMMED, *said)
        fleet.server.answer = Reply(status=400)
        assert run(fleet.http)["failed"] == 1
        assert "retry_at" in talk.session()
        assert run(fleet.http)["results"] == []
        asked = len(fleet.server.requests)
        execute(fleet.url, "UPDATE sessions SET retry_at = now()")
        fleet.server.answer = "A summary."
        # Forty thousand tokens at a time, and at once again until the window fits.
        assert sum(run(fleet.http)["applied"] for _ in range(4)) == 3
        assert len(fleet.server.requests) == asked + 3
        assert talk.view()["turns"] == 2
