"""Compact claimed sessions by the policies that stand for them: many with one read and one write, or one alone."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias
from uuid import UUID

import structlog
from anyio import to_thread

from app.domain import compaction as rules
from app.domain import retry
from app.domain.compaction import Plan, Tokens, Unchanged
from app.domain.errors import InvalidRequest, SessionExpired, SessionNotFound, SummarizerFailed, Unavailable
from app.domain.event import Event
from app.domain.policy import LlmSummarizer, Policy
from app.domain.session import Due
from app.logs import without_words
from app.service import boundary, compactions, policies, settling, summaries
from app.service.context import Context
from app.service.leases import Busy, Moved
from app.storage import boundaries as boundary_store
from app.storage import fleet as store
from app.storage import views as view_store
from app.storage.boundaries import Boundary
from app.storage.views import Found

log = structlog.get_logger("turnlog.fleet")

Status: TypeAlias = Literal["applied", "unchanged", "failed"]
_NOT_CONFIGURED: Final = "no-summarizer"
_BROKEN: Final = "internal-error"
# Some tens of megabytes as the rules see them.
_PORTION_EVENTS: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one session. ``retry_seconds`` is how long it waits, when it failed."""

    tenant: str
    session_id: str
    status: Status
    reason: str | None
    tokens: Tokens
    retry_seconds: int | None = None


class _NoPolicy(Exception):
    """This server's settings have no policy for the session; another one's have, which takes it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    due: Due
    found: Found[Event]
    policy: Policy
    plan: Plan | Unchanged


async def compact(ctx: Context, claimed: Sequence[Due]) -> list[Result]:
    """Compact sessions by their windows. When one of them is broken, the others get their compaction all the same.

    Raises:
        Unavailable.
    """
    done: list[Result] = []
    for some in _portions(claimed):
        try:
            done += await _together(ctx, some)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the bulk loop
            log.warning("batch.failed", sessions=len(some), causes=without_words(error))
            done += [result for due in some for result in await compact_alone(ctx, due)]
    return done


def _portions(claimed: Sequence[Due]) -> Iterator[Sequence[Due]]:
    """Yield as many sessions at a time as may be in memory at once, and every session once."""
    portion: list[Due] = []
    events = 0
    for due in claimed:
        if portion and events + due.view.events > _PORTION_EVENTS:
            yield portion
            portion, events = [], 0
        portion.append(due)
        events += due.view.events
    if portion:
        yield portion


async def compact_alone(ctx: Context, due: Due) -> list[Result]:
    """Compact one session, whatever its policy; nothing is returned for one that is gone or that others work on.

    Raises:
        Unavailable.
    """
    try:
        return await _alone(ctx, due)
    except (SessionNotFound, SessionExpired):
        return []
    except (Busy, Moved, _NoPolicy):
        async with ctx.database.one_statement() as tx:
            await store.release(tx, [due.key])
        return []
    except SummarizerFailed as error:
        # The attempt that failed has let the session wait already.
        return [_failed(ctx, due, error.cause)]
    except InvalidRequest:
        return await _waiting(ctx, due, _NOT_CONFIGURED)
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 - the bulk loop
        log.error("compaction.failed", session_key=str(due.key), causes=without_words(error))  # noqa: TRY400
        return await _waiting(ctx, due, _BROKEN)


async def _together(ctx: Context, claimed: Sequence[Due]) -> list[Result]:
    async with ctx.database.reading() as reader:
        found = await view_store.skeletons(reader, [due.key for due in claimed])
    decided = await to_thread.run_sync(
        lambda: [_decide(ctx, due, found[due.key]) for due in claimed if due.key in found]
    )
    settled = [one for one in decided if isinstance(one.plan, Unchanged)]
    planned = [one for one in decided if isinstance(one.plan, Plan)]
    # What stands in the row of a session and what its policy says differ while servers with other defaults run.
    alone = [one for one in planned if isinstance(one.policy.summarizer, LlmSummarizer)]
    together = [one for one in planned if not isinstance(one.policy.summarizer, LlmSummarizer)]
    written = await _write(ctx, together)
    await _settle(ctx, settled)
    done = [_result(ctx, one) for one in settled]
    done += [_result(ctx, one) for one in together if one.due.key in written]
    return done + [result for one in alone for result in await compact_alone(ctx, one.due)]


async def _write(ctx: Context, planned: Sequence[_Decided]) -> Collection[UUID]:
    """Write the boundaries of all plans that still hold, and return whose they were.

    A session that is missing there was compacted by hand meanwhile, is gone or has expired: whichever it is, it has
    been seen to.
    """
    if not planned:
        return ()
    async with ctx.database.one_statement() as tx:
        return await boundary_store.write(tx, [_boundary(ctx, one, one.plan) for one in planned])


def _boundary(ctx: Context, one: _Decided, plan: Plan | Unchanged) -> Boundary:
    assert isinstance(plan, Plan)  # noqa: S101 - the caller has looked
    body = boundary.describe(plan, one.policy, summary=())
    made = boundary.of(ctx, one.due.key, one.found.created_at, plan, body)
    return replace(made, policy=one.found.policy, rests=rules.resting(one.policy, plan.left))


async def _settle(ctx: Context, unchanged: Sequence[_Decided]) -> None:
    if unchanged:
        settled = [
            settling.of(one.due.key, one.found, one.policy, one.plan.reason)
            for one in unchanged
            if isinstance(one.plan, Unchanged)
        ]
        async with ctx.database.one_statement() as tx:
            await store.settle(tx, settled)


async def _alone(ctx: Context, due: Due) -> list[Result]:
    async with ctx.database.reading() as reader:
        found = (await view_store.skeletons(reader, [due.key])).get(due.key)
    if found is None:
        raise SessionNotFound
    if found.expired:
        raise SessionExpired
    one = await to_thread.run_sync(_decide, ctx, due, found)
    if isinstance(one.plan, Unchanged):
        await _settle(ctx, [one])
        return [_result(ctx, one)]
    if not isinstance(one.policy.summarizer, LlmSummarizer):
        return [_result(ctx, one)] if await _write(ctx, [one]) else []
    run = compactions.run_of(ctx, due.key, found, one.policy, one.plan, standing=True)
    outcome = await summaries.attempt(ctx, run)
    ctx.meter.compacted(outcome.status, outcome.reason)
    status: Status = "applied" if outcome.status == "applied" else "unchanged"
    return [
        Result(
            tenant=due.tenant, session_id=due.session_id, status=status, reason=outcome.reason, tokens=outcome.tokens
        )
    ]


def _decide(ctx: Context, due: Due, found: Found[Event]) -> _Decided:
    policy = policies.standing(found.policy, ctx.default_policy)
    if policy is None:
        raise _NoPolicy
    return _Decided(due=due, found=found, policy=policy, plan=compactions.plan(ctx, found, policy))


def _result(ctx: Context, one: _Decided) -> Result:
    if isinstance(one.plan, Unchanged):
        ctx.meter.compacted("unchanged", one.plan.reason)
        tokens = Tokens(one.plan.tokens, one.plan.tokens)
        return Result(
            tenant=one.due.tenant,
            session_id=one.due.session_id,
            status="unchanged",
            reason=one.plan.reason,
            tokens=tokens,
        )
    ctx.meter.compacted("applied", None)
    return Result(
        tenant=one.due.tenant, session_id=one.due.session_id, status="applied", reason=None, tokens=one.plan.tokens
    )


def _ended(due: Due, status: Status, reason: str | None, tokens: Tokens) -> Result:
    return Result(tenant=due.tenant, session_id=due.session_id, status=status, reason=reason, tokens=tokens)


async def _waiting(ctx: Context, due: Due, cause: str) -> list[Result]:
    """Let a session wait whose compaction could not even be tried."""
    async with ctx.database.one_statement() as tx:
        await settling.let_wait(tx, due.key, due.created_at, failures=due.failures + 1)
    return [_failed(ctx, due, cause)]


def _failed(ctx: Context, due: Due, cause: str) -> Result:
    ctx.meter.compacted("failed", cause)
    return Result(
        tenant=due.tenant,
        session_id=due.session_id,
        status="failed",
        reason=cause,
        tokens=Tokens(due.view.tokens, due.view.tokens),
        retry_seconds=retry.pause_seconds(due.failures + 1),
    )
