"""Leave a session alone whose standing policy can do nothing now, or let it wait after a failure."""

from datetime import datetime
from typing import Any
from uuid import UUID

from app.domain import compaction as rules
from app.domain import retry
from app.domain.compaction import Left, Reason
from app.domain.policy import Policy
from app.storage import fleet as store
from app.storage.database import Writer
from app.storage.fleet import Settled
from app.storage.views import Found


def of(key: UUID, found: Found[Any], policy: Policy, reason: Reason) -> Settled:
    """Say when a session is to be looked at again of which nothing could be covered, and why."""
    return Settled(
        key=key,
        created_at=found.created_at,
        boundary=found.figures.boundary,
        policy=found.policy,
        rests=rules.resting(policy, Left(turns=found.figures.turns, events=found.figures.events), reason),
    )


async def let_wait(tx: Writer, key: UUID, created_at: datetime, *, failures: int) -> None:
    """Let a session wait after so many failures in a row."""
    seconds = retry.pause_seconds(failures)
    await store.wait(tx, key, created_at=created_at, failures=failures, seconds=seconds)
