"""Logs to measure on, written straight in SQL: turns of four messages of 1 KB, with boundaries or without."""

import json
from dataclasses import dataclass
from typing import Any, Final

from app.domain.key import DEFAULT_TENANT
from app.storage.sessions import key_of

EVENT_BYTES: Final = 1024
VIEW_EVENTS: Final = 40
_QUESTION: Final = "Where is my order, and when will it be with me? It should have been here on Tuesday. "


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log of ``events`` events: a prompt, then turns; the last ``boundaries`` of them leave 40 in the view."""

    session_id: str
    events: int
    boundaries: int = 0


def message(size: int = EVENT_BYTES) -> dict[str, str]:
    """Return a user's message whose JSON has about ``size`` bytes."""
    return {"role": "user", "content": (_QUESTION * (size // len(_QUESTION) + 1))[: size - 32]}


async def empty(connection: Any, session_ids: list[str]) -> None:
    """Create sessions without events, as ``turnlog`` would with its default lifetime."""
    await connection.executemany(
        _SESSION, [(key_of(DEFAULT_TENANT, name), DEFAULT_TENANT, name) for name in session_ids]
    )


async def seed(connection: Any, log: Log) -> None:
    """Create a session with a whole log, in two statements."""
    await empty(connection, [log.session_id])
    key = key_of(DEFAULT_TENANT, log.session_id)
    # The view is the prompt and the newest 39 messages, which begin with a turn right behind the newest boundary.
    newest = log.events - VIEW_EVENTS + 1 if log.boundaries else 1
    bodies = [json.dumps(body) for body in _turn()]
    await connection.execute(_EVENTS, key, log.events, newest, log.boundaries, bodies)
    await connection.execute(_FIGURES, key)


def _turn() -> tuple[dict[str, Any], ...]:
    arguments = json.dumps({"number": 1007, "why": _QUESTION * 8})
    call = {"id": "call_%", "type": "function", "function": {"name": "find_order", "arguments": arguments}}
    return (
        message(),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_%", "content": message()["content"]},
        {"role": "assistant", "content": message()["content"]},
        {"role": "system", "content": message()["content"]},
    )


_SESSION: Final = """
    INSERT INTO sessions (session_key, tenant, session_id, expires_at, metadata, labels)
    VALUES ($1, $2, $3, now() + interval '60 days', '{}', '{}')
"""
# Boundaries stand at equal distances, the newest at $3; each covers all before it save the prompt. `part` says where in
# its turn a message stands, so that a turn begins right behind the newest boundary, and 4 is the prompt.
_EVENTS: Final = """
    INSERT INTO events (session_key, seq, event_id, type, role, token_count, call_ids, body, metadata, covered)
    SELECT $1, seq, gen_random_uuid()::text,
           CASE WHEN is_boundary THEN 'COMPACTION' ELSE 'MESSAGE' END,
           CASE WHEN NOT is_boundary THEN ('{user,assistant,tool,assistant,system}'::text[])[part + 1] END,
           CASE WHEN is_boundary THEN 0 ELSE 230 END,
           CASE WHEN NOT is_boundary AND part IN (1, 2) THEN json_build_array('call_' || seq - part) END,
           CASE WHEN is_boundary THEN '{}'
                ELSE replace(($5::text[])[part + 1], 'call_%', 'call_' || seq - part)::json END,
           '{}',
           CASE WHEN is_boundary THEN int8multirange(int8range(2, greatest(seq, 2))) END
      FROM (SELECT seq, seq > 1 AND $4::bigint > 0 AND seq <= $3
                        AND seq * $4::bigint / $3 > (seq - 1) * $4::bigint / $3 AS is_boundary,
                   CASE WHEN seq = 1 THEN 4 ELSE ((seq - $3 - 1) % 4 + 4) % 4 END AS part
              FROM generate_series(1, $2::bigint) AS seq) AS made
"""
_FIGURES: Final = """
    WITH newest AS (
        SELECT max(seq) AS version, max(seq) FILTER (WHERE type = 'COMPACTION') AS boundary
          FROM events WHERE session_key = $1
    )
    UPDATE sessions
       SET version = newest.version, boundary = newest.boundary,
           (view_events, view_turns, view_tokens) = (
               SELECT count(*), count(*) FILTER (WHERE starts_turn), coalesce(sum(token_count), 0)
                 FROM events
                WHERE session_key = $1 AND type = 'MESSAGE' AND (seq = 1 OR seq > coalesce(newest.boundary, 0)))
      FROM newest
     WHERE session_key = $1
"""


async def seed_many(connection: Any, session_ids: list[str], events: int) -> None:
    """Create many sessions with short logs of small events, as whole turns, without boundaries."""
    keys = [key_of(DEFAULT_TENANT, name) for name in session_ids]
    await empty(connection, session_ids)
    await connection.execute(_SHORT, keys, events)
    await connection.execute(_SHORT_FIGURES, keys, events)


_SHORT: Final = """
    INSERT INTO events (session_key, seq, event_id, type, role, token_count, body, metadata)
    SELECT key, seq, gen_random_uuid()::text, 'MESSAGE', CASE WHEN seq % 2 = 1 THEN 'user' ELSE 'assistant' END, 230,
           json_build_object('role', CASE WHEN seq % 2 = 1 THEN 'user' ELSE 'assistant' END, 'content', 'Well?'), '{}'
      FROM unnest($1::uuid[]) AS key, generate_series(1, $2::bigint) AS seq
"""
_SHORT_FIGURES: Final = """
    UPDATE sessions
       SET version = $2::bigint, view_events = $2::bigint, view_turns = ($2::bigint + 1) / 2,
           view_tokens = $2::bigint * 230
     WHERE session_key = ANY ($1::uuid[])
"""
