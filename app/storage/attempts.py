"""Attempts at a compaction that call a summarizer. The one that is running is the lease on its session."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import text

from app.domain.attempt import Attempt, Status
from app.storage.database import Reader, Row, Writer

# A dead holder's lease runs out within this time; a living one moves it on several times meanwhile.
LEASE_SECONDS: Final = 8.0
RENEWAL_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt ended, and what the summarizer was asked and answered on the way, in its own tokens."""

    status: Status
    reason: str | None = None
    error: str | None = None
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


async def begin(tx: Writer, key: UUID, new: dict[str, Any]) -> int | None:
    """Begin an attempt and return its id; None while another one is running, or when the session is gone.

    ``new`` has created_at, version, boundary, model and prompt. An attempt whose holder is dead is ended first.
    """
    # The session first, as whoever deletes it does: the other way round they would wait for each other.
    if await tx.first(_HOLD, {"key": key, "created_at": new["created_at"]}) is None:
        return None
    await tx.run(_BURY, {"key": key})
    row = await tx.first(_BEGIN, {**new, "key": key, "seconds": LEASE_SECONDS})
    return row.attempt_id if row else None


_HOLD: Final = text(
    "SELECT true AS held FROM sessions WHERE session_key = :key AND created_at = :created_at FOR KEY SHARE"
)

_BURY: Final = text("""
    UPDATE compaction_attempts SET status = 'abandoned', ended_at = now(), error = 'holder-died'
     WHERE session_key = :key AND status = 'running' AND alive_until <= now()
""")

_BEGIN: Final = text("""
    INSERT INTO compaction_attempts (session_key, alive_until, version, boundary, model, prompt)
    VALUES (:key, now() + make_interval(secs => :seconds), :version, :boundary, :model, :prompt)
    ON CONFLICT (session_key) WHERE status = 'running' DO NOTHING
    RETURNING attempt_id
""")


async def renew(writer: Writer, attempt_id: int) -> bool:
    """Say that the holder lives; False when the attempt is over, for its session is gone or somebody else took over."""
    return bool(await writer.run(_RENEW, {"attempt_id": attempt_id, "seconds": LEASE_SECONDS}))


_RENEW: Final = text("""
    UPDATE compaction_attempts SET alive_until = now() + make_interval(secs => :seconds)
     WHERE attempt_id = :attempt_id AND status = 'running'
""")


async def end(writer: Writer, attempt_id: int, how: Ending) -> None:
    """End an attempt that is running; one that was ended by somebody else, or is gone with its session, stays so."""
    await writer.run(
        _END,
        {
            "attempt_id": attempt_id,
            "status": how.status,
            "reason": how.reason,
            "error": how.error,
            "calls": how.calls,
            "input_tokens": how.input_tokens,
            "output_tokens": how.output_tokens,
        },
    )


_END: Final = text("""
    UPDATE compaction_attempts
       SET status = :status, ended_at = now(), reason = :reason, error = :error, calls = :calls,
           input_tokens = :input_tokens, output_tokens = :output_tokens
     WHERE attempt_id = :attempt_id AND status = 'running'
""")


async def forget(writer: Writer, attempt_id: int) -> None:
    """Take back an attempt that never reached the summarizer."""
    await writer.run(_FORGET, {"attempt_id": attempt_id})


_FORGET: Final = text("DELETE FROM compaction_attempts WHERE attempt_id = :attempt_id")


async def newest(reader: Reader, key: UUID) -> Attempt | None:
    """Return a session's newest attempt."""
    found = await page(reader, key, before=None, limit=1)
    return found[0] if found else None


async def page(reader: Reader, key: UUID, *, before: int | None, limit: int) -> Sequence[Attempt]:
    """Return up to ``limit`` attempts with ids below ``before``, newest first."""
    return [_attempt(row) for row in await reader.all(_PAGE, {"key": key, "before": before, "limit": limit})]


_PAGE: Final = text("""
    SELECT attempt_id, started_at, ended_at, status = 'running' AND alive_until > now() AS alive, version, boundary,
           CASE WHEN status = 'running' AND alive_until <= now() THEN 'abandoned' ELSE status END AS status,
           reason, error, model, prompt, calls, input_tokens, output_tokens
      FROM compaction_attempts
     WHERE session_key = :key AND (CAST(:before AS bigint) IS NULL OR attempt_id < :before)
     ORDER BY attempt_id DESC
     LIMIT :limit
""")


def _attempt(row: Row) -> Attempt:
    return Attempt(
        attempt_id=row.attempt_id,
        started_at=row.started_at,
        ended_at=row.ended_at,
        alive=row.alive,
        version=row.version,
        boundary=row.boundary,
        status=row.status,
        reason=row.reason,
        error=row.error,
        model=row.model,
        prompt=row.prompt,
        calls=row.calls,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
    )
