"""A peer as a server: the same FastAPI routes for each, and routes that measure it in this very process.

`python -m bench.peers.shim PEER URL PORT`, in the environment that the peer is installed in.
"""

import importlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import uvicorn
from fastapi import FastAPI

from bench.peers.said import Role, orphans


class Peer(Protocol):
    """What a peer has to do; ``said`` tells the tool calls and results of what it returned."""

    async def prepare(self) -> None:
        """Make its tables."""

    async def seed(self, session: str, count: int) -> None:
        """Make a session of so many messages of 1 KB: questions, calls, results and answers in turn."""

    async def append(self, session: str, text: str) -> None:
        """Append one message."""

    async def read(self, session: str, limit: int | None) -> list[Any]:
        """Return what goes to the model; ``limit`` is the newest so many, where the peer can be asked for them."""

    def shown(self, messages: Sequence[Any]) -> list[Any]:
        """Return messages as JSON values."""

    def said(self, messages: Sequence[Any]) -> list[Role]:
        """Return which tool calls are made and answered, in order."""


TEXT = ("Where is my order, and when will it be with me? " * 24)[:990]


async def _timed(times: int, do: Callable[[], Awaitable[Any]]) -> list[float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await do()
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def application(peer: Peer) -> FastAPI:
    """Build the shim of a peer."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await peer.prepare()
        yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/ready")
    async def ready() -> str:
        return "yes"

    @app.post("/seed/{session}/{count}")
    async def seed(session: str, count: int) -> None:
        await peer.seed(session, count)

    @app.post("/append/{session}")
    async def append(session: str, body: dict[str, Any]) -> None:
        await peer.append(session, body["content"])

    @app.get("/read/{session}")
    async def read(session: str, limit: int | None = None) -> list[Any]:
        return peer.shown(await peer.read(session, limit))

    _measuring(app, peer)
    return app


def _measuring(app: FastAPI, peer: Peer) -> None:
    @app.post("/measure/append/{session}/{times}")
    async def measure_append(session: str, times: int) -> list[float]:
        return await _timed(times, lambda: peer.append(session, TEXT))

    @app.post("/measure/read/{session}/{times}")
    async def measure_read(session: str, times: int, limit: int | None = None) -> list[float]:
        return await _timed(times, lambda: peer.read(session, limit))

    @app.get("/orphans/{session}")
    async def lost(session: str, limit: int | None = None) -> int:
        return orphans(peer.said(await peer.read(session, limit)))


def main() -> None:
    """Serve the peer that the command line names."""
    name, url, port = sys.argv[1:]
    made = importlib.import_module(f"bench.peers.{name}").Adapter(url)
    uvicorn.run(application(made), host="127.0.0.1", port=int(port), log_config=None, access_log=False)


if __name__ == "__main__":
    main()
