"""Compaction: read, decide, call, seal, write."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from app.domain import compaction as rules
from app.domain.compaction import Plan, Reason, Tokens, Unchanged
from app.domain.errors import InvalidRequest, SessionExpired, SessionNotFound, VersionConflict
from app.domain.event import Draft, Event
from app.domain.policy import LlmSummarizer, Policy, TextSummarizer
from app.domain.ranges import NOTHING, Ranges
from app.service import boundary, drafts, policies, sessions
from app.service.boundary import Body
from app.service.context import Context, offloaded
from app.storage import boundaries as store
from app.storage import events as event_store
from app.storage import sessions as session_store
from app.storage import views as view_store
from app.storage.database import Reader
from app.summarizer import turn as summaries

Status: TypeAlias = Literal["applied", "unchanged", "planned"]

# Planning a view of this many events takes some tens of milliseconds, too long to hold up other requests.
_LARGE_VIEW = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for; ``policy`` None means the session's own, else the server's default."""

    policy: Policy | None = None
    dry_run: bool = False
    expected_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a compaction ended. The ranges and counts are empty when nothing was or would be covered."""

    status: Status
    version: int
    tokens: Tokens
    over_budget: bool
    reason: Reason | None = None
    detail: str | None = None
    boundary: int | None = None
    covered: Ranges = NOTHING
    covered_events: int = 0
    pinned: tuple[int, ...] = ()
    preserved: Ranges = NOTHING
    preserved_events: int = 0
    summary: str | None = None


async def compact(ctx: Context, tenant: str, session_id: str, request: Request) -> Outcome:
    """Compact a session's view, or say why not.

    The plan is made on the view at ``expected_version`` (None: now). Events appended meanwhile are simply part of the
    tail; only another boundary written meanwhile voids it.

    Raises:
        SessionNotFound, SessionExpired, VersionConflict (the log is not there yet), InvalidRequest (no policy
            anywhere).
    """
    outcome = await _compact(ctx, session_store.key_of(tenant, session_id), request)
    ctx.meter.compacted(outcome.status, outcome.reason)
    return outcome


async def _compact(ctx: Context, key: UUID, request: Request) -> Outcome:
    found = await _read(ctx, key, request.expected_version)
    policy = request.policy or _standing(ctx, found.policy)
    summary = _summary(policy)
    if found.view is None or found.figures.boundary != found.view.boundary:
        return _unchanged(rules.staying(Reason.LOST_RACE, policy, found.figures.tokens), found.version)
    planned = await offloaded(len(found.view.events) > _LARGE_VIEW, rules.plan, found.view, policy)
    if isinstance(planned, Unchanged):
        return _unchanged(planned, found.version)
    turn = _summary_turn(ctx, summary)
    sealed = rules.seal(planned, policy, sum(draft.token_count for draft in turn) if turn else None)
    if isinstance(sealed, Unchanged):
        return _unchanged(sealed, found.version)
    if request.dry_run:
        return _outcome("planned", sealed, policy, version=found.version, summary=summary)
    return await _write(ctx, (key, found.created_at), sealed, policy, (summary, turn))


async def _read(ctx: Context, key: UUID, version: int | None) -> view_store.Found[Event]:
    async with ctx.database.reading() as reader:
        found = await view_store.skeleton(reader, key, at_version=version)
        if found is not None and version is not None:
            found = await _with_summary(reader, key, found, version)
    if found is None:
        raise SessionNotFound
    if found.expired:
        raise SessionExpired
    if version is not None and version > found.version:
        raise VersionConflict(expected=version, current=found.version)
    return found


async def _with_summary(
    reader: Reader, key: UUID, found: view_store.Found[Event], version: int
) -> view_store.Found[Event]:
    """Look past a version that lies between a boundary and the end of the summary turn written with it.

    No log was ever at such a version, and a plan made on half a summary would leave the other half standing.
    """
    boundary = found.view.boundary if found.view else None
    if boundary is None or version >= boundary + 2 or found.version < boundary + 2:
        return found
    later = await view_store.skeleton(reader, key, at_version=boundary + 2)
    if later is None or later.created_at != found.created_at:
        raise SessionNotFound
    summarized = later.view is not None and any(e.synthetic and e.seq > version for e in later.view.events)
    return later if summarized else found


def _standing(ctx: Context, stored: str | None) -> Policy:
    policy = policies.parse(stored) if stored is not None else ctx.default_policy
    if policy is None:
        raise InvalidRequest.at("", "no window here, no policy on the session and no default policy: name a window")
    return policy


def _summary(policy: Policy) -> str | None:
    match policy.summarizer:
        case TextSummarizer(text=text):
            return None if summaries.is_blank(text) else text
        case LlmSummarizer():
            raise InvalidRequest.at("/summarizer", "this server has no summarizer configured; bring a text along")
        case _:
            return None


def _summary_turn(ctx: Context, summary: str | None) -> Sequence[Draft]:
    """Return the two messages of a summary turn, none without a summary."""
    if summary is None:
        return ()
    return drafts.synthetic(ctx, "user", summaries.QUESTION), drafts.synthetic(ctx, "assistant", summary)


async def _write(
    ctx: Context,
    session: tuple[UUID, datetime],
    plan: Plan,
    policy: Policy,
    summed_up: tuple[str | None, Sequence[Draft]],
) -> Outcome:
    """Write the boundary and its summary turn, unless another boundary or another session has taken the place."""
    key, created_at = session
    summary, turn = summed_up
    async with ctx.database.writing() as tx:
        now = await session_store.lock(tx, key)
        # A session that was deleted and made again under the same id is another one: nothing late may enter it.
        if now is None or now.session.created_at != created_at:
            raise SessionNotFound
        if now.expired:
            raise SessionExpired
        version = now.session.version
        if now.session.view.boundary != plan.boundary:
            return _unchanged(rules.staying(Reason.LOST_RACE, policy, now.session.view.tokens), version)
        seq = version + 1
        seqs = tuple(seq + at for at in range(1, len(turn) + 1))
        await boundary.write(ctx, tx, key, plan, boundary.describe(plan, policy, summary=seqs))
        if turn:
            named = [replace(draft, metadata=msgspec.json.encode({"boundary": seq}).decode()) for draft in turn]
            await event_store.append(tx, key, named, expected_version=None)
    return _outcome("applied", plan, policy, version=seq + len(turn), seq=seq, summary=summary)


def _unchanged(why: Unchanged, version: int) -> Outcome:
    return Outcome(
        status="unchanged",
        version=version,
        tokens=Tokens(why.tokens, why.tokens),
        over_budget=why.over_budget,
        reason=why.reason,
        detail=why.detail,
    )


def _outcome(
    status: Status,
    plan: Plan,
    policy: Policy,
    *,
    version: int,
    seq: int | None = None,
    summary: str | None = None,
) -> Outcome:
    return Outcome(
        status=status,
        version=version,
        boundary=seq,
        covered=plan.newly_covered,
        covered_events=plan.covered_events,
        pinned=plan.pinned,
        preserved=plan.preserved,
        preserved_events=plan.preserved_events,
        summary=summary,
        tokens=plan.tokens,
        over_budget=rules.over_budget(policy.window, plan.tokens.after),
    )


async def page(
    ctx: Context, tenant: str, session_id: str, *, before: int | None, limit: int
) -> tuple[Sequence[Outcome], int | None]:
    """Return a page of the boundaries, newest first, as the outcomes they were, and where the next page begins."""
    async with ctx.database.reading() as reader:
        key = (await sessions.living(reader, tenant, session_id)).key
        found = await store.page(reader, key, before=before, limit=limit + 1)
    shown = found[:limit]
    more = shown[-1][0].seq if len(found) > limit else None
    return [_read_back(event.seq, event.body, summary) for event, summary in shown], more


def _read_back(seq: int, text: str, summary_message: str | None) -> Outcome:
    body = msgspec.json.decode(text, type=Body)
    summary = msgspec.json.decode(summary_message)["content"] if summary_message is not None else None
    return Outcome(
        status="applied",
        version=seq + len(body.summary),
        boundary=seq,
        covered=Ranges.joined(body.newly_covered),
        covered_events=body.events.covered,
        pinned=tuple(body.pinned),
        preserved=Ranges.joined(body.preserved),
        preserved_events=body.events.preserved,
        summary=summary,
        tokens=Tokens(body.tokens.before, body.tokens.after),
        over_budget=body.over_budget,
    )
