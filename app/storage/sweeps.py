"""Rows that are needed no longer, of a tenant or (None) of all tenants."""

from datetime import datetime
from typing import Final

from app.storage.database import Writer
from app.storage.tenants import OF_TENANT, for_tenants


async def purge(writer: Writer, tenant: str | None, before: datetime | None, limit: int) -> tuple[int, int]:
    """Delete up to ``limit`` sessions that expired at or before ``before`` (None: now), the longest expired first.

    Returns how many went, and how many more there are to purge. A session that is being extended at this moment is
    skipped or judged by its new expiry, never lost.
    """
    row = await writer.patiently(_PURGE(tenant), {"tenant": tenant, "before": before, "limit": limit})
    return row.purged, row.due - row.purged


_PURGE: Final = for_tenants(f"""
    WITH picked AS MATERIALIZED (
        SELECT session_key FROM sessions
         WHERE {OF_TENANT} AND expires_at <= least(coalesce(CAST(:before AS timestamptz), now()), now())
         ORDER BY expires_at
         LIMIT :limit
           FOR UPDATE SKIP LOCKED
    ), purged AS (
        DELETE FROM sessions
         WHERE session_key IN (SELECT session_key FROM picked)
        RETURNING 1
    ), due AS (
        SELECT count(*) AS count FROM sessions
         WHERE {OF_TENANT} AND expires_at <= least(coalesce(CAST(:before AS timestamptz), now()), now())
    )
    SELECT (SELECT count(*) FROM purged) AS purged, due.count AS due FROM due
""")  # noqa: S608 - constants only
