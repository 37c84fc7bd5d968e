"""What schedulers call: compact the sessions that are due, purge those that have expired."""

from fastapi import APIRouter, Request, Response

from app.api import answers, examples, schemas
from app.api.deps import Ctx, PageSize, Tenants, body_of, page
from app.api.documentation import operation
from app.api.wire import utc
from app.service import fleet, sweeps

router = APIRouter(tags=["Fleet"])


@router.post(
    "/v1/compact",
    openapi_extra=operation(
        needs=["compact"],
        across=True,
        body=schemas.FleetRequest,
        optional=True,
        examples=examples.FLEET,
        answers={200: schemas.FleetReport},
        refuses=[503],
    ),
)
async def compact_due(request: Request, ctx: Ctx, tenant: Tenants) -> Response:
    """Compact the sessions whose policy's trigger fires, most tokens first. Any number of schedulers may call."""
    body = await body_of(request, schemas.FleetRequest, empty=b"{}")
    asked = fleet.Asked(limit=body.limit, seconds=body.max_seconds, labels=body.metadata)
    return answers.answer(answers.fleet(await fleet.compact(ctx, tenant, asked), across=tenant is None))


@router.get(
    "/v1/compact/due",
    openapi_extra=operation(needs=["compact"], across=True, answers={200: schemas.DueSessions}, refuses=[422, 503]),
)
async def list_due(ctx: Ctx, tenant: Tenants, limit: PageSize = None) -> Response:
    """List the sessions that `POST /v1/compact` would take, without doing it."""
    count, found = await fleet.due(ctx, tenant, limit=page(ctx, limit))
    shown = [answers.due(one, across=tenant is None) for one in found]
    return answers.answer(schemas.DueSessions(due=count.due, deferred=count.deferred, data=shown))


@router.post(
    "/v1/purge",
    openapi_extra=operation(
        needs=["compact"],
        across=True,
        body=schemas.PurgeRequest,
        optional=True,
        examples=examples.PURGE,
        answers={200: schemas.Purged},
        refuses=[503],
    ),
)
async def purge(request: Request, ctx: Ctx, tenant: Tenants) -> Response:
    """Remove the rows of expired sessions, the longest expired first."""
    body = await body_of(request, schemas.PurgeRequest, empty=b"{}")
    before = utc(body.expired_before, "/expired_before") if body.expired_before else None
    done = await sweeps.purge(ctx, tenant, expired_before=before, limit=body.limit)
    return answers.answer(schemas.Purged(purged=done.purged, remaining=done.remaining))
