"""What routes ask for: the service's context, the session's name, a body, a cursor."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from fastapi import Depends, Path, Query, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.api import access, errors
from app.api.door import plain
from app.domain import exact_json
from app.domain.errors import InvalidRequest, MalformedRequest, SessionNotFound, TurnlogError
from app.domain.event import ID_PATTERN as EVENT_ID_PATTERN
from app.domain.event import MAX_ID_CHARACTERS
from app.domain.session import ID_PATTERN, ID_RULE, is_id
from app.service.context import Context, offloaded

T = TypeVar("T")
# Reading a body of this size takes less than a millisecond, and ten if it is nothing but brackets; longer ones are read
# off the event loop.
_LARGE_BODY: Final = 64 * 1024
LARGEST_SEQ: Final = 2**63 - 1
DEFAULT_PAGE: Final = 100
BAD_CURSOR: Final = "this cursor is not one that was handed out here"


def context(request: Request) -> Context:
    """Return what ``bootstrap`` built."""
    return cast("Context", request.app.state.context)


def known_session_id(session_id: str) -> str:
    """Return the session id of a path. One that no session can have is simply not found."""
    name = plain(session_id)
    if not is_id(name):
        raise SessionNotFound
    return name


def new_session_id(session_id: str) -> str:
    """Return the session id of a path that may create the session.

    Raises:
        InvalidRequest: no session can have this id.
    """
    name = plain(session_id)
    if not is_id(name):
        raise InvalidRequest.at("session_id", ID_RULE)
    return name


# Said and not checked by the framework: what cannot be an id is 404 where it is read, and 422 where it is made.
_InPath = Annotated[
    str,
    Path(
        json_schema_extra={"pattern": ID_PATTERN, "minLength": 1, "maxLength": MAX_ID_CHARACTERS},
        openapi_examples={"one": {"value": "support-42"}},
    ),
]
_EventInPath = Annotated[
    str,
    Path(
        json_schema_extra={"pattern": EVENT_ID_PATTERN, "minLength": 1, "maxLength": MAX_ID_CHARACTERS},
        openapi_examples={"one": {"value": "evt-7"}},
    ),
]


# Asynchronous, for FastAPI calls a plain function in a thread, which takes longer than all that any of these does.


async def _context(request: Request) -> Context:
    return context(request)


async def _tenant(request: Request) -> str:
    """Return whose sessions this request is about, and no other's."""
    return cast("str", access.tenants_of(request, across=False))


async def _tenants(request: Request) -> str | None:
    """Return whose sessions this request is about; None for every tenant's."""
    return access.tenants_of(request, across=True)


async def _session_id(session_id: _InPath) -> str:
    return known_session_id(session_id)


async def _new_session_id(session_id: _InPath) -> str:
    return new_session_id(session_id)


async def _any_session_id(session_id: _InPath) -> str:
    return session_id


async def _event_id(event_id: _EventInPath) -> str:
    """Return the event id of a path, in which slashes are encoded."""
    return plain(event_id)


async def _conversation_id(conversation_id: _InPath) -> str:
    return known_session_id(conversation_id)


async def _new_conversation_id(conversation_id: _InPath) -> str:
    try:
        return new_session_id(conversation_id)
    except InvalidRequest as error:
        raise InvalidRequest.at("conversation_id", error.problems[0].detail) from error


Ctx = Annotated[Context, Depends(_context)]
Tenant = Annotated[str, Depends(_tenant)]
Tenants = Annotated[str | None, Depends(_tenants)]
SessionId = Annotated[str, Depends(_session_id)]
NewSessionId = Annotated[str, Depends(_new_session_id)]
# Bounded by the setting, which the document does not know.
PageSize = Annotated[int | None, Query(ge=1, description="100 unless given; at most `limits.page` of the capabilities")]
AnySessionId = Annotated[str, Depends(_any_session_id)]
EventId = Annotated[str, Depends(_event_id)]
ConversationId = Annotated[str, Depends(_conversation_id)]
NewConversationId = Annotated[str, Depends(_new_conversation_id)]


def page(ctx: Context, limit: int | None = None, *, name: str = "limit") -> int:
    """Return how long a page may be: as long as was asked for, 100 unless it was.

    Raises:
        InvalidRequest: longer than a page is here.
    """
    if limit is None:
        return DEFAULT_PAGE
    if limit > ctx.limits.page:
        raise InvalidRequest.at(name, f"is at most {ctx.limits.page}")
    return limit


async def body_of(request: Request, shape: type[T], *, empty: bytes | None = None) -> T:
    """Read and check a JSON body; an empty one is read as ``empty`` where a route allows it.

    Raises:
        MalformedRequest, InvalidRequest, PayloadTooLarge, HTTPException (415).
    """
    # The door gives a body whole.
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    content: bytes = message.get("body", b"")
    _check_media_type(request)
    if not content and empty is not None:
        content = empty
    return await offloaded(len(content) > _LARGE_BODY, _decoded, content, shape, context(request).limits.json_depth)


def _decoded(content: bytes, shape: type[T], max_depth: int) -> T:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"the body is not UTF-8: see byte {error.start}") from error
    exact_json.check_bounds(text, max_depth)
    try:
        # mypy does not take every class for hashable.
        read: T = _reader(shape).decode(content)  # type: ignore[arg-type]
    except msgspec.DecodeError as error:
        raise _explained(error, text) from error
    return read


@cache
def _reader(shape: type[Any]) -> msgspec.json.Decoder[Any]:
    """Make what reads a shape, which takes as long as reading a short body, once."""
    return msgspec.json.Decoder(shape)


def _explained(error: msgspec.DecodeError, text: str) -> TurnlogError:
    """Return what is wrong with a body: by its place, where the decoder only knows a byte."""
    if not isinstance(error, msgspec.ValidationError):
        try:
            exact_json.parse(text)
        except InvalidRequest as found:
            if found.problems[0].pointer:
                return found
    return errors.from_decoder(error)


def _check_media_type(request: Request) -> None:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "send the body as it is, without Content-Encoding")
    # Whoever says it twice says the same both times, or nobody knows what is meant.
    said = request.headers.getlist("content-type") or ["application/json"]
    media_types = {one.partition(";")[0].strip().lower() for one in said}
    if not all(one == "application/json" or one.endswith("+json") for one in media_types):
        raise HTTPException(415, "send JSON, with Content-Type: application/json")


def cursor_of(*position: int | str) -> str:
    """Write where a page ended, in a form that clients only hand back."""
    return urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def position_of(cursor: str, kinds: Sequence[type]) -> list[Any]:
    """Read what ``cursor_of`` wrote.

    Raises:
        MalformedRequest: it did not write this.
    """
    try:
        found = msgspec.json.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, msgspec.DecodeError) as error:
        raise MalformedRequest(BAD_CURSOR) from error
    if not isinstance(found, list) or [type(part) for part in found] != list(kinds):
        raise MalformedRequest(BAD_CURSOR)
    if not all(0 <= part <= LARGEST_SEQ for part in found if isinstance(part, int)):
        raise MalformedRequest(BAD_CURSOR)
    return found
