"""A statement that takes long: is the server at work on it, or will there never be an answer?

No time limit can tell. Removing a long log takes as long as the log is long, and a network that drops every packet says
nothing either. So when an answer is late, the server is asked on a new connection whether it is at work on it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import asyncpg

from app.storage.refusals import LOST

# An answer that is not there by then is late. Together with the time for asking, and the time that a caller waits for a
# connection, this is how long a caller may wait in vain for a database behind a network that drops everything.
LATE_SECONDS: Final = 2.0
ASK_SECONDS: Final = 2.5
_AGAIN_SECONDS: Final = 1.0
# A server that was told to call a statement off has done so by then, or does not hear us.
_CALL_OFF_SECONDS: Final = 2.0

# Not at work are also those in a transaction whose next statement has not come through.
_AT_WORK: Final = """
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND coalesce(state, '') NOT LIKE 'idle%'
"""


@dataclass(frozen=True, slots=True)
class _Seen:
    """Whether the server answers, and which of its processes are at work; None when it does not say."""

    answers: bool
    at_work: frozenset[int] | None = None


class Watch:
    """Looks after the statements of a database."""

    def __init__(self, connect: Callable[[float], Awaitable[Any]], *, pooled: bool) -> None:
        """``connect`` is given how many seconds it may take. A pooler knows which statements run, and tells nobody."""
        self._connect = connect
        self._pooled = pooled
        self._asking: asyncio.Task[_Seen] | None = None

    def over(self, connection: Any, seconds: float) -> "Look":
        """Look after one statement, which is called off after so many seconds even if the server is at work on it."""
        return Look(self, connection, seconds)

    async def see_to(self, look: "Look") -> None:
        """Return when the statement has been given up: its connection is closed then."""
        connection = look.connection
        loop = asyncio.get_running_loop()
        ends = loop.time() + look.seconds - min(LATE_SECONDS, look.seconds)
        pid, idle = connection.get_server_pid(), 0
        while loop.time() < ends:
            seen = await self._seen()
            idle = 0 if seen.at_work is None or pid in seen.at_work else idle + 1
            # Once may be the moment at which the answer is on its way.
            if not seen.answers or idle > 1:
                connection.terminate()
                return
            await asyncio.sleep(min(_AGAIN_SECONDS, max(0.0, ends - loop.time())))
        look.called_off = True
        await self._call_off(pid)
        connection.terminate()

    async def _seen(self) -> _Seen:
        """Ask the server, once for all who want to know at this moment."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)

    def _asked(self, _: "asyncio.Task[_Seen]") -> None:
        self._asking = None

    async def _ask(self) -> _Seen:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                connection = await self._connect(ASK_SECONDS)
                try:
                    if self._pooled:
                        return _Seen(answers=True)
                    found = await connection.fetch(_AT_WORK)
                    return _Seen(answers=True, at_work=frozenset(row[0] for row in found))
                finally:
                    connection.terminate()
        except asyncpg.PostgresError as error:
            # A server that has no room for one more connection is there.
            return _Seen(answers=(error.sqlstate or "").startswith("53"))
        except (OSError, TimeoutError, *LOST):
            return _Seen(answers=False)

    async def _call_off(self, pid: int) -> None:
        """Tell the server that nobody waits for a statement any more. Our connection then has its answer."""
        if self._pooled:
            return
        with suppress(OSError, TimeoutError, asyncpg.PostgresError, *LOST):
            async with asyncio.timeout(_CALL_OFF_SECONDS):
                connection = await self._connect(_CALL_OFF_SECONDS)
                try:
                    await connection.fetch("SELECT pg_cancel_backend($1)", pid)
                    await asyncio.sleep(_CALL_OFF_SECONDS)
                finally:
                    connection.terminate()

    async def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])


class Look:
    """One statement that is looked after: as cheap as a time limit while the answer is not late.

    Raises:
        TimeoutError: the statement was called off, whatever became of it.
    """

    __slots__ = ("_task", "_timer", "_watch", "called_off", "connection", "seconds")

    def __init__(self, watch: Watch, connection: Any, seconds: float) -> None:
        self._watch = watch
        self.connection = connection
        self.seconds = seconds
        self.called_off = False
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        late = min(LATE_SECONDS, self.seconds)
        self._timer = asyncio.get_running_loop().call_later(late, self._begin)

    def _begin(self) -> None:
        if not self.connection.is_closed():
            self._task = asyncio.create_task(self._watch.see_to(self))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            if self.called_off:
                # What calls it off may reach the server only now, and must not meet somebody else's statement.
                self.connection.terminate()
            # A commit that waits for a standby is reported as done when it is called off, and is on one machine only.
            if self.called_off and kind is None:
                raise TimeoutError
