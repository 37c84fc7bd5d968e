"""Sessions over HTTP."""

from typing import Annotated
from uuid import UUID

import msgspec
from fastapi import APIRouter, Query, Request, Response
from msgspec import UNSET

from app.api import answers, examples, links, schemas
from app.api.deps import (
    BAD_CURSOR,
    Ctx,
    NewSessionId,
    PageSize,
    SessionId,
    Tenant,
    body_of,
    cursor_of,
    page,
    position_of,
)
from app.api.documentation import Said, operation
from app.api.wire import microseconds, moment, text_of
from app.domain.errors import MalformedRequest
from app.domain.session import Place
from app.service import sessions
from app.service.policies import Policy
from app.service.sessions import Change, NewSession

router = APIRouter(tags=["Sessions"])
_FILTER = "metadata."


@router.post(
    "/v1/sessions",
    openapi_extra=operation(
        needs=["write"],
        body=schemas.NewSession,
        optional=True,
        examples=examples.SESSION,
        answers={201: Said(schemas.Session, ("Location",), links.SESSION)},
        refuses=[409, 503],
    ),
)
async def create_session(request: Request, ctx: Ctx, tenant: Tenant) -> Response:
    """Create a session. Without an id the service makes one."""
    body = await body_of(request, schemas.NewSession, empty=b"{}")
    made = await sessions.create(ctx, tenant, _new(body, None if body.id is UNSET else body.id))
    return answers.answer(answers.session(made), 201, {"Location": f"/v1/sessions/{made.session_id}"})


@router.put(
    "/v1/sessions/{session_id}",
    openapi_extra=operation(
        needs=["write"],
        body=schemas.FoundSession,
        optional=True,
        examples=examples.FOUND_SESSION,
        answers={
            200: Said(schemas.Session, (), links.SESSION),
            201: Said(schemas.Session, ("Location",), links.SESSION),
        },
        refuses=[503],
    ),
)
async def find_or_create_session(request: Request, ctx: Ctx, tenant: Tenant, session_id: NewSessionId) -> Response:
    """Return the session unchanged, or create it."""
    body = await body_of(request, schemas.FoundSession, empty=b"{}")
    found, created = await sessions.find_or_create(ctx, tenant, _new(body, session_id))
    headers = {"Location": f"/v1/sessions/{session_id}"} if created else None
    return answers.answer(answers.session(found), 201 if created else 200, headers)


@router.get(
    "/v1/sessions/{session_id}",
    openapi_extra=operation(needs=["read"], answers={200: schemas.Session}, refuses=[404, 410, 503]),
)
async def get_session(ctx: Ctx, tenant: Tenant, session_id: SessionId) -> Response:
    """Return a session."""
    return answers.answer(answers.session(await sessions.get(ctx, tenant, session_id)))


@router.patch(
    "/v1/sessions/{session_id}",
    openapi_extra=operation(
        needs=["write"],
        body=schemas.SessionChange,
        optional=True,
        examples=examples.SESSION_CHANGE,
        answers={200: schemas.Session},
        refuses=[404, 410, 503],
    ),
)
async def change_session(request: Request, ctx: Ctx, tenant: Tenant, session_id: SessionId) -> Response:
    """Merge metadata, extend or end the session's life, set or remove its policy. Also extends an expired session."""
    body = await body_of(request, schemas.SessionChange, empty=b"{}")
    change = Change(
        metadata=text_of(body.metadata),
        ttl_seconds="same" if body.ttl_seconds is UNSET else body.ttl_seconds,
        policy="same" if body.policy is UNSET else _policy(body.policy),
    )
    return answers.answer(answers.session(await sessions.change(ctx, tenant, session_id, change)))


@router.delete(
    "/v1/sessions/{session_id}", openapi_extra=operation(needs=["write"], answers={204: None}, refuses=[404, 503])
)
async def delete_session(ctx: Ctx, tenant: Tenant, session_id: SessionId) -> Response:
    """Delete a session with its events, boundaries and summaries."""
    await sessions.delete(ctx, tenant, session_id)
    return Response(status_code=204)


@router.get(
    "/v1/sessions",
    openapi_extra=operation(
        needs=["read"], answers={200: schemas.SessionList}, refuses=[422, 503], query_prefixes=[_FILTER]
    ),
)
async def list_sessions(
    request: Request,
    ctx: Ctx,
    tenant: Tenant,
    limit: PageSize = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
) -> Response:
    """List sessions, oldest first. Every `metadata.KEY=VALUE` must match a top-level key's value as a string."""
    found, place = await sessions.page(ctx, tenant, _filters(request), after=_place(cursor), limit=page(ctx, limit))
    more = cursor_of(microseconds(place.created_at), str(place.key)) if place else None
    return answers.answer(
        schemas.SessionList(data=[answers.session(one) for one in found], has_more=more is not None, next_cursor=more)
    )


def _new(body: schemas.NewSession | schemas.FoundSession, session_id: str | None) -> NewSession:
    return NewSession(
        session_id=session_id,
        ttl_seconds="default" if body.ttl_seconds is UNSET else body.ttl_seconds,
        metadata=text_of(body.metadata) or "{}",
        policy=_policy(body.policy),
    )


def _policy(policy: Policy | None) -> str | None:
    return None if policy is None else msgspec.json.encode(policy).decode()


def _filters(request: Request) -> dict[str, str]:
    given = request.query_params.items()
    return {name.removeprefix(_FILTER): value for name, value in given if name.startswith(_FILTER)}


def _place(cursor: str | None) -> Place | None:
    if cursor is None:
        return None
    created_at, key = position_of(cursor, [int, str])
    try:
        return Place(created_at=moment(created_at), key=UUID(key))
    except (ValueError, OverflowError) as error:
        raise MalformedRequest(BAD_CURSOR) from error
