"""`kill -9` of one worker of two in every phase of an append and of a compaction, while the other one goes on serving.

Every phase is held still from outside: by half a body, by locks, by a model that does not answer, and by SIGSTOP where
the worker itself is to stand between two statements.
"""

import itertools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx
import pytest

from app.storage.attempts import LEASE_SECONDS
from tests.conftest import cloned, rows, wait_until
from tests.field.modelled import LLM, attempts, condense, long_turns, variables
from tests.journeys import holding
from tests.journeys.callers import Caller
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


@dataclass
class Scene:
    """A service with two workers on a database with gates, and the model that they ask."""

    service: Serving
    url: str
    server: ModelServer
    started: int = 2

    def victim(self) -> int:
        """Return one of the workers, as soon as there are two again that serve."""
        wait_until(lambda: self.service.started >= self.started and len(self.service.workers) == 2, LONG)
        return self.service.workers[0]

    def kill(self, worker: int) -> None:
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: worker not in self.service.workers, LONG)
        self.started += 1


@pytest.fixture(scope="module")
def scene(postgres: str, template: str) -> Iterator[Scene]:
    with cloned(postgres, template) as url, ModelServer() as server:
        holding.build_gates(url)
        with Serving("--workers", 2, database_url=url, **variables(server)) as service:
            scene = Scene(service, url, server)
            yield scene
            scene.victim()
            assert service.terminate() == 0, service.output
            assert session_of(service.pid) == [], "a worker outlived the service"
        assert "Traceback" not in service.output, service.output
        left = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'turnlog'"
        wait_until(lambda: rows(url, left) == [], LONG)
        assert locked(url) == []


def locked(url: str) -> list[dict[str, Any]]:
    """Return what is left of transactions that nobody ends: their connections, and the locks of anybody but us."""
    return rows(
        url,
        "SELECT a.pid, a.state, a.query FROM pg_stat_activity a WHERE a.datname = current_database()"
        " AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'"
        " AND (a.state LIKE 'idle in transaction%' OR EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid))",
    )


class Asked(NamedTuple):
    """A request that its worker does not survive."""

    talk: Talk
    path: str
    body: dict[str, Any]
    headers: dict[str, str]

    def send(self, caller: Caller, *, half: bool = False) -> None:
        caller.send(self.talk.path + self.path, self.body, self.headers, half=half)

    def again(self) -> Any:
        """Send it, as it is, until it is answered: by the other worker, or by the one in the dead one's place."""
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            try:
                with httpx.Client(base_url=self.talk.http.base_url, timeout=LONG) as own:
                    answer = own.post(self.talk.path + self.path, json=self.body, headers=self.headers)
            except httpx.TransportError:
                continue
            if answer.status_code != 503:
                assert answer.status_code in {200, 201}, answer.text
                return answer.json()
            time.sleep(0.05)
        raise AssertionError("nobody ever answered")


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


def kill_and_ask_again(
    scene: Scene, worker: int, threads: ThreadPoolExecutor, asked: dict[str, Asked]
) -> Sequence[Callable[[], Any]]:
    """Kill the worker and send everything again, while what held it may still be held; the other worker answers."""
    scene.kill(worker)
    again = [threads.submit(one.again) for one in asked.values()]
    with scene.service.client() as other:
        assert other.get("/healthz").status_code == 200
        assert other.put(f"/v1/sessions/other-{next(_numbers)}", json={}).status_code == 201
    return [one.result for one in again]


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


def check_nothing_left(scene: Scene) -> None:
    """Nobody waits, nothing is locked, and no transaction is left alone."""
    wait_until(lambda: holding.waiting(scene.url) == [] and locked(scene.url) == [], LONG)
    assert rows(scene.url, "SELECT 1 FROM compaction_attempts WHERE status = 'running'") == []


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
        began = time.monotonic()
        outcomes = dict(zip(ASKED, [one() for one in again], strict=True))
        # As long as a lease lasts that was renewed just now, and a little for a machine that has much to do.
        assert time.monotonic() - began < LEASE_SECONDS + 7
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
