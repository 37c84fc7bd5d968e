"""The view over HTTP."""

import re
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from app.api import answers, schemas
from app.api.deps import LARGEST_SEQ, Ctx, SessionId, Tenant
from app.api.direct import Direct
from app.api.documentation import Said, operation
from app.domain.event import StoredEvent
from app.domain.view import Known, View
from app.service import views
from app.service.context import Context
from app.service.views import Asked, Format

direct = APIRouter(tags=["View"], route_class=Direct)

_TAG: Final = re.compile(r'(?:W/)?"(?P<version>\d{1,18})-(?P<format>[a-z-]+)"')


class ViewQuery(BaseModel):
    """Which view, and how it is shown."""

    output: Format = Field("events", alias="format")
    at_version: int | None = Field(None, ge=0, le=LARGEST_SEQ, description="as it was at this version")
    last_n: int | None = Field(
        None, ge=1, le=LARGEST_SEQ, description="the newest n events, back to the start of their turn"
    )


class ViewHeaders(BaseModel):
    """Which views the caller has already."""

    if_none_match: str | None = None


@direct.get(
    "/v1/sessions/{session_id}/view",
    openapi_extra=operation(
        needs=["read"],
        answers={200: Said((schemas.View, "text/plain"), ("ETag",)), 304: Said(None, ("ETag",))},
        refuses=[404, 410, 422, 503],
    ),
)
async def get_view(
    ctx: Ctx,
    tenant: Tenant,
    session_id: SessionId,
    query: Annotated[ViewQuery, Query()],
    headers: Annotated[ViewHeaders, Header()],
) -> Response:
    """Return what the model should be sent, ready for its provider. HEAD and If-None-Match work."""
    output = query.output
    asked = Asked(at_version=query.at_version, last_n=query.last_n, known=known(headers.if_none_match or "", output))

    async def write(view: View[StoredEvent]) -> bytes:
        if output == "text":
            return (await views.rendered(view, output)).text.encode()
        return answers.json_of(await shown(session_id, view, output))

    version, answer = await views.written(ctx, tenant, session_id, asked, output, write)
    tag = {"ETag": f'"{version}-{output}"'}
    if answer is None:
        return Response(status_code=304, headers=tag)
    ctx.meter.read(output)
    kind = "text/plain; charset=utf-8" if output == "text" else "application/json"
    return Response(answer, media_type=kind, headers=tag)


async def shown(session_id: str, view: View[StoredEvent], output: Format) -> schemas.View:
    """Show a view in a format."""
    return answers.view(session_id, view, None if output == "events" else await views.rendered(view, output))


async def read_and_show(ctx: Context, tenant: str, session_id: str, output: Format) -> schemas.View:
    """Read the view as it is now and show it in a format."""
    view = await views.read(ctx, tenant, session_id, Asked())
    ctx.meter.read(output)
    return await shown(session_id, view, output)


def known(tags: str, output: Format) -> Known:
    """Return which versions in this format the client says it has."""
    return Known(
        versions=tuple(int(tag["version"]) for tag in _TAG.finditer(tags) if tag["format"] == output),
        any=tags.strip() == "*",
    )
