"""The service layer alone, without HTTP: what an append costs in this process."""

import asyncio
import json
import time

from app import bootstrap
from app.domain.key import DEFAULT_TENANT
from app.metrics import Meter
from app.service import events
from app.service.context import Context
from app.service.drafts import NewEvent
from app.service.events import Options
from app.settings import Settings
from app.storage.sessions import key_of
from bench import logs, pgbench, postgres
from bench.parts import append
from bench.parts.append import Shape
from bench.recording import recording
from bench.results import PGBENCH, TURNLOG
from bench.stage import Stage, interleave

_MESSAGE = json.dumps(logs.message())


async def run(stage: Stage) -> None:
    """Measure an append of one event of 1 KB through the service, in this process."""
    async with stage.postgres.database() as url, postgres.connected(url) as connection:
        async with recording(url) as record:
            script, _ = await append.recorded(connection, record, Shape(operation="", count=1))
        async with bootstrap.running(Settings(), url, Meter()) as context:
            for clients in stage.budget.clients:
                names = await append.sessions(connection, clients)
                await pgbench.assign(connection, [key_of(DEFAULT_TENANT, name) for name in names])

                async def turnlog(names: list[str] = names) -> float:
                    return await rate(context, names, stage.budget.seconds)

                async def reference(clients: int = clients) -> float:
                    return await pgbench.rate(url, script, clients=clients, seconds=stage.budget.seconds)

                line = stage.results.line("inprocess", "append 1 in process", clients=clients)
                await interleave(stage, line, {PGBENCH: reference, TURNLOG: turnlog})


async def rate(context: Context, names: list[str], seconds: float) -> float:
    """Append to each session, one after the other, all sessions at once; returns the appends of a second."""
    stop = time.perf_counter() + seconds

    async def one(name: str) -> int:
        done = 0
        while time.perf_counter() < stop:
            await events.append(context, DEFAULT_TENANT, name, [NewEvent(message=_MESSAGE)], Options())
            done += 1
        return done

    began = time.perf_counter()
    done = sum(await asyncio.gather(*(one(name) for name in names)))
    return done / (time.perf_counter() - began)
