"""What the people who run turnlog ask it."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response

from app import __version__
from app.api import answers, schemas
from app.api.deps import DEFAULT_PAGE, Ctx
from app.api.documentation import operation
from app.domain import exact_json
from app.domain.chat_memory import DEFAULT_MAX_MESSAGES
from app.service.context import Summarizing
from app.service.views import FORMATS, PROVIDER_FORMATS

router = APIRouter(tags=["Operations"])


@router.get("/healthz", openapi_extra=operation(answers={200: schemas.Health}))
async def is_alive() -> Response:
    """Say that this process answers."""
    return answers.answer(schemas.Health())


@router.get("/readyz", openapi_extra=operation(answers={200: schemas.Readiness}, refuses=[503]))
async def is_ready(ctx: Ctx) -> Response:
    """Say whether the database is reachable, takes writes, and has a schema that this release works with."""
    return answers.answer(schemas.Readiness(schema=await ctx.readiness.check()))


@router.get("/metrics", openapi_extra=operation(answers={200: "text/plain"}, refuses=[401, 404]))
async def metrics(request: Request, ctx: Ctx) -> Response:
    """Return the counters in Prometheus's format."""
    meter = request.app.state.meter
    meter.pools(ctx.database.pool_use())
    return Response(meter.exposition(), media_type=meter.content_type)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """Return the HTTP contract."""
    return answers.answer(request.app.openapi())


@router.get("/v1/capabilities", openapi_extra=operation(needs=[], across=True, answers={200: schemas.Capabilities}))
async def capabilities(ctx: Ctx) -> Response:
    """Return what this server is and takes."""
    limits = ctx.limits
    return answers.answer(
        schemas.Capabilities(
            version=__version__,
            formats={"in": list(PROVIDER_FORMATS), "out": list(FORMATS)},
            limits={**asdict(limits), "json_values": exact_json.MOST_VALUES},
            defaults={
                "ttl_seconds": ctx.default_ttl_seconds,
                "policy": ctx.default_policy is not None,
                "page": DEFAULT_PAGE,
                "chat_memory_messages": DEFAULT_MAX_MESSAGES,
            },
            tokens={"encoding": ctx.tokens.encoding},
            summarizer=_summarizer(ctx.summarizing),
        )
    )


def _summarizer(summarizing: Summarizing | None) -> dict[str, Any]:
    if summarizing is None:
        return {"configured": False}
    return {
        "configured": True,
        "model": summarizing.model.name,
        "max_tokens": summarizing.max_tokens,
        "max_input_tokens": summarizing.max_input_tokens,
        "timeout_seconds": summarizing.seconds,
    }
