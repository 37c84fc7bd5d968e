"""A service with two workers, one of which is killed, and requests that their worker does not survive."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from tests.conftest import rows, wait_until
from tests.journeys import holding
from tests.journeys.callers import Caller
from tests.journeys.processes import LONG, Serving
from tests.model_server import ModelServer
from tests.talk import Talk, user

_TABLE_HELD = "SELECT 1 FROM pg_locks WHERE relation = 'events'::regclass AND mode = 'AccessExclusiveLock' AND granted"


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

    def check_other(self) -> None:
        """The worker that is left answers, on new connections."""
        with self.service.client() as other:
            assert other.get("/healthz").status_code == 200
            talk = Talk(other, f"other-{self.started}")
            assert other.put(talk.path, json={}).status_code in {200, 201}
            # A test that holds the whole table holds everybody's events.
            if not rows(self.url, _TABLE_HELD):
                assert talk.append(user("Are you well?"))["version"] == talk.view()["version"]


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
                time.sleep(0.05)
                continue
            if answer.status_code != 503:
                assert answer.status_code in {200, 201}, answer.text
                return answer.json()
            time.sleep(0.05)
        raise AssertionError("nobody ever answered")


def kill_and_ask_again(
    scene: Scene, worker: int, threads: ThreadPoolExecutor, asked: dict[str, Asked]
) -> Sequence[Callable[[], Any]]:
    """Kill the worker and send everything again, while what held it may still be held; the other worker answers."""
    scene.kill(worker)
    again = [threads.submit(one.again) for one in asked.values()]
    scene.check_other()
    return [one.result for one in again]


def check_nothing_left(scene: Scene) -> None:
    """Nobody waits, nothing is locked, and no transaction is left alone."""
    wait_until(lambda: holding.waiting(scene.url) == [] and locked(scene.url) == [], LONG)
    assert rows(scene.url, "SELECT 1 FROM compaction_attempts WHERE status = 'running'") == []
