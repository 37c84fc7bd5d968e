"""The guard: finds out who asks before anything of a request is read or looked up."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api import errors
from app.api.access import OPEN, SHOWN, TENANT_HEADER
from app.api.local import is_local, is_of_another_page
from app.api.rates import Rates
from app.domain.errors import Forbidden, InvalidRequest, RateLimited, TurnlogError, Unauthenticated
from app.domain.key import DEFAULT_TENANT, SCOPES, TENANT_RULE, Caller
from app.domain.session import is_id
from app.service.context import Context
from app.settings import Shown

# Whom to serve before there is a key: this machine alone, or everybody. And "always": a command in its own process,
# which works on the database itself, is asked for no key at all.
Keyless: TypeAlias = Literal["local", "everybody", "always"]

_ANYBODY: Final = Caller(prefix=None, tenant=DEFAULT_TENANT, scopes=frozenset(SCOPES))
_TENANT: Final = TENANT_HEADER.lower().encode()
_ALL_TENANTS: Final = "*"
_NO_KEY_YET: Final = (
    "there is no API key yet, and without one turnlog serves its own machine alone, by the name localhost and through"
    " no proxy: make a key with `turnlog keys create`, and send it as Authorization: Bearer KEY"
)
_ANOTHER_PAGE: Final = "there is no API key yet, and without one no web page from elsewhere is served"


class Guard:
    """Middleware between the door and the routes. Everything but the health checks is behind it, also what no route is.

    It leaves the caller in the request's state, where the routes' own check of scopes finds it. Nothing here waits,
    unless the keys have not been looked at for some seconds.
    """

    def __init__(
        self, app: ASGIApp, *, keyless: Keyless = "local", show: Mapping[str, Shown], rates: Rates | None = None
    ) -> None:
        """``show`` says for each kind of page who sees it; ``rates`` None: any number of requests."""
        self.app = app
        self._keyless = keyless
        self._rates = rates
        self._open = OPEN | {path for path, kind in SHOWN.items() if show[kind] == "open"}
        self._hidden = {path for path, kind in SHOWN.items() if show[kind] == "off"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it."""
        if scope["type"] != "http" or scope["path"] in self._open:
            await self.app(scope, receive, send)
            return
        try:
            caller = await self._caller(scope)
            send = self._counted(scope, caller, send)
        except _Limited as error:
            await self._refuse(error.cause, scope, receive, _with(error.headers, send))
        except (TurnlogError, HTTPException) as error:
            await self._refuse(error, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        """Return who asks, and note it in the request's state.

        Raises:
            Unauthenticated, Forbidden, InvalidRequest, Unavailable, HTTPException (404).
        """
        if scope["path"] in self._hidden:
            raise HTTPException(404)
        presented, tenant = _headers(scope)
        caller = _ANYBODY if self._keyless == "always" else await self._known(scope, presented)
        if tenant is not None:
            caller = _for_tenant(caller, tenant)
        scope["state"]["caller"] = caller
        if caller.prefix is not None:
            scope["state"]["who"] = {"key": caller.prefix, "tenant": caller.tenant or _ALL_TENANTS}
        return caller

    async def _known(self, scope: Scope, presented: str | None) -> Caller:
        context: Context = scope["app"].state.context
        if not context.keys.is_current():
            await context.keys.catch_up()
        if context.keys.is_empty:
            return self._without_keys(scope)
        caller = context.keys.caller(presented) if presented is not None else None
        if caller is None:
            raise Unauthenticated
        return caller

    def _without_keys(self, scope: Scope) -> Caller:
        if self._keyless == "everybody":
            if is_of_another_page(scope):
                raise Unauthenticated(_ANOTHER_PAGE)
        elif not is_local(scope):
            raise Unauthenticated(_NO_KEY_YET)
        return _ANYBODY

    def _counted(self, scope: Scope, caller: Caller, send: Send) -> Send:
        """Take a token for the request, and return what sends its answer with the headers that say how many are left.

        Raises:
            _Limited.
        """
        if self._rates is None or caller.prefix is None:
            return send
        taken = self._rates.take(caller.prefix)
        if taken.retry_seconds is not None:
            raise _Limited(RateLimited(retry_seconds=taken.retry_seconds), taken.headers)
        return _with(taken.headers, send)

    @staticmethod
    async def _refuse(error: TurnlogError | HTTPException, scope: Scope, receive: Receive, send: Send) -> None:
        response = await errors.answer(Request(scope), error)
        await response(scope, receive, send)


class _Limited(Exception):
    """The caller comes too often; ``headers`` say how often is often enough."""

    def __init__(self, cause: RateLimited, headers: Mapping[str, str]) -> None:
        self.cause = cause
        self.headers = headers


def _headers(scope: Scope) -> tuple[str | None, str | None]:
    """Return the key and the tenant that a request names. A header that comes twice says nothing that can be relied on.

    Raises:
        Unauthenticated, InvalidRequest.
    """
    key: bytes | None = None
    tenant: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            if key is not None:
                raise Unauthenticated("the Authorization header comes twice")
            key = value
        elif name == _TENANT:
            if tenant is not None:
                raise InvalidRequest.at(TENANT_HEADER, "comes twice")
            tenant = value
    return _bearer(key), None if tenant is None else tenant.decode("latin-1").strip()


def _bearer(header: bytes | None) -> str | None:
    if header is None:
        return None
    scheme, _, key = header.partition(b" ")
    return key.strip().decode("latin-1") if scheme.lower() == b"bearer" else None


def _for_tenant(caller: Caller, tenant: str) -> Caller:
    """Let an admin act for another tenant, or for all of them."""
    if tenant == caller.tenant:
        return caller
    if not caller.may("admin"):
        raise Forbidden("admin", "acting for another tenant needs a key with the scope admin")
    if tenant == _ALL_TENANTS:
        return replace(caller, tenant=None)
    if not is_id(tenant):
        raise InvalidRequest.at(TENANT_HEADER, TENANT_RULE)
    return replace(caller, tenant=tenant)


def _with(headers: Mapping[str, str], send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return sent
