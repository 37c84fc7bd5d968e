"""From what a client sent to drafts: checked, counted, named. All or nothing, and every refusal names its place."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID, uuid5

import msgspec

from app.domain import event, exact_json, message
from app.domain.errors import InvalidRequest, PayloadTooLarge, Problem
from app.domain.event import MESSAGE, Draft
from app.formats import anyone
from app.formats.reading import Format as ProviderFormat
from app.service.context import Context, Limits, offloaded
from app.tokens import LONG_TEXT, TokenCounter

# The root of all ids that derive from idempotency keys. It must never change, or repeats would be stored twice.
_KEYS: Final = UUID("0d0c3c7a-5f55-4a39-8e8c-7475726e6c6f")
LARGEST_TOKEN_COUNT: Final = 2**31 - 1
# From an event's position and the id that the client gave it to the one that it gets.
_IdOf: TypeAlias = Callable[[int, str | None], str]


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as a client wrote it. ``message``, ``payload`` and ``metadata`` are JSON text, None when absent.

    ``native`` is the JSON text of what a message from another provider keeps under the reserved key. ``place`` is the
    JSON pointer of the event in the request and ``message_place`` that of its message.
    """

    message: str | None = None
    native: str | None = None
    payload: str | None = None
    metadata: str | None = None
    event_id: str | None = None
    type: str = MESSAGE
    timestamp: datetime | None = None
    token_count: int | None = None
    place: str = ""
    message_place: str = "/message"


def id_from_key(key: str, position: int) -> str:
    """Return the id of the event at ``position`` of the batch that was sent with this Idempotency-Key."""
    return str(uuid5(_KEYS, f"{position}:{key}"))


async def from_provider(messages: Sequence[str], sent_as: ProviderFormat, place: str) -> list[NewEvent]:
    """Return the events of a provider's own messages, which may be more or fewer than those.

    Raises:
        InvalidRequest: with pointers into the request, in which the list is at ``place``.
    """
    heavy = sum(map(len, messages)) > LONG_TEXT
    made = await offloaded(heavy, anyone.parse, messages, sent_as, place)
    return [NewEvent(message=one.message, native=one.native, place=one.place, message_place=one.place) for one in made]


async def make(ctx: Context, batch: Sequence[NewEvent], *, idempotency_key: str | None = None) -> list[Draft]:
    """Check a batch and turn it into drafts. Long ones are parsed and counted off the event loop.

    Raises:
        InvalidRequest: naming the first wrong place of each wrong event.
        PayloadTooLarge: an event alone is larger than an event may be.
    """
    _check_ids(batch, idempotency_key)

    def id_of(position: int, given: str | None) -> str:
        if given is not None:
            return event.check_id(given)
        return id_from_key(idempotency_key, position) if idempotency_key is not None else ctx.new_id()

    size = sum(len(new.message or new.payload or "") + len(new.native or "") + len(new.metadata or "") for new in batch)
    return await offloaded(size > LONG_TEXT, _make_all, batch, ctx.limits, ctx.tokens, id_of)


def _check_ids(batch: Sequence[NewEvent], idempotency_key: str | None) -> None:
    seen: set[str] = set()
    for new in batch:
        if new.event_id is None:
            continue
        if idempotency_key is not None:
            # Ids and key would be two answers to the same question, and a reused key could go unnoticed.
            raise InvalidRequest.at(f"{new.place}/id", "events sent with an Idempotency-Key have no id of their own")
        if new.event_id in seen:
            raise InvalidRequest.at(f"{new.place}/id", "another event of this batch has the same id")
        seen.add(new.event_id)


def _make_all(batch: Sequence[NewEvent], limits: Limits, counter: TokenCounter, id_of: _IdOf) -> list[Draft]:
    drafts: list[Draft] = []
    problems: list[Problem] = []
    for position, new in enumerate(batch):
        try:
            drafts.append(_draft(new, position, id_of, limits, counter))
        except InvalidRequest as error:
            problems += error.problems
    if problems:
        raise InvalidRequest(problems)
    return drafts


def _draft(new: NewEvent, position: int, id_of: _IdOf, limits: Limits, counter: TokenCounter) -> Draft:
    try:
        event_id = id_of(position, new.event_id)
        _check_fields(new)
        metadata = "{}" if new.metadata is None else _object(new.metadata, "/metadata")
    except InvalidRequest as error:
        raise error.below(new.place) from error
    body = _body(new)
    if len(body.encode()) + len(metadata.encode()) > limits.event_bytes:
        raise PayloadTooLarge(limit_bytes=limits.event_bytes, what=f"the event at {new.place}")
    if new.message is None:
        return Draft(
            event_id=event_id,
            type=new.type,
            role=None,
            body=_object(body, f"{new.place}/payload"),
            metadata=metadata,
            timestamp=new.timestamp,
            token_count=0,
        )
    try:
        value = exact_json.parse(new.message)
        shape = message.check(value)
    except InvalidRequest as error:
        raise error.below(new.message_place) from error
    return Draft(
        event_id=event_id,
        type=MESSAGE,
        role=shape.role,
        body=body,
        metadata=metadata,
        timestamp=new.timestamp,
        token_count=new.token_count
        if new.token_count is not None
        else _count(counter, value if new.native is None else exact_json.parse(body)),
        calls=shape.calls,
        answers=shape.answers,
    )


def _body(new: NewEvent) -> str:
    """Return what is stored: the message or payload as it was sent, with what only its provider understands."""
    if new.message is None or new.native is None:
        return new.message if new.message is not None else new.payload or ""
    return f'{new.message[:-1]},"{message.RESERVED}":{new.native}}}'


def _check_fields(new: NewEvent) -> None:
    if new.type == MESSAGE:
        if new.message is None:
            raise InvalidRequest.at("/message", "an event of type MESSAGE has a message")
        if new.payload is not None:
            raise InvalidRequest.at("/payload", "an event of type MESSAGE has no payload")
        return
    event.check_type(new.type)
    if new.message is not None:
        raise InvalidRequest.at("/message", f"an event of type {new.type} has a payload and no message")
    if new.payload is None:
        raise InvalidRequest.at("/payload", f"an event of type {new.type} has a payload")
    if new.token_count:
        raise InvalidRequest.at("/token_count", "custom events count 0 tokens, for no model is sent them")


def _object(text: str, place: str) -> str:
    """Return the text of a JSON object, checked to be one that can be kept."""
    try:
        value = exact_json.parse(text)
    except InvalidRequest as error:
        raise error.below(place) from error
    if not isinstance(value, dict):
        raise InvalidRequest.at(place, "is an object")
    return text


def _count(counter: TokenCounter, value: Any) -> int:
    return min(counter.message(value), LARGEST_TOKEN_COUNT)


def synthetic(ctx: Context, role: event.Role, content: str) -> Draft:
    """Return a draft that a compaction writes: one message of a summary turn."""
    value: dict[str, Any] = {"role": role, "content": content}
    return Draft(
        event_id=ctx.new_id(),
        type=MESSAGE,
        role=role,
        body=json.dumps(value, ensure_ascii=False),
        metadata="{}",
        timestamp=None,
        token_count=_count(ctx.tokens, value),
        synthetic=True,
    )
