"""Compaction: read, decide, call, seal, write."""

from dataclasses import dataclass
from uuid import UUID

from app.domain import compaction as rules
from app.domain.compaction import Plan, Reason, Unchanged
from app.domain.errors import (
    InvalidRequest,
    PayloadTooLarge,
    SessionExpired,
    SessionNotFound,
    SummarizerFailed,
    VersionConflict,
)
from app.domain.event import Event
from app.domain.policy import LlmSummarizer, Policy, TextSummarizer
from app.service import (
    leases,
    outcomes,
    policies,
    settling,
    summaries,
    summarizing,
    summary_turns,
    writing,
)
from app.service.context import Context, offloaded
from app.service.leases import Busy, Moved
from app.service.outcomes import Outcome
from app.service.summaries import Run
from app.service.summary_turns import SummaryTurn
from app.service.writing import Sealed
from app.storage import fleet as fleet_store
from app.storage import sessions as session_store
from app.storage import views as view_store
from app.storage.database import Reader
from app.storage.views import Found
from app.summarizer import turn
from app.tokens import LONG_TEXT

# Planning a view of this many events takes some tens of milliseconds, too long to hold up other requests.
_LARGE_VIEW = 2000
# More requests than the time allows would only be read, counted, and thrown away.
_MOST_PARTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for; ``policy`` None means the session's own, else the server's default."""

    policy: Policy | None = None
    dry_run: bool = False
    expected_version: int | None = None

    @property
    def by_standing_policy(self) -> bool:
        """It is what a scheduler would do with the session now."""
        return self.policy is None and self.expected_version is None


async def compact(ctx: Context, tenant: str, session_id: str, request: Request) -> Outcome:
    """Compact a session's view, or say why not.

    The plan is made on the view at ``expected_version`` (None: now). Events appended meanwhile are simply part of the
    tail; only another boundary written meanwhile voids it. While another caller has the model write a summary of
    the same session, this one waits for it rather than pay a second time.

    Raises:
        SessionNotFound, SessionExpired, VersionConflict (the log is not there yet), InvalidRequest (no policy
            anywhere, or no model), SummarizerFailed, SummarizerTimeout.
    """
    key = session_store.key_of(tenant, session_id)
    try:
        outcome = await _compact(ctx, key, request)
    except SummarizerFailed as error:
        ctx.meter.compacted("failed", error.cause)
        raise
    ctx.meter.compacted(outcome.status, outcome.reason)
    return outcome


async def _compact(ctx: Context, key: UUID, request: Request) -> Outcome:
    while True:
        found = await _read(ctx, key, request.expected_version)
        policy = request.policy or _standing(ctx, found.policy)
        if isinstance(policy.summarizer, LlmSummarizer):
            summarizing.model_of(ctx)
        try:
            return await _decided(ctx, key, found, policy, request)
        except Busy:
            reason = await leases.joined(ctx, key)
            if reason is not None:
                return outcomes.unchanged(rules.staying(reason, policy, found.figures.tokens), found.version)
        except Moved:
            continue


async def _decided(ctx: Context, key: UUID, found: Found[Event], policy: Policy, request: Request) -> Outcome:
    large = found.view is not None and len(found.view.events) > _LARGE_VIEW
    planned = await offloaded(large, plan, ctx, found, policy)
    if isinstance(planned, Unchanged):
        if not request.dry_run:
            await _leave_alone(ctx, key, found, policy, planned, standing=request.by_standing_policy)
        return outcomes.unchanged(planned, found.version)
    if not isinstance(policy.summarizer, LlmSummarizer):
        return await _window_or_text(ctx, key, found, planned, policy, request)
    if request.dry_run:
        return outcomes.of_plan("planned", planned, policy, version=found.version)
    return await summaries.attempt(ctx, run_of(ctx, key, found, policy, planned, standing=request.by_standing_policy))


def run_of(ctx: Context, key: UUID, found: Found[Event], policy: Policy, planned: Plan, *, standing: bool) -> Run:
    """Return a compaction by the model as ``summaries`` runs it, of no more than it can be shown in its time."""
    assert found.view is not None  # noqa: S101 - a plan was made on it
    assert isinstance(policy.summarizer, LlmSummarizer)  # noqa: S101 - the caller has looked
    limited = rules.limited(found.view, policy, planned, summarizing.model_of(ctx).max_input_tokens * _MOST_PARTS)
    return Run(
        key=key,
        found=found,
        view=found.view,
        policy=policy,
        how=policy.summarizer,
        plan=limited,
        standing=standing,
        whole=limited is planned,
    )


def plan(ctx: Context, found: Found[Event], policy: Policy) -> Plan | Unchanged:
    """Decide what a compaction of a session covers. One that was asked for on an old view has lost the race."""
    view = found.view
    if view is None or found.figures.boundary != view.boundary:
        return rules.staying(Reason.LOST_RACE, policy, found.figures.tokens)
    planned = rules.plan(view, policy)
    if isinstance(planned, Unchanged) or not isinstance(policy.summarizer, LlmSummarizer):
        return planned
    if planned.covered_tokens <= summarizing.turn_tokens(ctx.tokens.text):
        # Known before anybody is paid.
        return rules.staying(Reason.DOES_NOT_SHRINK, policy, view.tokens)
    return planned


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
    policy = policies.standing(stored, ctx.default_policy)
    if policy is None:
        raise InvalidRequest.at("", "no window here, no policy on the session and no default policy: name a window")
    return policy


async def _leave_alone(
    ctx: Context, key: UUID, found: Found[Event], policy: Policy, why: Unchanged, *, standing: bool
) -> None:
    """Take a session that cannot be compacted now off the fleet's list, and end its wait: it was called for by hand."""
    if found.due and standing and why.reason is not Reason.LOST_RACE:
        settled = settling.of(key, found, policy, why.reason)
        async with ctx.database.one_statement() as tx:
            await fleet_store.settle(tx, [settled])
    elif found.retry_at is not None:
        async with ctx.database.one_statement() as tx:
            await fleet_store.resume(tx, key)


async def _window_or_text(
    ctx: Context, key: UUID, found: Found[Event], planned: Plan, policy: Policy, request: Request
) -> Outcome:
    """Run a compaction that calls nobody: a plain window, or with a summary that was brought along."""
    summary = await _brought(ctx, policy)
    sealed = rules.seal(planned, policy, summary.tokens if summary else None)
    if isinstance(sealed, Unchanged):
        return outcomes.unchanged(sealed, found.version)
    if request.dry_run:
        text = summary.text if summary else None
        return outcomes.of_plan("planned", sealed, policy, version=found.version, summary=text)
    return await writing.write(
        ctx,
        Sealed(
            key=key,
            created_at=found.created_at,
            plan=sealed,
            policy=policy,
            settles=request.by_standing_policy,
            standing=found.policy,
            summary=summary,
        ),
    )


async def _brought(ctx: Context, policy: Policy) -> SummaryTurn | None:
    """Return the turn that tells the summary a caller brought along; none without one, and for a blank one.

    Raises:
        PayloadTooLarge: it is larger than an event may be.
    """
    match policy.summarizer:
        case TextSummarizer(text=text) if not turn.is_blank(text):
            if len(text.encode()) > ctx.limits.event_bytes:
                raise PayloadTooLarge(limit_bytes=ctx.limits.event_bytes, what="the summary")
            return await offloaded(len(text) > LONG_TEXT, summary_turns.tell, ctx, text, text)
        case _:
            return None
