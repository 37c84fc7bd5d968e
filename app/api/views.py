"""The view over HTTP."""

import re
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Response

from app.api import answers, schemas
from app.api.deps import LARGEST_SEQ, Ctx, SessionId, Tenant
from app.api.documentation import operation
from app.domain.event import StoredEvent
from app.domain.view import Known, View
from app.service import views
from app.service.context import Context
from app.service.views import Asked, Format

router = APIRouter(tags=["View"])

_TAG: Final = re.compile(r'(?:W/)?"(?P<version>\d{1,18})-(?P<format>[a-z-]+)"')


@router.get(
    "/v1/sessions/{session_id}/view",
    openapi_extra=operation(answers={200: (schemas.View, "text/plain"), 304: None}),
)
async def get_view(  # noqa: PLR0913, PLR0917 - one for each parameter of the contract
    ctx: Ctx,
    tenant: Tenant,
    session_id: SessionId,
    output: Annotated[Format, Query(alias="format")] = "events",
    at_version: Annotated[int | None, Query(ge=0, le=LARGEST_SEQ, description="as it was at this version")] = None,
    last_n: Annotated[
        int | None, Query(ge=1, le=LARGEST_SEQ, description="the newest n events, back to the start of their turn")
    ] = None,
    if_none_match: Annotated[list[str] | None, Header()] = None,
) -> Response:
    """Return what the model should be sent, ready for its provider. HEAD and If-None-Match work."""
    asked = Asked(at_version=at_version, last_n=last_n, known=known(if_none_match or [], output))
    version, view = await views.read_unless_known(ctx, tenant, session_id, asked)
    headers = {"ETag": f'"{version}-{output}"'}
    if view is None:
        return Response(status_code=304, headers=headers)
    ctx.meter.read(output)
    if output == "text":
        told = await views.rendered(view, output)
        return Response(told.text, media_type="text/plain; charset=utf-8", headers=headers)
    return answers.answer(await shown(session_id, view, output), headers=headers)


async def shown(session_id: str, view: View[StoredEvent], output: Format) -> schemas.View:
    """Show a view in a format."""
    return answers.view(session_id, view, None if output == "events" else await views.rendered(view, output))


async def read_and_show(ctx: Context, tenant: str, session_id: str, output: Format) -> schemas.View:
    """Read the view as it is now and show it in a format."""
    view = await views.read(ctx, tenant, session_id, Asked())
    ctx.meter.read(output)
    return await shown(session_id, view, output)


def known(if_none_match: Sequence[str], output: Format) -> Known:
    """Return which versions in this format the client says it has, in however many header lines."""
    tags = ",".join(if_none_match)
    return Known(
        versions=tuple(int(tag["version"]) for tag in _TAG.finditer(tags) if tag["format"] == output),
        any=tags.strip() == "*",
    )
