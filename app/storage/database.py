"""Connections to PostgreSQL: a handle for reading, which the server itself holds to reading, and one for writing."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import cache, partial
from types import TracebackType
from typing import Any, Final

from sqlalchemy import ClauseElement, NullPool
from sqlalchemy.dialects.postgresql import asyncpg as dialect
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.errors import Unavailable
from app.storage import connecting, refusals
from app.storage.connecting import Row
from app.storage.pool import Pool
from app.storage.refusals import UniqueViolation, translated
from app.storage.watch import Watch

__all__ = ["Database", "Reader", "Row", "UniqueViolation", "Writer", "as_sent"]

# Who has no connection within this time, whether none is free or none can be opened, is told so.
POOL_SECONDS: Final = 4.0
# A connection that is not there within this time is not coming; where nobody waits for it.
_CONNECT_SECONDS: Final = 5.0
# No statement of turnlog takes longer on a healthy database, save those that delete whole logs.
STATEMENT_SECONDS: Final = 60.0
# A server that lately refused to write anything is taken to do so still.
_NO_WRITES_SECONDS: Final = 3.0


class Reader:
    """An open connection that reads."""

    def __init__(self, connection: Any, watch: Watch) -> None:
        self._connection = connection
        self._watch = watch

    async def all(self, statement: ClauseElement, parameters: Mapping[str, Any] | None = None) -> Sequence[Row]:
        """Run one statement and return its rows."""
        sql, values = as_sent(statement, parameters)
        with translated(), self._watch.over(self._connection, STATEMENT_SECONDS):
            rows: Sequence[Row] = await self._connection.fetch(sql, *values)
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
        with translated(), self._watch.over(self._connection, STATEMENT_SECONDS):
            # Postgres answers with the command and that number: "UPDATE 3", "INSERT 0 1".
            done: str = await self._connection.execute(sql, *values)
        return int(done.rpartition(" ")[2])

    async def patiently(self, statement: ClauseElement, parameters: Mapping[str, Any]) -> Row:
        """Run one statement that always has a row, however long the server works on it.

        What deletes a log grows with the log.
        """
        sql, values = as_sent(statement, parameters)
        with translated(), self._watch.over(self._connection, math.inf):
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

    def __init__(self, url: str, *, pool_size: int, pooled: bool = False) -> None:
        """``pooled`` says that a pooler stands in between, which lends out its connections for each transaction."""
        self._open = partial(connecting.connect, url, pooled=pooled)
        self._pooled = pooled
        self._reading = self._pool(pool_size, connecting.READING)
        self._writing = self._pool(pool_size, connecting.WRITING)
        # One connection for what must not wait behind requests: who may come in, and whether the service is ready.
        self._aside = self._pool(1, connecting.READING)
        self._watch = Watch(partial(self._open, server_settings={}), pooled=pooled)
        self._no_writes_until = -math.inf

    def _pool(self, size: int, server_settings: Mapping[str, str]) -> Pool:
        return Pool(partial(self._open, server_settings=server_settings), size=size, seconds=POOL_SECONDS)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Reader]:
        """Open a handle that Postgres refuses every write. Each statement sees its own snapshot."""
        async with _Lent(self._reading) as connection, self._read_only(connection):
            yield Reader(connection, self._watch)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[Reader]:
        """Open a handle for reading that no number of slow reads keeps busy."""
        async with _Lent(self._aside) as connection, self._read_only(connection):
            yield Reader(connection, self._watch)

    def _read_only(self, connection: Any) -> AbstractAsyncContextManager[None]:
        """Hold a handle to reading: a connection of our own does so by itself, one of a pooler's by a transaction."""
        return self._transaction(connection, readonly=True) if self._pooled else nullcontext()

    def one_statement(self) -> AbstractAsyncContextManager[Writer]:
        """Open a handle for a write that is a single statement and so needs no transaction around it."""
        return _Lent(self._writing, lambda connection: Writer(connection, self._watch), self._note)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Writer]:
        """Open a transaction: committed when the block ends, rolled back when it raises."""
        async with _Lent(self._writing, note=self._note) as connection, self._transaction(connection):
            yield Writer(connection, self._watch)

    @asynccontextmanager
    async def _transaction(self, connection: Any, *, readonly: bool = False) -> AsyncIterator[None]:
        # Named, for the rules are made for this level, whatever the database's default is.
        transaction = connection.transaction(isolation="read_committed", readonly=readonly)
        with translated(), self._watch.over(connection, STATEMENT_SECONDS):
            await transaction.start()
        try:
            yield
        except (asyncio.CancelledError, Unavailable):
            # The connection is ended, and the transaction with it: there may be nobody who hears a rollback.
            raise
        except BaseException:
            with translated(), self._watch.over(connection, STATEMENT_SECONDS):
                await transaction.rollback()
            raise
        with translated(), self._watch.over(connection, STATEMENT_SECONDS):
            await transaction.commit()

    def _note(self, error: Unavailable) -> None:
        if refusals.is_of_writing(error):
            self._no_writes_until = asyncio.get_running_loop().time() + _NO_WRITES_SECONDS

    def takes_writes(self) -> bool:
        """Say whether no write was refused lately, for want of room on the server's disk. No reading shows that."""
        return asyncio.get_running_loop().time() >= self._no_writes_until

    def pool_use(self) -> dict[str, int]:
        """Return how many connections of each pool are in use right now."""
        return {"reading": self._reading.in_use, "writing": self._writing.in_use}

    async def run_sync(self, function: Any) -> Any:
        """Run a synchronous function on a SQLAlchemy connection in a transaction: what Alembic needs.

        It may take as long as it takes: a migration, or the wait for another replica's.
        """
        engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=partial(self._open, _CONNECT_SECONDS, server_settings={}),
            # The statements of the dialect have no names: a pooler's connection may have one of that name already.
            connect_args={"prepared_statement_name_func": str, "prepared_statement_cache_size": 0},
            poolclass=NullPool,
        )
        with translated():
            async with engine.begin() as connection:
                return await connection.run_sync(function)

    async def close(self) -> None:
        """Close every connection."""
        await self._watch.close()
        await self._aside.close()
        await self._reading.close()
        await self._writing.close()


class _Lent:
    """A connection of a pool, or what is made of one, for as long as a block lasts.

    After a caller who went away, or trouble with the connection, nobody else gets it. Written out, for a generator
    would take three times as long, and this stands around every statement.
    """

    __slots__ = ("_connection", "_made_of", "_note", "_pool")

    def __init__(
        self,
        pool: Pool,
        made_of: Callable[[Any], Any] | None = None,
        note: Callable[[Unavailable], None] | None = None,
    ) -> None:
        self._pool = pool
        self._made_of = made_of
        self._note = note

    async def __aenter__(self) -> Any:
        with translated():
            self._connection = await self._pool.take()
        return self._connection if self._made_of is None else self._made_of(self._connection)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._note is not None and isinstance(error, Unavailable):
            self._note(error)
        self._pool.give_back(self._connection, broken=isinstance(error, asyncio.CancelledError | Unavailable))
