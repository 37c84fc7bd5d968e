"""Compact the sessions that are due by the policies that stand for them. Any number of schedulers may call at once.

A tenant of None stands for all tenants.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from app.domain.errors import Unavailable
from app.domain.session import Count, Due
from app.service import batches, unfinished
from app.service.batches import Result, Status
from app.service.context import Context
from app.storage import fleet as store

log = structlog.get_logger("turnlog.fleet")

LARGEST_RUN: Final = 10_000
# Sessions that are read, planned and written together. With more, an append to one of them would wait for its row.
_BATCH: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How far a run goes: so many sessions at most, for so long, and only those whose metadata says so."""

    limit: int = 100
    seconds: float = 30.0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run did. ``due`` were so many when it began; the other numbers are of its end.

    ``deferred`` are sessions whose trigger fires, but which wait after a failure or are being worked on at that moment,
    by this run too; ``remaining`` are those that are due and that nobody is at work on.
    """

    due: int
    deferred: int
    remaining: int
    results: tuple[Result, ...]

    def count(self, status: Status) -> int:
        """Count the sessions that ended so."""
        return sum(result.status == status for result in self.results)


async def due(ctx: Context, tenant: str | None, *, limit: int) -> tuple[Count, Sequence[Due]]:
    """Return what a run would take, most tokens first, without doing it."""
    async with ctx.database.reading() as reader:
        return await store.count(reader, tenant, {}), await store.due(reader, tenant, {}, limit)


async def compact(ctx: Context, tenant: str | None, asked: Asked) -> Report:
    """Compact sessions whose policy's trigger fires, most tokens first.

    Each is done once, whoever else does the same; one that fails waits longer each time, and stops nobody. The run
    ends in time: a session whose summary is being written then gets it all the same, after the answer.
    """
    if any("\0" in key + value for key, value in asked.labels.items()):
        return Report(due=0, deferred=0, remaining=0, results=())
    async with ctx.database.reading() as reader:
        before = await store.count(reader, tenant, asked.labels)
        share = 0
        if before.summarizing:
            share = await store.summarizing_among_first(reader, tenant, asked.labels, asked.limit)
    run = _Run(ctx, tenant, asked)
    if before.due > before.summarizing:
        await run.windows(asked.limit - share)
    if before.summarizing:
        await run.summaries()
    if share:
        await run.windows(asked.limit)
    async with ctx.database.reading() as reader:
        after = await store.count(reader, tenant, asked.labels)
    ctx.meter.fleet(due=after.due, deferred=after.deferred)
    return Report(due=before.due, deferred=after.deferred, remaining=after.due, results=tuple(run.results))


class _Run:
    """One call of a scheduler."""

    def __init__(self, ctx: Context, tenant: str | None, asked: Asked) -> None:
        self.results: list[Result] = []
        self._ctx = ctx
        self._tenant = tenant
        self._asked = asked
        self._ends = asyncio.get_running_loop().time() + asked.seconds
        self._taken = 0

    @property
    def _seconds_left(self) -> float:
        return max(0.0, self._ends - asyncio.get_running_loop().time())

    async def windows(self, most: int) -> None:
        """Compact sessions that need no model, many at a time, until so many have been taken in all."""
        while claimed := await self._claimed(summarizing=False, most=min(_BATCH, most - self._taken)):
            self.results += await batches.compact(self._ctx, claimed)

    async def summaries(self) -> None:
        """Compact the sessions that need the model, as many at once as this process has slots."""
        tasks: set[asyncio.Task[None]] = set()
        while (claimed := await self._claimed_with_slot()) is not None:
            tasks.add(unfinished.begin(self._summary(claimed), self._ctx.unfinished))
        if tasks:
            await asyncio.wait(tasks, timeout=self._seconds_left)

    async def _claimed(self, *, summarizing: bool, most: int) -> Sequence[Due]:
        most = min(most, self._asked.limit - self._taken)
        if most <= 0 or not self._seconds_left:
            return []
        async with self._ctx.database.one_statement() as tx:
            claimed = await store.claim(tx, self._tenant, self._asked.labels, summarizing=summarizing, limit=most)
        self._taken += len(claimed)
        return claimed

    async def _claimed_with_slot(self) -> Due | None:
        """Wait for a slot and claim a session for it; None when there is no more to do, or no more time."""
        if self._taken >= self._asked.limit:
            return None
        try:
            async with asyncio.timeout(self._seconds_left):
                await self._ctx.slots.acquire()
        except TimeoutError:
            return None
        claimed: Sequence[Due] = ()
        try:
            claimed = await self._claimed(summarizing=True, most=1)
        finally:
            if not claimed:
                self._ctx.slots.release()
        return claimed[0] if claimed else None

    async def _summary(self, claimed: Due) -> None:
        try:
            self.results += await batches.compact_alone(self._ctx, claimed)
        except Unavailable:
            # The claim runs out by itself, and the next run finds the session again.
            log.warning("compaction.unavailable", session_key=str(claimed.key))
        finally:
            self._ctx.slots.release()
