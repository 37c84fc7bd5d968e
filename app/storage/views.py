"""Read a view: the newest boundary, and of the log only what it leaves visible."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from sqlalchemy import TextClause, text

from app.domain.event import Event, StoredEvent
from app.domain.session import ViewFigures
from app.domain.view import NOTHING_KNOWN, Known, View, ordered
from app.storage import rows
from app.storage.database import Reader, Row

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[E]):
    """A session's view as one snapshot saw it.

    ``version`` and ``figures`` are the session's current ones, whatever version was asked for. ``read`` is the version
    that was, and ``view`` is None when the caller knew it already. ``created_at`` tells a session from a later one with
    the same id, and ``stamp``, when the newest event was stored, tells its log from another with as many events; it is
    None for an empty log, for a version that the caller knew, and for a view that is the held one.
    ``due`` says that the policy which stands for it would have it compacted now, and ``retry_at`` until when it waits
    after a failure. ``is_held`` says that the view begins with the one that the caller holds.
    """

    expired: bool
    created_at: datetime
    stamp: datetime | None
    version: int
    read: int
    figures: ViewFigures
    policy: str | None
    retry_at: datetime | None
    failures: int
    due: bool
    is_held: bool = False
    view: View[E] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A view of then that somebody still has, with what says whether it is the beginning of the view of now."""

    created_at: datetime
    stamp: datetime
    view: View[StoredEvent]


async def whole(
    reader: Reader,
    key: UUID,
    *,
    at_version: int | None = None,
    known: Known = NOTHING_KNOWN,
    held: Held | None = None,
) -> Found[StoredEvent] | None:
    """Read a view with what its events say, as it is now or as it was at a version, in one round trip.

    When the caller knows the version to be read, no event row is touched. When the view of now begins with the one that
    the caller holds, only the events after that are read, and when there are none, the answer has the held view itself.
    None when the session is missing.
    """
    row = await reader.first(_WHOLE, _parameters(key, at_version, known, held))
    if row is None:
        return None
    return _found(row, rows.wholes) if held is None or row.since == 0 else _grown(row, held.view)


async def skeleton(reader: Reader, key: UUID, *, at_version: int | None = None) -> Found[Event] | None:
    """Read a view as far as the rules look at it, without a single body."""
    row = await reader.first(_SKELETON, _parameters(key, at_version, NOTHING_KNOWN, None))
    return _found(row, rows.skeletons) if row else None


def _parameters(key: UUID, at_version: int | None, known: Known, held: Held | None) -> dict[str, Any]:
    return {
        "key": key,
        "at": at_version,
        "known": list(known.versions),
        "any": known.any,
        "held_version": held and held.view.version,
        "held_stamp": held and held.stamp,
    }


def _statement(columns: Mapping[str, str], stamp: str) -> TextClause:
    """Write the statement that returns the session's row joined to the visible events of its log.

    Two things hold the planner to the one good plan. OFFSET 0 keeps the inner query a scan of the primary key for each
    visible range; without it the whole is flattened into a scan over the log, and a view of 40 events costs what a
    million do. MATERIALIZED has the boundary looked up once; without it, once for each event of the view, and what
    is held once for each use.

    A held view is the beginning of the view of now when no boundary was written since, and the event at its version was
    stored when it was then. That look at one row says that this is the same log: not another one under the same id, nor
    one that was rewound and written on, by a restored backup or a standby that took over without the newest events.
    """
    return text(f"""
        WITH session AS (
            SELECT session_key, created_at, version AS newest, boundary, view_events, view_turns, view_tokens,
                   policy::text AS policy, retry_at, failures, due, coalesce(expires_at <= now(), false) AS expired,
                   coalesce(CAST(:at AS bigint), version) AS wanted
              FROM sessions
             WHERE session_key = :key
        ), asked AS MATERIALIZED (
            SELECT session.*, CAST(:any AS boolean) OR wanted = ANY(CAST(:known AS bigint[])) AS is_known,
                   CASE WHEN wanted = newest THEN boundary
                        ELSE (SELECT b.seq FROM events b
                               WHERE b.session_key = :key AND b.type = 'COMPACTION' AND b.seq <= wanted
                               ORDER BY b.seq DESC LIMIT 1)
                   END AS stands_on,
                   CASE WHEN wanted = newest AND coalesce(boundary, 0) <= CAST(:held_version AS bigint)
                             AND (SELECT e.stored_at FROM events e
                                   WHERE e.session_key = :key AND e.seq = CAST(:held_version AS bigint))
                                 = CAST(:held_stamp AS timestamptz)
                        THEN CAST(:held_version AS bigint)
                        ELSE 0
                   END AS since
              FROM session
        ), compacted AS MATERIALIZED (
            SELECT asked.*,
                   CASE WHEN NOT is_known AND since = 0 THEN
                        (SELECT b.covered FROM events b WHERE b.session_key = :key AND b.seq = stands_on)
                   END AS coverage
              FROM asked
        )
        SELECT c.created_at, c.newest, c.boundary, c.view_events, c.view_turns, c.view_tokens, c.policy, c.retry_at,
               c.failures, c.due, c.expired, c.wanted, c.is_known, c.since, c.stands_on, c.coverage::text AS coverage,
               {stamp} AS stamp, visible.*
          FROM compacted c
         CROSS JOIN LATERAL ({_visible(columns, ":key", "NOT c.is_known AND c.since < c.newest")}) AS visible
    """)  # noqa: S608 - the columns are constants


def _visible(columns: Mapping[str, str], key: str, wanted: str) -> str:
    """Write the query for the events after ``c.since`` that the coverage of ``c`` leaves visible, if ``wanted``.

    It has one row, with an array for each column: a row for each event costs the driver several times as much.
    """
    return f"""
               SELECT {", ".join(f"array_agg({column}) AS {column}" for column in columns)}
                 FROM unnest(CASE WHEN {wanted} THEN
                                  int8multirange(int8range(c.since + 1, least(c.wanted, c.newest) + 1))
                                  - coalesce(c.coverage, '{{}}'::int8multirange)
                             END) AS span,
                      LATERAL (
                          SELECT {", ".join(f"{written} AS {column}" for column, written in columns.items())}
                            FROM events
                           WHERE session_key = {key} AND seq >= lower(span) AND seq < upper(span) AND type = 'MESSAGE'
                          OFFSET 0
                      ) AS event
    """  # noqa: S608


# When the newest event was stored. It is mostly the last of the view, and is looked up when it is not.
_STAMP: Final = """
               CASE WHEN c.is_known OR c.since = c.newest THEN NULL
                    WHEN visible.seq[cardinality(visible.seq)] = c.newest
                    THEN visible.stored_at[cardinality(visible.seq)]
                    ELSE (SELECT e.stored_at FROM events e WHERE e.session_key = :key AND e.seq = c.newest)
               END
"""

_WHOLE: Final = _statement(rows.WHOLE_COLUMNS, _STAMP.strip())
_SKELETON: Final = _statement(rows.SKELETON_COLUMNS, "NULL")


async def skeletons(reader: Reader, keys: Sequence[UUID]) -> dict[UUID, Found[Event]]:
    """Read the current views of many sessions as ``skeleton`` does, in one statement; missing ones are left out."""
    found = await reader.all(_SKELETONS, {"keys": list(keys)})
    return {row.key: _found(row, rows.skeletons) for row in found}


_SKELETONS: Final = text(f"""
    WITH compacted AS MATERIALIZED (
        SELECT s.session_key AS key, s.created_at, s.version AS newest, s.boundary, s.view_events, s.view_turns,
               s.view_tokens, s.policy::text AS policy, s.retry_at, s.failures, s.due,
               coalesce(s.expires_at <= now(), false) AS expired, s.version AS wanted, false AS is_known,
               s.boundary AS stands_on, b.covered AS coverage, CAST(0 AS bigint) AS since
          FROM sessions s
          LEFT JOIN events b ON b.session_key = s.session_key AND b.seq = s.boundary
         WHERE s.session_key = ANY(CAST(:keys AS uuid[]))
    )
    SELECT c.key, c.created_at, c.newest, c.boundary, c.view_events, c.view_turns, c.view_tokens, c.policy, c.retry_at,
           c.failures, c.due, c.expired, c.wanted, c.is_known, c.stands_on, c.coverage::text AS coverage, NULL AS stamp,
           visible.*
      FROM compacted c
     CROSS JOIN LATERAL ({_visible(rows.SKELETON_COLUMNS, "c.key", "true")}) AS visible
""")  # noqa: S608


def _found(session: Row, events_of: Callable[[Row], Iterable[E]]) -> Found[E]:
    if session.is_known:
        return _with(session, None)
    return _with(
        session,
        View(
            version=session.wanted,
            boundary=session.stands_on,
            covered=rows.ranges_of(session.coverage),
            events=ordered(events_of(session), session.stands_on),
        ),
    )


def _grown(session: Row, held: View[StoredEvent]) -> Found[StoredEvent]:
    """Put the events that were read behind those of the held view: until the next boundary nothing else happens."""
    if session.is_known:
        return _with(session, None)
    if session.wanted == held.version:
        return _with(session, held, is_held=True)
    added = ordered(rows.wholes(session), None)
    grown = replace(held, version=session.wanted, events=(*held.events, *added))
    return _with(session, grown, is_held=True)


def _with(session: Row, view: View[E] | None, *, is_held: bool = False) -> Found[E]:
    return Found(
        expired=session.expired,
        created_at=session.created_at,
        stamp=session.stamp,
        version=session.newest,
        read=session.wanted,
        policy=session.policy,
        retry_at=session.retry_at,
        failures=session.failures,
        due=session.due,
        figures=ViewFigures(
            events=session.view_events,
            turns=session.view_turns,
            tokens=session.view_tokens,
            boundary=session.boundary,
        ),
        is_held=is_held,
        view=view,
    )
