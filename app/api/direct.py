"""Routes that are called with every model call, without FastAPI's dependency solver between request and function.

FastAPI reads the function's signature for the documentation all the same, and calls the hook below, which it has for
this. Solving dependencies took longer than everything else that a request needs here (docs/performance.md). So what a
function takes is looked up once: what the dependencies are called with, one model for the query, one for the headers.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api import access, errors
from app.api.documentation import QUERY_PREFIXES
from app.domain.errors import InvalidRequest, MalformedRequest, Problem, TurnlogError

M = TypeVar("M", bound=BaseModel)
Solver = Callable[[Request], Awaitable[Any]]


class Shortcut:
    """Middleware that serves direct routes without the framework's own layers, and lets all else through.

    It looks for the route among all, and wraps it in two stacks of contexts and two handlers of exceptions, which takes
    20 to 40 µs of the 550 µs that an append takes. Without this middleware the routes do the same, more slowly.
    """

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute]) -> None:
        self.app = app
        self._routes = [(one, one.get_route_handler()) for one in routes if isinstance(one, Direct)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request for one of the routes, or pass it on."""
        if scope["type"] == "http":
            for route, serve in self._routes:
                found = route.path_regex.match(scope["path"])
                if found and scope["method"] in (route.methods or ()):
                    scope.update(route=route, path_params=found.groupdict())
                    request = Request(scope, receive, send)
                    try:
                        response = await serve(request)
                    except (TurnlogError, HTTPException) as error:
                        response = await errors.answer(request, error)
                    await response(scope, receive, send)
                    return
        await self.app(scope, receive, send)


class Direct(APIRoute):
    """A route whose function takes the request, dependencies of a request or of a path's part, and models."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that serves a request."""
        function = cast("Callable[..., Awaitable[Response]]", self.endpoint)
        given = self.dependant
        solvers = [(one.name, _solver(one)) for one in given.dependencies if one.call not in _BUILT_IN]
        query, headers = _model(given.query_params), _model(given.header_params)
        fields = {name.replace("_", "-").encode(): name for name in type(headers[1]).model_fields} if headers else {}
        known, needs = query_names(given), access.needs_of(self)

        async def serve(request: Request) -> Response:
            if needs:
                access.require(request, needs)
            solved = [(name, await solve(request)) for name, solve in solvers]
            values = {name: value for name, value in solved if name is not None}
            if given.request_param_name:
                values[given.request_param_name] = request
            check_names(request.query_params.multi_items(), known)
            if query:
                values[query[0]] = _read(query[1], request.query_params)
            if headers:
                values[headers[0]] = _read(headers[1], _headers(fields, request))
            return await function(**values)

        return serve


async def known_parameters_only(request: Request) -> None:
    """Refuse query parameters that the route does not have: a misspelt filter must not be silently ignored.

    Raises:
        MalformedRequest: naming the parameter.
    """
    route = request.scope["route"]
    prefixes = (route.openapi_extra or {}).get(QUERY_PREFIXES, ())
    check_names(request.query_params.multi_items(), query_names(route.dependant), tuple(prefixes))


# What the application has all routes depend on, and a direct one does by itself.
_BUILT_IN: Final = (known_parameters_only, access.allowed)


def check_names(given: Iterable[tuple[str, str]], known: set[str], prefixes: tuple[str, ...] = ()) -> None:
    """Refuse query parameters that are not known and do not begin with a prefix of those whose names a client chooses.

    One that occurs twice is refused, too: whichever was taken, somebody else on the way may have taken the other.

    Raises:
        MalformedRequest: naming the parameter that is not known.
        InvalidRequest: at the parameter that occurs twice.
    """
    seen: set[str] = set()
    for name, _ in given:
        if name not in known and not name.startswith(prefixes or "\0"):
            raise MalformedRequest(f"unknown query parameter {name[:80]!r}")
        if name in seen:
            raise InvalidRequest.at(name, "occurs twice; it has one value")
        seen.add(name)


def query_names(given: Dependant) -> set[str]:
    """Return the names of a route's query parameters, whether it takes them one by one or as a model."""
    names: set[str] = set()
    for field in given.query_params:
        kind = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names |= {one.alias or name for name, one in kind.model_fields.items()}
        else:
            names.add(field.alias)
    return names.union(*map(query_names, given.dependencies))


def _solver(dependency: Dependant) -> Solver:
    """Return what calls a dependency, which is async and takes the request, one part of the path, or nothing."""
    call = cast("Callable[..., Awaitable[Any]]", dependency.call)
    asks = [
        *dependency.query_params, *dependency.header_params, *dependency.cookie_params, *dependency.body_params,
        *dependency.dependencies, *dependency.path_params[1:],
    ]  # fmt: skip
    takes_both = dependency.request_param_name and dependency.path_params
    if asks or takes_both or not inspect.iscoroutinefunction(call):
        # Found out when the route is built. Leaving out what a dependency asks for could let somebody in.
        raise TypeError(f"{call} asks for more than a direct route gives: the request, or one part of the path")
    if dependency.request_param_name:
        name = dependency.request_param_name
        return lambda request: call(**{name: request})
    if not dependency.path_params:
        return lambda _: call()
    (field,) = dependency.path_params
    return lambda request: call(**{field.name: request.path_params[field.alias]})


def _model(fields: Sequence[Any]) -> tuple[str, BaseModel] | None:
    """Return the name of a function's only model of this kind, and what it is when nothing is given."""
    if not fields:
        return None
    (field,) = fields
    return field.name, cast("type[BaseModel]", field.field_info.annotation)()


def _headers(names: Mapping[bytes, str], request: Request) -> dict[str, str]:
    """Return some headers by other names. Lines that say the same are one, and others are a list of their values.

    A proxy that doubles an Idempotency-Key must not make another key of it.
    """
    found: dict[str, dict[str, None]] = {}
    for header, value in request.scope["headers"]:
        name = names.get(header)
        if name is not None:
            found.setdefault(name, {})[value.decode("latin-1")] = None
    return {name: ", ".join(values) for name, values in found.items()}


def _read(nothing: M, given: Mapping[str, str]) -> M:
    if not given:
        return nothing
    try:
        return type(nothing).model_validate(given)
    except ValidationError as error:
        raise InvalidRequest([Problem(str(one["loc"][-1]), str(one["msg"])) for one in error.errors()]) from error
