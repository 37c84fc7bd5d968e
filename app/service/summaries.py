"""Compaction with a summary by the model: lease the session, call, seal, write, and leave a record of it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import structlog

from app.domain import compaction as rules
from app.domain import retry
from app.domain.attempt import Status
from app.domain.compaction import Plan, Reason, Unchanged
from app.domain.errors import SessionNotFound, SummarizerFailed, TurnlogError
from app.domain.event import Event, StoredEvent
from app.domain.policy import LlmSummarizer, Policy
from app.domain.view import View
from app.service import leases, outcomes, summarizing, summary_turns, writing
from app.service.context import Context
from app.service.leases import Moved
from app.service.outcomes import Outcome
from app.service.summarizing import Order, Progress
from app.service.writing import Sealed
from app.storage import attempts as store
from app.storage import events as event_store
from app.storage import fleet as fleet_store
from app.storage import sessions as session_store
from app.storage.attempts import Ending
from app.storage.views import Found

log = structlog.get_logger("turnlog.summaries")

_STOPPED: Final = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One compaction by the model: of which session as it was found, by which policy and plan.

    ``failures`` are those in a row before it. ``settles`` says that the policy is the one that stands for the session.
    """

    key: UUID
    found: Found[Event]
    view: View[Event]
    policy: Policy
    how: LlmSummarizer
    plan: Plan
    failures: int
    settles: bool


async def attempt(ctx: Context, run: Run) -> Outcome:
    """Run a compaction by the model, and return how it ended.

    Raises:
        Busy, Moved: it was not begun. SummarizerFailed, SummarizerTimeout, SessionNotFound, SessionExpired.
    """
    attempt_id = await leases.begin(ctx, run.key, run.found, summarizing.model_of(ctx).model.name)
    work = _Attempt(ctx, run, attempt_id)
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
            await asyncio.shield(work.ended("abandoned", error=_STOPPED))
        raise


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
        plan = await self._summarized(await self._shown())
        if plan is None:
            return await self._taken_away()
        summary = await summary_turns.by_model(self._ctx, run.policy, run.how, plan, self._progress)
        sealed = rules.seal(plan, run.policy, summary.tokens)
        if isinstance(sealed, Unchanged):
            return await self._unchanged(sealed)
        whole = run.settles and plan is run.plan
        outcome = await writing.write(
            self._ctx,
            Sealed(
                key=run.key,
                created_at=run.found.created_at,
                plan=sealed,
                policy=run.policy,
                settles=whole,
                summary=summary,
                attempt=(self._id, self._ending("applied")),
            ),
        )
        self._meter(outcome.status)
        return outcome

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

    async def _summarized(self, events: Sequence[StoredEvent]) -> Plan | None:
        """Have the model write, and return the plan that its summary is good for; None when the lease was lost."""
        run, progress = self._run, self._progress
        leaving = {event.seq for event in run.view.events if event.seq in run.plan.newly_covered}
        shown = [event for event in events if event.seq in leaving]
        order = Order(events=shown, how=run.how, worth=run.plan.covered_tokens)
        work = summarizing.write(self._ctx, summarizing.model_of(self._ctx), order, progress)
        try:
            return run.plan if await leases.kept(self._ctx, self._id, work) else None
        except SummarizerFailed as error:
            # What was summarized before is paid for: where it holds whole turns, those are covered.
            part = rules.narrowed(run.view, run.policy, progress.shown) if progress.text is not None else None
            if part is None:
                raise
            log.warning("summary.partial", cause=error.cause, attempt=self._id)
            return part

    async def _unchanged(self, why: Unchanged) -> Outcome:
        """End without a boundary. A session of the fleet then waits for its next turn rather than pay again."""
        run = self._run
        await self.ended("unchanged", reason=why.reason)
        if run.settles:
            settled = fleet_store.Settled(key=run.key, created_at=run.found.created_at, turns=run.view.turns)
            async with self._ctx.database.one_statement() as tx:
                await fleet_store.settle(tx, [settled])
        return outcomes.unchanged(why, run.found.version)

    async def _taken_away(self) -> Outcome:
        """Say why the lease was lost."""
        run = self._run
        async with self._ctx.database.reading() as reader:
            now = await session_store.find(reader, run.key)
        if now is None or now.session.created_at != run.found.created_at:
            raise SessionNotFound
        await self.ended("unchanged", reason=Reason.LOST_RACE)
        why = rules.staying(Reason.LOST_RACE, run.policy, now.session.view.tokens)
        return outcomes.unchanged(why, now.session.version)

    async def forgotten(self) -> None:
        """Take the attempt back: it has not reached the model."""
        async with self._ctx.database.one_statement() as tx:
            await store.forget(tx, self._id)

    async def failed(self, error: SummarizerFailed) -> None:
        """Record the failure, and let the session wait longer than after the one before."""
        run = self._run
        log.warning("summary.failed", cause=error.cause, attempt=self._id)
        await self.ended("failed", error=error.cause)
        failures = run.failures + 1
        async with self._ctx.database.one_statement() as tx:
            await fleet_store.wait(
                tx,
                run.key,
                created_at=run.found.created_at,
                failures=failures,
                seconds=retry.pause_seconds(failures),
            )

    async def ended(self, status: Status, *, reason: Reason | None = None, error: str | None = None) -> None:
        """Record how the attempt ended, which gives the lease back."""
        async with self._ctx.database.one_statement() as tx:
            await store.end(tx, self._id, replace(self._ending(status), reason=reason, error=error))
        self._meter(status)

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
