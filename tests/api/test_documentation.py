"""The OpenAPI document: it is in the repository, it is valid, it tells the truth, and its examples work."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openapi_spec_validator
import pytest
import yaml
from jsonschema import Draft202012Validator

from app.api import schemas
from app.cli.serving import described
from app.service.policies import Policy
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


def answers_of(of: dict[str, Any]) -> dict[str, Any]:
    """Return an operation's answers by status, with those in full that are described elsewhere."""
    return {
        status: resolve(answer["$ref"]) if "$ref" in answer else answer for status, answer in of["responses"].items()
    }


def test_the_document_is_valid() -> None:
    openapi_spec_validator.validate(DOCUMENT)


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
    used = {value for path, value in walk(DOCUMENT) if path.endswith("/$ref")}
    used |= {target for path, value in walk(DOCUMENT) if path.endswith("/mapping") for target in value.values()}
    named = {(kind, name) for kind, found in DOCUMENT["components"].items() for name in found}
    # A security scheme is named where it is asked for, and not pointed at.
    assert {name for kind, name in named if kind == "securitySchemes"} == {"key"}
    named = {one for one in named if one[0] != "securitySchemes"}
    assert {f"#/components/{kind}/{name}" for kind, name in named} == used
    assert all(re.fullmatch(r"[A-Z][a-zA-Z0-9]+", name) for kind, name in named if kind != "headers")


def test_an_operation_is_named_as_a_client_would_name_its_method() -> None:
    for _, _, of in OPERATIONS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", of["operationId"])


def test_a_body_that_is_described_by_hand_has_the_fields_that_are_read() -> None:
    for shape in (schemas.NewEvents, schemas.NewEvent, schemas.NewMessages, schemas.CompactionRequest, Policy):
        described: set[str] = set()
        for option in options_of(shape.__name__):
            described |= set(option["properties"])
        assert described == {field.encode_name for field in msgspec.structs.fields(shape)}


def options_of(name: str) -> list[Any]:
    """Return a schema, or those that it is one of."""
    schema = DOCUMENT["components"]["schemas"][name]
    options = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    return [resolve(one["$ref"]) for one in options] or [schema]


TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}


def test_every_schema_is_a_json_schema() -> None:
    for path, value in walk(DOCUMENT["components"]["schemas"]):
        if not isinstance(value, dict) or path.endswith(("/properties", "/mapping", "#", "/default", "/const")):
            continue
        kind = value.get("type", [])
        kinds = kind if isinstance(kind, list) else [kind]
        assert set(kinds) <= TYPES, path
        assert "nullable" not in value, f"{path}: that was 3.0"
        if "required" in value and not path.endswith("/not"):
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
    for status, answer in answers_of(of).items():
        assert re.fullmatch(r"[1-5]\d\d", status)
        assert answer["description"]
        assert "X-Request-Id" in answer["headers"]
        for media_type, content in answer.get("content", {}).items():
            assert "/" in media_type
            assert "schema" in content
        if int(status) >= 400:
            error = answer["content"]["application/problem+json"]["schema"]
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


def faults(value: Any, schema: dict[str, Any]) -> list[str]:
    """Return what is wrong with a value by a schema of the document."""
    whole = {**schema, "components": DOCUMENT["components"]}
    return [f"{one.json_path}: {one.message}" for one in Draft202012Validator(whole).iter_errors(value)]


def checked(response: httpx.Response, method: str, path: str) -> None:
    """Hold an answer against the document: its status, its media type, its body."""
    of = answers_of(DOCUMENT["paths"][path][method])
    answer = of[str(response.status_code)]
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
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if not faults(value, option):
            found += fields_of(option, value, at)
    if isinstance(value, dict) and "properties" in schema and schema.get("additionalProperties") is not True:
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


def examples_of(of: dict[str, Any]) -> list[Any]:
    shown = of.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples", {})
    return [one["value"] for one in shown.values()]


@pytest.mark.parametrize(("method", "path", "of"), OPERATIONS, ids=IDS)
def test_the_examples_work_and_the_answers_are_as_described(
    own_service: Service, method: str, path: str, of: dict[str, Any]
) -> None:
    with own_service.client() as http:
        if "{" in path:
            talk = Talk(http, "support-1")
            talk.append({**HELLO, "id": "evt-1"}, *turns(3))
        url = path.format(session_id="support-1", event_id="evt-1", conversation_id="support-1")
        for example in examples_of(of) or [None]:
            response = http.request(method, url, json=example) if example is not None else http.request(method, url)
            assert response.is_success, response.text
            assert str(response.status_code) in of["responses"]
            checked(response, method, path)


@pytest.mark.parametrize(("method", "path", "of"), OPERATIONS, ids=IDS)
def test_a_body_that_is_needed_has_an_example(method: str, path: str, of: dict[str, Any]) -> None:
    if "requestBody" in of:
        assert set(of["requestBody"]["content"]) == {"application/json"}
        examples = examples_of(of)
        assert examples
        for example in examples:
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
