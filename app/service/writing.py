"""Write what a compaction came to: the boundary and its summary turn in one transaction, or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from app.domain import compaction as rules
from app.domain.compaction import NEVER_SETTLED, Left, Plan, Reason
from app.domain.errors import SessionExpired, SessionNotFound
from app.domain.event import Draft
from app.domain.policy import Policy
from app.service import boundary, outcomes
from app.service.context import Context
from app.service.outcomes import Outcome
from app.service.summary_turns import SummaryTurn
from app.storage import attempts as attempt_store
from app.storage import events as event_store
from app.storage import sessions as session_store
from app.storage.attempts import Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A compaction about to be written, planned on the session that was created at ``created_at``.

    ``attempt`` is the one that ends with it, and how. ``standing`` is the session's own policy as JSON text when it is
    all that the policy which stands for the session comes to, so that it is left alone until it has grown; ``settles``
    says so.
    """

    key: UUID
    created_at: datetime
    plan: Plan
    policy: Policy
    settles: bool
    standing: str | None = None
    summary: SummaryTurn | None = None
    attempt: tuple[int, Ending] | None = None


async def write(ctx: Context, sealed: Sealed) -> Outcome:
    """Write a compaction, unless another boundary has taken its place: that one's view stays as it is.

    Raises:
        SessionNotFound (also when another session has the id now), SessionExpired.
    """
    plan, summary = sealed.plan, sealed.summary
    async with ctx.database.writing() as tx:
        now = await session_store.lock(tx, sealed.key)
        # A session that was deleted and made again under the same id is another one: nothing late may enter it.
        if now is None or now.session.created_at != sealed.created_at:
            raise SessionNotFound
        if now.expired:
            raise SessionExpired
        version = now.session.version
        if now.session.view.boundary != plan.boundary:
            if sealed.attempt is not None:
                attempt_id, ending = sealed.attempt
                lost = replace(ending, status="unchanged", reason=Reason.LOST_RACE.value)
                await attempt_store.end(tx, attempt_id, lost)
            return outcomes.unchanged(rules.staying(Reason.LOST_RACE, sealed.policy, now.session.view.tokens), version)
        seq = version + 1
        written: Sequence[Draft] = summary.written_at(seq) if summary else ()
        seqs = tuple(seq + at for at in range(1, len(written) + 1))
        body = boundary.describe(plan, sealed.policy, summary=seqs)
        made = boundary.of(ctx, sealed.key, sealed.created_at, plan, body)
        await boundary.write(tx, replace(made, policy=sealed.standing, rests=_rests(sealed, len(written))))
        if written:
            await event_store.append(tx, sealed.key, written, expected_version=None)
        if sealed.attempt is not None:
            await attempt_store.end(tx, *sealed.attempt)
    return outcomes.of_plan(
        "applied",
        plan,
        sealed.policy,
        version=seq + len(written),
        seq=seq,
        summary=summary.text if summary else None,
    )


def _rests(sealed: Sealed, written: int) -> Left:
    if not sealed.settles:
        return NEVER_SETTLED
    left = sealed.plan.left
    return rules.resting(sealed.policy, Left(turns=left.turns, events=left.events + written))
