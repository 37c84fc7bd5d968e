"""One worker against two, and the answer to an append that brings the view along."""

import itertools
from collections.abc import Iterator
from typing import Any

from bench import load, logs, postgres, requests, servers
from bench.logs import Log
from bench.parts import append
from bench.results import TURNLOG
from bench.servers import Server
from bench.stage import Contender, Stage, interleave

_CLIENTS = 16
# So many that a view grows by an event or so while it is measured.
_SESSIONS = 512
_TWO = "2 workers"


async def run(stage: Stage) -> None:
    """Measure both, interleaved; a second worker has to share the two cores with PostgreSQL and the generator."""
    async with append.ready(stage) as (url, connection, one, _), servers.turnlog(url, workers=2) as two:
        names = await append.sessions(connection, _CLIENTS)
        await logs.seed(connection, Log(session_id="shared", events=1_000, boundaries=1))
        await postgres.settled(connection)

        def contender(server: Server, events: int) -> Contender:
            async def measure() -> float:
                each = [requests.append(name, events) if events else requests.view("shared") for name in names]
                return (await load.run(server.port, each, stage.budget.seconds)).rate

            return measure

        for operation, events in (("append 1", 1), ("append 10", 10), ("view of 40", 0)):
            line = stage.results.line("workers", f"{operation}, by workers", clients=_CLIENTS)
            await interleave(stage, line, {TURNLOG: contender(one, events), _TWO: contender(two, events)})


async def with_view(stage: Stage) -> None:
    """Measure appends that answer with the view, over so many sessions that their views stay near 40 events."""
    async with append.ready(stage) as (_, connection, server, _record):
        names = [f"returning-{number}" for number in range(_SESSIONS)]
        await logs.seed_many(connection, names, logs.VIEW_EVENTS)
        await postgres.settled(connection)
        for clients in stage.budget.clients:
            line = stage.results.line("append", "append 1, ?return=view of 40", clients=clients)
            await interleave(stage, line, {TURNLOG: _returning(stage, server, names, clients)})


def _returning(stage: Stage, server: Server, names: list[str], clients: int) -> Contender:
    def of(client: int) -> Iterator[Any]:
        mine = [requests.append(name, 1, query="?return=view&format=openai") for name in names[client::clients]]
        return (next(one) for one in itertools.cycle(mine))

    async def measure() -> float:
        return (await load.run(server.port, [of(client) for client in range(clients)], stage.budget.seconds)).rate

    return measure
