"""What an operation costs besides time: statements, round trips, WAL, CPU, buffers, bytes on disk, memory."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from bench import load, logs, postgres, requests, servers
from bench.logs import Log
from bench.parts import append, views
from bench.recording import Record, Recorded
from bench.servers import Server
from bench.stage import Stage
from bench.statements import with_literals

_READ = frozenset({200, 304})


async def run(stage: Stage) -> None:
    """Measure each operation alone, by one client."""
    async with append.ready(stage) as (_, connection, server, record):
        every = views.lengths(full=stage.budget.full)
        for log in (*every, Log(session_id="view-warm", events=1_000, boundaries=1)):
            await logs.seed(connection, log)
        await postgres.settled(connection)
        await _disk(stage, connection)
        for name, make in _operations(every[0]).items():
            session, warm = await append.sessions(connection, 2)
            each = make(session)
            await record(next(each), next(make(warm)))
            taken = await record(next(each))  # the second time is a replay, where it is the same request
            await _used(stage, connection, server, (name, taken, each))
        await _buffers(stage, connection, record, every)
        stage.results.line("memory", "peak RSS of the server", unit="MB").figures = {
            "turnlog": [server.peak_rss() / 2**20]
        }


def _operations(log: Log) -> dict[str, Any]:
    def reading(known: str | None = None) -> Any:
        # The recorder warms up on one session and records another; here both are the same, whose plan is warm then.
        return lambda _: requests.view(log.session_id, known=known)

    return {
        "append 1": lambda name: requests.append(name, 1),
        "append 10": lambda name: requests.append(name, 10),
        "append 1, client ids": lambda name: requests.append(name, 1, with_ids=True),
        "append 1, replayed": _replayed,
        "view of 40": reading(),
        "view of 40, 304": reading(f'"{log.events}-openai"'),
    }


def _replayed(name: str) -> Iterator[bytes]:
    return itertools.repeat(next(requests.append(name, 1, with_ids=True)))


async def _used(stage: Stage, connection: Any, server: Server, what: tuple[str, Recorded, Iterator[bytes]]) -> None:
    name, taken, each = what
    backends = stage.postgres.processes()
    log, cpu, theirs = await _wal(connection), server.cpu(), servers.cpu_of(backends)
    sample = await load.run(server.port, [each], stage.budget.seconds, statuses=frozenset({200, 201, 304}), warm=0.0)
    cpu, theirs, log = server.cpu() - cpu, servers.cpu_of(backends) - theirs, await _wal(connection) - log
    stage.results.line("cost", name, unit="").figures = {
        "statements": [len(taken.sent)],
        "round trips": [taken.round_trips],
        "WAL bytes": [log / sample.requests],
        "Python CPU µs": [cpu / sample.requests * 1e6],
        "PostgreSQL CPU µs": [theirs / sample.requests * 1e6],
        "generator CPU µs": [sample.own_cpu * 1e6],
    }
    stage.say(f"{name}: {len(taken.sent)} statements, {cpu / sample.requests * 1e6:.0f} µs of Python")


async def _wal(connection: Any) -> float:
    return float(await connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))


async def _buffers(stage: Stage, connection: Any, record: Record, every: tuple[Log, ...]) -> None:
    """Ask EXPLAIN about the statement that each view sends, planned as a prepared statement's generic plan or not."""
    for log in every:
        taken = await record(next(requests.view(log.session_id)), next(requests.view("view-warm")))
        asked = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + with_literals(taken.sent[-1])
        await connection.fetchval(asked)
        plan = json.loads(await connection.fetchval(asked))[0]
        stage.results.line(
            "buffers", f"view of 40, of {log.events:,}, {log.boundaries} boundaries", unit=""
        ).figures = {
            "buffers": [plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]],
            "execution ms": [plan["Execution Time"]],
            "planning ms": [plan["Planning Time"]],
        }


async def _disk(stage: Stage, connection: Any) -> None:
    events, table, whole = await connection.fetchrow(
        "SELECT (SELECT count(*) FROM events), pg_table_size('events'), pg_total_relation_size('events')"
    )
    stage.results.line("disk", "an event of 1 KB on disk", unit="bytes").figures = {
        "with indexes": [whole / events],
        "table": [table / events],
    }
