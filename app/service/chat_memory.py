"""MessageWindowChatMemory on the same log: what leaves the memory is covered by a boundary, and stays in the log."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from app.domain import chat_memory as rules
from app.domain import exact_json
from app.domain.chat_memory import Remembered
from app.domain.compaction import covering
from app.domain.errors import InvalidRequest, SessionExpired, SessionNotFound
from app.domain.event import Draft, Event, StoredEvent
from app.domain.view import View
from app.service import boundary, drafts, sessions
from app.service.boundary import AnyWindow
from app.service.context import Context
from app.service.drafts import NewEvent
from app.storage import events, views
from app.storage import sessions as session_store
from app.storage.database import Writer

LARGEST_MEMORY: Final = 1_000_000


def check_count(ctx: Context, count: int) -> None:
    """Refuse to add no message or too many, before anything is made of them.

    Raises:
        InvalidRequest.
    """
    if not 1 <= count <= ctx.limits.batch_events:
        raise InvalidRequest.at("/messages", f"between 1 and {ctx.limits.batch_events} messages")


async def add(
    ctx: Context, tenant: str, conversation_id: str, messages: Sequence[NewEvent], *, max_messages: int
) -> Sequence[StoredEvent]:
    """Add messages and return the memory; the conversation comes to be with its first message.

    The messages and the boundary that evicts others are one transaction.

    Raises:
        SessionExpired, InvalidRequest.
    """
    check_count(ctx, len(messages))
    made = await drafts.make(ctx, messages)
    key = session_store.key_of(tenant, conversation_id)
    async with ctx.database.writing() as tx:
        found = await sessions.locked(ctx, tx, tenant, conversation_id, create=True)
        await events.append(tx, key, made, expected_version=None)
        joined = [_stored_as(draft, found.session.version + at) for at, draft in enumerate(made, start=1)]
        memory = await _memory(tx, key, up_to=found.session.version)
        gone = rules.evicted(
            [_remembered(event, event.body) for event in _in_order(memory)],
            [_remembered(event, draft.body) for event, draft in zip(joined, made, strict=True)],
            max_messages,
        )
        if gone:
            await _cover(ctx, tx, found, _joined(memory, joined), gone, max_messages)
        remembered = _in_order(await _memory(tx, key))
    ctx.meter.appended(len(made))
    return remembered


async def get(ctx: Context, tenant: str, conversation_id: str) -> Sequence[StoredEvent]:
    """Return the memory: empty when the conversation is unknown.

    Raises:
        SessionExpired.
    """
    async with ctx.database.reading() as reader:
        found = await views.whole(reader, session_store.key_of(tenant, conversation_id))
    if found is None or found.view is None:
        return []
    if found.expired:
        raise SessionExpired
    return _in_order(found.view)


async def clear(ctx: Context, tenant: str, conversation_id: str) -> None:
    """Empty the memory. The log keeps everything; an unknown or expired conversation is empty already."""
    async with ctx.database.writing() as tx:
        found = await session_store.lock(tx, session_store.key_of(tenant, conversation_id))
        if found is None or found.expired:
            return
        memory = await _memory(tx, found.key)
        if memory.events:
            await _cover(ctx, tx, found, memory, memory.events, 0)


async def _memory(tx: Writer, key: UUID, *, up_to: int | None = None) -> View[StoredEvent]:
    found = await views.whole(tx, key, at_version=up_to)
    if found is None or found.view is None:
        raise SessionNotFound
    return found.view


def _in_order(view: View[StoredEvent]) -> Sequence[StoredEvent]:
    return rules.in_memory_order(view.events)


def _remembered(event: Event, body: str) -> Remembered:
    # Only system messages are ever compared, so only they are parsed.
    return Remembered(event, exact_json.parse(body) if event.is_system else None)


def _stored_as(draft: Draft, seq: int) -> Event:
    return Event(seq=seq, role=draft.role, token_count=draft.token_count)


def _joined(memory: View[Event], joined: Sequence[Event]) -> View[Event]:
    return replace(memory, events=(*memory.events, *joined))


async def _cover(
    ctx: Context,
    tx: Writer,
    found: session_store.Found,
    memory: View[Event],
    gone: Sequence[Event],
    max_messages: int,
) -> None:
    """Write the boundary that takes ``gone`` out of the memory; 0 messages is a memory that is cleared."""
    leaving = {event.seq for event in gone}
    kept = [event for event in memory.events if event.seq not in leaving]
    plan = covering(
        memory,
        pinned=[event for event in kept if event.is_system],
        preserved=[event for event in kept if not event.is_system],
    )
    body = boundary.outline(plan, AnyWindow(rule="max_messages", size=max_messages))
    made = boundary.of(ctx, found.key, found.session.created_at, plan, body)
    await boundary.write(tx, replace(made, is_compaction=False))
