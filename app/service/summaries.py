"""Compaction with a summary by the model: lease the session, call, seal, write, and leave a record of it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, cast
from uuid import UUID

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from app.domain import compaction as rules
from app.domain.attempt import Status
from app.domain.compaction import Plan, Reason, Unchanged
from app.domain.errors import SessionNotFound, SummarizerFailed, TurnlogError, Unavailable
from app.domain.event import Event, StoredEvent
from app.domain.policy import LlmSummarizer, Policy
from app.domain.view import View
from app.service import leases, outcomes, settling, summarizing, summary_turns, writing
from app.service.context import Context
from app.service.leases import Moved
from app.service.outcomes import Outcome
from app.service.summarizing import Order, Progress
from app.service.summary_turns import SummaryTurn
from app.service.writing import Sealed
from app.storage import attempts as store
from app.storage import events as event_store
from app.storage import fleet as fleet_store
from app.storage import sessions as session_store
from app.storage.attempts import Ending
from app.storage.database import Writer
from app.storage.views import Found

log = structlog.get_logger("turnlog.summaries")

_STOPPED: Final = "stopped"
# Shorter than a lease lasts without a renewal, so that nobody else is at work on the session meanwhile.
_WRITE_SECONDS: Final = 5.0
_WRITE_AGAIN_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One compaction by the model: of which session as it was found, by which policy and plan.

    ``standing`` says that the policy is the one that stands for the session, and ``whole`` that the plan is all that it
    comes to.
    """

    key: UUID
    found: Found[Event]
    view: View[Event]
    policy: Policy
    how: LlmSummarizer
    plan: Plan
    standing: bool
    whole: bool


async def attempt(ctx: Context, run: Run) -> Outcome:
    """Run a compaction by the model, and return how it ended.

    Raises:
        Busy, Moved: it was not begun. SummarizerFailed, SummarizerTimeout, SessionNotFound, SessionExpired.
    """
    attempt_id = await leases.begin(ctx, run.key, run.found, summarizing.model_of(ctx).model.name)
    work = _Attempt(ctx, run, attempt_id)
    # A stop waits for whoever has a lease to give back, before it closes the database.
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    ctx.unfinished.add(task)
    try:
        return await work.done()
    except Moved:
        await work.forgotten()
        raise
    except SummarizerFailed as error:
        await work.failed(error)
        raise
    except BaseException:
        # Stopped, or broken: whoever comes next need not wait until the lease has run out.
        with suppress(TurnlogError):
            await asyncio.shield(work.stopped())
        raise
    finally:
        ctx.unfinished.discard(task)


class _Attempt:
    """An attempt whose lease we hold."""

    def __init__(self, ctx: Context, run: Run, attempt_id: int) -> None:
        self._ctx = ctx
        self._run = run
        self._id = attempt_id
        self._progress = Progress()
        self._began = time.monotonic()

    async def done(self) -> Outcome:
        """Call the model, and write what it says."""
        run = self._run
        made = await leases.kept(self._ctx, self._id, self._told(await self._shown()))
        if made is None:
            return await self._taken_away()
        plan, summary = made
        sealed = rules.seal(plan, run.policy, summary.tokens)
        if isinstance(sealed, Unchanged):
            return await self._unchanged(sealed)
        outcome = await self._written(
            Sealed(
                key=run.key,
                created_at=run.found.created_at,
                plan=sealed,
                policy=run.policy,
                # What only a part of the plan was good for is gone on with at once.
                settles=run.standing and run.whole and plan is run.plan,
                standing=run.found.policy,
                summary=summary,
                attempt=(self._id, self._ending("applied")),
            ),
        )
        self._meter(outcome.status)
        return outcome

    async def _written(self, sealed: Sealed) -> Outcome:
        """Write, and try again for a while when the database is away: what is written is paid for."""
        async for trial in AsyncRetrying(
            retry=retry_if_exception_type(Unavailable),
            wait=wait_fixed(_WRITE_AGAIN_SECONDS),
            stop=stop_after_delay(_WRITE_SECONDS),
            reraise=True,
        ):
            with trial:
                return await writing.write(self._ctx, sealed)
        raise AssertionError  # the last trial returns or raises

    async def _shown(self) -> Sequence[StoredEvent]:
        """Read what is to be covered."""
        run = self._run
        async with self._ctx.database.reading() as reader:
            found = await event_store.shown_to_summarizer(
                reader,
                run.key,
                run.plan.newly_covered,
                created_at=run.found.created_at,
                boundary=run.plan.boundary,
            )
        if found is None:
            raise Moved
        return found

    async def _told(self, events: Sequence[StoredEvent]) -> tuple[Plan, SummaryTurn]:
        """Have the model write, and return its summary with the plan that it is good for."""
        ctx, run, progress = self._ctx, self._run, self._progress
        leaving = {event.seq for event in run.view.events if event.seq in run.plan.newly_covered}
        shown = [event for event in events if event.seq in leaving]
        order = Order(events=shown, how=run.how, worth=run.plan.covered_tokens, fits=run.policy.fits_summary)
        plan = run.plan
        try:
            await summarizing.write(ctx, summarizing.model_of(ctx), order, progress)
        except SummarizerFailed as error:
            # What was summarized before is paid for: where it holds whole turns, those are covered.
            part = rules.narrowed(run.view, run.policy, progress.shown) if progress.text is not None else None
            if part is None:
                raise
            log.warning("summary.partial", cause=error.cause, attempt=self._id)
            plan = part
        return plan, await summary_turns.by_model(ctx, run.policy, run.how, plan, progress)

    async def _unchanged(self, why: Unchanged) -> Outcome:
        """End without a boundary. A session of the fleet then waits for its next turn rather than pay again."""
        run = self._run
        async with self._ctx.database.writing() as tx:
            if run.standing:
                await fleet_store.settle(tx, [settling.of(run.key, run.found, run.policy, why.reason)])
            await self._end(tx, "unchanged", reason=why.reason)
        self._meter("unchanged")
        return outcomes.unchanged(why, run.found.version)

    async def _taken_away(self) -> Outcome:
        """Say why the lease was lost."""
        run = self._run
        async with self._ctx.database.reading() as reader:
            now = await session_store.find(reader, run.key)
        if now is None or now.session.created_at != run.found.created_at:
            raise SessionNotFound
        async with self._ctx.database.one_statement() as tx:
            await self._end(tx, "unchanged", reason=Reason.LOST_RACE)
        self._meter("unchanged")
        why = rules.staying(Reason.LOST_RACE, run.policy, now.session.view.tokens)
        return outcomes.unchanged(why, now.session.version)

    async def forgotten(self) -> None:
        """Take the attempt back: it has not reached the model."""
        async with self._ctx.database.one_statement() as tx:
            await store.forget(tx, self._id)

    async def failed(self, error: SummarizerFailed) -> None:
        """Record the failure. When the session's standing policy failed, it waits longer than after the one before."""
        run = self._run
        log.warning("summary.failed", cause=error.cause, attempt=self._id)
        async with self._ctx.database.writing() as tx:
            if run.standing:
                await settling.let_wait(tx, run.key, run.found.created_at, failures=run.found.failures + 1)
            await self._end(tx, "failed", error=error.cause)
        self._meter("failed")

    async def stopped(self) -> None:
        """Give the lease back for whoever comes next, unless that happened already."""
        if not self._progress.calls:
            await self.forgotten()
            return
        async with self._ctx.database.one_statement() as tx:
            await self._end(tx, "abandoned", error=_STOPPED)
        self._meter("abandoned")

    async def _end(self, tx: Writer, status: Status, *, reason: Reason | None = None, error: str | None = None) -> None:
        await store.end(tx, self._id, replace(self._ending(status), reason=reason, error=error))

    def _ending(self, status: Status) -> Ending:
        progress = self._progress
        return Ending(
            status=status,
            calls=progress.calls,
            input_tokens=progress.input_tokens,
            output_tokens=progress.output_tokens,
        )

    def _meter(self, status: str) -> None:
        self._ctx.meter.summarized(
            status=status,
            seconds=time.monotonic() - self._began,
            input_tokens=self._progress.input_tokens,
            output_tokens=self._progress.output_tokens,
        )
