"""Which sessions are due for a compaction by the policy that stands for them. By index, from their rows alone.

A tenant of None stands for all tenants.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from sqlalchemy import text

from app.domain.compaction import Left
from app.domain.policy import Standing
from app.domain.session import Count, Due, ViewFigures
from app.storage.database import Reader, Row, Writer
from app.storage.sessions import standing_columns
from app.storage.tenants import OF_TENANT, for_tenants

# How long a scheduler has a session to itself, unless it gives it back earlier. A dead one's are free after that.
CLAIM_SECONDS: Final = 10.0


_DUE: Final = f"""
    {OF_TENANT} AND due AND (expires_at IS NULL OR expires_at > now()) AND labels @> CAST(:labels AS jsonb)
"""
_FREE: Final = """
    (retry_at IS NULL OR retry_at <= now()) AND (claimed_until IS NULL OR claimed_until <= now())
    AND NOT EXISTS (SELECT FROM compaction_attempts a
                     WHERE a.session_key = sessions.session_key AND a.status = 'running' AND a.alive_until > now())
"""
_COLUMNS: Final = """
    session_key, tenant, session_id, created_at, policy::text AS policy, version, failures, boundary, view_events,
    view_turns, view_tokens
"""


async def claim(
    writer: Writer, tenant: str | None, labels: Mapping[str, str], *, summarizing: bool, limit: int
) -> Sequence[Due]:
    """Take up to ``limit`` due sessions, most tokens first, so that no other scheduler does meanwhile.

    Only those whose policy calls a model, or only those whose policy does not.
    """
    taken = {"summarizing": summarizing, "limit": limit, "seconds": CLAIM_SECONDS}
    found = await writer.all(_CLAIM(tenant), {**_parameters(tenant, labels), **taken})
    return sorted(map(_due, found), key=lambda one: -one.view.tokens)


_CLAIM: Final = for_tenants(f"""
    WITH free AS MATERIALIZED (
        SELECT session_key AS free_key FROM sessions
         WHERE {_DUE} AND summarizes = :summarizing AND {_FREE}
         ORDER BY view_tokens DESC
         LIMIT :limit
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE sessions SET claimed_until = now() + make_interval(secs => :seconds)
      FROM free
     WHERE session_key = free_key
    RETURNING {_COLUMNS}
""")  # noqa: S608 - constants only


async def due(reader: Reader, tenant: str | None, labels: Mapping[str, str], limit: int) -> Sequence[Due]:
    """Return what ``claim`` would take."""
    return [_due(row) for row in await reader.all(_LIST(tenant), {**_parameters(tenant, labels), "limit": limit})]


_LIST: Final = for_tenants(
    f"SELECT {_COLUMNS} FROM sessions WHERE {_DUE} AND {_FREE} ORDER BY view_tokens DESC LIMIT :limit"  # noqa: S608
)


async def summarizing_among_first(reader: Reader, tenant: str | None, labels: Mapping[str, str], limit: int) -> int:
    """Return how many of the first ``limit`` due sessions, most tokens first, have a policy that calls a model."""
    return int((await reader.one(_AMONG_FIRST(tenant), {**_parameters(tenant, labels), "limit": limit})).summarizing)


_AMONG_FIRST: Final = for_tenants(f"""
    SELECT count(*) FILTER (WHERE summarizes) AS summarizing
      FROM (SELECT summarizes FROM sessions WHERE {_DUE} AND {_FREE} ORDER BY view_tokens DESC LIMIT :limit) AS first
""")  # noqa: S608


async def count(reader: Reader, tenant: str | None, labels: Mapping[str, str]) -> Count:
    """Count the sessions whose trigger fires."""
    row = await reader.one(_COUNT(tenant), _parameters(tenant, labels))
    return Count(due=row.free, deferred=row.total - row.free, summarizing=row.summarizing)


_COUNT: Final = for_tenants(
    f"SELECT count(*) AS total, count(*) FILTER (WHERE {_FREE}) AS free,"  # noqa: S608
    f"       count(*) FILTER (WHERE summarizes AND {_FREE}) AS summarizing"
    f"  FROM sessions WHERE {_DUE}"
)


async def release(writer: Writer, keys: Sequence[UUID]) -> None:
    """Give claimed sessions back untouched."""
    await writer.run(_RELEASE, {"keys": list(keys)})


_RELEASE: Final = text("UPDATE sessions SET claimed_until = NULL WHERE session_key = ANY(CAST(:keys AS uuid[]))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A session whose standing policy can do nothing now, seen with this boundary and this policy of its own."""

    key: UUID
    created_at: datetime
    boundary: int | None
    policy: str | None
    rests: Left


async def settle(writer: Writer, sessions: Sequence[Settled]) -> None:
    """Leave sessions alone until they have grown, and end their wait after failures.

    One that was compacted since, or has another policy now, is given back and no more.
    """
    await writer.run(
        _SETTLE,
        {
            "keys": [one.key for one in sessions],
            "created": [one.created_at for one in sessions],
            "boundaries": [one.boundary for one in sessions],
            "policies": [one.policy for one in sessions],
            "turns": [one.rests.turns for one in sessions],
            "events": [one.rests.events for one in sessions],
        },
    )


_SETTLE: Final = text("""
    WITH wanted AS MATERIALIZED (
        SELECT * FROM unnest(CAST(:keys AS uuid[]), CAST(:created AS timestamptz[]), CAST(:boundaries AS bigint[]),
                             CAST(:policies AS text[]), CAST(:turns AS bigint[]), CAST(:events AS bigint[]))
               AS w (session_key, created_at, boundary, policy, turns, events)
    ), locked AS MATERIALIZED (
        SELECT session_key FROM sessions WHERE session_key = ANY(CAST(:keys AS uuid[]))
         ORDER BY session_key
           FOR NO KEY UPDATE
    )
    UPDATE sessions s
       SET settled_turns = CASE WHEN (s.boundary, s.policy::text) IS NOT DISTINCT FROM (w.boundary, w.policy)
                               THEN w.turns ELSE s.settled_turns END,
           settled_events = CASE WHEN (s.boundary, s.policy::text) IS NOT DISTINCT FROM (w.boundary, w.policy)
                                THEN w.events ELSE s.settled_events END,
           failures = 0, retry_at = NULL, claimed_until = NULL
      FROM wanted w JOIN locked USING (session_key)
     WHERE s.session_key = w.session_key AND s.created_at = w.created_at
""")


async def wait(writer: Writer, key: UUID, *, created_at: datetime, failures: int, seconds: int) -> None:
    """Let a session wait after its compaction failed, ``failures`` in a row with this one."""
    await writer.run(_WAIT, {"key": key, "created_at": created_at, "failures": failures, "seconds": seconds})


_WAIT: Final = text("""
    UPDATE sessions
       SET failures = :failures, claimed_until = NULL,
           retry_at = now() + make_interval(secs => CAST(:seconds AS double precision))
     WHERE session_key = :key AND created_at = :created_at
""")


async def resume(writer: Writer, key: UUID) -> None:
    """End a session's wait after failures."""
    await writer.run(_RESUME, {"key": key})


_RESUME: Final = text("UPDATE sessions SET failures = 0, retry_at = NULL WHERE session_key = :key")


async def set_default(tx: Writer, standing: Standing, policy: str | None) -> None:
    """Remember the server's default policy; sessions that are made without one follow it from now on.

    Of servers with different settings the last one's hold.
    """
    await tx.run(_REMEMBER, {**standing_columns(standing), "policy": policy})


_REMEMBER: Final = text("""
    INSERT INTO default_policy (policy, marks, summarizes) VALUES (:policy, CAST(:marks AS bigint[]), :summarizes)
    ON CONFLICT (only_row) DO UPDATE
       SET policy = excluded.policy, marks = excluded.marks, summarizes = excluded.summarizes
     WHERE (default_policy.policy, default_policy.marks, default_policy.summarizes)
           IS DISTINCT FROM (excluded.policy, excluded.marks, excluded.summarizes)
""")


async def follow(writer: Writer, limit: int) -> int:
    """Make up to ``limit`` sessions without a policy follow the server's default, and return how many did not yet."""
    return int((await writer.patiently(_FOLLOW, {"limit": limit})).following)


# Some at a time, for an append to one of them waits meanwhile; what others hold is passed by, and done by their next
# server's start at the latest.
_FOLLOW: Final = text("""
    WITH stale AS MATERIALIZED (
        SELECT s.session_key, d.marks, d.summarizes
          FROM sessions s, default_policy d
         WHERE s.policy IS NULL AND (s.marks, s.summarizes) IS DISTINCT FROM (d.marks, d.summarizes)
         ORDER BY s.session_key
         LIMIT :limit
           FOR NO KEY UPDATE OF s SKIP LOCKED
    ), following AS (
        UPDATE sessions s SET marks = stale.marks, summarizes = stale.summarizes, settled_turns = 0, settled_events = 0
          FROM stale
         WHERE s.session_key = stale.session_key
        RETURNING 1
    )
    SELECT count(*) AS following FROM following
""")


def _parameters(tenant: str | None, labels: Mapping[str, str]) -> dict[str, Any]:
    return {"tenant": tenant, "labels": msgspec.json.encode(labels).decode()}


def _due(row: Row) -> Due:
    return Due(
        key=row.session_key,
        tenant=row.tenant,
        session_id=row.session_id,
        created_at=row.created_at,
        policy=row.policy,
        version=row.version,
        failures=row.failures,
        view=ViewFigures(events=row.view_events, turns=row.view_turns, tokens=row.view_tokens, boundary=row.boundary),
    )
