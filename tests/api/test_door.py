"""What happens to every request before a route sees it, and to every answer after."""

import json
import re
import socket
from typing import Any

import httpx
import pytest

from app.api.door import plain, routable
from tests.api.asking import HELLO, UUID7, problem, raw
from tests.conftest import Service
from tests.talk import Talk

GOOD_REQUEST_IDS = [
    "a",  # the shortest
    "x" * 128,  # the longest
    "01J9Z-req_7.~:/+=@,;!#$%&'*^`|{}[]()<>?\"\\",  # every character that can be seen
]


@pytest.mark.parametrize("given", GOOD_REQUEST_IDS)
@pytest.mark.parametrize("path", ["/healthz", "/v1/sessions/nobody", "/nowhere"])
def test_a_request_id_is_echoed(http: httpx.Client, path: str, given: str) -> None:
    answer = http.get(path, headers={"X-Request-Id": given})
    assert answer.headers["x-request-id"] == given
    if answer.status_code != 200:
        assert answer.json()["request_id"] == given


BAD_REQUEST_IDS = [
    b"",  # none
    b"x" * 129,  # too long
    b"two words",  # a space
    b"tab\there",
    "Zoë".encode(),  # not ASCII
    b"\xff",  # not UTF-8
    b"esc\x1b[31m",  # what a terminal obeys
]


@pytest.mark.parametrize("given", BAD_REQUEST_IDS)
def test_a_request_id_with_odd_characters_is_replaced(service: Service, given: bytes) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(
            b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: " + given + b"\r\n\r\n"
        )
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    if answer.startswith(b"HTTP/1.1 400"):
        # The server's parser refuses some of these before the door is reached.
        assert given.count(b"\x1b") or given == b""
        return
    head, _, body = answer.partition(b"\r\n\r\n")
    made = re.search(rb"(?im)^x-request-id: (.*?)\r?$", head)
    assert made
    assert UUID7.fullmatch(made[1].decode())
    assert json.loads(body)["request_id"] == made[1].decode()
    assert given == b"" or given not in answer


def test_a_request_without_an_id_gets_one_of_its_own(http: httpx.Client) -> None:
    first, second = http.get("/healthz"), http.get("/healthz")
    assert UUID7.fullmatch(first.headers["x-request-id"])
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


TRACES = [
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",  # as it should be
    "00-xyz",  # no trace at all
    "",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
]


@pytest.mark.parametrize("trace", TRACES)
def test_a_trace_is_accepted(http: httpx.Client, trace: str) -> None:
    assert http.get("/healthz", headers={"traceparent": trace, "tracestate": "a=b"}).status_code == 200


HEADS = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/v1/capabilities", "/v1/sessions"]


@pytest.mark.parametrize("path", HEADS)
def test_head_is_answered_like_get_without_a_body(service: Service, path: str) -> None:
    status, headers, body = raw(service, "HEAD", path)
    full = raw(service, "GET", path)
    assert (status, body) == (full[0], b"")
    assert headers["content-type"] == full[1]["content-type"]
    assert full[2]


def test_a_connection_can_be_used_again_after_every_kind_of_answer(http: httpx.Client, talk: Talk) -> None:
    for _ in range(3):
        talk.append(HELLO)
        http.head(talk.path + "/view")
        problem(http.post(talk.path + "/events", content=b"x" * 100_000), 400, "malformed-request")
        problem(http.post("/nowhere", content=b"x" * 100_000), 404, "not-found")
        assert http.get(talk.path + "/view", headers={"If-None-Match": "*"}).status_code == 304
        problem(http.request("PURGE", "/v1/sessions"), 405, "method-not-allowed")


PATHS: list[tuple[bytes, str]] = [
    (b"/v1/sessions/a", "/v1/sessions/a"),  # nothing to decode
    (b"/v1/sessions/a%2Fb", "/v1/sessions/a%2Fb"),  # an encoded slash stays
    (b"/v1/sessions/a%2fb", "/v1/sessions/a%2Fb"),  # in one case
    (b"/a%20b", "/a b"),
    (b"/%41", "/A"),
    (b"/a%25b", "/a%25b"),  # and so does a percent sign, to be told from it
    (b"/a%252Fb", "/a%252Fb"),
    (b"/%C3%A9", "/é"),
    (b"/%FF/x", "/%25FF/x"),  # what is no UTF-8 names nothing
    (b"/a?x=%2F", "/a"),  # the query is no part of it
    (b"/100%", "/100%25"),  # a percent sign that encodes nothing
    (b"/%zz", "/%25zz"),
    (b"/", "/"),
    (b"", ""),
]


@pytest.mark.parametrize(("given", "routed"), PATHS)
def test_only_real_slashes_separate(given: bytes, routed: str) -> None:
    assert routable(given) == routed


SEGMENTS = ["a", "a/b", "100%", "%2F", "%25", "%252F", "/%/", "Zoë", "%", "%2", "2F", "%%2F%25/"]


@pytest.mark.parametrize("meant", SEGMENTS)
def test_a_path_parameter_is_what_the_client_meant(meant: str) -> None:
    encoded = "".join(f"%{byte:02X}" for byte in meant.encode())
    assert plain(routable(encoded.encode())) == meant


def test_a_websocket_is_turned_away(service: Service) -> None:
    status, _, _ = raw(
        service,
        "GET",
        "/v1/sessions/nobody",
        headers={
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        },
    )
    assert 400 <= status < 500


def test_answers_are_utf8_json_that_is_not_escaped(talk: Talk) -> None:
    said: dict[str, Any] = {"role": "user", "content": "Zoë 🦊"}
    talk.append({"message": said, "id": "ë"})
    answer = talk.http.get(talk.path + "/events")
    assert '"id":"ë"'.encode() in answer.content
    assert answer.headers["content-type"] == "application/json"
