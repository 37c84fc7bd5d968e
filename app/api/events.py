"""The log over HTTP: append, read, find."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from msgspec import UNSET
from pydantic import BaseModel, Field

from app.api import access, answers, deps, examples, links, preconditions, schemas, views
from app.api.deps import (
    BAD_CURSOR,
    LARGEST_SEQ,
    AnySessionId,
    Ctx,
    EventId,
    SessionId,
    Tenant,
    body_of,
    cursor_of,
    known_session_id,
    new_session_id,
    position_of,
)  # fmt: skip
from app.api.direct import Direct
from app.api.documentation import Said, operation
from app.api.wire import text_of, utc
from app.domain import event as rules
from app.domain import view as view_rules
from app.domain.errors import InvalidRequest, MalformedRequest
from app.domain.log import Filters, Listed, Order, Page
from app.service import drafts, events
from app.service import views as view_service
from app.service.drafts import NewEvent
from app.service.events import Options
from app.service.views import Asked, Format

router = APIRouter(tags=["Events"])
direct = APIRouter(tags=["Events"], route_class=Direct)

_IF_MATCH: Final = r'^(\*|"?[0-9]{1,18}"?)$'
_TYPES: Final = f"^{rules.type_name.pattern}(,{rules.type_name.pattern})*$"
_ROLES: Final = "^({0})(,({0}))*$".format("|".join(rules.ROLES))
Seq = Annotated[int | None, Query(ge=0, le=LARGEST_SEQ)]


class AppendQuery(BaseModel):
    """What the answer to an append is asked to be."""

    create: bool = Field(default=False, description="create the session when it is missing")
    give_back: Literal["view"] | None = Field(None, alias="return", description="add the view to the answer")
    output: Format = Field("events", alias="format", description="format of that view")


class AppendHeaders(BaseModel):
    """How an append is guarded."""

    if_match: str | None = Field(
        None, description="the same as `expected_version`", json_schema_extra={"pattern": _IF_MATCH}
    )
    idempotency_key: str | None = Field(
        None,
        description="makes the request repeatable; its events have no id of their own",
        json_schema_extra={"minLength": 1, "maxLength": preconditions.LONGEST_KEY},
    )


@direct.post(
    "/v1/sessions/{session_id}/events",
    openapi_extra=operation(
        needs=["write"],
        body=schemas.NewEvents,
        examples=examples.APPEND,
        answers={200: Said(schemas.Receipt, (), links.APPENDED), 201: Said(schemas.Receipt, (), links.APPENDED)},
        refuses=[404, 409, 410, 412, 503],
    ),
)
async def append_events(
    request: Request,
    ctx: Ctx,
    tenant: Tenant,
    session_id: AnySessionId,
    query: Annotated[AppendQuery, Query()],
    headers: Annotated[AppendHeaders, Header()],
) -> Response:
    """Append a batch: all of its events or none, in the order sent, once however often it is sent."""
    name = new_session_id(session_id) if query.create else known_session_id(session_id)
    if query.give_back:
        access.require(request, ["read"])
    body = await body_of(request, schemas.NewEvents)
    options = Options(
        expected_version=preconditions.version(body.expected_version, headers.if_match),
        idempotency_key=preconditions.key(headers.idempotency_key),
        create=query.create,
        place="/events" if body.messages is UNSET else "/messages",
    )
    events.check_count(ctx, len(body.events or body.messages or [1]), options.place)
    receipt = await events.append(ctx, tenant, name, await _batch(body), options)
    view = await views.read_and_show(ctx, tenant, name, query.output) if query.give_back else UNSET
    shown = answers.receipt(name, receipt, view)
    return answers.answer(shown, 200 if receipt.all_replayed else 201)


async def _batch(body: schemas.NewEvents) -> list[NewEvent]:
    """Return the events of a body in either of its two forms."""
    if body.messages is not UNSET:
        if body.events is not UNSET:
            raise InvalidRequest.at("/messages", "events, or format and messages, not both")
        if body.format is UNSET:
            raise InvalidRequest.at("/format", "names whose messages these are")
        return await drafts.from_provider([bytes(one).decode() for one in body.messages], body.format, "/messages")
    if body.format is not UNSET:
        raise InvalidRequest.at("/messages", "is missing")
    return [_event(new, f"/events/{at}") for at, new in enumerate(body.events or [])]


def _event(new: schemas.NewEvent, place: str) -> NewEvent:
    return NewEvent(
        message=text_of(new.message),
        payload=text_of(new.payload),
        metadata=text_of(new.metadata),
        event_id=None if new.id is UNSET else new.id,
        type=new.type,
        timestamp=utc(new.timestamp, f"{place}/timestamp") if new.timestamp else None,
        token_count=new.token_count,
        place=place,
        message_place=f"{place}/message",
    )


@router.get(
    "/v1/sessions/{session_id}/events",
    openapi_extra=operation(needs=["read"], answers={200: schemas.EventList}, refuses=[404, 410, 422, 503]),
)
async def list_events(  # noqa: PLR0913, PLR0917 - one for each parameter of the contract
    ctx: Ctx,
    tenant: Tenant,
    session_id: SessionId,
    after: Seq = None,
    before: Seq = None,
    limit: deps.PageSize = None,
    order: Annotated[Order, Query()] = "asc",
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    types: Annotated[str | None, Query(description="comma-separated", json_schema_extra={"pattern": _TYPES})] = None,
    roles: Annotated[
        str | None, Query(description="comma-separated; message events only", json_schema_extra={"pattern": _ROLES})
    ] = None,
    synthetic: Annotated[bool | None, Query(description="whether a compaction wrote it")] = None,
    active: Annotated[bool, Query(description="only what is in the view, in view order")] = False,  # noqa: FBT002
    last_n: Annotated[int | None, Query(ge=1, description="the newest n, back to their turn's start")] = None,
) -> Response:
    """Read the log. Every event is here, covered or not."""
    filters = _filters(types, roles, synthetic)
    if last_n is not None and any(given is not None for given in (after, before, limit, cursor)):
        raise InvalidRequest.at("last_n", "goes with none of after, before, limit and cursor")
    size, last_n = deps.page(ctx, limit), deps.page(ctx, last_n, name="last_n") if last_n is not None else None
    if active:
        if after is not None or before is not None or order == "desc":
            raise InvalidRequest.at("active", "is in view order: it goes with none of after, before and order")
        return await _list_active(ctx, (tenant, session_id), filters, size, cursor, last_n)
    if last_n is not None:
        found = list(await events.newest(ctx, tenant, session_id, filters, last_n))
        return _page(session_id, found if order == "asc" else found[::-1], None)
    part = _part(after, before, size, order, cursor)
    listed, more = await events.page(ctx, tenant, session_id, filters, part)
    return _page(session_id, listed, cursor_of(part.order, listed[-1].event.seq) if more else None)


def _part(after: int | None, before: int | None, limit: int, order: Order, cursor: str | None) -> Page:
    """Return which part of the log is asked for; a cursor takes the place of the bound that the pages move along."""
    if cursor is None:
        return Page(after=after, before=before, order=order, limit=limit)
    match position_of(cursor, [str, int]):
        case ["asc", int(seq)]:
            return Page(after=seq, before=before, order="asc", limit=limit)
        case ["desc", int(seq)]:
            return Page(after=after, before=seq, order="desc", limit=limit)
        case _:
            raise MalformedRequest(BAD_CURSOR)


def _filters(types: str | None, roles: str | None, synthetic: bool | None) -> Filters:  # noqa: FBT001
    wanted_types = tuple(types.split(",")) if types is not None else None
    wanted_roles = tuple(roles.split(",")) if roles is not None else None
    for name in wanted_types or ():
        if not rules.type_name.fullmatch(name):
            raise InvalidRequest.at("types", f"a type matches ^{rules.type_name.pattern}$")
    for name in wanted_roles or ():
        if name not in rules.ROLES:
            raise InvalidRequest.at("roles", f"the roles are {', '.join(rules.ROLES)}")
    if wanted_roles and wanted_types and rules.MESSAGE not in wanted_types:
        raise InvalidRequest.at("roles", f"only events of type {rules.MESSAGE} have a role")
    return Filters(types=wanted_types, roles=wanted_roles, synthetic=synthetic)


async def _list_active(
    ctx: Ctx, name: tuple[str, str], filters: Filters, limit: int, cursor: str | None, last_n: int | None
) -> Response:
    """List the view's events. The pages of one walk all show the view as it was when the walk began."""
    version, start = position_of(cursor, [int, int]) if cursor is not None else (None, 0)
    try:
        view = await view_service.read(ctx, *name, Asked(at_version=version))
    except InvalidRequest as error:
        raise MalformedRequest(BAD_CURSOR) from error
    matches = [event for event in view.events if filters.match(event)]
    if last_n is not None:
        matches, limit = list(view_rules.last(matches, last_n)), len(matches)
    shown = [Listed(event=event, covered=False) for event in matches[start : start + limit]]
    more = start + limit < len(matches)
    return _page(name[1], shown, cursor_of(view.version, start + limit) if more else None)


def _page(session_id: str, listed: Sequence[Listed], more: str | None) -> Response:
    return answers.answer(
        schemas.EventList(
            data=[answers.event(session_id, one.event, covered=one.covered) for one in listed],
            has_more=more is not None,
            next_cursor=more,
        )
    )


@router.get(
    "/v1/sessions/{session_id}/events/{event_id}",
    openapi_extra=operation(needs=["read"], answers={200: schemas.Event}, refuses=[404, 410, 503]),
)
async def get_event(ctx: Ctx, tenant: Tenant, session_id: SessionId, event_id: EventId) -> Response:
    """Return one event by its id, covered or not."""
    found = await events.get(ctx, tenant, session_id, event_id)
    return answers.answer(answers.event(session_id, found.event, covered=found.covered))
