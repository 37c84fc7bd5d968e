"""Connections to PostgreSQL: a handle for reading, which the server itself holds to reading, and one for writing."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final

import asyncpg
from sqlalchemy import Executable, Row
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.domain.errors import NotLetIn, TurnlogError, Unavailable

# A connection that is not there within this time is not coming.
CONNECT_SECONDS: Final = 5.0
# No statement of turnlog takes longer on a healthy database, save those that delete whole logs.
STATEMENT_SECONDS: Final = 60.0
# Postgres's own words for "not now": connection trouble, out of resources, being shut down, standby, lock or
# serialization failures; and for "not you": no such user or database, no privilege. Everything else that it refuses is
# a fault of ours and must be seen as one.
_UNAVAILABLE_CLASSES: Final = ("08", "53", "57", "58")
_NOT_LET_IN: Final = ("28", "3D", "42501")
_UNAVAILABLE_STATES: Final = {"25006", "40001", "40P01", "55P03"}


class UniqueViolation(Exception):
    """A unique constraint refused a row; ``constraint`` is its name."""

    def __init__(self, constraint: str) -> None:
        super().__init__(constraint)
        self.constraint = constraint


class BadUrl(TurnlogError):
    """The database's URL cannot be used."""


class Reader:
    """An open connection that reads."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def all(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Run one statement and return its rows."""
        with _translated():
            async with asyncio.timeout(STATEMENT_SECONDS):
                return (await self._connection.execute(statement, parameters)).fetchall()

    async def first(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Row[Any] | None:
        """Run one statement and return its first row, or None when it has none."""
        rows = await self.all(statement, parameters)
        return rows[0] if rows else None

    async def one(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Row[Any]:
        """Run one statement that always has a row, and return it."""
        with _translated():
            async with asyncio.timeout(STATEMENT_SECONDS):
                return (await self._connection.execute(statement, parameters)).one()


class Writer(Reader):
    """An open connection that reads and writes."""

    async def run(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> int:
        """Run one statement that returns no rows, and return how many it changed."""
        with _translated():
            async with asyncio.timeout(STATEMENT_SECONDS):
                return (await self._connection.execute(statement, parameters)).rowcount

    async def patiently(self, statement: Executable, parameters: Mapping[str, Any]) -> Row[Any]:
        """Run one statement that always has a row, however long it takes: what deletes a log grows with the log."""
        with _translated():
            return (await self._connection.execute(statement, parameters)).one()


class Database:
    """Two small pools on one database. Nothing relies on the state of a session, so a connection is never reset."""

    def __init__(self, url: str, *, pool_size: int) -> None:
        self._reading = _engine(url, pool_size, {"default_transaction_read_only": "on"})
        self._writing = _engine(url, pool_size, {})

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Reader]:
        """Open a handle that Postgres refuses every write. Each statement sees its own snapshot."""
        async with _connected(self._reading) as connection:
            yield Reader(connection)

    @asynccontextmanager
    async def one_statement(self) -> AsyncIterator[Writer]:
        """Open a handle for a write that is a single statement and so needs no transaction around it."""
        async with _connected(self._writing) as connection:
            yield Writer(connection)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Writer]:
        """Open a transaction: committed when the block ends, rolled back when it raises."""
        async with _connected(self._writing.execution_options(isolation_level="READ COMMITTED")) as connection:
            with _translated():
                transaction = await connection.begin()
            try:
                yield Writer(connection)
            except BaseException:
                with _translated():
                    await transaction.rollback()
                raise
            with _translated():
                await transaction.commit()

    def pool_use(self) -> dict[str, int]:
        """Return how many connections of each pool are in use right now."""
        return {"reading": _in_use(self._reading), "writing": _in_use(self._writing)}

    async def run_sync(self, function: Any) -> Any:
        """Run a synchronous function on a SQLAlchemy connection in a transaction: what Alembic needs.

        It may take as long as it takes: a migration, or the wait for another replica's.
        """
        with _translated():
            async with self._writing.execution_options(isolation_level="READ COMMITTED").begin() as connection:
                return await connection.run_sync(function)

    async def close(self) -> None:
        """Close every connection."""
        await self._reading.dispose()
        await self._writing.dispose()


def _engine(url: str, pool_size: int, server_settings: dict[str, str]) -> AsyncEngine:
    # asyncpg reads the URL itself, for it knows libpq's parameters (sslmode, passfile, …) and SQLAlchemy does not.
    connect = partial(
        asyncpg.connect,
        url,
        timeout=CONNECT_SECONDS,
        server_settings={"application_name": "turnlog", **server_settings},
    )
    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        isolation_level="AUTOCOMMIT",
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=CONNECT_SECONDS,
        # Parameters are what clients said, and an error that shows them ends in a log.
        hide_parameters=True,
    )


def _in_use(engine: AsyncEngine) -> int:
    return int(engine.pool.checkedout())  # type: ignore[attr-defined]


@asynccontextmanager
async def _connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    with _translated():
        connection = await engine.connect()
    try:
        yield connection
    finally:
        await connection.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the driver's errors into ours, by SQLSTATE and constraint name."""
    try:
        yield
    except (DBAPIError, PoolExhausted, OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.PostgresError) as error:
        ours = _ours(error)
        if ours is None:
            raise
        raise ours from error


def _ours(error: Exception) -> Exception | None:
    """Return our error for the driver's; None for a fault of ours, which must be seen as one."""
    cause = getattr(error.orig, "__cause__", None) if isinstance(error, DBAPIError) else error
    if isinstance(cause, asyncpg.exceptions.ClientConfigurationError):
        return BadUrl(f"the database's URL cannot be used: {cause}")
    if isinstance(cause, asyncpg.PostgresError):
        state = cause.sqlstate or ""
        if state == "23505":
            return UniqueViolation(cause.constraint_name or "")
        if state.startswith(_NOT_LET_IN):
            return NotLetIn()
        passing = state.startswith(_UNAVAILABLE_CLASSES) or state in _UNAVAILABLE_STATES
        return Unavailable() if passing else None
    # asyncpg's word for a value that does not fit its type is both an interface error and a ValueError.
    return None if cause is None or isinstance(cause, ValueError) else Unavailable()
