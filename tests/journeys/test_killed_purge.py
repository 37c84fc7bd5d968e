"""`kill -9` of the service or of one of its workers in the middle of a purge, and the end of its connection."""

import os
import signal
import threading
from contextlib import suppress

import httpx
import pytest

from tests.conftest import execute, rows, wait_until
from tests.journeys.holding import held
from tests.journeys.processes import Serving
from tests.talk import Talk, turns

SESSIONS = 20
# A purge has deleted the sessions' rows by the time it comes to their events, and waits there for this lock.
HELD = "LOCK TABLE events IN SHARE MODE"
WAITING = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%purged AS%' AND wait_event_type = 'Lock'"


def kill(whom: str, service: Serving, url: str) -> None:
    match whom:
        case "service":
            service.kill()
        case "worker":
            os.kill(service.workers[0], signal.SIGKILL)
        case _:
            execute(url, f"SELECT pg_terminate_backend(pid) FROM ({WAITING}) AS waiting")  # noqa: S608


@pytest.mark.parametrize("whom", ["service", "worker", "connection"])
def test_a_purge_that_is_killed_in_the_middle_has_done_nothing_and_the_next_does_all(
    database_url: str, whom: str
) -> None:
    with Serving("--workers", "2" if whom == "worker" else "1", database_url=database_url) as service:
        with service.client() as http:
            for number in range(SESSIONS):
                Talk(http, f"gone-{number}").append(*turns(3))
            Talk(http, "kept").append(*turns(3))
        execute(database_url, "UPDATE sessions SET expires_at = now() - interval '1 hour' WHERE session_id <> 'kept'")

        def purge() -> None:
            with suppress(httpx.HTTPError), service.client() as http:
                http.post("/v1/purge")

        with held(database_url, HELD):
            asking = threading.Thread(target=purge)
            asking.start()
            wait_until(lambda: bool(rows(database_url, WAITING)))
            kill(whom, service, database_url)
        asking.join()
        stored = "SELECT (SELECT count(*) FROM sessions) AS sessions, (SELECT count(*) FROM events) AS events"
        # Whoever was killed before the end has deleted nothing. A worker's statement may outlive the worker, whole.
        wait_until(lambda: not rows(database_url, WAITING))
        found = rows(database_url, stored)[0]
        assert found in [
            {"sessions": SESSIONS + 1, "events": 6 * (SESSIONS + 1)},
            {"sessions": 1, "events": 6},
        ]
        if whom == "service":
            service.restart()
        with service.client() as http:
            wait_until(lambda: http.get("/readyz").status_code == 200)
            assert http.post("/v1/purge").json()["remaining"] == 0
            assert rows(database_url, stored)[0] == {"sessions": 1, "events": 6}
            assert len(Talk(http, "kept").log()) == 6
