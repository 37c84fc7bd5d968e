"""The pool: whose turn it is, and what becomes of a connection that somebody was in the middle of."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from app.domain.errors import Unavailable
from app.storage import database as module
from app.storage.database import Database
from tests.conftest import execute, rows, wait_until
from tests.storage.test_database import run

BACKEND = text("SELECT pg_backend_pid() AS pid")


async def backend(database: Database) -> int:
    """Return which connection is lent for writing."""
    async with database.one_statement() as tx:
        return int((await tx.one(BACKEND)).pid)


def test_the_connection_that_was_used_last_is_used_next(database_url: str) -> None:
    async def journey(database: Database) -> None:
        assert len({await backend(database) for _ in range(5)}) == 1

    run(database_url, journey, pool_size=3)


def test_more_callers_than_connections_are_all_served_and_nothing_stays_in_use(database_url: str) -> None:
    async def journey(database: Database) -> None:
        served = await asyncio.gather(*(backend(database) for _ in range(50)))
        assert len(set(served)) <= 3
        assert database.pool_use() == {"reading": 0, "writing": 0}

    run(database_url, journey, pool_size=3)


def test_a_caller_who_goes_away_in_the_middle_of_a_statement_leaves_a_pool_that_works(database_url: str) -> None:
    async def journey(database: Database) -> None:
        for _ in range(3):
            asleep = asyncio.create_task(sleep(database))
            await asyncio.sleep(0.05)
            asleep.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asleep
            async with database.writing() as tx:
                assert (await tx.one(text("SELECT 1 AS n"))).n == 1
        assert database.pool_use() == {"reading": 0, "writing": 0}

    async def sleep(database: Database) -> None:
        async with database.writing() as tx:
            await tx.all(text("SELECT pg_sleep(30)"))

    run(database_url, journey, pool_size=1)
    left = "SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
    wait_until(lambda: rows(database_url, left) == [])


def test_a_caller_who_goes_away_while_waiting_takes_nobodys_turn(database_url: str) -> None:
    async def journey(database: Database) -> None:
        async with database.one_statement() as held:
            waiting = [asyncio.create_task(backend(database)) for _ in range(4)]
            await asyncio.sleep(0.02)
            waiting[0].cancel()
            waiting[2].cancel()
            pid = (await held.one(BACKEND)).pid
        served = await asyncio.gather(*waiting, return_exceptions=True)
        assert [one == pid for one in served] == [False, True, False, True]
        assert await backend(database) == pid

    run(database_url, journey, pool_size=1)


def test_a_turn_that_comes_at_the_moment_of_going_away_goes_to_the_next(database_url: str) -> None:
    async def journey(database: Database) -> None:
        async with database.one_statement():
            first = asyncio.create_task(backend(database))
            second = asyncio.create_task(backend(database))
            await asyncio.sleep(0.02)
        # The turn has been passed on, and the one it was passed to has not run yet.
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second
        assert await backend(database)

    run(database_url, journey, pool_size=1)


def test_what_a_caller_raises_is_the_callers_own(database_url: str) -> None:
    async def journey(database: Database) -> None:
        for own in (TimeoutError("mine"), OSError("mine"), ValueError("mine")):
            for handle in (database.reading, database.one_statement, database.writing):
                with pytest.raises(type(own), match="mine") as caught:
                    async with handle():
                        raise own
                assert not isinstance(caught.value, Unavailable)
        assert await backend(database)

    run(database_url, journey, pool_size=1)


def test_statements_that_were_given_up_are_called_off_before_others_take_their_place(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STATEMENT_SECONDS", 0.3)
    execute(database_url, "CREATE TABLE t (n int)")
    inserting = text("INSERT INTO t SELECT 1 FROM pg_sleep(2)")

    async def journey(database: Database) -> None:
        for _ in range(6):
            with pytest.raises(Unavailable):
                async with database.one_statement() as tx:
                    await tx.run(inserting)
        active = await database_rows(database)
        assert len(active) <= 2

    async def database_rows(database: Database) -> list[int]:
        async with database.reading() as reader:
            found = await reader.all(
                text("SELECT pid FROM pg_stat_activity WHERE query LIKE 'INSERT INTO t %' AND state = 'active'")
            )
        return [row.pid for row in found]

    run(database_url, journey, pool_size=2)
    # Had one of them gone on, it would have stored its row by now.
    execute(database_url, "SELECT pg_sleep(2.5)")
    assert rows(database_url, "SELECT n FROM t") == []


def test_a_transaction_is_read_committed_whatever_the_databases_default_is(database_url: str) -> None:
    name = rows(database_url, "SELECT current_database() AS name")[0]["name"]
    execute(database_url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")

    async def journey(database: Database) -> None:
        async with database.writing() as tx:
            level = await tx.one(text("SELECT current_setting('transaction_isolation') AS level"))
        assert level.level == "read committed"

    run(database_url, journey)


def test_a_closed_pool_lends_nothing_and_ends_what_comes_back(database_url: str) -> None:
    async def journey(database: Database) -> None:
        async with database.one_statement() as tx:
            pid = (await tx.one(BACKEND)).pid
            await database.close()
        with pytest.raises(Unavailable):
            await backend(database)
        await asyncio.sleep(0.1)
        assert rows_of(pid) == []

    def rows_of(pid: int) -> list[dict[str, object]]:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(rows, database_url, "SELECT FROM pg_stat_activity WHERE pid = $1", pid).result()

    run(database_url, journey)
