"""Compaction over HTTP, by hand."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from app.api import answers, examples, links, schemas
from app.api.deps import Ctx, PageSize, SessionId, Tenant, body_of, cursor_of, page, position_of
from app.api.documentation import Said, operation
from app.domain.errors import InvalidRequest
from app.domain.policy import Policy
from app.service import compactions, policies, records
from app.service.compactions import Request as Asked

router = APIRouter(tags=["Compaction"])


@router.post(
    "/v1/sessions/{session_id}/compact",
    openapi_extra=operation(
        needs=["compact"],
        body=schemas.CompactionRequest,
        optional=True,
        examples=examples.COMPACTION,
        answers={200: Said(schemas.Compaction, (), links.COMPACTED)},
        refuses=[404, 410, 412, 502, 503, 504],
    ),
)
async def compact_session(request: Request, ctx: Ctx, tenant: Tenant, session_id: SessionId) -> Response:
    """Cover what lies outside the window, or say why nothing is covered. An empty body runs the session's policy."""
    body = await body_of(request, schemas.CompactionRequest, empty=b"{}")
    asked = Asked(policy=_policy(body), dry_run=body.dry_run, expected_version=body.expected_version)
    return answers.answer(answers.compaction(await compactions.compact(ctx, tenant, session_id, asked)))


def _policy(body: schemas.CompactionRequest) -> Policy | None:
    if body.window is not None:
        return policies.of(body.window, body.trigger, body.summarizer)
    for field in ("trigger", "summarizer"):
        if getattr(body, field) is not None:
            raise InvalidRequest.at("/window", f"is missing: a {field} alone is no compaction")
    return None


@router.get(
    "/v1/sessions/{session_id}/compactions",
    openapi_extra=operation(
        needs=["read"], answers={200: (schemas.CompactionList, schemas.AttemptList)}, refuses=[404, 410, 422, 503]
    ),
)
async def list_compactions(
    ctx: Ctx,
    tenant: Tenant,
    session_id: SessionId,
    attempts: Annotated[bool, Query(description="the attempts that called the summarizer, instead")] = False,  # noqa: FBT002
    limit: PageSize = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
) -> Response:
    """List a session's boundaries, newest first; or every attempt that called the summarizer, and how it ended."""
    size = page(ctx, limit)
    before = position_of(cursor, [int])[0] if cursor is not None else None
    if attempts:
        tried, more = await records.attempts(ctx, tenant, session_id, before=before, limit=size)
        return _page(schemas.AttemptList, [answers.attempt(one) for one in tried], more)
    found, more = await records.page(ctx, tenant, session_id, before=before, limit=size)
    return _page(schemas.CompactionList, [answers.compaction(one) for one in found], more)


def _page(kind: type[Any], data: list[Any], more: int | None) -> Response:
    cursor = cursor_of(more) if more is not None else None
    return answers.answer(kind(data=data, has_more=more is not None, next_cursor=cursor))
