"""Sweeps over many sessions: for schedulers."""

from datetime import datetime
from typing import NamedTuple

from app.service.context import Context
from app.storage import sweeps as store


class Purged(NamedTuple):
    """How many expired sessions a sweep removed, and how many it left for the next."""

    purged: int
    remaining: int


async def purge(ctx: Context, tenant: str | None, *, expired_before: datetime | None, limit: int) -> Purged:
    """Remove up to ``limit`` sessions that expired at or before a moment (None: now), with their whole logs.

    They are a tenant's, or for None those of all tenants.
    """
    async with ctx.database.one_statement() as tx:
        return Purged(*await store.purge(tx, tenant, expired_before, limit))
