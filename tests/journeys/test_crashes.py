"""`kill -9` of the service, of its PostgreSQL and of both, under traffic: nothing acknowledged is lost, none is half.

The clients do what a client should: they send a batch with ids of their own until somebody acknowledges it.
"""

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.storage import sessions as session_store
from app.storage.database import Database
from tests.conftest import cloned, rows, wait_until
from tests.journeys.processes import LONG, Serving
from tests.journeys.replayed import boundaries, check_session
from tests.talk import Talk, assistant, system, tool, turns, user


class Traffic:
    """Writers and compactors that go on through every crash, until they are told to finish."""

    def __init__(self, service: Serving, sessions: int, writers_each: int) -> None:
        self.sessions = [f"crash-{number}" for number in range(sessions)]
        self.acknowledged: dict[str, dict[str, int]] = {name: {} for name in self.sessions}
        self.applied = dict.fromkeys(self.sessions, 0)
        self.again = 0
        self._service = service
        self._writers_each = writers_each
        self._finish = threading.Event()
        self._futures: list[Future[None]] = []

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Let traffic flow as long as the block lasts, and finish what was begun."""
        works: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        for name in self.sessions:
            works += [(self._write, (name, number)) for number in range(self._writers_each)]
            works.append((self._compact, (name,)))
        with ThreadPoolExecutor(len(works)) as pool:
            try:
                self._futures = [pool.submit(work, *arguments) for work, arguments in works]
                self.more()
                yield
            finally:
                self._finish.set()
            for future in self._futures:
                future.result(LONG * 2)

    def _failed(self) -> bool:
        return any(future.done() for future in self._futures)

    def more(self) -> None:
        """Wait until every session has had another event acknowledged and another compaction applied."""
        before = self._progress()
        wait_until(
            lambda: self._failed() or all(now > then for now, then in zip(self._progress(), before, strict=True)), LONG
        )

    def _progress(self) -> list[int]:
        return [*map(len, self.acknowledged.values()), *self.applied.values()]

    def _write(self, name: str, writer: int) -> None:
        number = 0
        while not self._finish.is_set():
            number += 1
            ids = [f"{writer}-{number}-{at}" for at in range(4 if number % 3 else 2)]
            said = [user(f"question {number}"), assistant(c="find"), tool("c", "found"), assistant(f"answer {number}")]
            batch = [{"id": event_id, "message": one} for event_id, one in zip(ids, said, strict=False)]
            receipt = self._insist(f"/v1/sessions/{name}/events?create=true", {"events": batch})
            assert [one["id"] for one in receipt["events"]] == ids
            self.acknowledged[name] |= {one["id"]: one["seq"] for one in receipt["events"]}

    def _compact(self, name: str) -> None:
        number = 0
        while not self._finish.is_set():
            number += 1
            body: dict[str, Any] = {"window": {"rule": "last_turns", "size": 3}}
            if number % 3:
                body["summarizer"] = {"type": "text", "text": f"the story so far, told for the time number {number}"}
            outcome = self._insist(f"/v1/sessions/{name}/compact", body, allowed=(200, 404))
            assert outcome["status"] in {"applied", "unchanged", 404}, outcome
            self.applied[name] += outcome["status"] == "applied"

    def _insist(self, path: str, body: Any, allowed: tuple[int, ...] = (200, 201)) -> Any:
        """Send a request until it is answered: to a service that is away or not ready it is sent again, as it is."""
        end = time.monotonic() + LONG
        client: httpx.Client | None = None
        try:
            while True:
                assert time.monotonic() < end, "the service never came back"
                if client is None:
                    client = self._service.client()
                try:
                    answer = client.post(path, json=body)
                except httpx.TransportError:
                    client.close()
                    client = None
                else:
                    if answer.status_code != 503:
                        break
                    assert "retry-after" in answer.headers
                self.again += 1
                time.sleep(0.02)
            assert answer.status_code in allowed, f"{answer.status_code}: {answer.text}"
            return answer.json()
        finally:
            if client is not None:
                client.close()


def kill_service(service: Serving) -> None:
    service.kill()
    service.restart()


def kill_postgres(service: Serving) -> None:
    """The service starts it again by itself."""
    killed = service.postgres_pid
    os.kill(killed, signal.SIGKILL)
    with service.client() as client:
        wait_until(lambda: _new_postgres(service, killed) and client.get("/readyz").status_code == 200, LONG)
    assert service.process.poll() is None, "the service ended with its database"


def _new_postgres(service: Serving, killed: int) -> bool:
    with suppress(FileNotFoundError, ValueError):
        return service.postgres_pid != killed
    return False


def kill_both(service: Serving) -> None:
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(service.postgres_pid, signal.SIGKILL)
    kill_service(service)


@pytest.mark.parametrize(
    ("kill", "kills"),
    [(kill_service, 3), (kill_postgres, 4), (kill_both, 2)],
    ids=["service", "postgres", "both"],
)
def test_a_crash_loses_nothing_acknowledged_and_leaves_nothing_half(
    tmp_path: Path, kill: Callable[[Serving], None], kills: int
) -> None:
    seed = int(os.environ.get("TURNLOG_TEST_SEED") or time.time_ns() % 1_000_000)
    print(f"TURNLOG_TEST_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    moments = random.Random(seed)  # noqa: S311 - moments, not secrets

    with Serving(data_dir=tmp_path / "data") as service:
        traffic = Traffic(service, sessions=2, writers_each=2)
        with traffic.flowing():
            for _ in range(kills):
                time.sleep(moments.uniform(0.05, 0.6))
                kill(service)
                traffic.more()
        with service.client() as client:
            for name in traffic.sessions:
                check_acknowledged(Talk(client, name), traffic.acknowledged[name])
    assert traffic.again > 0, "no kill hit any request"


def check_acknowledged(talk: Talk, acknowledged: dict[str, int]) -> None:
    """Every acknowledged event is in the log, once, where its receipt said; and all else there is whole."""
    log = talk.log()
    stored = {logged["id"]: logged["seq"] for logged in log}
    assert acknowledged.items() <= stored.items()
    # Every batch was sent until it was acknowledged, so nothing of a client's is in the log that was not.
    of_service = {logged["id"] for logged in log if logged["synthetic"] or logged["type"] == "COMPACTION"}
    assert stored.keys() - of_service == acknowledged.keys()
    made = boundaries(log)
    assert made, "no compaction was applied"
    around = {seq for boundary in made[-8:] for seq in (boundary["seq"] - 1, boundary["seq"], boundary["seq"] + 1)}
    check_session(talk, versions=[seq for seq in sorted(around) if seq <= len(log)])


# Killed at the very moment between decide and write, and between send and acknowledge: on a database that lives on.


@pytest.fixture
def killed_while_waiting(postgres: str, template: str) -> Iterator[Callable[..., Talk]]:
    """Send a request that waits for its session's row, kill the service, let the row go, start the service again."""
    with cloned(postgres, template) as url, Serving(database_url=url) as service:

        async def scenario(name: str, path: str, body: Any) -> None:
            database = Database(url, pool_size=1)
            async with database.writing() as tx, httpx.AsyncClient(base_url=service.url, timeout=LONG) as client:
                await session_store.lock(tx, session_store.key_of("default", name))
                request = asyncio.create_task(client.post(f"/v1/sessions/{name}{path}", json=body))
                await asyncio.to_thread(wait_until, lambda: _waiting(url) == 1, LONG)
                service.process.kill()
                with pytest.raises(httpx.TransportError):
                    await request
            await database.close()

        with service.client() as first:
            Talk(first, "killed").append(system("S"), *({"message": one, "token_count": 50} for one in turns(6)))
        clients = []

        def run(path: str, body: Any) -> Talk:
            asyncio.run(scenario("killed", path, body))
            service.wait()
            service.restart()
            wait_until(lambda: _waiting(url) == 0, LONG)
            clients.append(service.client())
            return Talk(clients[-1], "killed")

        yield run
        for client in clients:
            client.close()


def _waiting(url: str) -> int:
    found = rows(
        url,
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND application_name = 'turnlog'",
    )
    return int(found[0]["count"])


@pytest.mark.parametrize("summary", [None, {"type": "text", "text": "Short."}], ids=["window", "summary"])
def test_a_compaction_killed_before_it_writes_leaves_the_view_as_it_was(
    killed_while_waiting: Callable[..., Talk], summary: dict[str, str] | None
) -> None:
    talk = killed_while_waiting(
        "/compact", {"window": {"rule": "last_turns", "size": 2}, **({"summarizer": summary} if summary else {})}
    )

    assert boundaries(check_session(talk)) == []
    assert talk.seqs() == list(range(1, 14))
    # And there is no state to get stuck in.
    assert talk.compact(last_turns=2)["status"] == "applied"
    check_session(talk)


def test_an_append_killed_before_it_was_acknowledged_succeeds_when_it_is_sent_again(
    killed_while_waiting: Callable[..., Talk],
) -> None:
    batch = {"events": [{"id": "a", "message": user("Hello?")}, {"id": "b", "message": assistant("Yes.")}]}
    talk = killed_while_waiting("/events", batch)

    receipt = talk.post("/events", batch, (200, 201))

    # The statement may have been carried out after the service's death. What counts is that it is there once.
    assert [one["seq"] for one in receipt["events"]] == [14, 15]
    assert [logged["id"] for logged in check_session(talk)][13:] == ["a", "b"]
