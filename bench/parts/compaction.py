"""Compaction of a backlog of 10,000 events, window only, over HTTP; and of 10,000 due sessions at once."""

import itertools
import json

from bench import load, logs, postgres
from bench.logs import Log
from bench.parts import append
from bench.results import TURNLOG
from bench.stage import Stage, interleave

BACKLOG = 10_000
_BODY = json.dumps({"window": {"rule": "last_turns", "size": 10}}).encode()
_names = itertools.count(1)


async def run(stage: Stage) -> None:
    """Measure the backlog. Each round has a session of its own, seeded before."""
    async with append.ready(stage) as (_, connection, server, _record):
        prepared = [f"backlog-{next(_names)}" for _ in range(stage.budget.rounds + 1)]
        for name in prepared:
            await logs.seed(connection, Log(session_id=name, events=BACKLOG))
        await postgres.settled(connection)

        async def compact() -> float:
            path = f"/v1/sessions/{prepared.pop()}/compact"
            answer, seconds = await load.once(server.port, load.request("POST", path, _BODY))
            covered = json.loads(answer)["covered"]["events"]
            if covered < BACKLOG - 50:
                raise load.LoadFailed(f"the compaction covered only {covered} events")
            return float(covered / seconds)

        await compact()  # the first of a server sets up its connections
        line = stage.results.line("compaction", "compaction of 10,000, window only", unit="events/s")
        await interleave(stage, line, {TURNLOG: compact})
