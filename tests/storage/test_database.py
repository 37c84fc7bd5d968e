"""Connections to PostgreSQL: what reads cannot write, what fails is translated, what is gone comes back."""

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from sqlalchemy import text

from app import bootstrap, embedded
from app.domain.errors import Unavailable
from app.storage.database import Database, UniqueViolation
from tests.api.asking import HELLO, problem, url_of
from tests.conftest import FAST, Service, rows, settings_for, wait_until
from tests.talk import Talk


def run(url: str, journey: Callable[[Database], Coroutine[Any, Any, None]], *, pool_size: int = 2) -> None:
    """Run a journey on a database that is closed afterwards."""

    async def whole() -> None:
        database = Database(bootstrap.libpq_url(url), pool_size=pool_size)
        try:
            await journey(database)
        finally:
            await database.close()

    asyncio.run(whole())


WRITES = [
    "INSERT INTO sessions (session_key, tenant, session_id, metadata, labels)"
    " VALUES (gen_random_uuid(), 'default', 'x', '{}', '{}')",
    "DELETE FROM sessions",
    "UPDATE sessions SET version = 7",
    "CREATE TABLE t (n int)",
    "TRUNCATE events",
    "SELECT 1 FROM sessions FOR UPDATE",
]


@pytest.mark.parametrize("statement", WRITES)
def test_postgres_itself_refuses_a_write_on_the_reading_handle(database_url: str, statement: str) -> None:
    async def journey(database: Database) -> None:
        async with database.reading() as reader:
            with pytest.raises(Unavailable) as caught:
                await reader.all(text(statement))
            assert "read-only" in str(caught.value.__cause__)

    run(database_url, journey)


def test_the_reading_handle_reads(database_url: str) -> None:
    async def journey(database: Database) -> None:
        async with database.reading() as reader:
            assert (await reader.one(text("SELECT 1 AS n"))).n == 1
            assert await reader.first(text("SELECT 1 WHERE false")) is None
            assert len(await reader.all(text("SELECT generate_series(1, 3)"))) == 3

    run(database_url, journey)


INSERT = text(
    "INSERT INTO sessions (session_key, tenant, session_id, metadata, labels)"
    " VALUES ('6f2a7c1e-5b0d-4f7e-9a53-7475726e6c6f', 'default', :id, '{}', '{}')"
)


def test_a_transaction_is_kept_when_its_block_ends_and_undone_when_it_raises(database_url: str) -> None:
    async def journey(database: Database) -> None:
        async def fail() -> None:
            async with database.writing() as tx:
                assert await tx.run(INSERT, {"id": "undone"}) == 1
                raise KeyError

        with pytest.raises(KeyError):
            await fail()
        async with database.writing() as tx:
            assert await tx.all(text("SELECT 1 FROM sessions")) == []
            await tx.run(INSERT, {"id": "kept"})
        async with database.reading() as reader:
            assert (await reader.one(text("SELECT session_id FROM sessions"))).session_id == "kept"

    run(database_url, journey)


def test_a_single_statement_needs_no_transaction(database_url: str) -> None:
    async def journey(database: Database) -> None:
        async with database.one_statement() as tx:
            await tx.run(INSERT, {"id": "kept"})
            async with database.reading() as reader:
                assert len(await reader.all(text("SELECT 1 FROM sessions"))) == 1

    run(database_url, journey)


def test_a_broken_uniqueness_names_its_constraint(database_url: str) -> None:
    async def journey(database: Database) -> None:
        async with database.one_statement() as tx:
            await tx.run(INSERT, {"id": "a"})
            with pytest.raises(UniqueViolation) as caught:
                await tx.run(INSERT, {"id": "b"})
            assert caught.value.constraint == "pk_sessions"

    run(database_url, journey)


RAISE = "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$"
PASSING = [
    "08006",  # the connection failed
    "08003",  # there is none
    "53100",  # the disk is full
    "53200",  # out of memory
    "53300",  # too many connections
    "57014",  # the statement was cancelled
    "57P01",  # the server is being shut down
    "57P02",  # it crashed
    "57P03",  # it is just starting
    "58030",  # its disk fails
    "25006",  # it is a standby
    "40001",  # transactions got in each other's way
    "40P01",  # they waited for each other
    "42P01",  # no such table: a restore is under way
    "55000",  # the database takes no connections
    "55P03",  # a lock was not to be had
]
FAULTS = [
    "22003",  # a number out of range
    "22P05",  # a character that cannot be stored
    "23503",  # a reference that leads nowhere
    "23514",  # a check
    "42703",  # no such column
    "42601",  # no SQL
    "P0001",  # raised by hand
    "XX000",  # an internal error
]


@pytest.mark.parametrize("state", PASSING)
def test_what_passes_is_unavailable(database_url: str, state: str) -> None:
    async def journey(database: Database) -> None:
        with pytest.raises(Unavailable) as caught:
            async with database.writing() as tx:
                await tx.run(text(RAISE.format(state=state)))
        assert isinstance(caught.value.__cause__, asyncpg.PostgresError)

    run(database_url, journey)


@pytest.mark.parametrize("state", FAULTS)
def test_a_fault_of_ours_is_seen_as_one(database_url: str, state: str) -> None:
    async def journey(database: Database) -> None:
        with pytest.raises(asyncpg.PostgresError):
            async with database.writing() as tx:
                await tx.run(text(RAISE.format(state=state)))

    run(database_url, journey)


def test_a_value_that_does_not_fit_its_type_is_a_fault_of_ours(database_url: str) -> None:
    async def journey(database: Database) -> None:
        async with database.reading() as reader:
            with pytest.raises(asyncpg.DataError):
                await reader.all(text("SELECT CAST(:n AS bigint)"), {"n": 2**63})

    run(database_url, journey)


def test_a_handle_works_after_an_error(database_url: str) -> None:
    async def journey(database: Database) -> None:
        for _ in range(3):
            with pytest.raises(asyncpg.PostgresError):
                async with database.writing() as tx:
                    await tx.run(text("SELECT 1/0"))
        async with database.writing() as tx:
            assert (await tx.one(text("SELECT 1 AS n"))).n == 1
        assert database.pool_use() == {"reading": 0, "writing": 0}

    run(database_url, journey, pool_size=1)


NOWHERE = [
    "postgresql://nobody@127.0.0.1:1/none",  # nobody listens
    "postgresql://nobody@/none?host=/nonexistent",  # no such socket
]


@pytest.mark.parametrize("url", NOWHERE)
def test_a_database_that_is_not_there_is_unavailable(url: str) -> None:
    async def journey(database: Database) -> None:
        with pytest.raises(Unavailable):
            async with database.reading():
                pass
        with pytest.raises(Unavailable):
            async with database.writing():
                pass

    run(url, journey)


def test_a_connection_that_the_server_ends_is_unavailable_and_replaced(database_url: str) -> None:
    async def journey(database: Database) -> None:
        kill = text("SELECT pg_terminate_backend(pg_backend_pid())")
        with pytest.raises(Unavailable):
            async with database.writing() as tx:
                await tx.all(kill)
        async with database.writing() as tx:
            assert (await tx.one(text("SELECT 1 AS n"))).n == 1

    run(database_url, journey, pool_size=1)


# A pool of one connection that somebody holds.


@pytest.fixture
def narrow(database_url: str) -> Iterator[Service]:
    """A service with one connection to read and one to write."""
    with Service(settings_for(database_url, database_pool_size=1)) as service:
        yield service


def waiting(service: Service) -> bool:
    """Say whether a statement of the service waits for a lock."""
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(rows(url_of(service), query))


def test_an_exhausted_pool_is_unavailable_and_recovers(narrow: Service) -> None:
    with narrow.client() as http, narrow.client() as other:
        talk = Talk(http, "s")
        talk.append(HELLO)
        answers: list[httpx.Response] = []

        async def hold() -> None:
            holder = await asyncpg.connect(url_of(narrow))
            try:
                async with holder.transaction():
                    await holder.execute("SELECT 1 FROM sessions FOR UPDATE")
                    append = threading.Thread(
                        target=lambda: answers.append(http.post(talk.path + "/events", json={"events": [HELLO]}))
                    )
                    append.start()
                    await asyncio.to_thread(wait_until, lambda: waiting(narrow))
                    refused = await asyncio.to_thread(other.put, "/v1/sessions/other")
                    assert problem(refused, 503, "unavailable")
                    assert int(refused.headers["retry-after"]) >= 1
                    # What only reads has connections of its own.
                    assert (await asyncio.to_thread(other.get, talk.path + "/view")).status_code == 200
                    assert (await asyncio.to_thread(other.get, "/readyz")).status_code == 200
                    assert (await asyncio.to_thread(other.get, "/healthz")).status_code == 200
            finally:
                await holder.close()
            await asyncio.to_thread(append.join)

        asyncio.run(hold())
        assert [answer.status_code for answer in answers] == [201]
        assert other.put("/v1/sessions/other").status_code == 201


# A database that goes and comes back.


class Away:
    """A server of the test's own, behind an address that stays the same when it is started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = folder / "socket"
        self.server: embedded.Server | None = None

    @property
    def url(self) -> str:
        return f"postgresql://turnlog@/turnlog?host={self.address}"

    def start(self) -> None:
        self.server = embedded.start(self.folder / "data", settings=FAST)
        self.address.unlink(missing_ok=True)
        self.address.symlink_to(self.server.url.partition("host=")[2])

    def stop(self) -> None:
        if self.server:
            self.server.stop()
            self.server = None


@pytest.fixture
def away() -> Iterator[Away]:
    # Short, for a socket's path may not be long; and open, for as root the server is another user's.
    folder = Path(tempfile.mkdtemp(prefix="tl-"))
    folder.chmod(0o755)
    found = Away(folder)
    found.start()
    try:
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(
    bool(os.environ.get("TURNLOG_TEST_DATABASE_URL")), reason="NOT TESTED: this needs the embedded PostgreSQL"
)
def test_a_database_that_goes_is_unavailable_and_all_is_well_when_it_returns(away: Away) -> None:
    with Service(settings_for(away.url)) as service, service.client() as http:
        talk = Talk(http, "s")
        talk.append(HELLO)

        for _ in range(2):
            away.stop()
            attempts: list[tuple[str, str, Any]] = [
                ("GET", talk.path, None),
                ("GET", talk.path + "/view", None),
                ("GET", talk.path + "/events", None),
                ("POST", talk.path + "/events", {"events": [HELLO]}),
                ("POST", talk.path + "/compact", {"window": {"rule": "last_turns", "size": 1}}),
                ("PUT", "/v1/sessions/t", {}),
                ("PATCH", talk.path, {"metadata": {"a": 1}}),
                ("DELETE", talk.path, None),
                ("GET", "/v1/sessions", None),
                ("POST", "/v1/purge", {}),
                ("GET", "/v1/chat-memory/s", None),
                ("GET", "/readyz", None),
            ]
            for method, path, body in attempts:
                answer = http.request(method, path, json=body)
                problem(answer, 503, "unavailable")
                assert int(answer.headers["retry-after"]) >= 1
                assert "socket" not in answer.text
            assert http.get("/healthz").status_code == 200
            assert http.get("/metrics").status_code == 200
            # What needs no database is judged without one.
            assert http.post(talk.path + "/events", json={}).status_code == 422
            assert http.get("/nowhere").status_code == 404

            away.start()
            wait_until(lambda: http.get("/readyz").status_code == 200)
            version = talk.session()["version"]
            assert talk.append(HELLO, status=201)["version"] == version + 1
            assert talk.compact(last_turns=1)["status"] == "applied"
            assert len(talk.log()) == version + 2


@pytest.mark.skipif(
    bool(os.environ.get("TURNLOG_TEST_DATABASE_URL")), reason="NOT TESTED: this needs the embedded PostgreSQL"
)
def test_a_restart_that_nobody_noticed_costs_at_most_one_answer_of_each_pool(away: Away) -> None:
    """The pools hold connections of the old server; the first of them to fail takes the others with it."""
    with Service(settings_for(away.url)) as service, service.client() as http:
        talk = Talk(http, "s")
        talk.append(HELLO)

        def read(_: int) -> int:
            with service.client() as client:
                return client.get(talk.path + "/view").status_code

        with ThreadPoolExecutor(6) as pool:
            assert set(pool.map(read, range(30))) == {200}
        away.stop()
        away.start()
        for method, path in (("GET", talk.path + "/view"), ("PUT", "/v1/sessions/t")):
            first, *rest = [http.request(method, path).status_code for _ in range(12)]
            assert first in {200, 201, 503}
            assert set(rest) <= {200, 201}
