"""OpenAPI, from the same structs that read requests and write answers."""

from typing import Any, Final, TypeAlias

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api import errors, schemas

QUERY_PREFIXES: Final = "x-query-prefixes"
Answer: TypeAlias = type | str | tuple[type | str, ...] | None
_REF: Final = "#/components/schemas/{name}"


def operation(
    *,
    body: type | None = None,
    optional: bool = False,
    example: Any = None,
    answers: dict[int, Answer] | None = None,
    query_prefixes: list[str] | None = None,
) -> dict[str, Any]:
    """Describe a route: the body it reads with an example that works, and what it answers by status.

    An answer is a struct, a media type for what is not JSON, either of several, or None for no content.
    ``query_prefixes`` are those of query parameters whose names the client chooses.
    """
    described: dict[str, Any] = {
        "responses": {str(status): _answer(status, of) for status, of in (answers or {}).items()},
    }
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
            answers["default"] = {
                "description": "Any error",
                "content": {errors.CONTENT_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
            }
    _, components = msgspec.json.schema_components(_structs(), ref_template=_REF)
    document["components"] = {"schemas": dict(sorted(components.items()))}
    return document


def _structs() -> list[type]:
    return [
        value
        for value in vars(schemas).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not msgspec.Struct
    ]
