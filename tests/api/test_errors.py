"""Errors: problem documents (RFC 9457) for everything that can go wrong, and never a word of what was sent."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from app.api import errors
from app.domain import errors as tree
from app.domain.errors import InvalidRequest, MalformedRequest
from app.settings import Max
from tests.api.asking import BAD_APPENDS, HELLO, SECRET, expire, pointers, problem, raw, url_of
from tests.conftest import Service, execute, settings_for
from tests.talk import Talk, turns

JSON = {"Content-Type": "application/json"}


def below(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from below(child)


def test_every_error_of_ours_has_a_status_of_its_own_or_of_its_kind() -> None:
    api_errors = {kind for kind in below(tree.TurnlogError) if kind.__module__ == tree.__name__}
    for kind in api_errors - {tree.Conflict}:
        status = next(errors.STATUS[one] for one in kind.__mro__ if one in errors.STATUS)
        assert status[0] != 500, f"{kind.__name__} has no line in the table"


def test_every_status_of_the_contract_is_a_problem_document(service: Service, http: httpx.Client, talk: Talk) -> None:
    talk.append({**HELLO, "id": "e1"})
    expired = Talk(http, talk.id + "-expired")
    expired.append(HELLO)
    expire(service, expired.id)
    events = talk.path + "/events"
    body = {"events": [HELLO]}
    key = {"Idempotency-Key": "k"}
    assert http.post(events, json=body, headers=key).status_code == 201

    problem(http.post(events, content="{", headers=JSON), 400, "malformed-request")
    problem(http.get(talk.path, params={"x": 1}), 400, "malformed-request")
    problem(http.get("/v1/sessions", params={"cursor": "x"}), 400, "malformed-request")
    problem(http.get("/v1/sessions/nobody"), 404, "session-not-found")
    problem(http.get(events + "/nothing"), 404, "event-not-found")
    problem(http.get("/v1/nowhere"), 404, "not-found")
    problem(http.post("/v1/sessions", json={"id": talk.id}), 409, "session-exists")
    conflict = http.post(events, json={"events": [{"message": {"role": "user", "content": "x"}, "id": "e1"}]})
    assert problem(conflict, 409, "event-id-conflict")["seq"] == 1
    reused = http.post(events, json={"events": [HELLO, HELLO]}, headers=key)
    problem(reused, 409, "idempotency-key-reused")
    problem(expired.http.get(expired.path), 410, "session-expired")
    version = http.post(events, json={**body, "expected_version": 9})
    assert problem(version, 412, "version-conflict")["current_version"] == 2
    problem(http.post(events, content="x", headers={"Content-Type": "text/plain"}), 415, "unsupported-media-type")
    problem(http.post(events, json={}), 422, "invalid-request")


NOWHERE = [
    "/",
    "/v1",
    "/v1/",
    "/v1/sessions/",
    "/v1/session",
    "/v1/sessions/a/events/",
    "/v1/sessions/a/view/",
    "/v1/sessions/a/nothing",
    "//v1/sessions",
    "/V1/sessions",
    "/v2/sessions",
    "/v1/sessions/a/events/b/c",
    "/favicon.ico",
    "/v1/sessions/a/../../../healthz/",
]


@pytest.mark.parametrize("path", NOWHERE)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_path_that_is_nowhere_is_not_found_and_leads_nowhere_else(service: Service, method: str, path: str) -> None:
    status, headers, body = raw(service, method, path, b"{}", JSON)
    assert status == 404
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body)["code"] == "not-found"
    assert "location" not in headers


METHODS = [
    ("DELETE", "/v1/sessions", {"GET", "POST"}),
    ("POST", "/v1/sessions/a", {"GET", "PUT", "PATCH", "DELETE"}),
    ("PUT", "/v1/sessions/a/events", {"GET", "POST"}),
    ("POST", "/v1/sessions/a/view", {"GET"}),
    ("GET", "/v1/sessions/a/compact", {"POST"}),
    ("POST", "/v1/sessions/a/compactions", {"GET"}),
    ("PATCH", "/v1/sessions/a/events/b", {"GET"}),
    ("GET", "/v1/purge", {"POST"}),
    ("POST", "/v1/chat-memory/a", {"GET", "DELETE"}),
    ("GET", "/v1/chat-memory/a/messages", {"POST"}),
    ("POST", "/healthz", {"GET"}),
    ("OPTIONS", "/v1/sessions", {"GET", "POST"}),
]


@pytest.mark.parametrize(("method", "path", "allowed"), METHODS)
def test_a_method_that_a_path_has_not_is_told_which_it_has(
    http: httpx.Client, method: str, path: str, allowed: set[str]
) -> None:
    response = http.request(method, path)
    problem(response, 405, "method-not-allowed")
    assert allowed <= {name.strip() for name in response.headers["allow"].split(",")}


MEDIA_TYPES = [
    ("application/json", True),
    ("application/json; charset=utf-8", True),
    ("Application/JSON", True),
    ("application/merge-patch+json", True),
    ("text/plain", False),
    ("application/x-www-form-urlencoded", False),
    ("multipart/form-data; boundary=x", False),
    ("application/xml", False),
    ("application/jsonp", False),
    ("text/json-ish", False),
    ("json", False),
]


@pytest.mark.parametrize(("media_type", "taken"), MEDIA_TYPES)
def test_only_json_is_taken(http: httpx.Client, talk: Talk, media_type: str, taken: bool) -> None:
    answer = http.post(
        talk.path + "/events",
        content=json.dumps({"events": [HELLO]}),
        headers={"Content-Type": media_type},
        params={"create": "true"},
    )
    if taken:
        assert answer.status_code == 201
    else:
        problem(answer, 415, "unsupported-media-type")
        problem(http.get(talk.path), 404, "session-not-found")


@pytest.fixture
def small(database_url: str) -> Iterator[Service]:
    """A service that takes bodies of two kibibytes, events of one, and batches of three."""
    limits = Max(body_bytes=2048, event_bytes=1024, batch_events=3, json_depth=10, metadata_bytes=1024)
    with Service(settings_for(database_url, max=limits)) as service:
        yield service


def test_a_body_that_is_announced_as_too_large_is_refused(small: Service) -> None:
    with small.client() as http:
        content = json.dumps({"events": [{"message": {"role": "user", "content": SECRET * 100}}]})
        answer = http.post("/v1/sessions/s/events", content=content, headers=JSON)
        assert problem(answer, 413, "payload-too-large")["limit_bytes"] == 2048
        assert SECRET not in answer.text
        # The service goes on, for this client, too.
        assert http.put("/v1/sessions/s").status_code == 201


def test_a_body_that_comes_in_chunks_is_refused_when_it_grows_too_large(small: Service) -> None:
    def chunks(count: int) -> Iterator[bytes]:
        yield b'{"metadata": {"a": "'
        for _ in range(count):
            yield b"x" * 100
        yield b'"}}'

    with small.client() as http:
        assert http.put("/v1/sessions/s", content=chunks(5), headers=JSON).status_code == 201
    for count in (30, 30_000):
        with small.client() as http:
            answer = http.put("/v1/sessions/t", content=chunks(count), headers=JSON)
            assert problem(answer, 413, "payload-too-large")["limit_bytes"] == 2048
    with small.client() as http:
        problem(http.get("/v1/sessions/t"), 404, "session-not-found")


def test_a_body_of_exactly_the_limit_is_taken(small: Service) -> None:
    with small.client() as http:
        content = b'{"metadata": {"a": 1}}'.ljust(2048)
        assert http.put("/v1/sessions/s", content=content, headers=JSON).status_code == 201
        assert http.put("/v1/sessions/t", content=content + b" ", headers=JSON).status_code == 413


def test_the_limits_are_those_of_the_settings(small: Service) -> None:
    with small.client() as http:
        talk = Talk(http, "s")
        http.put(talk.path)
        assert pointers(http.post(talk.path + "/events", json={"events": [HELLO] * 4})) == ["/events"]
        big = {"message": {"role": "user", "content": "x" * 1024}}
        too_large = http.post(talk.path + "/events", json={"events": [HELLO, big]})
        assert problem(too_large, 413, "payload-too-large")["limit_bytes"] == 1024
        deep: Any = {"role": "user", "content": "x", "n": [[[[[[[1]]]]]]]}
        assert pointers(http.post(talk.path + "/events", json={"events": [{"message": deep}]})) == [""]
        assert pointers(http.patch(talk.path, json={"metadata": {"a": "x" * 1024}})) == ["/metadata"]
        limits = http.get("/v1/capabilities").json()["limits"]
        assert limits == {
            "body_bytes": 2048,
            "event_bytes": 1024,
            "batch_events": 3,
            "json_depth": 10,
            "json_values": 100_000,
            "metadata_bytes": 1024,
            "page": 1000,
            "open_requests": 1000,
            "open_bytes": 128 * 1024 * 1024,
        }


# Nothing of what was sent.


def test_no_answer_repeats_what_was_sent(http: httpx.Client, talk: Talk) -> None:
    http.put(talk.path)
    for body in secret_bodies():
        answer = http.post(talk.path + "/events", content=body, headers=JSON)
        assert answer.status_code in {400, 422}, f"{body!r}: {answer.text}"
        assert SECRET not in answer.text, body


def secret_bodies() -> list[bytes]:
    """Bodies that are wrong in many places, each with a secret word in a value."""
    found = [json.dumps(put_secret(body)).encode() for body, _ in BAD_APPENDS if SECRET in json.dumps(put_secret(body))]
    assert len(found) > 30
    said = f'{{"role":"user","content":"{SECRET}"}}'
    found += [
        f'{{"events":[{{"message":{said}}}'.encode(),  # cut off
        f'{{"events":[{{"message":{said}}}]}} {SECRET}'.encode(),  # with something after it
        f'{{"events":[{{"message":{said},"id":{SECRET}}}]}}'.encode(),  # a bare word
        f'{{"events":[{{"message":{said},"type":"{SECRET}"}}]}}'.encode(),
        f'{{"events":[{{"message":{said},"timestamp":"{SECRET}"}}]}}'.encode(),
        f'{{"events":[{{"message":{said},"token_count":"{SECRET}"}}]}}'.encode(),
        f'{{"events":[{{"message":{said},"metadata":"{SECRET}"}}]}}'.encode(),
        f'{{"events":[{{"message":"{SECRET}"}}]}}'.encode(),
        f'{{"events":[{{"message":{{"role":"{SECRET}","content":"x"}}}}]}}'.encode(),
        f'{{"events":[{{"message":{said[:-1]},"name":["{SECRET}"]}}}}]}}'.encode(),
        f'{{"events":[{{"message":{said[:-2]}\\ud800"}}}}]}}'.encode(),
        f'{{"format":"{SECRET}","messages":[{said}]}}'.encode(),
        f'{{"events":"{SECRET}"}}'.encode(),
        f'"{SECRET}"'.encode(),
        SECRET.encode(),
        f'{{"events":[{{"message":{said}}}],"expected_version":"{SECRET}"}}'.encode(),
        f'{{"events":[{{"message":{said}}}]}}'.encode() + b"\xff",
    ]
    return found


def put_secret(body: Any) -> Any:
    """Put the secret where a message's text stands."""
    return json.loads(json.dumps(body).replace('"hello"', f'"{SECRET}"').replace('"said"', f'"{SECRET}"'))


def test_a_conflict_does_not_repeat_what_is_stored_or_sent(http: httpx.Client, talk: Talk) -> None:
    stored = {"message": {"role": "user", "content": SECRET}, "id": "e1"}
    talk.append(stored)
    sent = {"message": {"role": "user", "content": SECRET + "!"}, "id": "e1"}
    answer = http.post(talk.path + "/events", json={"events": [sent]})
    assert problem(answer, 409, "event-id-conflict")["event_id"] == "e1"
    assert SECRET not in answer.text


def test_a_fault_of_ours_is_a_problem_document_that_tells_nothing(own_service: Service) -> None:
    with own_service.client() as http:
        talk = Talk(http, "s")
        talk.append(*turns(1))
        execute(url_of(own_service), "ALTER TABLE events ADD CONSTRAINT ck_fault CHECK (seq < 3) NOT VALID")
        body = {"events": [{"message": {"role": "user", "content": SECRET}}]}
        answer = http.post(talk.path + "/events", json=body)
        problem(answer, 500, "internal-error")
        assert SECRET not in answer.text
        assert "ck_fault" not in answer.text
        assert talk.session()["version"] == 2


# What msgspec says, translated.

SAID = [
    ("Object missing required field `rule` - at `$.window`", "/window/rule", "is missing"),
    ("Object missing required field `messages`", "/messages", "is missing"),
    ("Object contains unknown field `x` - at `$.events[3]`", "/events/3/x", "is not a field that is known here"),
    ("Object contains unknown field `a/b~c`", "/a~1b~0c", "is not a field that is known here"),
    ("Expected `int`, got `str` - at `$.events[0].token_count`", "/events/0/token_count", "expected `int`, got `str`"),
    ("Expected `object`, got `array`", "", "expected `object`, got `array`"),
    ("Invalid enum value 'secret' - at `$.format`", "/format", "is not one of the values that are allowed here"),
    (
        "Invalid value 'a - at `b`' - at `$.trigger.type`",
        "/trigger/type",
        "is not one of the values that are allowed here",
    ),
]


@pytest.mark.parametrize(("said", "pointer", "detail"), SAID)
def test_the_decoders_words_become_a_pointer_and_a_detail(said: str, pointer: str, detail: str) -> None:
    found = errors.from_decoder(msgspec.ValidationError(said))
    assert isinstance(found, InvalidRequest)
    assert [(one.pointer, one.detail) for one in found.problems] == [(pointer, detail)]


def test_what_is_not_json_is_malformed() -> None:
    assert isinstance(errors.from_decoder(msgspec.DecodeError("JSON is malformed")), MalformedRequest)
