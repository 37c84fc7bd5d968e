"""API keys: add, find, revoke, and read all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import text

from app.domain.key import Key, Scope
from app.storage.database import Reader, Row, Writer

_COLUMNS: Final = "prefix, key_hash, tenant, name, scopes, created_at, expires_at, last_used_at, revoked_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key to be; ``seconds`` is how long it is good for, None for ever."""

    prefix: str
    digest: bytes
    tenant: str
    name: str | None
    scopes: Sequence[Scope]
    seconds: float | None = None


class Stamp(NamedTuple):
    """What all keys amount to: equal as long as nothing about any of them has changed that matters to a caller.

    ``clock`` is the database's time, by which keys expire.
    """

    number: int
    mark: int
    clock: datetime


async def stamp(reader: Reader) -> Stamp:
    """Return the stamp of all keys as they are now: one pass over a small table."""
    row = await reader.one(_STAMP)
    return Stamp(number=row.number, mark=row.mark, clock=row.clock)


# Over the columns themselves, so that a change made by hand, or by a restore, is noticed like any other. Moments as
# numbers, for as text they depend on the connection's time zone.
_STAMP: Final = text("""
    SELECT count(*) AS number, now() AS clock,
           coalesce(bit_xor(hashtextextended(ROW(prefix, key_hash, tenant, scopes, extract(epoch FROM expires_at),
                                                 extract(epoch FROM revoked_at))::text, 0)), 0) AS mark
      FROM api_keys
""")


async def page(reader: Reader, *, after: str, limit: int) -> Sequence[Key]:
    """Return up to ``limit`` keys by prefix, those behind ``after``."""
    return [_key(row) for row in await reader.all(_PAGE, {"after": after, "limit": limit})]


_PAGE: Final = text(f"SELECT {_COLUMNS} FROM api_keys WHERE prefix > :after ORDER BY prefix LIMIT :limit")  # noqa: S608


async def find(reader: Reader, prefix: str) -> Key | None:
    """Return a key by its prefix."""
    row = await reader.first(_FIND, {"prefix": prefix})
    return _key(row) if row else None


_FIND: Final = text(f"SELECT {_COLUMNS} FROM api_keys WHERE prefix = :prefix")  # noqa: S608 - constants only


async def add(writer: Writer, new: NewKey) -> bool:
    """Store a key; False when its prefix is taken."""
    parameters: dict[str, Any] = {
        "prefix": new.prefix,
        "key_hash": new.digest,
        "tenant": new.tenant,
        "name": new.name,
        "scopes": list(new.scopes),
        "seconds": new.seconds,
    }
    return await writer.first(_ADD, parameters) is not None


_ADD: Final = text("""
    INSERT INTO api_keys (prefix, key_hash, tenant, name, scopes, expires_at)
    VALUES (:prefix, :key_hash, :tenant, :name, :scopes,
            now() + make_interval(secs => CAST(:seconds AS double precision)))
    ON CONFLICT ON CONSTRAINT pk_api_keys DO NOTHING
    RETURNING prefix
""")


async def revoke(writer: Writer, prefix: str) -> bool:
    """Revoke a key for good; False when there is none that is not revoked already."""
    return await writer.first(_REVOKE, {"prefix": prefix}) is not None


_REVOKE: Final = text("""
    UPDATE api_keys SET revoked_at = now() WHERE prefix = :prefix AND revoked_at IS NULL RETURNING prefix
""")


async def used(writer: Writer, prefixes: Sequence[str]) -> None:
    """Note that keys were used just now. What another process holds at this moment is left to that one."""
    await writer.run(_USED, {"prefixes": list(prefixes)})


_USED: Final = text("""
    WITH free AS MATERIALIZED (
        SELECT prefix FROM api_keys
         WHERE prefix = ANY(CAST(:prefixes AS text[]))
           AND (last_used_at IS NULL OR last_used_at < now() - interval '30 seconds')
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE api_keys SET last_used_at = now() FROM free WHERE api_keys.prefix = free.prefix
""")


def _key(row: Row) -> Key:
    return Key(
        prefix=row.prefix,
        digest=row.key_hash,
        tenant=row.tenant,
        name=row.name,
        scopes=tuple(row.scopes),
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )
