"""Views of 40 events over HTTP, out of logs of many lengths and boundaries, in every format, and 304s apart."""

import itertools
import json
from typing import Any

from app.domain.key import DEFAULT_TENANT
from app.service.views import FORMATS
from app.storage.sessions import key_of
from bench import load, logs, pgbench, postgres, requests
from bench.logs import Log
from bench.parts import append
from bench.recording import Record, Recorded
from bench.results import BARE, PGBENCH, TURNLOG
from bench.servers import Server
from bench.stage import Stage, interleave

_NOT_MODIFIED = frozenset({304})


def lengths(*, full: bool) -> tuple[Log, ...]:
    """Return the logs that views are read from; the first is what all others are compared with."""
    shapes = [(1_000, 1), (1_000, 100), (100_000, 1), (100_000, 100)]
    if full:
        shapes += [(10_000, 100), (100_000, 1_000), (1_000_000, 1), (1_000_000, 1_000)]
    return tuple(Log(session_id=f"view-{n}-{b}", events=n, boundaries=b) for n, b in shapes)


async def run(stage: Stage) -> None:
    """Measure the lengths, then the formats and the 304s on the first of them."""
    async with append.ready(stage) as (url, connection, server, record):
        every = lengths(full=stage.budget.full)
        for log in every:
            await logs.seed(connection, log)
        await postgres.settled(connection)
        taken = await _recorded(connection, record, every[0])
        stage.results.line("view", "view of 40").notes["bytes"] = str(len(taken.answer))
        await stage.bare.put("view", taken.answer)
        for clients in stage.budget.clients:
            # What the length costs shows with one client; a full run has them all.
            for log in every if clients == 1 or stage.budget.full else every[:1]:
                await _length(stage, (url, connection), server, (log, taken), clients)
            await _formats(stage, server, every[0].session_id, clients)
            await _known(stage, server, every[0].session_id, (clients, taken.answer))


async def _recorded(connection: Any, record: Record, log: Log) -> Recorded:
    other = Log(session_id="view-warm", events=1_000, boundaries=1)
    await logs.seed(connection, other)
    return await record(next(requests.view(log.session_id)), next(requests.view(other.session_id)))


async def _length(
    stage: Stage, database: tuple[str, Any], server: Server, what: tuple[Log, Recorded], clients: int
) -> None:
    (url, connection), (log, taken), budget = database, what, stage.budget
    first = lengths(full=False)[0]
    operation = "view of 40" if log == first else f"view of 40, of {log.events:,}, {log.boundaries} boundaries"
    await pgbench.assign(connection, [key_of(DEFAULT_TENANT, log.session_id)] * clients)
    script = taken.script(first.session_id)

    async def turnlog() -> float:
        return (await load.run(server.port, [requests.view(log.session_id)] * clients, budget.seconds)).rate

    async def reference() -> float:
        return await pgbench.rate(url, script, clients=clients, seconds=budget.seconds)

    async def bare() -> float:
        same = itertools.repeat(load.request("GET", "/view"))
        return (await load.run(stage.bare.port, [same] * clients, budget.seconds)).rate

    line = stage.results.line("view", operation, clients=clients)
    await interleave(stage, line, {PGBENCH: reference, TURNLOG: turnlog, **({BARE: bare} if log == first else {})})


async def _formats(stage: Stage, server: Server, session_id: str, clients: int) -> None:
    line = stage.results.line("view", "view of 40 by format", clients=clients)

    def reading(output: str) -> Any:
        async def measure() -> float:
            each = [requests.view(session_id, output)] * clients
            return (await load.run(server.port, each, stage.budget.seconds / 2)).rate

        return measure

    await interleave(stage, line, {output: reading(output) for output in FORMATS})


async def _known(stage: Stage, server: Server, session_id: str, what: tuple[int, bytes]) -> None:
    clients, answer = what
    tag = f'"{json.loads(answer)["version"]}-openai"'
    line = stage.results.line("view", "view of 40, 304", clients=clients)

    async def turnlog() -> float:
        each = [requests.view(session_id, known=tag)] * clients
        return (await load.run(server.port, each, stage.budget.seconds, statuses=_NOT_MODIFIED)).rate

    await interleave(stage, line, {TURNLOG: turnlog})
