"""The log: append a batch exactly once, read it page by page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from app.domain import exact_json
from app.domain.errors import (
    EventIdConflict,
    EventNotFound,
    IdempotencyKeyReused,
    InvalidRequest,
    VersionConflict,
)
from app.domain.event import Draft, StoredEvent
from app.domain.log import Filters, Listed, Page
from app.service import drafts, sessions
from app.service.context import Context, offloaded
from app.service.drafts import NewEvent
from app.storage import events as store
from app.storage import sessions as session_store
from app.storage.database import UniqueViolation, Writer
from app.tokens import LONG_TEXT


class Appended(NamedTuple):
    """One event of an answer to an append; ``replayed`` when it was stored before."""

    event_id: str
    seq: int
    token_count: int
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The answer to an append: the log's version after it, and each event's place, in the order sent."""

    version: int
    events: tuple[Appended, ...]

    @property
    def all_replayed(self) -> bool:
        """Nothing was stored: the whole batch had been stored before."""
        return all(event.replayed for event in self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to append: only at a version, repeatably under a key, creating the session when it is missing.

    ``place`` is the JSON pointer of the batch in the request.
    """

    expected_version: int | None = None
    idempotency_key: str | None = None
    create: bool = False
    place: str = "/events"


def check_count(ctx: Context, count: int, place: str) -> None:
    """Refuse a batch that is empty or too long, before anything is made of what it holds.

    Raises:
        InvalidRequest.
    """
    if not 1 <= count <= ctx.limits.batch_events:
        raise InvalidRequest.at(place, f"a batch has 1 to {ctx.limits.batch_events} events")


async def append(ctx: Context, tenant: str, session_id: str, batch: Sequence[NewEvent], options: Options) -> Receipt:
    """Append a batch: all of it or nothing, in the order sent, once however often it is sent.

    One statement when all is as usual. A missing session, a replay or an unexpected version take a
    second look, in a transaction that holds the session's row lock.

    Raises:
        InvalidRequest, SessionNotFound, SessionExpired, EventIdConflict, IdempotencyKeyReused, VersionConflict.
    """
    check_count(ctx, len(batch), options.place)
    made = await drafts.make(ctx, batch, idempotency_key=options.idempotency_key)
    key = session_store.key_of(tenant, session_id)
    try:
        base = await ctx.appends.append(key, made, expected_version=options.expected_version)
    except UniqueViolation as error:
        if error.constraint != store.EVENT_ID_CONSTRAINT:
            raise
        base = None
    if base is None:
        async with ctx.database.writing() as tx:
            receipt = await _append_carefully(ctx, tx, (tenant, session_id), made, options)
    else:
        receipt = _receipt(made, base, stored={})
    ctx.meter.appended(sum(not event.replayed for event in receipt.events))
    return receipt


async def _append_carefully(
    ctx: Context, tx: Writer, name: tuple[str, str], made: list[Draft], options: Options
) -> Receipt:
    """Append under the session's lock: create it if asked to, tell replays from conflicts, then judge the version."""
    found = await sessions.locked(ctx, tx, *name, create=options.create)
    replays = await _replays(tx, found.key, made, options.idempotency_key)
    fresh = [draft for draft in made if draft.event_id not in replays]
    version = found.session.version
    if not fresh:
        if options.idempotency_key is not None:
            # The whole request is repeatable, so its answer is the one it had: the version right after its batch.
            version = max(event.seq for event in replays.values())
        return _receipt(made, version, stored=replays)
    if options.expected_version not in {None, version}:
        raise VersionConflict(expected=options.expected_version or 0, current=version)
    await store.append(tx, found.key, fresh, expected_version=None)
    return _receipt(made, version, stored=replays)


async def _replays(tx: Writer, key: UUID, made: list[Draft], idempotency_key: str | None) -> Mapping[str, StoredEvent]:
    """Return the events of the batch that are stored already, having checked that they say the same."""
    ids = [draft.event_id for draft in made]
    if idempotency_key is None:
        stored = await store.with_ids(tx, key, ids)
        for other in await _other_content(stored, made):
            raise EventIdConflict(other, stored[other].seq)
        return stored
    # The id after the last tells a repeat from the beginning of a longer batch that was sent with the same key.
    beyond = drafts.id_from_key(idempotency_key, len(made))
    stored = await store.with_ids(tx, key, [*ids, beyond])
    if stored and (stored.keys() != set(ids) or await _other_content(stored, made)):
        raise IdempotencyKeyReused
    return stored


async def _other_content(stored: Mapping[str, StoredEvent], made: Sequence[Draft]) -> list[str]:
    """Return the ids of the drafts that are stored with other content, in the order sent."""

    def find() -> list[str]:
        return [
            draft.event_id for draft in made if draft.event_id in stored and not _same(stored[draft.event_id], draft)
        ]

    return await offloaded(sum(len(draft.body) + len(draft.metadata) for draft in made) > LONG_TEXT, find)


def _same(stored: StoredEvent, draft: Draft) -> bool:
    """Compare what was said: type, message or payload, and metadata, as JSON values (rule 4)."""
    return (
        stored.type == draft.type
        and not stored.synthetic
        and _same_value(stored.body, draft.body)
        and _same_value(stored.metadata, draft.metadata)
    )


def _same_value(one: str, other: str) -> bool:
    # An honest repeat is the same text, which spares the parsing.
    return one == other or exact_json.equal(exact_json.parse(one), exact_json.parse(other))


def _receipt(made: Sequence[Draft], base: int, *, stored: Mapping[str, StoredEvent]) -> Receipt:
    """Give the new drafts the seqs after ``base``, and the replayed ones the seqs they have."""
    answered: list[Appended] = []
    version = base
    for draft in made:
        before = stored.get(draft.event_id)
        if before is None:
            version += 1
        answered.append(
            Appended(
                event_id=draft.event_id,
                seq=before.seq if before else version,
                token_count=before.token_count if before else draft.token_count,
                replayed=before is not None,
            )
        )
    return Receipt(version=version, events=tuple(answered))


async def page(
    ctx: Context, tenant: str, session_id: str, filters: Filters, part: Page
) -> tuple[Sequence[Listed], bool]:
    """Return a page of the log, and whether more follows in its direction. Long events make it end early.

    Raises:
        SessionNotFound, SessionExpired.
    """
    async with ctx.database.reading() as reader:
        key = (await sessions.living(reader, tenant, session_id)).key
        return await store.page(reader, key, filters, part)


async def newest(ctx: Context, tenant: str, session_id: str, filters: Filters, count: int) -> Sequence[Listed]:
    """Return the newest ``count`` matches, extended back to the start of the turn they land in."""
    async with ctx.database.reading() as reader:
        key = (await sessions.living(reader, tenant, session_id)).key
        return await store.newest(reader, key, filters, count)


async def get(ctx: Context, tenant: str, session_id: str, event_id: str) -> Listed:
    """Return one event.

    Raises:
        SessionNotFound, SessionExpired, EventNotFound.
    """
    async with ctx.database.reading() as reader:
        key = (await sessions.living(reader, tenant, session_id)).key
        # Postgres has no NUL in text, so no event has such an id.
        found = None if "\0" in event_id else await store.find(reader, key, event_id)
    if found is None:
        raise EventNotFound
    return found
