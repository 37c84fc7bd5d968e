"""OpenAPI, from the same structs that read requests and write answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import yaml
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api import refusals, schemas
from app.api.refusals import HEADERS, header
from app.domain.key import Scope

QUERY_PREFIXES: Final = "x-query-prefixes"
ACROSS: Final = "x-across-tenants"
SCHEME: Final = "key"
# What an operation says of its refusals until the whole document is put together.
_REFUSES: Final = "x-refuses"
Answer: TypeAlias = type | str | tuple[type | str, ...] | None
_REF: Final = "#/components/schemas/{name}"
_OWN_JSON: Final = Path(__file__).parent / "schemas" / "messages.yaml"
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
_SAID: Final = {200: "OK", 201: "Created", 204: "Nothing to say", 304: "Not modified"}


class Said(NamedTuple):
    """An answer with what else the document says of it: its headers, and the operations that may follow it."""

    of: Answer
    headers: tuple[str, ...] = ()
    links: Mapping[str, Any] = {}


def operation(  # noqa: PLR0913 - one for each thing that can be said
    *,
    needs: Sequence[Scope] | None = None,
    across: bool = False,
    body: type | None = None,
    optional: bool = False,
    examples: Mapping[str, Any] | None = None,
    answers: Mapping[int, Answer | Said] | None = None,
    refuses: Sequence[int] = (),
    query_prefixes: list[str] | None = None,
) -> dict[str, Any]:
    """Describe a route: the body it reads with examples that work, what it answers by status, what it refuses.

    An answer is a struct, a media type for what is not JSON, either of several, or None for no content.
    ``refuses`` are the statuses beside those that every route of its kind has: see ``refusals.of``.
    ``query_prefixes`` are those of query parameters whose names the client chooses. ``needs`` are the scopes of a key
    that may use the route: none of them for any key, and None for the few that need no key. What is said here is what
    is checked. A route that goes ``across`` tenants can be asked about all of them.
    """
    described: dict[str, Any] = {
        "responses": {
            str(status): _answer(status, of if isinstance(of, Said) else Said(of))
            for status, of in (answers or {}).items()
        },
        _REFUSES: refusals.of(refuses, has_body=body is not None),
    }
    if needs is not None:
        # OpenAPI 3.1 leaves room for the names of roles here.
        described["security"] = [{SCHEME: list(needs)}]
    if across:
        described[ACROSS] = True
    if query_prefixes:
        described[QUERY_PREFIXES] = query_prefixes
        described["parameters"] = [_prefixed(one) for one in query_prefixes]
    if body is not None:
        content: dict[str, Any] = {"schema": {"$ref": _REF.format(name=body.__name__)}}
        if examples:
            content["examples"] = {name: {"value": value} for name, value in examples.items()}
        described["requestBody"] = {"required": not optional, "content": {"application/json": content}}
    return described


def _prefixed(prefix: str) -> dict[str, Any]:
    """Describe query parameters that share a prefix: the exploded properties of one object are one parameter each."""
    pattern = "^" + prefix.replace(".", r"\.")
    return {
        "name": prefix.rstrip("."),
        "in": "query",
        "required": False,
        "style": "form",
        "explode": True,
        "description": f"each as a parameter of its own, such as `{prefix}principal=alice`",
        "schema": {"type": "object", "patternProperties": {pattern: {"type": "string"}}, "additionalProperties": False},
    }


def _answer(status: int, said: Said) -> dict[str, Any]:
    of = said.of
    schemas_of: dict[str, list[Any]] = {}
    for media_type, schema in map(_content, of if isinstance(of, tuple) else () if of is None else (of,)):
        schemas_of.setdefault(media_type, []).append(schema)
    content = {
        media_type: {"schema": found[0] if len(found) == 1 else {"anyOf": found}}
        for media_type, found in schemas_of.items()
    }
    return {
        "description": _SAID[status],
        "headers": {name: header(name) for name in ("X-Request-Id", *said.headers)},
        **({"content": content} if content else {}),
        **({"links": dict(said.links)} if said.links else {}),
    }


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
            _finish(described)
    _, components = msgspec.json.schema_components(_structs(), ref_template=_REF)
    own = yaml.safe_load(_OWN_JSON.read_text(encoding="utf-8"))
    document["components"] = {
        "schemas": dict(sorted({**_with_unions(components, own), **own}.items())),
        "headers": HEADERS,
        "securitySchemes": {SCHEME: _KEY},
        "responses": refusals.components(_REF.format(name="Problem")),
    }
    return document


def _with_unions(value: Any, own: Mapping[str, Any]) -> Any:
    """Name the unions that msgspec writes out wherever they occur: a client gets one type for each, and not several."""
    if isinstance(value, list):
        return [_with_unions(one, own) for one in value]
    if not isinstance(value, dict):
        return value
    if "discriminator" in value:
        for name, union in own.items():
            if union.get("discriminator") == value["discriminator"]:
                return {"$ref": _REF.format(name=name)}
    return {key: _with_unions(inner, own) for key, inner in value.items()}


def _finish(described: dict[str, Any]) -> None:
    answers = described["responses"]
    # The framework's guesses; every real answer was described by hand, every error is a problem.
    answers.pop("422", None)
    if answers.get("200", {}).get("description") == "Successful Response":
        answers.pop("200")
    refused = set(described.pop(_REFUSES, ()))
    if "security" in described:
        refused |= refusals.GUARDED
    for status in sorted(refused):
        answers[str(status)] = refusals.reference(status)
    for parameter in described.get("parameters", ()):
        parameter["schema"] = _given(parameter["schema"])
        if parameter["in"] == "header":
            parameter["name"] = parameter["name"].title()


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that is there: one that is not is left out, for there is no null in a URL."""
    options = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    kept = {key: value for key, value in schema.items() if key not in {"anyOf", "title", "description"}}
    return {**options[0], **kept} if options else kept


def _structs() -> list[type]:
    return [
        value
        for value in vars(schemas).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not msgspec.Struct
    ]
