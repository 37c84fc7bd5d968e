"""OpenAPI, from the same structs that read requests and write answers."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api import errors, schemas
from app.domain.key import Scope

QUERY_PREFIXES: Final = "x-query-prefixes"
ACROSS: Final = "x-across-tenants"
SCHEME: Final = "key"
Answer: TypeAlias = type | str | tuple[type | str, ...] | None
_REF: Final = "#/components/schemas/{name}"
_KEY: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": (
        "An API key of `turnlog keys create`, with the scopes that each operation names; `admin` includes the others."
        " Until the first key is made, clients on the service's own machine need none. With the header `Turnlog-Tenant`"
        " a key with the scope `admin` acts for another tenant, and with `Turnlog-Tenant: *` for all of them, where an"
        " operation has `x-across-tenants`."
    ),
}
_REFUSALS: Final = {
    "401": "No key, or none that is known here",
    "403": "The key has not the scope for this",
    "429": "The key is used more often than this server allows",
}


def operation(  # noqa: PLR0913 - one for each thing that can be said
    *,
    needs: Sequence[Scope] | None = None,
    across: bool = False,
    body: type | None = None,
    optional: bool = False,
    example: Any = None,
    answers: dict[int, Answer] | None = None,
    query_prefixes: list[str] | None = None,
) -> dict[str, Any]:
    """Describe a route: the body it reads with an example that works, and what it answers by status.

    An answer is a struct, a media type for what is not JSON, either of several, or None for no content.
    ``query_prefixes`` are those of query parameters whose names the client chooses. ``needs`` are the scopes of a key
    that may use the route: none of them for any key, and None for the few that need no key. What is said here is what
    is checked. A route that goes ``across`` tenants can be asked about all of them.
    """
    described: dict[str, Any] = {
        "responses": {str(status): _answer(status, of) for status, of in (answers or {}).items()},
    }
    if needs is not None:
        # OpenAPI 3.1 leaves room for the names of roles here.
        described["security"] = [{SCHEME: list(needs)}]
    if across:
        described[ACROSS] = True
    if query_prefixes:
        described[QUERY_PREFIXES] = query_prefixes
    if body is not None:
        content: dict[str, Any] = {"schema": {"$ref": _REF.format(name=body.__name__)}}
        if example is not None:
            content["example"] = example
        described["requestBody"] = {"required": not optional, "content": {"application/json": content}}
    return described


def _answer(status: int, of: Answer) -> dict[str, Any]:
    description = {200: "OK", 201: "Created", 204: "Nothing to say", 304: "Not modified"}[status]
    schemas_of: dict[str, list[Any]] = {}
    for media_type, schema in map(_content, of if isinstance(of, tuple) else () if of is None else (of,)):
        schemas_of.setdefault(media_type, []).append(schema)
    content = {
        media_type: {"schema": found[0] if len(found) == 1 else {"anyOf": found}}
        for media_type, found in schemas_of.items()
    }
    return {"description": description, **({"content": content} if content else {})}


def _content(of: type | str) -> tuple[str, dict[str, Any]]:
    if isinstance(of, str):
        return of, {"type": "string"}
    return "application/json", {"$ref": _REF.format(name=of.__name__)}


def install(app: FastAPI) -> None:
    """Let the app describe itself."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=app.description, routes=app.routes
    )
    for path in document["paths"].values():
        for described in path.values():
            answers = described["responses"]
            # The framework's guesses; every real answer was described by hand, every error is a problem.
            answers.pop("422", None)
            if answers.get("200", {}).get("description") == "Successful Response":
                answers.pop("200")
            if "security" in described:
                answers |= {status: _problem(told) for status, told in _REFUSALS.items()}
            answers["default"] = _problem("Any error")
    _, components = msgspec.json.schema_components(_structs(), ref_template=_REF)
    document["components"] = {"schemas": dict(sorted(components.items())), "securitySchemes": {SCHEME: _KEY}}
    return document


def _problem(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {errors.CONTENT_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
    }


def _structs() -> list[type]:
    return [
        value
        for value in vars(schemas).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not msgspec.Struct
    ]
