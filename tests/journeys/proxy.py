"""A TCP proxy on loopback, in front of a database, that does what networks do to people."""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
# Close with a reset instead of a farewell.
_RESET = struct.pack("ii", 1, 0)
_CHUNK = 65536


class _Silence:
    """Whether one connection's packets vanish, those of both directions."""

    def __init__(self) -> None:
        self.is_on = False


class Proxy:
    """Forwards every connection to a unix socket, until it is told to do something else. It runs in its own thread."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.delay = 0.0
        self.connections = 0
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._ready = threading.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._budget: int | None = None
        self._mark: tuple[bytes, bool] | None = None
        self._silencing: tuple[bytes, bool] | None = None
        self.marked = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the proxy did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database behind the proxy."""
        return f"postgresql://turnlog@127.0.0.1:{self.port}/{database}"

    # What it can be told.

    def cut(self) -> None:
        """Reset every connection that there is."""
        self._do(self._cut())

    def refuse(self) -> None:
        """Reset every connection, and take no new ones."""
        self._do(self._refuse())

    def freeze(self) -> None:
        """Forward nothing more, in either direction; take new connections and say nothing to them either."""
        self._do(self._freeze())

    def freeze_at(self, mark: bytes, *, after: bool = False) -> None:
        """Freeze when a client sends these bytes: before they are forwarded, or after, so that the answer is lost."""
        self.marked.clear()
        self._mark = (mark, after)

    def silence_at(self, mark: bytes, *, after: bool = False) -> None:
        """Drop all packets of the one connection on which a client sends these bytes; the others flow.

        From this packet on, or ``after`` it: then the server hears it, and its answer is lost. It stays so.
        """
        self.marked.clear()
        self._silencing = (mark, after)

    def cut_after(self, count: int) -> None:
        """Reset a connection as soon as the clients have sent so many bytes more."""
        self._budget = count

    def heal(self, target: Path | None = None) -> None:
        """Forward again, what was held back too; from now on perhaps to another server."""
        self.target = target or self.target
        self.delay, self._budget, self._mark, self._silencing = 0.0, None, None, None
        self._do(self._heal())

    # How it does it.

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        await self._refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self._writers.add(writer)
        # The end of the proxy is no error, and nobody asks this task about it.
        with suppress(asyncio.CancelledError):
            await self._forward(reader, writer)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._flows.wait()
            up, down = await asyncio.open_unix_connection(self.target)
        except OSError:
            self._reset(writer)
            return
        self._writers.add(down)
        silence = _Silence()
        flows = (self._flow(reader, down, silence, is_client=True), self._flow(up, writer, silence, is_client=False))
        await asyncio.gather(*flows)
        for one in (writer, down):
            self._writers.discard(one)

    async def _flow(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, silence: _Silence, *, is_client: bool
    ) -> None:
        with suppress(OSError):
            while chunk := await source.read(_CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                chunk = self._heard(chunk, silence, is_client=is_client)
                mark = self._mark if is_client else None
                if mark and mark[0] in chunk:
                    self._mark = None
                    if mark[1]:
                        sink.write(chunk)
                        chunk = b""
                    self._flows.clear()
                    self.marked.set()
                await self._flows.wait()
                if is_client and self._budget is not None:
                    chunk, self._budget = chunk[: self._budget], max(0, self._budget - len(chunk))
                sink.write(chunk)
                await sink.drain()
                if is_client and self._budget == 0:
                    self._budget = None
                    await self._cut()
        if silence.is_on:
            # Nobody hears the farewell either.
            return
        # The other direction ends with this one: nobody speaks PostgreSQL's protocol half-closed.
        await self._flows.wait()
        sink.close()

    def _heard(self, chunk: bytes, silence: _Silence, *, is_client: bool) -> bytes:
        """Return what of a packet gets through."""
        if silence.is_on:
            return b""
        if is_client and self._silencing and self._silencing[0] in chunk:
            (_, after), self._silencing = self._silencing, None
            silence.is_on = True
            self.marked.set()
            return chunk if after else b""
        return chunk

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        ours = writer.get_extra_info("socket")
        if ours is not None and ours.family == socket.AF_INET:
            with suppress(OSError):
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()

    async def _cut(self) -> None:
        for writer in list(self._writers):
            self._reset(writer)

    async def _refuse(self) -> None:
        self._server.close()
        await self._cut()

    async def _freeze(self) -> None:
        self._flows.clear()

    async def _heal(self) -> None:
        if not self._server.is_serving():
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self._flows.set()
