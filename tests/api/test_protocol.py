"""HTTP's corners: methods, targets and headers as somebody may send them, to every route that the document has."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from app.cli.serving import described
from tests.api.asking import HELLO, raw
from tests.conftest import Service

PATHS = described()["paths"]
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
JSON = {"Content-Type": "application/json"}
BODY = json.dumps({"events": [HELLO]}).encode()
WHOLE = ["POST /v1/sessions/odd/events?create=true", "Content-Type: application/json", f"Content-Length: {len(BODY)}"]


@pytest.fixture(scope="module", autouse=True)
def odd(service: Service) -> str:
    """A session for all of these, with one event."""
    path = "/v1/sessions/odd"
    status, _, _ = raw(
        service,
        "POST",
        f"{path}/events?create=true",
        json.dumps({"events": [{**HELLO, "id": "e1"}]}).encode(),
        JSON,
    )
    assert status in {200, 201}
    return path


def filled(path: str) -> str:
    return path.format(session_id="odd", conversation_id="odd", event_id="e1")


def missing() -> Iterator[tuple[str, str]]:
    """Yield every method that a path has not."""
    for path, item in PATHS.items():
        taken = {method.upper() for method in item} | ({"HEAD"} if "get" in item else set())
        yield from ((method, path) for method in METHODS if method not in taken)


@pytest.mark.parametrize(("method", "path"), list(missing()), ids=" ".join)
def test_a_method_that_a_path_has_not_is_told_exactly_those_that_it_has(
    service: Service, method: str, path: str
) -> None:
    status, headers, body = raw(service, method, filled(path))
    assert status == 405
    taken = {one.upper() for one in PATHS[path]} | ({"HEAD"} if "get" in PATHS[path] else set())
    assert {one.strip() for one in headers["allow"].split(",")} == taken
    assert headers["content-type"] == "application/problem+json"
    assert method == "HEAD" or json.loads(body)["code"] == "method-not-allowed"


@pytest.mark.parametrize("path", [path for path, item in PATHS.items() if "get" in item])
def test_head_is_answered_like_get_everywhere(service: Service, path: str) -> None:
    got, sent, _ = raw(service, "GET", filled(path))
    status, headers, body = raw(service, "HEAD", filled(path))
    assert (status, body) == (got, b"")
    assert headers["content-type"] == sent["content-type"]
    assert headers.get("etag") == sent.get("etag")


def answer(service: Service, *lines: str, body: bytes = b"") -> tuple[int, dict[str, str], Any]:
    """Send a request line by line, so that no library mends it, and return the last answer to it."""
    head = "\r\n".join([f"{lines[0]} HTTP/1.1", "Host: localhost", "Connection: close", *lines[1:], "", ""])
    with socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), timeout=60) as connection:
        connection.sendall(head.encode("latin-1") + body)
        response = http.client.HTTPResponse(connection)
        # An answer of 100 is read over.
        response.begin()
        content = response.read()
        headers = {name.lower(): value for name, value in response.getheaders()}
        is_json = headers.get("content-type", "").endswith("json")
        return response.status, headers, json.loads(content) if is_json else content


TARGETS: list[tuple[str, int, str | None]] = [
    ("GET http://elsewhere.example/v1/sessions/odd", 200, None),  # whoever it was meant for, it came here
    ("GET https://here/v1/sessions/odd?", 200, None),  # a question mark, and no question
    ("GET /v1/sessions/odd?&&", 200, None),  # nor here
    ("GET /v1/%73essions/odd", 200, None),  # an encoded letter is the letter
    ("GET /v1/sessions/odd;v=1", 404, "session-not-found"),  # a segment is a whole
    ("GET /v1/sessions/odd%00", 404, "session-not-found"),  # no session has NUL in its id
    ("GET /v1/sessions/%zz", 404, "session-not-found"),  # nor a percent sign
    ("GET /v1/sessions/%2e%2e", 404, "session-not-found"),  # encoded or not, dots lead nowhere
    ("GET /v1/sessions/../sessions/odd", 404, "not-found"),
    ("GET /v1//sessions/odd", 404, "not-found"),  # an empty segment is a segment
    ("GET /v1/sessions/odd/", 404, "not-found"),
    ("GET /v1\\sessions\\odd", 404, "not-found"),  # a backslash is no slash
    ("OPTIONS *", 404, "not-found"),
    ("CONNECT /v1/sessions", 405, "method-not-allowed"),
    ("TRACE /v1/sessions", 405, "method-not-allowed"),
    ("GET /v1/sessions/odd?x", 400, "malformed-request"),  # not known, with or without a value
    ("GET /v1/sessions/odd?" + "x" * 8000 + "=1", 400, "malformed-request"),
    ("GET /v1/sessions?limit=", 422, "invalid-request"),  # an empty value is a value
    ("GET /v1/sessions?limit", 422, "invalid-request"),
    ("GET /v1/sessions?cursor=", 400, "malformed-request"),
    ("GET /v1/sessions/odd/view?format=", 422, "invalid-request"),
    ("GET /v1/sessions?limit=1;cursor=x", 422, "invalid-request"),  # a semicolon parts nothing
    ("GET /v1/sessions?metadata.=", 200, None),  # a key of no letters, which nobody has
    ("GET /v1/sessions?metadata.x=%00", 200, None),
    ("GET /v1/sessions?metadata.x=%ff", 200, None),
    ("GET /v1/sessions?limit=1&limit=1", 422, "invalid-request"),  # twice, even the same
    ("GET /v1/sessions/odd/view?format=openai&format=anthropic", 422, "invalid-request"),
    ("GET /v1/sessions/odd/events?last_n=1&last_n=2", 422, "invalid-request"),
    ("GET /v1/sessions?metadata.a=1&metadata.a=2", 422, "invalid-request"),
    ("GET /v1/sessions?metadata.a=1&metadata.b=2", 200, None),  # two keys are two parameters
]


@pytest.mark.parametrize(("line", "status", "code"), TARGETS)
def test_a_target_is_what_it_says(service: Service, line: str, status: int, code: str | None) -> None:
    got, headers, body = answer(service, line)
    assert got == status
    assert headers["x-request-id"]
    assert "location" not in headers
    if code is not None:
        assert headers["content-type"] == "application/problem+json"
        assert body["code"] == code
        assert len(body["detail"]) < 300


def test_a_parameter_that_occurs_twice_is_named(service: Service) -> None:
    _, _, body = answer(service, "GET /v1/sessions/odd/view?at_version=1&at_version=2")
    assert body["errors"] == [{"pointer": "at_version", "detail": "occurs twice; it has one value"}]


HEADERS: list[tuple[str, str, int]] = [
    ("GET", "Accept: image/png", 200),  # there is one form of an answer, and an answer is better than none
    ("GET", "Accept: */*;q=0", 200),
    ("GET", "X-Long: " + "a" * 30_000, 200),  # a long header that nobody reads
    ("GET", "Range: bytes=0-1", 200),  # parts of a view mean nothing
    ("GET", "Upgrade: h2c", 200),  # not here
    ("GET", "If-None-Match: *", 304),
    ("GET", 'If-None-Match: W/"1-events"', 200),  # of another version
    ("GET", 'If-None-Match: "', 200),  # what is no tag is no view that the client has
    ("GET", "If-None-Match: \xe9\xff", 200),
    ("GET", "If-None-Match:", 200),
    ("POST", "Content-Type: application/json", 201),  # twice the same
    ("POST", "Content-Type: text/plain", 415),  # and once another
    ("POST", "Expect: 100-continue", 201),
    ("POST", "If-Match: *", 201),
    ("POST", 'If-Match: "9999"', 412),
    ("POST", 'If-Match: W/"1"', 400),  # a version is no weak tag
    ("POST", 'If-Match: "1", "2"', 400),  # nor one of several
    ("POST", "If-Match:", 400),
    ("POST", 'If-Match: "-1"', 400),
    ("POST", 'If-Match: "99999999999999999999"', 400),
    ("POST", "Idempotency-Key:", 422),
    ("POST", "Idempotency-Key: " + "k" * 256, 422),
    ("POST", "Content-Encoding: gzip", 415),
    ("POST", "X-HTTP-Method-Override: DELETE", 201),  # a method is what the request line says
]


@pytest.mark.parametrize(("method", "header", "status"), HEADERS, ids=lambda value: str(value)[:40])
def test_a_header_is_taken_for_what_it_is(service: Service, method: str, header: str, status: int) -> None:
    # More than one event, so that no tag in these rows is the current one.
    assert answer(service, *WHOLE, body=BODY)[0] == 201
    if method == "POST":
        got, headers, body = answer(service, *WHOLE, header, body=BODY)
    else:
        got, headers, body = answer(service, "GET /v1/sessions/odd/view", header)
    assert got == status, body
    assert headers["x-request-id"]
    assert status < 400 or headers["content-type"] == "application/problem+json"


CHARSETS = [
    ("application/json; charset=utf-8", '"é"'.encode(), 201),
    ('application/json; charset="UTF-8"; v=1', '"é"'.encode(), 201),
    ("application/json; charset=iso-8859-1", '"é"'.encode("latin-1"), 400),  # JSON is UTF-8, whatever else is said
    ("application/json; charset=utf-16", '"é"'.encode("utf-16"), 400),
    ("application/json;", b'"e"', 201),
]


@pytest.mark.parametrize(("media_type", "text", "status"), CHARSETS)
def test_json_is_utf8_whatever_the_charset(service: Service, media_type: str, text: bytes, status: int) -> None:
    body = b'{"events": [{"message": {"role": "user", "content": ' + text + b"}}]}"
    lines = [WHOLE[0], f"Content-Type: {media_type}", f"Content-Length: {len(body)}"]
    assert answer(service, *lines, body=body)[0] == status


def test_a_body_that_nobody_asked_for_is_no_trouble(service: Service) -> None:
    assert answer(service, "GET /v1/sessions/odd", *WHOLE[1:], body=BODY)[0] == 200
    assert answer(service, "DELETE /v1/sessions/nobody", *WHOLE[1:], body=BODY)[0] == 404


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(service: Service) -> None:
    status, _, body = answer(service, WHOLE[0], WHOLE[1], "Content-Length: 99999999", "Expect: 100-continue")
    assert status == 413
    assert body["limit_bytes"] == service.settings.max.body_bytes
