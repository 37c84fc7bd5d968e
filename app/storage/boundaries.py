"""Boundaries: write one, list them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import text

from app.domain.event import StoredEvent
from app.domain.ranges import Ranges
from app.storage import rows
from app.storage.database import Reader, Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """A boundary about to be written. The last three are what leaves the session's view with it."""

    event_id: str
    body: str
    covered: Ranges
    events: int
    turns: int
    tokens: int


async def write(writer: Writer, key: UUID, boundary: Boundary) -> None:
    """Append a boundary to a log whose row lock the caller holds, and take what it covers off the view's figures."""
    await writer.run(
        _WRITE,
        {
            "key": key,
            "event_id": boundary.event_id,
            "body": boundary.body,
            "covered": rows.multirange_of(boundary.covered),
            "events": boundary.events,
            "turns": boundary.turns,
            "tokens": boundary.tokens,
        },
    )


_WRITE: Final = text("""
    WITH log AS (
        UPDATE sessions
           SET version = version + 1,
               boundary = version + 1,
               view_events = view_events - :events,
               view_turns = view_turns - :turns,
               view_tokens = view_tokens - :tokens
         WHERE session_key = :key
        RETURNING version
    )
    INSERT INTO events (session_key, seq, event_id, type, body, metadata, covered)
    SELECT :key, log.version, :event_id, 'COMPACTION', CAST(:body AS json), '{}',
           CAST(CAST(:covered AS text) AS int8multirange)
      FROM log
""")


async def page(
    reader: Reader, key: UUID, *, before: int | None, limit: int
) -> Sequence[tuple[StoredEvent, str | None]]:
    """Return up to ``limit`` boundaries, newest first, each with the body of the summary it wrote, if it wrote one.

    A summary turn stands right after its boundary: the user message that asks, then the assistant's answer.
    """
    found = await reader.all(_PAGE, {"key": key, "before": before, "limit": limit})
    return [(rows.whole(row), row.summary) for row in found]


_PAGE: Final = text("""
    SELECT b.seq, b.type, b.role, b.synthetic, b.token_count, b.call_ids::text AS call_ids, b.event_id,
           b.body::text AS body, b.metadata::text AS metadata, b.timestamp, b.stored_at, answer.body::text AS summary
      FROM events b
      LEFT JOIN events answer
        ON answer.session_key = :key AND answer.seq = b.seq + 2 AND answer.synthetic AND answer.role = 'assistant'
     WHERE b.session_key = :key AND b.type = 'COMPACTION' AND (CAST(:before AS bigint) IS NULL OR b.seq < :before)
     ORDER BY b.seq DESC
     LIMIT :limit
""")
