"""The log: append to it, find in it, read pages of it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Select,
    Text,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    cast,
    func,
    literal,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, INT8MULTIRANGE

from app.domain.event import Draft, StoredEvent
from app.domain.log import Filters, Listed, Page
from app.domain.ranges import Ranges
from app.storage import rows
from app.storage.database import Reader, Row, Writer
from app.storage.tables import events, sessions

EVENT_ID_CONSTRAINT: Final = "uq_events_session_key_event_id"
# Of messages, payloads and metadata in one page of a list.
PAGE_BYTES: Final = 16 * 1024 * 1024


async def append(writer: Writer, key: UUID, drafts: Sequence[Draft], *, expected_version: int | None) -> int | None:
    """Append a batch and bring the session's figures forward, all in one statement.

    Returns the version before the batch, so that the events have the seqs after it; None when nothing was stored:
    the session is missing, expired or not at the expected version.

    Raises:
        UniqueViolation: of ``EVENT_ID_CONSTRAINT`` when one of the ids is stored already; nothing was stored then.
    """
    row = await writer.first(
        _APPEND, {"key": key, "expected": expected_version, **rows.figures_of(drafts), **rows.columns_of(drafts)}
    )
    return row.base if row else None


# The update takes the session's row lock, so batches queue up and seq has no gaps; after the wait Postgres judges the
# WHERE again on the newest row. An id that is stored already fails the whole statement, for the snapshot that
# could tell in advance is older than the lock.
_APPEND: Final = text(f"""
    WITH log AS (
        UPDATE sessions
           SET version = version + :added,
               view_events = view_events + :messages,
               view_turns = view_turns + :turns,
               view_tokens = view_tokens + :tokens
         WHERE session_key = :key
           AND (expires_at IS NULL OR expires_at > now())
           AND (CAST(:expected AS bigint) IS NULL OR version = :expected)
        RETURNING version - :added AS base
    ), stored AS (
        INSERT INTO events (session_key, seq, {rows.DRAFT_COLUMNS})
        SELECT :key, log.base + draft.position, {rows.STORED}
          FROM log, unnest({rows.DRAFTS}) WITH ORDINALITY AS draft ({rows.DRAFT_COLUMNS}, position)
    )
    SELECT base FROM log
""")  # noqa: S608


async def with_ids(reader: Reader, key: UUID, event_ids: Sequence[str]) -> dict[str, StoredEvent]:
    """Return those of a session's events that have one of ``event_ids``, by id."""
    found = await reader.all(_WITH_IDS, {"key": key, "ids": list(event_ids)})
    return {row.event_id: rows.whole(row) for row in found}


_WITH_IDS: Final = text(
    f"SELECT {rows.WHOLE} FROM events WHERE session_key = :key AND event_id = ANY(CAST(:ids AS text[]))"  # noqa: S608
)


async def shown_to_summarizer(
    reader: Reader, key: UUID, seqs: Ranges, *, created_at: datetime, boundary: int | None
) -> list[StoredEvent] | None:
    """Return the message events of some ranges, oldest first.

    None when the session's newest boundary is no longer ``boundary``, or another session has its key now: then nobody
    may be shown what they say for a plan that was made before.
    """
    found = await reader.all(
        _SHOWN,
        {"key": key, "seqs": rows.multirange_of(seqs), "created_at": created_at, "boundary": boundary},
    )
    return [rows.whole(row) for row in found if row.seq is not None] if found else None


_SHOWN: Final = text(f"""
    SELECT event.*
      FROM sessions s
      LEFT JOIN (unnest(CAST(CAST(:seqs AS text) AS int8multirange)) AS span
                 CROSS JOIN LATERAL (SELECT {rows.WHOLE}
                                       FROM events
                                      WHERE session_key = :key AND seq >= lower(span) AND seq < upper(span)
                                        AND type = 'MESSAGE'
                                     OFFSET 0) AS event) ON true
     WHERE s.session_key = :key AND s.created_at = :created_at AND s.boundary IS NOT DISTINCT FROM :boundary
     ORDER BY event.seq
""")  # noqa: S608


async def page(reader: Reader, key: UUID, filters: Filters, part: Page) -> tuple[list[Listed], bool]:
    """Return a page of a session's log, in one statement, and whether more follows.

    It ends early, behind the event with which it has ``PAGE_BYTES``: a thousand of the largest would be 4 GiB.
    """
    statement = _page(_Shape.of(filters), part.order == "desc", part.after is not None, part.before is not None)
    bounds = {"after": part.after, "before": part.before, "limit": part.limit + 1, "bytes": PAGE_BYTES}
    found = await reader.all(statement, {**_parameters(key, filters), **bounds})
    taken = [row for row in found[: part.limit] if row.body is not None]
    return [_shown(row) for row in taken], len(found) > len(taken)


async def newest(reader: Reader, key: UUID, filters: Filters, count: int) -> list[Listed]:
    """Return the newest ``count`` matches, oldest first, extended back to the start of the turn they land in.

    The turn start must be a match itself; where none is at or before that place, just the newest ``count``.
    """
    statement = _newest(_Shape.of(filters), filters.can_start_turn)
    return await _listed(reader, statement, {**_parameters(key, filters), "limit": count})


async def find(reader: Reader, key: UUID, event_id: str) -> Listed | None:
    """Return one event by its id."""
    found = await _listed(reader, _find(), {"key": key, "event_id": event_id})
    return found[0] if found else None


class _Shape(NamedTuple):
    """Which filters there are. Each shape is one statement, put together once, whatever is filtered by."""

    types: bool
    roles: bool
    synthetic: bool

    @classmethod
    def of(cls, filters: Filters) -> "_Shape":
        return cls(filters.types is not None, filters.roles is not None, filters.synthetic is not None)


def _parameters(key: UUID, filters: Filters) -> dict[str, Any]:
    return {"key": key, "types": filters.types, "roles": filters.roles, "synthetic": filters.synthetic}


@cache
def _page(shape: _Shape, newest_first: bool, after: bool, before: bool) -> Select[Any]:  # noqa: FBT001
    seq = events.c.seq
    query = _matches(shape, as_text=False).order_by(seq.desc() if newest_first else seq).limit(_LIMIT)
    if after:
        query = query.where(seq > bindparam("after", type_=BigInteger))
    if before:
        query = query.where(seq < bindparam("before", type_=BigInteger))
    # How long a body is Postgres knows without reading it.
    found = query.subquery("found").c
    order = found.seq.desc() if newest_first else found.seq
    size = func.octet_length(cast(found.body, Text)) + func.octet_length(cast(found.metadata, Text))
    bytes_before = func.coalesce(func.sum(size).over(order_by=order, rows=(None, -1)), 0)
    fits = bytes_before < bindparam("bytes", type_=BigInteger)
    written = {one.name: case((fits, cast(one, Text))) for one in (found.body, found.metadata)}
    return select(*[written.get(one.name, one).label(one.name) for one in found]).order_by(order)


@cache
def _newest(shape: _Shape, can_start_turn: bool) -> Select[Any]:  # noqa: FBT001
    matches = _matches(shape)
    seq = events.c.seq
    newest_seqs = matches.with_only_columns(seq).order_by(seq.desc()).limit(_LIMIT).subquery()
    landed = select(func.min(newest_seqs.c.seq)).scalar_subquery()
    first: ColumnElement[Any] = landed
    if can_start_turn:
        # Where no match can be a turn start, looking for one would walk the whole log.
        start = matches.with_only_columns(func.max(seq)).where(events.c.starts_turn, seq <= landed).scalar_subquery()
        first = func.coalesce(start, landed)
    return matches.where(seq >= first).order_by(seq)


@cache
def _find() -> Select[Any]:
    return _matches(_Shape(types=False, roles=False, synthetic=False)).where(
        events.c.event_id == bindparam("event_id", type_=Text)
    )


def _matches(shape: _Shape, *, as_text: bool = True) -> Select[Any]:
    """Select a log's events with their coverage by the newest boundary."""
    e, key = events.c, bindparam("key", type_=Uuid)
    boundary = events.alias("boundary")
    coverage = (
        select(boundary.c.covered)
        .join(sessions, and_(sessions.c.session_key == boundary.c.session_key, sessions.c.boundary == boundary.c.seq))
        .where(boundary.c.session_key == key)
        .scalar_subquery()
    )
    query = select(
        e.seq, e.type, e.role, e.synthetic, e.token_count, cast(e.call_ids, Text).label("call_ids"),
        e.event_id, *([cast(one, Text).label(one.name) if as_text else one for one in (e.body, e.metadata)]),
        e.timestamp, e.stored_at,
        and_(e.type == "MESSAGE", e.seq.op("<@")(func.coalesce(coverage, _NOTHING))).label("is_covered"),
    ).where(e.session_key == key)  # fmt: skip
    if shape.types:
        query = query.where(e.type == any_(bindparam("types", type_=ARRAY(Text))))
    if shape.roles:
        query = query.where(e.role == any_(bindparam("roles", type_=ARRAY(Text))))
    if shape.synthetic:
        query = query.where(e.synthetic == bindparam("synthetic", type_=Boolean))
    return query


_LIMIT: Final = bindparam("limit", type_=BigInteger)
_NOTHING: Final = cast(literal("{}"), INT8MULTIRANGE)


async def _listed(reader: Reader, statement: Select[Any], parameters: Mapping[str, Any]) -> list[Listed]:
    return [_shown(row) for row in await reader.all(statement, parameters)]


def _shown(row: Row) -> Listed:
    return Listed(event=rows.whole(row), covered=row.is_covered)
