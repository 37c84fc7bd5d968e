"""A pool of connections that costs nothing while one is free.

asyncpg's own pool hands a connection back in a task of its own, and SQLAlchemy's engine runs each call in a greenlet.
Either is fine off the hot path. Here every turn of the event loop is a system call, and they take longer than
Postgres takes to append an event (docs/performance.md).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg

from app.storage.refusals import LOST

# A server that does not answer within this time does not hear of a connection's end either.
_END_SECONDS: Final = 2.0
# Who has waited nearly too long for his turn still gets to open a connection.
_LEAST_SECONDS: Final = 0.5


class Pool:
    """Up to ``size`` connections, opened when they are first needed. The one that was used last is used next.

    When one proves dead, those that lie idle are not used again: what befell it has probably befallen them, and each
    would cost somebody an answer to find out.
    """

    def __init__(self, connect: Callable[[float], Awaitable[Any]], *, size: int, seconds: float) -> None:
        """``seconds`` is how long to wait for a connection to become free, or to open; ``connect`` is told the rest."""
        self._connect = connect
        self._seconds = seconds
        self._free = size
        self._idle: list[Any] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._size = size
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def in_use(self) -> int:
        """How many connections are in somebody's hands."""
        return self._size - self._free

    async def take(self) -> Any:
        """Lend a connection, which has to be given back.

        Raises:
            TimeoutError: none became free in time; and what connecting raises.
            InterfaceError: the pool is closed.
        """
        if self._is_closed:
            raise asyncpg.InterfaceError("the pool is closed")
        ends = await self._take_turn()
        try:
            return await self._open(ends)
        except BaseException:
            self._pass_turn()
            raise

    def give_back(self, connection: Any, *, broken: bool = False) -> None:
        """Take a connection back. One that somebody left in the middle of something is ``broken``, and ended.

        Its statement is called off first, which takes a moment, and only then is it somebody else's turn: there are
        never more connections than the pool has places.
        """
        if broken or self._is_closed:
            task = asyncio.create_task(self._end(connection))
            self._ending.add(task)
            task.add_done_callback(self._ended)
            if connection.is_closed():
                self._distrust()
            return
        if not connection.is_closed():
            self._idle.append(connection)
        self._pass_turn()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        self._pass_turn()

    async def _end(self, connection: Any) -> None:
        try:
            # The driver waits for the server's word that it has called the statement off.
            await connection.close(timeout=_END_SECONDS)
        except (OSError, TimeoutError, asyncpg.PostgresError, *LOST):
            connection.terminate()
            self._distrust()

    def _distrust(self) -> None:
        """End what lies idle."""
        idle, self._idle = self._idle, []
        for connection in idle:
            task = asyncio.create_task(self._end(connection))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _open(self, ends: float | None) -> Any:
        """Return an idle connection that is still there, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        left = self._seconds if ends is None else ends - asyncio.get_running_loop().time()
        return await self._connect(max(left, _LEAST_SECONDS))

    async def _take_turn(self) -> float | None:
        """Return when it is our turn, and until when to have a connection if we had to wait for it."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return None
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        ends = loop.time() + self._seconds
        try:
            async with asyncio.timeout_at(ends):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # It came at the very moment of giving up.
                self._pass_turn()
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)
        return ends

    def _pass_turn(self) -> None:
        """Let the one who has waited longest have our turn; nobody else can come between."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def close(self) -> None:
        """Close the idle connections; those that are still lent are ended when they come back."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*map(self._end, idle))
        # One that ends badly has others end, too.
        while self._ending:
            await asyncio.wait(set(self._ending))
