"""A pool of connections that costs nothing while one is free.

asyncpg's own pool hands a connection back in a task of its own, and SQLAlchemy's engine runs each call in a greenlet.
Either is fine off the hot path. Here every turn of the event loop is a system call, and they take longer than
Postgres takes to append an event (docs/performance.md).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

# After these the connection is in the middle of something, or gone: nobody else may get it.
_BROKEN: Final = (asyncio.CancelledError, TimeoutError, OSError, asyncpg.InterfaceError)


class Pool:
    """Up to ``size`` connections, opened when they are first needed. The one that was used last is used next."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], *, size: int, seconds: float) -> None:
        """``seconds`` is how long to wait for a connection to become free."""
        self._connect = connect
        self._seconds = seconds
        self._free = size
        self._idle: list[Any] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._size = size

    @property
    def in_use(self) -> int:
        """How many connections are in somebody's hands."""
        return self._size - self._free

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Lend a connection.

        Raises:
            TimeoutError: none became free in time; and what connecting raises.
        """
        await self._take_turn()
        connection = None
        try:
            connection = await self._open()
            yield connection
        except _BROKEN:
            if connection is not None:
                connection.terminate()
            raise
        finally:
            if connection is not None and not connection.is_closed():
                self._idle.append(connection)
            self._pass_turn()

    async def _open(self) -> Any:
        """Return an idle connection that is still there, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()

    async def _take_turn(self) -> None:
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # It came at the very moment of giving up.
                self._pass_turn()
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _pass_turn(self) -> None:
        """Let the one who has waited longest have our turn; nobody else can come between."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def close(self) -> None:
        """Close the idle connections; whoever still has one ends with it."""
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=self._seconds)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()
