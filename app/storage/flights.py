"""Flights: many batches of appends in one statement."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from sqlalchemy import text

from app.domain.event import Draft
from app.storage import rows
from app.storage.database import Writer

# What one flight carries at most. It is a few milliseconds' work for Postgres, and that is how long a latecomer waits.
MOST_BATCHES: Final = 64
_MOST_EVENTS: Final = 500
_MOST_CHARACTERS: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """A batch that waits; ``answer`` is what ``events.append`` would return or raise."""

    key: UUID
    drafts: Sequence[Draft]
    expected_version: int | None
    characters: int
    answer: "asyncio.Future[int | None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def tell(self, base: int | None) -> None:
        """Answer, unless the caller went away."""
        if not self.answer.done():
            self.answer.set_result(base)

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless the caller went away."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True, kw_only=True)
class Room:
    """What a flight can still take."""

    batches: int = MOST_BATCHES
    events: int = _MOST_EVENTS
    characters: int = _MOST_CHARACTERS

    def take(self, batch: Batch) -> bool:
        """Take a batch aboard if it fits. The first one does, however large: there is no better flight to wait for."""
        is_empty = self.batches == MOST_BATCHES
        fits = self.batches > 0 and self.events >= len(batch.drafts) and self.characters >= batch.characters
        if not (is_empty or fits):
            return False
        self.batches -= 1
        self.events -= len(batch.drafts)
        self.characters -= batch.characters
        return True


# By session. Batches of one session are stored one right after the other.
Flight = Mapping[UUID, Sequence[Batch]]


def group(queue: deque[Batch], room: Room) -> list[Batch]:
    """Take batches of one session from its queue that can go together.

    A batch that expects a version goes alone, for there is one version to compare.
    """
    together: list[Batch] = []
    while queue:
        batch = queue[0]
        if not batch.answer.done():  # or its caller went away
            if together and (batch.expected_version is not None or together[-1].expected_version is not None):
                break
            if not room.take(batch):
                break
            together.append(batch)
        queue.popleft()
    return together


async def append(writer: Writer, flight: Flight) -> dict[UUID, tuple[int | None, bool]]:
    """Append the batches of a flight, in one statement that waits for nobody.

    Returns, by session, the version before its first batch, None when none was stored because the session is missing,
    expired or not at the expected version; and whether none was stored because somebody else holds its row lock.

    Raises:
        UniqueViolation: one of the ids is stored already; nothing of any batch was stored then.
    """
    drafts = {key: [draft for batch in group for draft in batch.drafts] for key, group in flight.items()}
    figures = [rows.figures_of(one) for one in drafts.values()]
    names = {key: str(key) for key in flight}
    found = await writer.all(
        _APPEND_ALL,
        {
            "keys": rows.column(list(names.values())),
            "expected": rows.column([_number(group[0].expected_version) for group in flight.values()]),
            **{
                name: rows.column([str(one[name]) for one in figures])
                for name in ("added", "messages", "turns", "tokens")
            },
            "owners": rows.column([names[key] for key, one in drafts.items() for _ in one]),
            "positions": rows.column([str(at) for one in drafts.values() for at in range(1, len(one) + 1)]),
            **rows.columns_of([draft for one in drafts.values() for draft in one]),
        },
    )
    return {row.session_key: (row.base, row.held) for row in found}


# A locked row is skipped, so that one session's trouble is not everybody's; it is told from a missing one by looking
# for it, with a subquery that Postgres cannot turn into a scan of the table. A row that changed since the snapshot is
# judged as it is now, as everywhere.
_APPEND_ALL: Final = text(f"""
    WITH wanted AS MATERIALIZED (
        SELECT * FROM unnest({rows.array("keys", "uuid")}, {rows.array("expected", "bigint")},
                             {rows.array("added", "bigint")}, {rows.array("messages", "bigint")},
                             {rows.array("turns", "bigint")}, {rows.array("tokens", "bigint")})
               AS w (session_key, expected, added, messages, turns, tokens)
    ), locked AS MATERIALIZED (
        SELECT session_key FROM sessions WHERE session_key = ANY({rows.array("keys", "uuid")})
         ORDER BY session_key
           FOR NO KEY UPDATE SKIP LOCKED
    ), log AS (
        UPDATE sessions s
           SET version = s.version + w.added,
               view_events = s.view_events + w.messages,
               view_turns = s.view_turns + w.turns,
               view_tokens = s.view_tokens + w.tokens
          FROM wanted w JOIN locked USING (session_key)
         WHERE s.session_key = w.session_key
           AND (s.expires_at IS NULL OR s.expires_at > now())
           AND (w.expected IS NULL OR s.version = w.expected)
        RETURNING s.session_key, s.version - w.added AS base
    ), stored AS (
        INSERT INTO events (session_key, seq, {rows.DRAFT_COLUMNS})
        SELECT log.session_key, log.base + draft.position, {rows.STORED}
          FROM unnest({rows.array("owners", "uuid")}, {rows.array("positions", "bigint")}, {rows.DRAFTS})
               AS draft (session_key, position, {rows.DRAFT_COLUMNS})
          JOIN log USING (session_key)
    )
    SELECT w.session_key, log.base,
           locked.session_key IS NULL
           AND (SELECT true FROM sessions s WHERE s.session_key = w.session_key) IS NOT NULL AS held
      FROM wanted w LEFT JOIN locked USING (session_key) LEFT JOIN log USING (session_key)
""")  # noqa: S608


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)
