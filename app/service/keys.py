"""Make keys, list them, revoke them."""

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from app.domain import key as rules
from app.domain.errors import InvalidRequest, NotFound, TurnlogError
from app.domain.key import SCOPES, Key, Scope
from app.storage import keys as store
from app.storage.database import Database
from app.storage.keys import NewKey

_ALPHABET: Final = string.ascii_lowercase + string.digits
_NAME_CHARACTERS: Final = 8
_SECRET_BYTES: Final = 32
_PAGE: Final = 2000
_DAY_SECONDS: Final = 24 * 3600.0
# A hundred years: longer is for ever, and beyond some point Postgres has no date for it.
LONGEST_DAYS: Final = 100 * 365
BOOTSTRAP_NAME: Final = "bootstrap"

log = structlog.get_logger("turnlog.keys")


class KeyNotFound(NotFound):
    """There is no key with this prefix."""


class PrefixTaken(TurnlogError):
    """Another key begins with the same characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a new key is for."""

    tenant: str
    scopes: Sequence[Scope]
    name: str | None = None
    days: float | None = None


async def create(database: Database, wanted: Wanted) -> str:
    """Make a key and return it. This is the only moment at which it is known.

    Raises:
        InvalidRequest: no tenant can have this name, the key's own name is too long, or its life is.
    """
    rules.checked_tenant(wanted.tenant)
    if wanted.name is not None and not (len(wanted.name) <= rules.LONGEST_NAME and wanted.name.isprintable()):
        raise InvalidRequest.at("name", f"has at most {rules.LONGEST_NAME} characters, all of them printable")
    if wanted.days is not None and not 0 < wanted.days <= LONGEST_DAYS:
        raise InvalidRequest.at("expires_days", f"is more than 0 and at most {LONGEST_DAYS}")
    while True:
        key = rules.composed(
            "".join(secrets.choice(_ALPHABET) for _ in range(_NAME_CHARACTERS)), secrets.token_urlsafe(_SECRET_BYTES)
        )
        new = NewKey(
            prefix=rules.prefix_of(key),
            digest=rules.digest_of(key),
            tenant=wanted.tenant,
            name=wanted.name,
            scopes=wanted.scopes,
            seconds=None if wanted.days is None else wanted.days * _DAY_SECONDS,
        )
        async with database.one_statement() as tx:
            if await store.add(tx, new):
                return key


async def bootstrap(database: Database, key: str) -> None:
    """Store the key that a server was given, unless it is there. One that was revoked stays revoked.

    Any number of replicas may do so at once.

    Raises:
        InvalidRequest: it is no key. PrefixTaken: another one is stored under its prefix.
    """
    if not rules.is_key(key):
        raise InvalidRequest.at("key", rules.KEY_RULE)
    prefix, digest = rules.prefix_of(key), rules.digest_of(key)
    new = NewKey(prefix=prefix, digest=digest, tenant=rules.DEFAULT_TENANT, name=BOOTSTRAP_NAME, scopes=SCOPES)
    async with database.one_statement() as tx:
        if await store.add(tx, new):
            log.info("key.created", key=prefix, tenant=rules.DEFAULT_TENANT)
            return
    async with database.reading() as reader:
        stored = await store.find(reader, prefix)
    if stored is not None and stored.digest != digest:
        raise PrefixTaken
    if stored is not None and stored.revoked_at is not None:
        log.warning("key.is_revoked", key=prefix)


async def every(database: Database) -> Sequence[Key]:
    """Return all keys by prefix, those that open nothing any more included."""
    found: list[Key] = []
    async with database.reading() as reader:
        while page := await store.page(reader, after=found[-1].prefix if found else "", limit=_PAGE):
            found += page
    return found


async def exist(database: Database) -> bool:
    """Say whether there has ever been a key: then nobody is served without one."""
    async with database.reading() as reader:
        return bool(await store.page(reader, after="", limit=1))


async def revoke(database: Database, prefix: str) -> bool:
    """Revoke a key; False when it was revoked before.

    Raises:
        KeyNotFound.
    """
    async with database.one_statement() as tx:
        if await store.revoke(tx, prefix):
            return True
    async with database.reading() as reader:
        if await store.find(reader, prefix) is None:
            raise KeyNotFound
    return False
