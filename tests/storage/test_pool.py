"""The pool: whose turn it is, and what becomes of a connection that somebody was in the middle of."""

import asyncio

import pytest
from sqlalchemy import text

from app.domain.errors import Unavailable
from app.storage.database import Database
from tests.conftest import rows, wait_until
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
