"""Appends over HTTP: 1 and 10 events of 1 KB, each client to a session of its own, and all to one hot session."""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from app.domain.key import DEFAULT_TENANT
from app.storage.sessions import key_of
from bench import load, logs, pgbench, postgres, requests, servers
from bench.recording import Record, recording
from bench.results import BARE, PGBENCH, TURNLOG
from bench.servers import Server
from bench.stage import Stage, interleave
from bench.statements import Script

_names = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of append. A hot session is one that all clients append to."""

    operation: str
    count: int
    with_ids: bool = False
    query: str = ""
    hot: bool = False


SHAPES = (
    Shape(operation="append 1", count=1),
    Shape(operation="append 10", count=10),
    Shape(operation="append 1, client ids", count=1, with_ids=True),
    Shape(operation="append 10, client ids", count=10, with_ids=True),
    Shape(operation="append 1, one hot session", count=1, hot=True),
)

SHORT = tuple(shape for shape in SHAPES if not (shape.with_ids and shape.count > 1))


async def run(stage: Stage) -> None:
    """Measure every kind of append with every number of clients."""
    async with ready(stage) as (url, connection, server, record):
        for shape in SHAPES if stage.budget.full else SHORT:
            script, answer = await recorded(connection, record, shape)
            await stage.bare.put(shape.operation.replace(" ", "-"), answer)
            for clients in stage.budget.clients:
                if not (shape.hot and clients == 1):
                    await _measure(stage, (url, connection), server, (shape, script), clients)


@asynccontextmanager
async def ready(stage: Stage, workers: int = 1) -> AsyncIterator[tuple[str, Any, Server, Record]]:
    """Have a database, a connection to it, turnlog on it, and a recorder."""
    async with (
        stage.postgres.database() as url,
        postgres.connected(url) as connection,
        recording(url) as record,
        servers.turnlog(url, workers=workers) as server,
    ):
        yield url, connection, server, record


async def sessions(connection: Any, count: int) -> list[str]:
    """Create sessions without events."""
    names = [f"append-{next(_names)}" for _ in range(count)]
    await logs.empty(connection, names)
    return names


async def recorded(connection: Any, record: Record, shape: Shape) -> tuple[Script, bytes]:
    """Return what an append sends to the database, as a script, and what it answers."""
    warm, session = await sessions(connection, 2)

    def one(name: str) -> bytes:
        return next(requests.append(name, shape.count, with_ids=False, query=shape.query))

    taken = await record(
        next(requests.append(session, shape.count, with_ids=shape.with_ids, query=shape.query)), one(warm)
    )
    return taken.script(session), taken.answer


async def _measure(
    stage: Stage, database: tuple[str, Any], server: Server, what: tuple[Shape, Script], clients: int
) -> None:
    (url, connection), (shape, script), budget = database, what, stage.budget
    names = [(await sessions(connection, 1))[0]] * clients if shape.hot else await sessions(connection, clients)
    await pgbench.assign(connection, [key_of(DEFAULT_TENANT, name) for name in names])
    line = stage.results.line("append", shape.operation, clients=clients)

    def appends(names: Sequence[str]) -> list[Any]:
        return [requests.append(name, shape.count, with_ids=shape.with_ids, query=shape.query) for name in names]

    async def turnlog() -> float:
        return (await load.run(server.port, appends(names), budget.seconds)).rate

    async def reference() -> float:
        return await pgbench.rate(url, script, clients=clients, seconds=budget.seconds)

    async def bare() -> float:
        path = "/" + shape.operation.replace(" ", "-")
        body = next(requests.append("x", shape.count)).partition(b"\r\n\r\n")[2]
        same = itertools.repeat(load.request("POST", path, body))
        return (await load.run(stage.bare.port, [same] * clients, budget.seconds)).rate

    # The bare route does not look at what it is sent, so two of the shapes say it all.
    plain = not (shape.with_ids or shape.hot)
    await interleave(stage, line, {PGBENCH: reference, TURNLOG: turnlog, **({BARE: bare} if plain else {})})
