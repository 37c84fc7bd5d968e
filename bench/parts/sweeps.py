"""Sweeps over many sessions: a purge of expired ones, and the compaction of a fleet of 10,000 due ones."""

import itertools
import json
import time
from dataclasses import replace
from typing import Any

from bench import load, logs, postgres
from bench.parts import append
from bench.results import TURNLOG
from bench.servers import Server
from bench.stage import Stage, interleave

_PURGED = 1_000
_FLEET = 10_000
_EVENTS = 20
# The one session that gets its policy over HTTP; turnlog knows what else a standing policy sets in a session's row.
_MODEL = json.dumps(
    {
        "id": "fleet-model",
        "policy": {
            "window": {"rule": "token_budget", "size": 2000},
            "trigger": {"type": "token_count", "threshold": 4000},
        },
    }
).encode()
_LIKE_THE_MODEL = """
    UPDATE sessions SET (policy, marks, summarizes) = (
        SELECT policy, marks, summarizes FROM sessions WHERE session_id = 'fleet-model')
"""
_names = itertools.count(1)


async def purge(stage: Stage) -> None:
    """Measure a purge of 1,000 expired sessions with 20 events each."""
    async with append.ready(stage) as (_, connection, server, _record):

        async def one() -> float:
            names = [f"purge-{next(_names)}" for _ in range(_PURGED)]
            await logs.seed_many(connection, names, _EVENTS)
            await connection.execute("UPDATE sessions SET expires_at = now() - interval '1 hour'")
            await postgres.settled(connection)
            body = json.dumps({"limit": _PURGED}).encode()
            answer, seconds = await load.once(server.port, load.request("POST", "/v1/purge", body))
            return float(json.loads(answer)["purged"] * _EVENTS / seconds)

        line = stage.results.line("sweeps", "purge of 1,000 sessions of 20 events", unit="events/s")
        await interleave(stage, line, {TURNLOG: one})


async def fleet(stage: Stage) -> None:
    """Measure the compaction of 10,000 due sessions of 20 events under a token budget."""
    async with append.ready(stage) as (_, connection, server, _record):
        if not await _has_sweep(server):
            stage.results.skipped.append("fleet compaction: this turnlog has no POST /v1/compact")
            stage.say(stage.results.skipped[-1])
            return

        async def one() -> float:
            await connection.execute("DELETE FROM sessions")
            await logs.seed_many(connection, [f"fleet-{next(_names)}" for _ in range(_FLEET)], _EVENTS)
            await load.once(server.port, load.request("POST", "/v1/sessions", _MODEL))
            await connection.execute(_LIKE_THE_MODEL)
            await postgres.settled(connection)
            began = time.perf_counter()
            await _until_done(server)
            return time.perf_counter() - began

        # Seeding takes as long as what is measured, so a short run has one round of it.
        once = stage if stage.budget.full else replace(stage, budget=replace(stage.budget, rounds=1))
        line = stage.results.line("sweeps", "fleet of 10,000 due, token budget", unit="s")
        await interleave(once, line, {TURNLOG: one})


async def _has_sweep(server: Server) -> bool:
    try:
        await load.once(server.port, load.request("POST", "/v1/compact", b'{"limit": 1}'))
    except load.LoadFailed as error:
        if "status 404" in str(error) or "status 405" in str(error):
            return False
        raise
    return True


async def _until_done(server: Server) -> None:
    applied = 0
    while applied < _FLEET:
        body = json.dumps({"limit": 1000, "max_seconds": 60}).encode()
        said: dict[str, Any] = json.loads((await load.once(server.port, load.request("POST", "/v1/compact", body)))[0])
        if not said["applied"]:
            raise load.LoadFailed(f"the sweep stopped at {applied} of {_FLEET}")
        applied += said["applied"]
