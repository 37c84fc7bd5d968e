"""Sessions: create, find, change, list, delete."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from app.domain import exact_json, session
from app.domain.errors import InvalidRequest, SessionExists, SessionExpired, SessionNotFound
from app.domain.policy import NO_POLICY, Standing, standing
from app.domain.session import Place, Session
from app.service import policies
from app.service.context import Context
from app.storage import sessions as store
from app.storage.database import Reader, Writer

Default = Literal["default"]
Same = Literal["same"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A session to be. ``metadata`` and ``policy`` are JSON text; no id: the service makes one."""

    session_id: str | None = None
    ttl_seconds: int | Default | None = "default"
    metadata: str = "{}"
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to change: ``metadata`` is merged in; a policy of None removes it; ``ttl_seconds`` counts from now."""

    metadata: str | None = None
    ttl_seconds: int | Same | None = "same"
    policy: str | Same | None = "same"


async def create(ctx: Context, tenant: str, new: NewSession) -> Session:
    """Create a session. An id that an expired session has is free: the old rows go first.

    Raises:
        SessionExists, InvalidRequest.
    """
    row = _row(ctx, new)
    async with ctx.database.one_statement() as tx:
        created = await store.create(tx, tenant, row)
    if created is None:
        async with ctx.database.writing() as tx:
            created = await _created_over_expired(tx, tenant, row)
    if created is None:
        raise SessionExists
    return created.session


async def _created_over_expired(tx: Writer, tenant: str, row: Mapping[str, Any]) -> store.Found | None:
    """Create a session in place of an expired one with its id; None when a living one has it."""
    await store.delete_expired(tx, store.key_of(tenant, row["session_id"]))
    return await store.create(tx, tenant, row)


async def locked(ctx: Context, tx: Writer, tenant: str, session_id: str, *, create: bool) -> store.Found:
    """Return a session with its row lock held.

    With ``create``, a session with all defaults is made when it is missing or expired.

    Raises:
        SessionNotFound, SessionExpired.
    """
    key = store.key_of(tenant, session_id)
    while True:
        found = await store.lock(tx, key)
        if found is not None and not found.expired:
            return found
        if not create:
            raise SessionNotFound if found is None else SessionExpired
        # The row is ours as soon as it is made. When somebody else makes it first, theirs is locked, if it lives.
        made = await _created_over_expired(tx, tenant, _row(ctx, NewSession(session_id=session_id)))
        if made is not None:
            return made


def _row(ctx: Context, new: NewSession) -> dict[str, Any]:
    session_id = new.session_id if new.session_id is not None else ctx.new_id()
    if not session.is_id(session_id):
        raise InvalidRequest.at("/id", session.ID_RULE)
    return {
        "session_id": session_id,
        "ttl_seconds": ctx.default_ttl_seconds if new.ttl_seconds == "default" else new.ttl_seconds,
        "metadata": new.metadata,
        "labels": _labels(ctx, new.metadata),
        "policy": new.policy,
        "standing": _standing(new.policy),
    }


def _standing(policy: str | None) -> Standing:
    """Check a session's own policy, and return what it comes to; without one the server's stands for the session.

    Raises:
        InvalidRequest: below ``/policy``.
    """
    if policy is None:
        return NO_POLICY
    own = policies.parse(policy)
    try:
        policies.check_standing(own)
    except InvalidRequest as error:
        raise error.below("/policy") from error
    return standing(own)


def _labels(ctx: Context, metadata: str) -> dict[str, str]:
    """Check a session's metadata and return what it can be found by."""
    if len(metadata.encode()) > ctx.limits.metadata_bytes:
        raise InvalidRequest.at("/metadata", f"the metadata has at most {ctx.limits.metadata_bytes} bytes")
    return session.labels({key: bytes(value).decode() for key, value in _values(metadata).items()})


def _values(metadata: str) -> dict[str, msgspec.Raw]:
    """Check metadata and return its values, each as the text it was sent as."""
    try:
        exact_json.parse(metadata)
        return msgspec.json.decode(metadata, type=dict[str, msgspec.Raw])
    except InvalidRequest as error:
        raise error.below("/metadata") from error
    except msgspec.ValidationError as error:
        raise InvalidRequest.at("/metadata", "is an object") from error


async def find_or_create(ctx: Context, tenant: str, new: NewSession) -> tuple[Session, bool]:
    """Return the session with this id as it is, or create it; the second value says whether it was created."""
    _row(ctx, new)
    while True:
        # Most of the time it is there already, and reading costs one round trip.
        with suppress(SessionNotFound, SessionExpired):
            return await get(ctx, tenant, new.session_id or ""), False
        # Made by somebody else meanwhile, it is looked for again; it may have been deleted since.
        with suppress(SessionExists):
            return await create(ctx, tenant, new), True


async def get(ctx: Context, tenant: str, session_id: str) -> Session:
    """Return a session.

    Raises:
        SessionNotFound, SessionExpired.
    """
    async with ctx.database.reading() as reader:
        return (await living(reader, tenant, session_id)).session


async def living(reader: Reader, tenant: str, session_id: str) -> store.Found:
    """Return a session that has not expired.

    Raises:
        SessionNotFound, SessionExpired.
    """
    found = await store.find(reader, store.key_of(tenant, session_id))
    if found is None:
        raise SessionNotFound
    if found.expired:
        raise SessionExpired
    return found


async def change(ctx: Context, tenant: str, session_id: str, wanted: Change) -> Session:
    """Change a session. An expired one can be extended, as long as it was not purged.

    Raises:
        SessionNotFound, SessionExpired (when it stays expired), InvalidRequest.
    """
    async with ctx.database.writing() as tx:
        found = await store.lock(tx, store.key_of(tenant, session_id))
        if found is None:
            raise SessionNotFound
        if found.expired and wanted.ttl_seconds == "same":
            raise SessionExpired
        metadata = _merged(found.session.metadata, wanted.metadata)
        policy = found.session.policy if wanted.policy == "same" else wanted.policy
        row = {
            "metadata": metadata,
            "labels": _labels(ctx, metadata),
            "policy": policy,
            "other_policy": wanted.policy != "same",
            "standing": NO_POLICY if wanted.policy == "same" else _standing(policy),
            "keep_expiry": wanted.ttl_seconds == "same",
            "ttl_seconds": None if wanted.ttl_seconds == "same" else wanted.ttl_seconds,
        }
        return (await store.change(tx, found.key, row)).session


def _merged(old: str, new: str | None) -> str:
    """Merge metadata key by key, each value as the text it was sent as; a null removes its key."""
    if new is None:
        return old
    changes = _values(new)
    removed = {key for key, value in changes.items() if bytes(value) == b"null"}
    kept = {key: value for key, value in (_values(old) | changes).items() if key not in removed}
    return msgspec.json.encode(kept).decode()


async def delete(ctx: Context, tenant: str, session_id: str) -> None:
    """Delete a session with its events, boundaries and summaries, expired or not.

    Raises:
        SessionNotFound.
    """
    key = store.key_of(tenant, session_id)
    async with ctx.database.one_statement() as tx:
        is_deleted = await store.delete(tx, key)
    ctx.view_cache.forget(key)
    if not is_deleted:
        raise SessionNotFound


async def page(
    ctx: Context, tenant: str, labels: Mapping[str, str], *, after: Place | None, limit: int
) -> tuple[Sequence[Session], Place | None]:
    """Return a page of sessions, oldest first, and the place where the next one begins; None after the last."""
    if any("\0" in key + value for key, value in labels.items()):
        return [], None
    async with ctx.database.reading() as reader:
        found = await store.page(reader, tenant, labels, after=after, limit=limit + 1)
    shown = found[:limit]
    more = len(found) > limit
    return [one.session for one in shown], (
        Place(created_at=shown[-1].session.created_at, key=shown[-1].key) if more else None
    )
