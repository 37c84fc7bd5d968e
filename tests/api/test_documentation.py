"""The OpenAPI document: it is in the repository, it is valid, it tells the truth, and its examples work."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.cli.serving import described
from tests.api.asking import HELLO, raw
from tests.conftest import Service
from tests.talk import Talk, system, turns

FILE = Path(__file__).resolve().parents[2] / "openapi.yaml"
METHODS = {"get", "put", "post", "patch", "delete", "head", "options"}
DOCUMENT = described()
OPERATIONS = [(method, path, of) for path, item in DOCUMENT["paths"].items() for method, of in item.items()]
IDS = [f"{method} {path}" for method, path, _ in OPERATIONS]


def test_the_committed_document_is_the_one_that_the_code_prints() -> None:
    assert FILE.exists(), "openapi.yaml is missing: run `make openapi`"
    committed = FILE.read_text()
    printed = yaml.safe_dump(described(), sort_keys=False, allow_unicode=True, width=120)
    assert committed == printed, "openapi.yaml is not what the code says: run `make openapi` and commit the file"


def test_the_service_serves_the_same_document(http: httpx.Client) -> None:
    assert http.get("/openapi.json").json() == yaml.safe_load(FILE.read_text())


def test_the_document_does_not_depend_on_where_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_MAX_BATCH_EVENTS", "7")
    monkeypatch.setenv("TURNLOG_DEFAULT_TTL_SECONDS", "never")
    assert described() == DOCUMENT


# The rules of OpenAPI 3.1 that a generator can break.


def walk(value: Any, path: str = "#") -> Iterator[tuple[str, Any]]:
    yield path, value
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from walk(inner, f"{path}/{key}")


def resolve(reference: str) -> Any:
    found: Any = DOCUMENT
    for step in reference.removeprefix("#/").split("/"):
        found = found[step.replace("~1", "/").replace("~0", "~")]
    return found


def test_the_document_has_what_openapi_asks_for() -> None:
    assert re.fullmatch(r"3\.1\.\d+", DOCUMENT["openapi"])
    assert DOCUMENT["info"]["title"] == "turnlog"
    assert DOCUMENT["info"]["version"]
    known = {"openapi", "info", "jsonSchemaDialect", "servers", "paths", "webhooks", "components", "security", "tags"}
    assert set(DOCUMENT) <= known | {"externalDocs"}
    assert all(path.startswith("/") for path in DOCUMENT["paths"])
    for item in DOCUMENT["paths"].values():
        assert set(item) <= METHODS


def test_every_reference_leads_somewhere() -> None:
    for path, value in walk(DOCUMENT):
        if path.endswith("/$ref"):
            assert resolve(value), path


def test_every_operation_has_an_id_of_its_own() -> None:
    ids = [of["operationId"] for _, _, of in OPERATIONS]
    assert len(set(ids)) == len(ids)


def test_every_schema_is_used_and_every_name_is_valid() -> None:
    used = {value.rpartition("/")[2] for path, value in walk(DOCUMENT) if path.endswith("/$ref")}
    used |= {
        target.rpartition("/")[2]
        for path, value in walk(DOCUMENT)
        if path.endswith("/mapping")
        for target in value.values()
    }
    schemas = DOCUMENT["components"]["schemas"]
    assert set(schemas) == used
    assert all(re.fullmatch(r"[a-zA-Z0-9._-]+", name) for name in schemas)


TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}


def test_every_schema_is_a_json_schema() -> None:
    for path, value in walk(DOCUMENT["components"]["schemas"]):
        if not isinstance(value, dict) or path.endswith(("/properties", "/mapping", "#", "/default", "/const")):
            continue
        kind = value.get("type", [])
        kinds = kind if isinstance(kind, list) else [kind]
        assert set(kinds) <= TYPES, path
        assert "nullable" not in value, f"{path}: that was 3.0"
        if "required" in value:
            assert set(value["required"]) <= set(value["properties"]), path


@pytest.mark.parametrize(("method", "path", "of"), OPERATIONS, ids=IDS)
def test_an_operation_is_described_in_full(method: str, path: str, of: dict[str, Any]) -> None:
    assert of["summary"]
    assert of["description"]
    assert of["tags"]
    parameters = of.get("parameters", [])
    in_path = {one["name"] for one in parameters if one["in"] == "path"}
    assert in_path == set(re.findall(r"{(\w+)}", path))
    assert all(one["required"] for one in parameters if one["in"] == "path")
    assert all(one["in"] in {"path", "query", "header"} and "schema" in one for one in parameters)
    names = [(one["in"], one["name"].lower()) for one in parameters]
    assert len(set(names)) == len(names)
    assert set(of["responses"]) - {"default"}
    for status, answer in of["responses"].items():
        assert re.fullmatch(r"[1-5]\d\d|default", status)
        assert answer["description"]
        for media_type, content in answer.get("content", {}).items():
            assert "/" in media_type
            assert "schema" in content
    error = of["responses"]["default"]["content"]["application/problem+json"]["schema"]
    assert error == {"$ref": "#/components/schemas/Problem"}
    assert ("requestBody" in of) <= (method in {"post", "put", "patch"})


HEADERS = [
    ("post", "/v1/sessions/{session_id}/events", "If-Match"),
    ("post", "/v1/sessions/{session_id}/events", "Idempotency-Key"),
    ("get", "/v1/sessions/{session_id}/view", "If-None-Match"),
]


@pytest.mark.parametrize(("method", "path", "name"), HEADERS)
def test_headers_that_mean_something_are_described(method: str, path: str, name: str) -> None:
    parameters = DOCUMENT["paths"][path][method]["parameters"]
    assert name.lower() in {one["name"].lower() for one in parameters if one["in"] == "header"}


def test_the_transcript_is_described() -> None:
    answer = DOCUMENT["paths"]["/v1/sessions/{session_id}/view"]["get"]["responses"]["200"]
    assert {"application/json", "text/plain"} <= set(answer["content"])


# A small reader of JSON Schema: enough for what the document uses, and it falls over what it does not know.

_CHECKED = {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "enum", "const", "anyOf"}
_CHECKED |= {"$ref", "minimum", "maximum", "minItems", "maxItems", "allOf", "oneOf", "discriminator"}
_SAID = {"title", "description", "default", "format", "examples", "example", "deprecated"}
_PYTHON: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}


def faults(value: Any, schema: dict[str, Any] | bool, at: str = "") -> list[str]:
    """Return where a value is not what a schema says."""
    if isinstance(schema, bool):
        return [] if schema else [f"{at}: nothing is allowed here"]
    assert set(schema) <= _CHECKED | _SAID, f"this reader does not know {set(schema) - _CHECKED - _SAID}"
    if "$ref" in schema:
        return faults(value, resolve(schema["$ref"]), at)
    found: list[str] = []
    if options := [faults(value, option, at) for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))]:
        found += min(options, key=len)
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if kinds and not any(is_a(value, kind) for kind in kinds):
        return [*found, f"{at}: {value!r} is no {kinds}"]
    return [*found, *limits(value, schema, at), *inside(value, schema, at)]


def limits(value: Any, schema: dict[str, Any], at: str) -> list[str]:
    found: list[str] = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{at}: {value!r} is not {schema['const']!r}")
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{at}: {value} is out of range")
    return found


def is_a(value: Any, kind: str) -> bool:
    return isinstance(value, _PYTHON[kind]) and (kind in {"boolean", "object"} or not isinstance(value, bool))


def inside(value: Any, schema: dict[str, Any], at: str) -> list[str]:
    found: list[str] = []
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found += [f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value]
        for name, inner in value.items():
            found += faults(inner, properties.get(name, schema.get("additionalProperties", True)), f"{at}/{name}")
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        for number, inner in enumerate(value):
            of = first[number] if number < len(first) else schema.get("items", True)
            found += faults(inner, of, f"{at}/{number}")
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{at}: {len(value)} items")
    return found


def checked(response: httpx.Response, method: str, path: str) -> None:
    """Hold an answer against the document: its status, its media type, its body."""
    of = DOCUMENT["paths"][path][method]["responses"]
    answer = of.get(str(response.status_code)) or of["default"]
    media_type = response.headers.get("content-type", "").partition(";")[0]
    if not response.content:
        assert str(response.status_code) in of
        return
    assert media_type in answer["content"], f"{method} {path} answers {response.status_code} with {media_type}"
    if media_type != "text/plain":
        assert faults(response.json(), answer["content"][media_type]["schema"]) == []


def fields_of(schema: dict[str, Any], value: Any, at: str = "") -> list[str]:
    """Return the fields of an answer that the document does not name."""
    if "$ref" in schema:
        return fields_of(resolve(schema["$ref"]), value, at)
    found: list[str] = []
    for option in schema.get("anyOf", ()):
        if not faults(value, option):
            found += fields_of(option, value, at)
    if isinstance(value, dict) and "properties" in schema:
        found += [f"{at}/{name}" for name in value if name not in schema["properties"]]
        for name, inner in value.items():
            found += fields_of(schema["properties"].get(name, {}), inner, f"{at}/{name}")
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for inner in value:
            found += fields_of(schema["items"], inner, f"{at}/-")
    return found


@pytest.fixture
def busy(http: httpx.Client, talk: Talk) -> Talk:
    """A session that has a bit of everything."""
    policy = {"window": {"rule": "last_turns", "size": 1}, "trigger": {"type": "turn_count", "threshold": 2}}
    http.put(talk.path, json={"policy": policy, "metadata": {"a": 1}})
    talk.append(system("p"), *({"message": message, "token_count": 500} for message in turns(3)))
    talk.append({"type": "ACME.X", "payload": {}, "id": "e1", "timestamp": "2026-01-01T00:00:00Z"}, system("newer"))
    talk.compact(last_turns=2, summary="short")
    talk.append(*turns(1, first=4))
    return talk


def example_of(of: dict[str, Any]) -> Any:
    return of.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")


@pytest.mark.parametrize(("method", "path", "of"), OPERATIONS, ids=IDS)
def test_the_examples_work_and_the_answers_are_as_described(
    own_service: Service, method: str, path: str, of: dict[str, Any]
) -> None:
    with own_service.client() as http:
        if "{" in path:
            talk = Talk(http, "support-1")
            talk.append({**HELLO, "id": "evt-1"}, *turns(3))
        url = path.format(session_id="support-1", event_id="evt-1", conversation_id="support-1")
        example = example_of(of)
        response = http.request(method, url, json=example) if example is not None else http.request(method, url)
        if path.endswith("/compact"):
            response = http.request(method, url, json=example)
        assert response.is_success, response.text
        assert str(response.status_code) in of["responses"]
        checked(response, method, path)


@pytest.mark.parametrize(("method", "path", "of"), OPERATIONS, ids=IDS)
def test_a_body_that_is_needed_has_an_example(method: str, path: str, of: dict[str, Any]) -> None:
    if "requestBody" in of:
        assert set(of["requestBody"]["content"]) == {"application/json"}
        example = example_of(of)
        assert example is not None
        assert faults(example, of["requestBody"]["content"]["application/json"]["schema"]) == []


READS = [
    ("/v1/sessions", {}),
    ("/v1/sessions/{session_id}", {}),
    ("/v1/sessions/{session_id}/events", {}),
    ("/v1/sessions/{session_id}/events", {"active": "true", "limit": 1}),
    ("/v1/sessions/{session_id}/events/{event_id}", {}),
    ("/v1/sessions/{session_id}/view", {}),
    ("/v1/sessions/{session_id}/view", {"format": "openai"}),
    ("/v1/sessions/{session_id}/view", {"format": "text"}),
    ("/v1/sessions/{session_id}/compactions", {}),
    ("/v1/chat-memory/{conversation_id}", {}),
    ("/v1/capabilities", {}),
    ("/v1/sessions/{session_id}", {"colour": "red"}),
    ("/v1/sessions/{session_id}/events", {"limit": "x"}),
    ("/v1/sessions/{session_id}/events", {"cursor": "x"}),
]


@pytest.mark.parametrize(("path", "params"), READS, ids=str)
def test_every_answer_is_as_the_document_describes_it(busy: Talk, path: str, params: dict[str, Any]) -> None:
    url = path.format(session_id=busy.id, event_id="e1", conversation_id=busy.id)
    response = busy.http.get(url, params=params)
    checked(response, "get", path)
    if response.headers["content-type"] == "application/json":
        schema = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert fields_of(schema, response.json()) == []


WRITES: list[tuple[str, str, Any]] = [
    ("/v1/sessions/{session_id}/events?return=view", "post", {"events": [HELLO]}),
    ("/v1/sessions/{session_id}/events?return=view&format=text", "post", {"events": [HELLO]}),
    ("/v1/sessions/{session_id}/events", "post", {"events": [HELLO], "expected_version": 99}),
    ("/v1/sessions/{session_id}/events", "post", {"events": [{}]}),
    ("/v1/sessions/{session_id}/events", "post", {"events": [{**HELLO, "id": "e1"}]}),
    ("/v1/sessions/{session_id}/compact", "post", {}),
    ("/v1/sessions/{session_id}/compact", "post", {"window": {"rule": "last_turns", "size": 9}}),
    ("/v1/sessions/{session_id}", "patch", {"ttl_seconds": None}),
    ("/v1/sessions", "post", {"id": "in use"}),
]


@pytest.mark.parametrize(("path", "method", "body"), WRITES, ids=str)
def test_every_answer_to_a_write_is_as_the_document_describes_it(busy: Talk, path: str, method: str, body: Any) -> None:
    response = busy.http.request(method, path.format(session_id=busy.id), json=body)
    checked(response, method, path.partition("?")[0])
    if response.headers["content-type"] == "application/problem+json":
        assert fields_of(DOCUMENT["components"]["schemas"]["Problem"], response.json()) == []


def test_the_printed_document_is_yaml_that_reads_back() -> None:
    assert yaml.safe_load(FILE.read_text()) == json.loads(json.dumps(DOCUMENT))


def test_paths_that_the_document_does_not_name_are_not_there(service: Service) -> None:
    for path in ("/redoc", "/docs/oauth2-redirect", "/openapi.yaml", "/admin"):
        status, _, _ = raw(service, "GET", path)
        assert status == 404, path
