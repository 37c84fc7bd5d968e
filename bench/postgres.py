"""The PostgreSQL that is measured on: turnlog's own embedded one, durable, with a fresh database for each part."""

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
import psutil

from app import bootstrap, embedded
from app.metrics import Meter
from app.settings import Settings

# A commit is on the disk before it is answered, which is what turnlog promises. The rest is what `turnlog serve` has,
# save the room for 64 clients beside the pools of two workers.
DURABLE: Final = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "250"}
_numbers = itertools.count(1)


class Postgres:
    """A running server; ``url`` is its maintenance database as libpq takes it."""

    def __init__(self, server: embedded.Server) -> None:
        self.url = server.url.replace("postgresql+asyncpg://", "postgresql://")
        self._server = server

    def processes(self) -> list[psutil.Process]:
        """Return the server's processes, the clients' backends among them."""
        parent = psutil.Process(self._server.pid)
        return [parent, *parent.children(recursive=True)]

    @asynccontextmanager
    async def database(self, *, empty: bool = False) -> AsyncIterator[str]:
        """Make a database with turnlog's schema, or an empty one, and drop it at the end; yields its URL."""
        name = f"bench_{next(_numbers)}"
        await self._maintain(f"CREATE DATABASE {name}")
        url = self.url.replace("@/turnlog?", f"@/{name}?")
        try:
            if not empty:
                async with bootstrap.running(Settings(), url, Meter()):
                    pass
            yield url
        finally:
            await self._maintain(f"DROP DATABASE {name} WITH (FORCE)")

    async def _maintain(self, statement: str) -> None:
        async with connected(self.url) as connection:
            await connection.execute(statement)


@contextmanager
def running() -> Iterator[Postgres]:
    """Run a server in a folder that is thrown away afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="turnlog-bench-"))
    try:
        with embedded.start(folder, settings=DURABLE) as server:
            yield Postgres(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """Open a connection of the bench's own, for seeding and asking."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def settled(connection: Any) -> None:
    """Leave no seeding behind to be written or analyzed while something is measured."""
    await connection.execute("VACUUM (ANALYZE) events")
    await connection.execute("VACUUM (ANALYZE) sessions")
    await connection.execute("CHECKPOINT")
    await asyncio.sleep(0.2)
