"""Session rows: find, create, change, list, delete."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final
from uuid import UUID, uuid5

from sqlalchemy import (
    BigInteger,
    DateTime,
    Select,
    Text,
    Uuid,
    bindparam,
    cast,
    func,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.policy import Standing
from app.domain.session import Place, Session, ViewFigures
from app.storage.database import Reader, Row, Writer
from app.storage.tables import sessions

# The root of all session keys. It must never change: the keys of every stored session derive from it.
_NAMESPACE: Final = UUID("6f2a7c1e-5b0d-4f7e-9a53-7475726e6c6f")

_LARGEST: Final = 2**63 - 1

_COLUMNS: Final = """
    session_key, session_id, created_at, expires_at, metadata::text AS metadata, policy::text AS policy,
    version, boundary, view_events, view_turns, view_tokens,
    CASE WHEN retry_at > now() THEN retry_at END AS retry_at, coalesce(expires_at <= now(), false) AS expired
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A session row as one statement saw it. ``expired`` is judged by the database's clock."""

    key: UUID
    session: Session
    expired: bool


@lru_cache(maxsize=10_000)
def key_of(tenant: str, session_id: str) -> UUID:
    """Return the key under which a tenant's session is stored; equal for nobody else's."""
    return uuid5(_namespace(tenant), session_id)


@lru_cache(maxsize=1024)
def _namespace(tenant: str) -> UUID:
    return uuid5(_NAMESPACE, tenant)


async def find(reader: Reader, key: UUID) -> Found | None:
    """Return a session, expired or not."""
    row = await reader.first(_FIND, {"key": key})
    return _found(row) if row else None


_FIND: Final = text(f"SELECT {_COLUMNS} FROM sessions WHERE session_key = :key")  # noqa: S608 - constants only


async def lock(writer: Writer, key: UUID) -> Found | None:
    """Return a session and hold its row lock until the transaction ends. Whoever writes to its log waits."""
    row = await writer.first(_LOCK, {"key": key})
    return _found(row) if row else None


_LOCK: Final = text(f"SELECT {_COLUMNS} FROM sessions WHERE session_key = :key FOR UPDATE")  # noqa: S608


async def create(writer: Writer, tenant: str, new: Mapping[str, Any]) -> Found | None:
    """Create a session; None when its id is taken, even by one that has expired.

    ``new`` has session_id, metadata (JSON text), labels (a dict), policy (JSON text, or None: the server's stands for
    it), standing (what that policy comes to) and ttl_seconds (None: it never expires).
    """
    key = key_of(tenant, new["session_id"])
    row = await writer.first(_CREATE, {**_row(new), "key": key, "tenant": tenant})
    return _found(row) if row else None


_CREATE: Final = text(f"""
    INSERT INTO sessions (session_key, tenant, session_id, expires_at, metadata, labels, policy, marks, summarizes)
    VALUES (:key, :tenant, :session_id, now() + make_interval(secs => CAST(:ttl_seconds AS double precision)),
            CAST(:metadata AS json), CAST(:labels AS jsonb), CAST(CAST(:policy AS text) AS json),
            CASE WHEN CAST(:policy AS text) IS NULL THEN (SELECT marks FROM default_policy)
                 ELSE CAST(:marks AS bigint[]) END,
            CASE WHEN CAST(:policy AS text) IS NULL THEN coalesce((SELECT summarizes FROM default_policy), false)
                 ELSE :summarizes END)
    ON CONFLICT ON CONSTRAINT pk_sessions DO NOTHING
    RETURNING {_COLUMNS}
""")  # noqa: S608


async def change(writer: Writer, key: UUID, new: Mapping[str, Any]) -> Found:
    """Change a locked session.

    ``new`` is as for ``create``, with ``keep_expiry`` to leave its expiry alone and ``other_policy`` when the policy
    may be another one: then it is looked at anew, whatever became of the one before.
    """
    return _found(await writer.one(_CHANGE, {**_row(new), "key": key}))


def _row(new: Mapping[str, Any]) -> dict[str, Any]:
    return {**new, "labels": json.dumps(new["labels"]), **standing_columns(new["standing"])}


def standing_columns(standing: Standing) -> dict[str, Any]:
    """Return what stands for a session as its columns have it; what no figure reaches is as large as a column holds."""
    marks = standing.marks
    return {
        "marks": None if marks is None else [min(number, _LARGEST) for mark in marks for number in mark],
        "summarizes": standing.summarizes,
    }


_CHANGE: Final = text(f"""
    UPDATE sessions
       SET metadata = CAST(:metadata AS json), labels = CAST(:labels AS jsonb),
           policy = CAST(CAST(:policy AS text) AS json),
           marks = CASE WHEN NOT :other_policy THEN marks
                        WHEN CAST(:policy AS text) IS NULL THEN (SELECT d.marks FROM default_policy d)
                        ELSE CAST(:marks AS bigint[]) END,
           summarizes = CASE WHEN NOT :other_policy THEN summarizes
                             WHEN CAST(:policy AS text) IS NULL
                             THEN coalesce((SELECT d.summarizes FROM default_policy d), false)
                             ELSE :summarizes END,
           settled_turns = CASE WHEN :other_policy THEN 0 ELSE settled_turns END,
           settled_events = CASE WHEN :other_policy THEN 0 ELSE settled_events END,
           failures = CASE WHEN :other_policy THEN 0 ELSE failures END,
           retry_at = CASE WHEN :other_policy THEN NULL ELSE retry_at END,
           expires_at = CASE WHEN :keep_expiry THEN expires_at
                             ELSE now() + make_interval(secs => CAST(:ttl_seconds AS double precision)) END
     WHERE session_key = :key
    RETURNING {_COLUMNS}
""")  # noqa: S608


async def delete(writer: Writer, key: UUID) -> bool:
    """Delete a session with its whole log; False when there is none."""
    return bool((await writer.patiently(_DELETE, {"key": key})).deleted)


_DELETE: Final = text("""
    WITH gone AS (DELETE FROM sessions WHERE session_key = :key RETURNING 1) SELECT count(*) AS deleted FROM gone
""")


async def delete_expired(writer: Writer, key: UUID) -> None:
    """Delete a session if it has expired, so that its id can be used again."""
    await writer.run(_DELETE_EXPIRED, {"key": key})


_DELETE_EXPIRED: Final = text("DELETE FROM sessions WHERE session_key = :key AND expires_at <= now()")


async def page(
    reader: Reader, tenant: str, labels: Mapping[str, str], *, after: Place | None, limit: int
) -> Sequence[Found]:
    """Return up to ``limit`` sessions that have not expired and carry all of ``labels``, oldest first."""
    parameters = {
        "tenant": tenant,
        "labels": json.dumps(dict(labels)),
        "created_at": after and after.created_at,
        "key": after and after.key,
        "limit": limit,
    }
    found = await reader.all(_page(bool(labels), after is not None), parameters)
    return [_found(row) for row in found]


@cache
def _page(filtered: bool, after: bool) -> Select[Any]:  # noqa: FBT001
    s = sessions.c
    query = (
        select(
            s.session_key, s.session_id, s.created_at, s.expires_at,
            cast(s.metadata, Text).label("metadata"), cast(s.policy, Text).label("policy"),
            s.version, s.boundary, s.view_events, s.view_turns, s.view_tokens,
            text("CASE WHEN retry_at > now() THEN retry_at END AS retry_at"), text("false AS expired"),
        )
        .where(s.tenant == bindparam("tenant", type_=Text), or_(s.expires_at.is_(None), s.expires_at > func.now()))
        .order_by(s.created_at, s.session_key)
        .limit(bindparam("limit", type_=BigInteger))
    )  # fmt: skip
    if filtered:
        query = query.where(s.labels.contains(cast(bindparam("labels", type_=Text), JSONB)))
    if after:
        place = tuple_(bindparam("created_at", type_=DateTime(timezone=True)), bindparam("key", type_=Uuid))
        query = query.where(tuple_(s.created_at, s.session_key) > place)
    return query


def _found(row: Row) -> Found:
    return Found(
        key=row.session_key,
        expired=row.expired,
        session=Session(
            session_id=row.session_id,
            created_at=row.created_at,
            expires_at=row.expires_at,
            metadata=row.metadata,
            policy=row.policy,
            version=row.version,
            retry_at=row.retry_at,
            view=ViewFigures(
                events=row.view_events, turns=row.view_turns, tokens=row.view_tokens, boundary=row.boundary
            ),
        ),
    )
