"""Boundaries: write one, list them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from sqlalchemy import text

from app.domain.compaction import NEVER_SETTLED, Left
from app.domain.event import StoredEvent
from app.domain.ranges import Ranges
from app.storage import rows
from app.storage.database import Reader, Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """A boundary about to be written, planned on a view of the session that was created at ``created_at``.

    ``stands_on`` is the boundary before it. ``events``, ``turns`` and ``tokens`` are what leaves the session's view
    with it. ``rests`` says when ``policy`` is to look at the view again, when it is what stands for the session still.
    ``is_compaction`` is False for a chat memory's eviction, which ends no wait after a failure.
    """

    key: UUID
    created_at: datetime
    stands_on: int | None
    event_id: str
    body: str
    covered: Ranges
    events: int
    turns: int
    tokens: int
    policy: str | None = None
    rests: Left = NEVER_SETTLED
    is_compaction: bool = True


async def write(writer: Writer, boundaries: Sequence[Boundary]) -> dict[UUID, int]:
    """Append boundaries, each of another session, in one statement, and take what they cover off the views' figures.

    Returns the seqs by session. A session is missing there, and untouched, when another boundary was written since the
    plan was made, when it has expired or is gone, or when another one has its id now.
    """
    rows_written = await writer.all(
        _WRITE,
        {
            "keys": [one.key for one in boundaries],
            "created": [one.created_at for one in boundaries],
            "stand_on": [one.stands_on for one in boundaries],
            "event_ids": [one.event_id for one in boundaries],
            "bodies": [one.body for one in boundaries],
            "covered": [rows.multirange_of(one.covered) for one in boundaries],
            "events": [one.events for one in boundaries],
            "turns": [one.turns for one in boundaries],
            "tokens": [one.tokens for one in boundaries],
            "policies": [one.policy for one in boundaries],
            "rest_turns": [one.rests.turns for one in boundaries],
            "rest_events": [one.rests.events for one in boundaries],
            "compactions": [one.is_compaction for one in boundaries],
        },
    )
    return {row.session_key: row.version for row in rows_written}


# Locked in one order first, so that no two writers of several boundaries wait for each other. A success ends the wait
# after failures and gives the session back.
_WRITE: Final = text("""
    WITH wanted AS MATERIALIZED (
        SELECT * FROM unnest(CAST(:keys AS uuid[]), CAST(:created AS timestamptz[]), CAST(:stand_on AS bigint[]),
                             CAST(:event_ids AS text[]), CAST(:bodies AS text[]), CAST(:covered AS text[]),
                             CAST(:events AS bigint[]), CAST(:turns AS bigint[]), CAST(:tokens AS bigint[]),
                             CAST(:policies AS text[]), CAST(:rest_turns AS bigint[]), CAST(:rest_events AS bigint[]),
                             CAST(:compactions AS boolean[]))
               AS w (session_key, created_at, stands_on, event_id, body, covered, events, turns, tokens,
                     policy, rest_turns, rest_events, is_compaction)
    ), locked AS MATERIALIZED (
        SELECT session_key FROM sessions WHERE session_key = ANY(CAST(:keys AS uuid[]))
         ORDER BY session_key
           FOR NO KEY UPDATE
    ), log AS (
        UPDATE sessions s
           SET version = s.version + 1,
               boundary = s.version + 1,
               view_events = s.view_events - w.events,
               view_turns = s.view_turns - w.turns,
               view_tokens = s.view_tokens - w.tokens,
               settled_turns = CASE WHEN s.policy::text IS NOT DISTINCT FROM w.policy THEN w.rest_turns ELSE 0 END,
               settled_events = CASE WHEN s.policy::text IS NOT DISTINCT FROM w.policy THEN w.rest_events ELSE 0 END,
               failures = CASE WHEN w.is_compaction THEN 0 ELSE s.failures END,
               retry_at = CASE WHEN w.is_compaction THEN NULL ELSE s.retry_at END,
               claimed_until = CASE WHEN w.is_compaction THEN NULL ELSE s.claimed_until END
          FROM wanted w JOIN locked USING (session_key)
         WHERE s.session_key = w.session_key
           AND s.created_at = w.created_at
           AND s.boundary IS NOT DISTINCT FROM w.stands_on
           AND (s.expires_at IS NULL OR s.expires_at > now())
        RETURNING s.session_key, s.version
    ), stored AS (
        INSERT INTO events (session_key, seq, event_id, type, body, metadata, covered)
        SELECT log.session_key, log.version, w.event_id, 'COMPACTION', CAST(w.body AS json), '{}',
               CAST(w.covered AS int8multirange)
          FROM log JOIN wanted w USING (session_key)
    )
    SELECT session_key, version FROM log
""")


class Told(NamedTuple):
    """The assistant message of a summary turn, as JSON text."""

    body: str
    metadata: str


async def page(
    reader: Reader, key: UUID, *, before: int | None, limit: int
) -> Sequence[tuple[StoredEvent, Told | None]]:
    """Return up to ``limit`` boundaries, newest first, each with the summary it wrote, if it wrote one.

    A summary turn stands right after its boundary: the user message that asks, then the assistant's answer.
    """
    found = await reader.all(_PAGE, {"key": key, "before": before, "limit": limit})
    return [(rows.whole(row), Told(row.answer, row.answer_metadata) if row.answer else None) for row in found]


_PAGE: Final = text("""
    SELECT b.seq, b.type, b.role, b.synthetic, b.token_count, b.call_ids::text AS call_ids, b.event_id,
           b.body::text AS body, b.metadata::text AS metadata, b.timestamp, b.stored_at, answer.body::text AS answer,
           answer.metadata::text AS answer_metadata
      FROM events b
      LEFT JOIN events answer
        ON answer.session_key = :key AND answer.seq = b.seq + 2 AND answer.synthetic AND answer.role = 'assistant'
     WHERE b.session_key = :key AND b.type = 'COMPACTION' AND (CAST(:before AS bigint) IS NULL OR b.seq < :before)
     ORDER BY b.seq DESC
     LIMIT :limit
""")
