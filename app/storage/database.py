"""Connections to PostgreSQL: a handle for reading, which the server itself holds to reading, and one for writing."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from typing import Any, Final

import asyncpg
from sqlalchemy import ClauseElement, NullPool
from sqlalchemy.dialects.postgresql import asyncpg as dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.errors import NotLetIn, TurnlogError, Unavailable
from app.storage.pool import Pool

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


# The driver's words for a connection that cannot be used; the second one's, when a server is killed at an odd moment.
_LOST: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError)


class UniqueViolation(Exception):
    """A unique constraint refused a row; ``constraint`` is its name."""

    def __init__(self, constraint: str) -> None:
        super().__init__(constraint)
        self.constraint = constraint


class BadUrl(TurnlogError):
    """The database's URL cannot be used."""


class Row(asyncpg.Record):  # type: ignore[misc]
    """A row of a result; its columns are its attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Reader:
    """An open connection that reads."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def all(self, statement: ClauseElement, parameters: Mapping[str, Any] | None = None) -> Sequence[Row]:
        """Run one statement and return its rows."""
        sql, values = as_sent(statement, parameters)
        with _translated():
            rows: Sequence[Row] = await self._connection.fetch(sql, *values, timeout=STATEMENT_SECONDS)
        return rows

    async def first(self, statement: ClauseElement, parameters: Mapping[str, Any] | None = None) -> Row | None:
        """Run one statement and return its first row, or None when it has none."""
        rows = await self.all(statement, parameters)
        return rows[0] if rows else None

    async def one(self, statement: ClauseElement, parameters: Mapping[str, Any] | None = None) -> Row:
        """Run one statement that always has one row, and return it."""
        (row,) = await self.all(statement, parameters)
        return row


class Writer(Reader):
    """An open connection that reads and writes."""

    async def run(self, statement: ClauseElement, parameters: Mapping[str, Any] | None = None) -> int:
        """Run one statement that returns no rows, and return how many it changed."""
        sql, values = as_sent(statement, parameters)
        with _translated():
            # Postgres answers with the command and that number: "UPDATE 3", "INSERT 0 1".
            done: str = await self._connection.execute(sql, *values, timeout=STATEMENT_SECONDS)
        return int(done.rpartition(" ")[2])

    async def patiently(self, statement: ClauseElement, parameters: Mapping[str, Any]) -> Row:
        """Run one statement that always has a row, however long it takes: what deletes a log grows with the log."""
        sql, values = as_sent(statement, parameters)
        with _translated():
            row: Row
            (row,) = await self._connection.fetch(sql, *values)
        return row


def as_sent(statement: ClauseElement, parameters: Mapping[str, Any] | None) -> tuple[str, Sequence[Any]]:
    """Return a statement with numbered parameters, as Postgres takes them, and their values in that order."""
    sql, names, constants = _compiled(statement)
    given = constants if parameters is None else {**constants, **parameters}
    return sql, [given[name] for name in names]


@cache
def _compiled(statement: ClauseElement) -> tuple[str, Sequence[str], Mapping[str, Any]]:
    """Compile a statement once: there are as many as the modules of this package hold, and each is kept there."""
    compiled = statement.compile(dialect=_DIALECT)
    names = compiled.positiontup or ()  # type: ignore[attr-defined]
    return compiled.string, names, {name: value for name, value in compiled.params.items() if value is not None}


_DIALECT: Final = dialect.dialect()  # type: ignore[no-untyped-call]


class Database:
    """Two small pools on one database. Nothing relies on the state of a session, so a connection is never reset."""

    def __init__(self, url: str, *, pool_size: int) -> None:
        self._url = url
        self._reading = self._pool(pool_size, {"default_transaction_read_only": "on"})
        self._writing = self._pool(pool_size, {})

    def _pool(self, size: int, server_settings: dict[str, str]) -> Pool:
        return Pool(partial(self._connect, server_settings), size=size, seconds=CONNECT_SECONDS)

    async def _connect(self, server_settings: dict[str, str]) -> Any:
        # asyncpg reads the URL itself, for it knows libpq's parameters (sslmode, passfile, …) and SQLAlchemy does not.
        return await asyncpg.connect(
            self._url,
            timeout=CONNECT_SECONDS,
            record_class=Row,
            server_settings={"application_name": "turnlog", **server_settings},
        )

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Reader]:
        """Open a handle that Postgres refuses every write. Each statement sees its own snapshot."""
        async with _lent(self._reading) as connection:
            yield Reader(connection)

    @asynccontextmanager
    async def one_statement(self) -> AsyncIterator[Writer]:
        """Open a handle for a write that is a single statement and so needs no transaction around it."""
        async with _lent(self._writing) as connection:
            yield Writer(connection)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Writer]:
        """Open a transaction: committed when the block ends, rolled back when it raises."""
        async with _lent(self._writing) as connection:
            # Named, for the rules are made for this level, whatever the database's default is.
            transaction = connection.transaction(isolation="read_committed")
            await _in_time(transaction.start())
            try:
                yield Writer(connection)
            except (asyncio.CancelledError, Unavailable):
                # The connection is ended, and the transaction with it: there may be nobody who hears a rollback.
                raise
            except BaseException:
                await _in_time(transaction.rollback())
                raise
            await _in_time(transaction.commit())

    def pool_use(self) -> dict[str, int]:
        """Return how many connections of each pool are in use right now."""
        return {"reading": self._reading.in_use, "writing": self._writing.in_use}

    async def run_sync(self, function: Any) -> Any:
        """Run a synchronous function on a SQLAlchemy connection in a transaction: what Alembic needs.

        It may take as long as it takes: a migration, or the wait for another replica's.
        """
        connect = partial(self._connect, {})
        engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
        with _translated():
            async with engine.begin() as connection:
                return await connection.run_sync(function)

    async def close(self) -> None:
        """Close every connection."""
        await self._reading.close()
        await self._writing.close()


@asynccontextmanager
async def _lent(pool: Pool) -> AsyncIterator[Any]:
    """Lend a connection. After a caller who went away, or trouble with the connection, nobody else gets it."""
    with _translated():
        connection = await pool.take()
    broken = False
    try:
        yield connection
    except (asyncio.CancelledError, Unavailable):
        broken = True
        raise
    finally:
        pool.give_back(connection, broken=broken)


async def _in_time(step: Coroutine[Any, Any, None]) -> None:
    """Begin or end a transaction, with the same patience as for a statement."""
    with _translated():
        async with asyncio.timeout(STATEMENT_SECONDS):
            await step


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the driver's errors into ours, by SQLSTATE and constraint name."""
    try:
        yield
    except (DBAPIError, OSError, TimeoutError, asyncpg.PostgresError, *_LOST) as error:
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
