"""`kill -9` of one worker of two in every phase of an append and of a compaction, while the other one goes on serving.

Every phase is held still from outside: by half a body, by locks, by a model that does not answer, and by SIGSTOP where
the worker itself is to stand between two statements.
"""

import itertools
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from app.storage.attempts import LEASE_SECONDS
from app.storage.fleet import CLAIM_SECONDS
from tests.conftest import cloned, execute, rows, wait_until
from tests.field.modelled import LLM, attempts, condense, long_turns, variables
from tests.journeys import holding
from tests.journeys.callers import Caller
from tests.journeys.killing import Asked, Scene, check_nothing_left, kill_and_ask_again, locked
from tests.journeys.processes import LONG, Serving, session_of
from tests.journeys.replayed import boundaries, check_session
from tests.model_server import ModelServer, Reply, Request
from tests.talk import Talk, assistant, turns, user

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="NOT TESTED: only Linux tells which worker has taken a connection"
)

_numbers = itertools.count(1)
BATCH = [user("Hello?"), assistant("Yes."), user("Good.")]
WINDOW = {"rule": "last_turns", "size": 2}


@pytest.fixture(scope="module")
def scene(postgres: str, template: str) -> Iterator[Scene]:
    with cloned(postgres, template) as url, ModelServer() as server:
        holding.build_gates(url)
        with Serving("--workers", 2, database_url=url, **variables(server)) as service:
            scene = Scene(service, url, server)
            yield scene
            scene.victim()
            assert service.terminate() == 0, service.output
            # Python's own helper of a process that has workers ends a moment after it.
            wait_until(lambda: session_of(service.pid) == [])
        assert "Traceback" not in service.output, service.output
        left = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'turnlog'"
        wait_until(lambda: rows(url, left) == [], LONG)
        assert locked(url) == []


def four(http: httpx.Client) -> dict[str, Asked]:
    """Return one request of each kind, each to a session of its own that has six turns."""
    kinds = {
        "ids": ("/events", {"events": [{"id": f"e{at}", "message": one} for at, one in enumerate(BATCH)]}, {}),
        "key": ("/events", {"events": [{"message": one} for one in BATCH]}, {"Idempotency-Key": "k"}),
        "window": ("/compact", {"window": WINDOW}, {}),
        "summary": ("/compact", {"window": WINDOW, "summarizer": {"type": "text", "text": "Short."}}, {}),
    }
    number = next(_numbers)
    asked = {kind: Asked(Talk(http, f"{kind}-{number}"), *one) for kind, one in kinds.items()}
    for one in asked.values():
        one.talk.append(*({"message": message, "token_count": 50} for message in turns(6)))
    return asked


Holds = Callable[[dict[str, Asked]], list[str]]


def at(**gates: str) -> Holds:
    """Hold each kind of request at a gate of its own."""
    return lambda asked: [holding.at_gate(gate, asked[kind].talk.id) for kind, gate in gates.items()]


def rows_held(asked: dict[str, Asked]) -> list[str]:
    return [holding.at_row(one.talk.id) for one in asked.values()]


def everybody_at(gate: str) -> Holds:
    return lambda asked: [holding.at_gate(gate, one.talk.id) for one in asked.values()]


# What holds the four requests still, and whether their worker is suspended then and the statement goes through: so the
# worker dies before it has heard of it.
PHASES: list[tuple[str, Holds | None, bool]] = [
    ("the-request-is-read", None, False),
    ("the-view-is-read-and-the-insert-waits", lambda _: ["LOCK TABLE events IN ACCESS EXCLUSIVE MODE"], False),
    ("it-waits-for-the-row", rows_held, False),
    ("events-are-inserted", at(ids="message", key="message", window="boundary", summary="message"), False),
    ("a-statement-is-done", at(ids="message", key="message", window="boundary", summary="boundary"), True),
    ("it-commits", everybody_at("commit"), False),
    ("it-has-committed", everybody_at("commit"), True),
]


@pytest.mark.parametrize(("holds", "suspended"), [one[1:] for one in PHASES], ids=[one[0] for one in PHASES])
def test_a_worker_killed_in_any_phase_leaves_all_or_nothing_and_the_same_request_sent_again_is_there_once(
    scene: Scene, holds: Holds | None, suspended: bool
) -> None:
    worker = scene.victim()
    with ExitStack() as stack:
        http = stack.enter_context(scene.service.client())
        asked = four(http)
        callers = [stack.enter_context(Caller(scene.service, worker)) for _ in asked]
        threads = stack.enter_context(ThreadPoolExecutor(len(asked)))
        with holding.held(scene.url, *(holds(asked) if holds else ["SELECT 1"])):
            for caller, one in zip(callers, asked.values(), strict=True):
                one.send(caller, half=holds is None)
            if holds is None:
                wait_until(lambda: all(caller.is_read() for caller in callers))
            else:
                wait_until(lambda: len(holding.waiting(scene.url)) == len(asked))
            if suspended:
                os.kill(worker, signal.SIGSTOP)
            else:
                again = kill_and_ask_again(scene, worker, threads, asked)
        if suspended:
            wait_until(lambda: holding.waiting(scene.url) == [])
            again = kill_and_ask_again(scene, worker, threads, asked)
        check_append(asked["ids"], again[0](), [f"e{at}" for at in range(len(BATCH))])
        check_append(asked["key"], again[1](), None)
        for one, outcome in zip((asked["window"], asked["summary"]), again[2:], strict=True):
            assert outcome()["status"] in {"applied", "unchanged"}
            assert len(boundaries(check_session(one.talk, every_version=True))) == 1
            assert one.talk.compact(last_turns=1)["status"] == "applied"
        check_nothing_left(scene)


def check_append(asked: Asked, receipt: Any, ids: list[str] | None) -> None:
    """The batch is there once, behind what was there before, and whoever sends it again is told the same."""
    told = [(one["id"], one["seq"]) for one in receipt["events"]]
    assert [seq for _, seq in told] == [13, 14, 15]
    assert ids is None or [event_id for event_id, _ in told] == ids
    log = check_session(asked.talk, every_version=True)
    assert [(one["id"], one["seq"]) for one in log[12:]] == told
    assert [one["message"] for one in log[12:]] == BATCH
    once_more = asked.again()
    assert [(one["id"], one["seq"]) for one in once_more["events"]] == told
    assert once_more["version"] == asked.talk.session()["version"] == 15
    asked.talk.append(user("And on."))


# A compaction by the model: where its worker dies, and how often the model may have been asked in the end.
ASKED = {"lease": 1, "asked": 2, "row": 2, "boundary": 2, "message": 2, "ending": 2, "commit": 1}


def test_a_worker_killed_in_any_phase_of_a_summary_is_followed_by_another_that_asks_the_model_once_more_at_most(
    scene: Scene,
) -> None:
    """All at once, each on a session of its own, for every lease takes its time to run out."""
    worker = scene.victim()
    with ExitStack() as stack:
        http = stack.enter_context(scene.service.client())
        body = {"window": WINDOW, "summarizer": LLM}
        asked = {phase: Asked(Talk(http, f"phase-{phase}"), "/compact", body, {}) for phase in ASKED}
        for phase, one in asked.items():
            one.talk.append(*long_turns(6), user(f"Are you phase-{phase}?"), *long_turns(2))
        told: Counter[str] = Counter()
        scene.server.answer = lambda request: thinking(told, request)
        callers = [stack.enter_context(Caller(scene.service, worker)) for _ in asked]
        threads = stack.enter_context(ThreadPoolExecutor(len(asked)))
        gates = [holding.at_gate(phase, asked[phase].talk.id) for phase in ASKED if phase not in {"asked", "row"}]
        with holding.held(scene.url, *gates, holding.at_row(asked["row"].talk.id)):
            for caller, one in zip(callers, asked.values(), strict=True):
                one.send(caller)
            # One waits for the model, and the one at the first gate has not asked it.
            wait_until(lambda: len(holding.waiting(scene.url)) == len(asked) - 1 and told["asked"] == 1)
            assert told == Counter(dict.fromkeys(ASKED, 1) | {"lease": 0})
            again = kill_and_ask_again(scene, worker, threads, asked)
        # Nobody waits for ever: a lease that its holder cannot renew runs out.
        outcomes = dict(zip(ASKED, [one() for one in again], strict=True))
        scene.server.answer = "Another summary."
        for phase, one in asked.items():
            check_summary(one.talk, outcomes[phase])
            assert told[phase] <= ASKED[phase], phase
        check_nothing_left(scene)


def thinking(told: Counter[str], request: Request) -> Reply:
    """Count who is asked for, and leave the first who asks for one of them without an answer."""
    [phase] = [phase for phase in ASKED if f"phase-{phase}?" in request.user]
    told[phase] += 1
    return Reply(hangs=phase == "asked" and told[phase] == 1)


def check_summary(talk: Talk, outcome: Any) -> None:
    """There is one boundary with its summary, made by the newest attempt; one that died before has done nothing."""
    assert outcome["status"] in {"applied", "unchanged"}
    assert len(boundaries(check_session(talk, every_version=True))) == 1
    newest, *dead = attempts(talk)
    assert newest["status"] == "applied"
    assert [(one["status"], one["error"]) for one in dead] in ([], [("abandoned", "holder-died")])
    talk.append(*long_turns(6))
    assert condense(talk, last_turns=2)["status"] == "applied"


def test_a_scheduler_whose_worker_is_killed_leaves_its_sessions_to_the_next_as_soon_as_its_claims_have_run_out(
    scene: Scene,
) -> None:
    """One run is killed while it writes its boundaries, another one while the model is asked."""
    worker = scene.victim()
    names = {"plain": [f"plain-{number}" for number in range(3)], "told": ["told"]}
    due = {"type": "turn_count", "threshold": 3}
    scene.server.answer = Reply(hangs=True)
    before = len(scene.server.requests)
    with ExitStack() as stack:
        http = stack.enter_context(scene.service.client())
        for run, name in [(run, name) for run, of_run in names.items() for name in of_run]:
            policy = {"window": WINDOW, "trigger": due, **({"summarizer": LLM} if run == "told" else {})}
            http.put(f"/v1/sessions/{name}", json={"policy": policy, "metadata": {"run": run}}).raise_for_status()
            Talk(http, name).append(*long_turns(6))
        callers = [stack.enter_context(Caller(scene.service, worker)) for _ in names]
        with holding.held(scene.url, holding.at_gate("boundary", "plain-1")):
            for caller, run in zip(callers, names, strict=True):
                caller.send("/v1/compact", {"metadata": {"run": run}}, {})
            scene.server.wait_for(before + 1)
            wait_until(lambda: len(holding.waiting(scene.url)) == 1)
            scene.kill(worker)
            scene.check_other()
        scene.server.answer = "A summary."
        wait_until(lambda: holding.waiting(scene.url) == [])
        let_claims_run_out(scene)
        report = http.post("/v1/compact", json={}).json()
        assert (report["failed"], report["remaining"], report["deferred"]) == (0, 0, 0)
        for name in [*names["plain"], *names["told"]]:
            assert len(boundaries(check_session(Talk(http, name), every_version=True))) == 1
        assert len(scene.server.requests) == before + 2
        check_nothing_left(scene)


def let_claims_run_out(scene: Scene) -> None:
    """See that claims and leases end by themselves and soon, and have that time pass at once."""
    longest = "SELECT extract(epoch FROM max({0}) - now()) AS left FROM {1} WHERE {0} IS NOT NULL"
    for column, table, most in (
        ("claimed_until", "sessions", CLAIM_SECONDS), ("alive_until", "compaction_attempts", LEASE_SECONDS),
    ):  # fmt: skip
        [found] = rows(scene.url, longest.format(column, table))
        assert (found["left"] or 0) <= most
        execute(scene.url, f"UPDATE {table} SET {column} = now() WHERE {column} > now()")  # noqa: S608
