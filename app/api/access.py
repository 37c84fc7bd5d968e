"""Who may use which route. A route says what it needs where it is described, and is not built without saying so."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from fastapi import Request
from starlette.routing import BaseRoute, Route

from app.api import explorer
from app.api.documentation import ACROSS, SCHEME
from app.domain.errors import Forbidden, InvalidRequest
from app.domain.key import Caller, Scope

# For those who watch the service: they hold no key and learn nothing but whether it is up.
OPEN: Final = frozenset({"/healthz", "/readyz"})
# Open, for holders of any key, or not there: as the settings say, by the name of the setting.
SHOWN: Final = {"/metrics": "metrics", "/openapi.json": "docs", **dict.fromkeys(explorer.FILES, "docs")}
TENANT_HEADER: Final = "Turnlog-Tenant"


def check(routes: Iterable[BaseRoute]) -> None:
    """Refuse a route that does not say who may use it.

    Raises:
        TypeError: naming the route.
    """
    for route in routes:
        path = getattr(route, "path", "")
        if path not in OPEN and path not in SHOWN and _declared(route) is None:
            raise TypeError(f"the route {path} does not say which scopes it needs: operation(needs=…)")


def needs_of(route: Any) -> Sequence[Scope]:
    """Return the scopes that a key needs to use a route; none for the routes that anybody may use, or any key."""
    return _declared(route) or ()


def _declared(route: BaseRoute) -> Sequence[Scope] | None:
    extra: dict[str, Any] = getattr(route, "openapi_extra", None) or {}
    for declared in extra.get("security", ()):
        return cast("Sequence[Scope]", declared[SCHEME])
    return None


def caller_of(request: Request) -> Caller:
    """Return who asks, as the guard has found out."""
    return cast("Caller", request.scope["state"]["caller"])


def require(request: Request, scopes: Iterable[Scope]) -> None:
    """Refuse a caller who may not do all of this.

    Raises:
        Forbidden: naming the first scope that is missing.
    """
    caller = caller_of(request)
    for scope in scopes:
        if not caller.may(scope):
            raise Forbidden(scope)


async def allowed(request: Request) -> None:
    """Refuse who may not use the request's route: every route of the application depends on this.

    Raises:
        Forbidden, InvalidRequest: it is for one tenant, and all of them were asked for.
    """
    route = cast("Route", request.scope["route"])
    needs = needs_of(route)
    if needs or _declared(route) is not None:
        require(request, needs)
        tenants_of(request, across=bool((getattr(route, "openapi_extra", None) or {}).get(ACROSS)))


def tenants_of(request: Request, *, across: bool) -> str | None:
    """Return whose sessions this is about: a tenant, or None for all tenants where a route goes ``across``.

    Raises:
        InvalidRequest.
    """
    tenant = caller_of(request).tenant
    if tenant is None and not across:
        told = "* is for POST /v1/compact, GET /v1/compact/due and POST /v1/purge: name one tenant"
        raise InvalidRequest.at(TENANT_HEADER, told)
    return tenant
