"""Which sessions are due for a compaction by the policy that stands for them. By index, from their rows alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from sqlalchemy import text

from app.domain.policy import Standing
from app.domain.session import Count, Due, ViewFigures
from app.storage.database import Reader, Row, Writer
from app.storage.sessions import standing_columns

# How long a scheduler has a session to itself, unless it gives it back earlier. A dead one's are free after that.
CLAIM_SECONDS: Final = 10.0


_DUE: Final = """
    tenant = :tenant AND due AND (expires_at IS NULL OR expires_at > now()) AND labels @> CAST(:labels AS jsonb)
"""
_FREE: Final = """
    (retry_at IS NULL OR retry_at <= now()) AND (claimed_until IS NULL OR claimed_until <= now())
    AND NOT EXISTS (SELECT FROM compaction_attempts a
                     WHERE a.session_key = sessions.session_key AND a.status = 'running' AND a.alive_until > now())
"""
_COLUMNS: Final = """
    session_key, session_id, created_at, policy::text AS policy, version, failures, boundary, view_events, view_turns,
    view_tokens
"""


async def claim(
    writer: Writer, tenant: str, labels: Mapping[str, str], *, summarizing: bool, limit: int
) -> Sequence[Due]:
    """Take up to ``limit`` due sessions, most tokens first, so that no other scheduler does meanwhile.

    Only those whose policy calls a model, or only those whose policy does not.
    """
    taken = {"summarizing": summarizing, "limit": limit, "seconds": CLAIM_SECONDS}
    found = await writer.all(_CLAIM, {**_parameters(tenant, labels), **taken})
    return sorted(map(_due, found), key=lambda one: -one.view.tokens)


_CLAIM: Final = text(f"""
    UPDATE sessions SET claimed_until = now() + make_interval(secs => :seconds)
     WHERE session_key IN (SELECT session_key FROM sessions
                            WHERE {_DUE} AND summarizes = :summarizing AND {_FREE}
                            ORDER BY view_tokens DESC
                            LIMIT :limit
                              FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING {_COLUMNS}
""")  # noqa: S608 - constants only


async def due(reader: Reader, tenant: str, labels: Mapping[str, str], limit: int) -> Sequence[Due]:
    """Return what ``claim`` would take."""
    return [_due(row) for row in await reader.all(_LIST, {**_parameters(tenant, labels), "limit": limit})]


_LIST: Final = text(
    f"SELECT {_COLUMNS} FROM sessions WHERE {_DUE} AND {_FREE} ORDER BY view_tokens DESC LIMIT :limit"  # noqa: S608
)


async def count(reader: Reader, tenant: str, labels: Mapping[str, str]) -> Count:
    """Count the sessions whose trigger fires."""
    row = await reader.one(_COUNT, _parameters(tenant, labels))
    return Count(due=row.free, deferred=row.total - row.free, summarizing=row.summarizing)


_COUNT: Final = text(
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
    """A session whose standing policy can make its view of so many turns no smaller."""

    key: UUID
    created_at: datetime
    turns: int


async def settle(writer: Writer, sessions: Sequence[Settled]) -> None:
    """Leave sessions alone until they grow by a turn, and end their wait after failures."""
    await writer.run(
        _SETTLE,
        {
            "keys": [one.key for one in sessions],
            "created": [one.created_at for one in sessions],
            "turns": [one.turns for one in sessions],
        },
    )


_SETTLE: Final = text("""
    WITH wanted AS MATERIALIZED (
        SELECT * FROM unnest(CAST(:keys AS uuid[]), CAST(:created AS timestamptz[]), CAST(:turns AS bigint[]))
               AS w (session_key, created_at, turns)
    ), locked AS MATERIALIZED (
        SELECT session_key FROM sessions WHERE session_key = ANY(CAST(:keys AS uuid[]))
         ORDER BY session_key
           FOR NO KEY UPDATE
    )
    UPDATE sessions s SET settled_turns = w.turns, failures = 0, retry_at = NULL, claimed_until = NULL
      FROM wanted w JOIN locked USING (session_key)
     WHERE s.session_key = w.session_key AND s.created_at = w.created_at
""")


async def wait(writer: Writer, key: UUID, *, created_at: datetime, failures: int, seconds: int) -> None:
    """Let a session wait after its compaction failed, for the so manieth time in a row."""
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


async def set_default(tx: Writer, standing: Standing) -> None:
    """Make the sessions without a policy follow the server's default one; nothing is done when they do already.

    Replicas that start together queue up here. When their settings differ, the last one's hold.
    """
    given = standing_columns(standing)
    if await tx.run(_REMEMBER, given):
        await tx.patiently(_FOLLOW, given)


_REMEMBER: Final = text("""
    INSERT INTO default_marks (marks, summarizes) VALUES (CAST(:marks AS bigint[]), :summarizes)
    ON CONFLICT (only_row) DO UPDATE SET marks = excluded.marks, summarizes = excluded.summarizes
     WHERE (default_marks.marks, default_marks.summarizes) IS DISTINCT FROM (excluded.marks, excluded.summarizes)
""")

_FOLLOW: Final = text("""
    WITH locked AS MATERIALIZED (
        SELECT session_key FROM sessions
         WHERE policy IS NULL AND (marks, summarizes) IS DISTINCT FROM (CAST(:marks AS bigint[]), :summarizes)
         ORDER BY session_key
           FOR NO KEY UPDATE
    ), following AS (
        UPDATE sessions SET marks = CAST(:marks AS bigint[]), summarizes = :summarizes, settled_turns = 0
         WHERE session_key IN (SELECT session_key FROM locked) AND policy IS NULL
        RETURNING 1
    )
    SELECT count(*) AS count FROM following
""")


def _parameters(tenant: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {"tenant": tenant, "labels": msgspec.json.encode(labels).decode()}


def _due(row: Row) -> Due:
    return Due(
        key=row.session_key,
        session_id=row.session_id,
        created_at=row.created_at,
        policy=row.policy,
        version=row.version,
        failures=row.failures,
        view=ViewFigures(events=row.view_events, turns=row.view_turns, tokens=row.view_tokens, boundary=row.boundary),
    )
