"""How the API's tests ask, what every error looks like, and the bodies that say something wrong at a known place."""

import http.client
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import httpx

from tests.conftest import Service, rows

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# A word that no answer and no log line may hold.
SECRET = "xyzzy-the-content-of-a-message"  # noqa: S105 - what somebody said, and no password

HELLO: dict[str, Any] = {"message": {"role": "user", "content": "hello"}}
CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is a whole problem document (RFC 9457) and return it."""
    assert response.status_code == status, f"{response.status_code}: {response.text[:2000]}"
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["code"] == code
    assert body["type"]
    assert isinstance(body["title"], str)
    assert body["title"]
    assert isinstance(body["detail"], str)
    assert body["detail"]
    assert body["request_id"] == response.headers["x-request-id"]
    assert "Traceback" not in response.text
    if code == "invalid-request":
        assert body["errors"]
        for one in body["errors"]:
            assert set(one) == {"pointer", "detail"}
    else:
        assert "errors" not in body
    return body


def pointers(response: httpx.Response) -> list[str]:
    """Return the places that a 422 names."""
    return [one["pointer"] for one in problem(response, 422, "invalid-request")["errors"]]


def url_of(service: Service) -> str:
    """Return the address of a service's database."""
    assert service.settings.database_url
    return service.settings.database_url.get_secret_value()


def expire(service: Service, session_id: str, *, ago: timedelta = timedelta(hours=1)) -> None:
    """Let a session have expired a while ago, without waiting for it."""
    changed = rows(
        url_of(service),
        "UPDATE sessions SET expires_at = now() - $2::interval WHERE session_id = $1 RETURNING 1",
        session_id,
        ago,
    )
    assert changed


def raw(
    service: Service, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Mapping[str, str], bytes]:
    """Send a request whose path no client library tidies up."""
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def message(role: str, content: Any = "said", **more: Any) -> dict[str, Any]:
    """Return a body that appends one message."""
    return {"events": [{"message": {"role": role, "content": content, **more}}]}


def event(**fields: Any) -> dict[str, Any]:
    """Return a body whose second event has these fields beside a good message; None removes one."""
    merged = {**HELLO, **fields}
    return {"events": [HELLO, {key: value for key, value in merged.items() if value is not ...}]}


def calling(**fields: Any) -> dict[str, Any]:
    """Return a body whose assistant makes one call with these fields; ... removes one."""
    call = {key: value for key, value in {**CALL, **fields}.items() if value is not ...}
    return message("assistant", None, tool_calls=[call])


def function(**fields: Any) -> dict[str, Any]:
    """Return a body whose assistant calls a function with these fields; ... removes one."""
    return calling(
        function={key: value for key, value in {"name": "f", "arguments": "{}", **fields}.items() if value is not ...}
    )


# What is wrong, and the JSON pointer that must name the place.
BAD_APPENDS: list[tuple[Any, str]] = [
    ([], ""),  # a list is no body
    (None, ""),  # nor is null
    ("events", ""),  # nor a string
    ({}, "/events"),  # nothing to append
    ({"events": []}, "/events"),  # an empty batch
    ({"events": None}, "/events"),  # no list
    ({"events": HELLO}, "/events"),  # one event that is in no list
    ({"events": [HELLO], "evnets": 1}, "/evnets"),  # a field that is not known
    ({"events": [HELLO], "a/b": 1}, "/a~1b"),  # its slash is escaped in a pointer
    ({"events": [HELLO], "a~b": 1}, "/a~0b"),  # and so is its tilde
    ({"events": [HELLO], "a.b[0]": 1}, "/a.b[0]"),  # dots and brackets are not
    ({"events": [HELLO], "expected_version": -1}, "/expected_version"),  # before the beginning
    ({"events": [HELLO], "expected_version": "1"}, "/expected_version"),  # a string
    ({"events": [HELLO], "expected_version": 1.5}, "/expected_version"),  # no whole number
    ({"events": [HELLO], "expected_version": True}, "/expected_version"),  # no number
    ({"events": [HELLO], "expected_version": 2**63}, "/expected_version"),  # larger than any version
    ({"events": [HELLO], "messages": []}, "/messages"),  # both forms at once
    ({"format": "openai", "messages": []}, "/messages"),  # an empty batch in the short form
    ({"format": "openai"}, "/messages"),  # a format of nothing
    ({"messages": [{"role": "user", "content": "x"}]}, "/format"),  # whose messages?
    ({"format": "cohere", "messages": [{"role": "user", "content": "x"}]}, "/format"),  # a format nobody knows
    ({"format": 1, "messages": [{"role": "user", "content": "x"}]}, "/format"),  # a number
    ({"format": "openai", "messages": {}}, "/messages"),  # no list
    ({"format": "openai", "messages": [1]}, "/messages/0"),  # no message
    (
        {"format": "openai", "messages": [{"role": "user", "content": "x"}, {"role": "god", "content": "x"}]},
        "/messages/1/role",
    ),  # no such role, in the short form
    ({"events": [HELLO, 1]}, "/events/1"),  # a number for an event
    ({"events": [HELLO, None]}, "/events/1"),  # null for an event
    ({"events": [HELLO, {}]}, "/events/1/message"),  # neither message nor payload
    (event(colour="red"), "/events/1/colour"),  # a field of an event that is not known
    (event(id=""), "/events/1/id"),  # empty
    (event(id="i" * 256), "/events/1/id"),  # one character too long
    (event(id="a\nb"), "/events/1/id"),  # a control character
    (event(id="a\0b"), "/events/1/id"),  # NUL, which Postgres has not in text
    (event(id="a\x7fb"), "/events/1/id"),  # the control character at the other end
    (event(id=7), "/events/1/id"),  # a number
    (event(id=None), "/events/1/id"),  # null
    ({"events": [{**HELLO, "id": "same"}, {**HELLO, "id": "same"}]}, "/events/1/id"),  # the same id twice
    (event(type="message"), "/events/1/type"),  # lower case
    (event(type=""), "/events/1/type"),  # empty
    (event(type="A" * 65), "/events/1/type"),  # too long
    (event(type="7UP"), "/events/1/type"),  # begins with a digit
    (event(type="ACME-AUDIT"), "/events/1/type"),  # a dash
    (event(type="ACME.AUDIT\n"), "/events/1/type"),  # a newline after a good name
    (event(type=1), "/events/1/type"),  # a number
    (event(type=None), "/events/1/type"),  # null
    (event(type="COMPACTION", message=..., payload={}), "/events/1/type"),  # written by compactions alone
    (event(type="TURNLOG.X", message=..., payload={}), "/events/1/type"),  # reserved
    (event(type="ACME.AUDIT"), "/events/1/message"),  # a custom event has no message
    (event(type="ACME.AUDIT", message=...), "/events/1/payload"),  # but a payload
    (event(type="ACME.AUDIT", message=..., payload=[]), "/events/1/payload"),  # which is an object
    (event(type="ACME.AUDIT", message=..., payload=None), "/events/1/payload"),  # and not null
    (event(type="ACME.AUDIT", message=..., payload="x"), "/events/1/payload"),  # nor a string
    (event(payload={}), "/events/1/payload"),  # a message event has no payload
    (event(type="ACME.AUDIT", message=..., payload={}, token_count=3), "/events/1/token_count"),  # sent to no model
    (event(synthetic=True), "/events/1/synthetic"),  # only compactions write synthetic events
    (event(seq=1), "/events/1/seq"),  # the service gives the seq
    (event(covered=True), "/events/1/covered"),  # and says what is covered
    (event(timestamp="yesterday"), "/events/1/timestamp"),  # no time
    (event(timestamp="2026-11-30T10:00:00"), "/events/1/timestamp"),  # without a zone it is no instant
    (event(timestamp="2026-13-01T00:00:00Z"), "/events/1/timestamp"),  # no such month
    (event(timestamp=1764496800), "/events/1/timestamp"),  # a number
    (event(timestamp="0001-01-01T00:00:00+10:00"), "/events/1/timestamp"),  # before the year 1
    (event(timestamp="9999-12-31T23:59:59-10:00"), "/events/1/timestamp"),  # after the year 9999
    (event(token_count=-1), "/events/1/token_count"),  # less than nothing
    (event(token_count=2**31), "/events/1/token_count"),  # more than a column holds
    (event(token_count=1.5), "/events/1/token_count"),  # no whole number
    (event(token_count="3"), "/events/1/token_count"),  # noqa: S106 - a string
    (event(metadata=[]), "/events/1/metadata"),  # no object
    (event(metadata=None), "/events/1/metadata"),  # null is none either
    (event(metadata="x"), "/events/1/metadata"),  # nor a string
    (event(message=None), "/events/1/message"),  # null
    (event(message=[]), "/events/1/message"),  # a list
    (event(message="hello"), "/events/1/message"),  # a string
    (event(message={}), "/events/1/message/role"),  # nobody speaks
    (message("robot"), "/events/0/message/role"),  # nobody we know
    (message("User"), "/events/0/message/role"),  # roles are lower case
    ({"events": [{"message": {"role": ["user"], "content": "x"}}]}, "/events/0/message/role"),  # a list
    ({"events": [{"message": {"role": "user"}}]}, "/events/0/message/content"),  # nothing said
    (message("user", None), "/events/0/message/content"),  # null is for the assistant
    (message("system", None), "/events/0/message/content"),  # not for the system
    (message("developer", None), "/events/0/message/content"),  # nor the developer
    (message("user", 7), "/events/0/message/content"),  # a number
    (message("user", {"type": "text", "text": "x"}), "/events/0/message/content"),  # a part that is in no list
    (message("assistant", 7), "/events/0/message/content"),  # not even the assistant says a number
    (message("user", ["x"]), "/events/0/message/content/0"),  # a string for a part
    (message("user", [{"text": "x"}]), "/events/0/message/content/0/type"),  # a part without a type
    (message("user", [{"type": 1}]), "/events/0/message/content/0/type"),  # of a type that is a number
    (message("user", [{"type": "text"}]), "/events/0/message/content/0/text"),  # a text part without text
    (message("user", [{"type": "text", "text": None}]), "/events/0/message/content/0/text"),  # with null for text
    (
        message("user", [{"type": "text", "text": "x"}, {"type": "text"}]),
        "/events/0/message/content/1/text",
    ),  # the second part
    (
        message("user", [{"type": "tool_result", "tool_use_id": "c1"}]),
        "/events/0/message/content",
    ),  # tool results that would start a turn
    (message("user", name=7), "/events/0/message/name"),  # a name is a string
    (message("assistant", refusal=[]), "/events/0/message/refusal"),  # and so is a refusal
    (message("tool"), "/events/0/message/tool_call_id"),  # a result of no call
    (message("tool", tool_call_id=1), "/events/0/message/tool_call_id"),  # of a number
    (message("user", tool_calls=[CALL]), "/events/0/message/tool_calls"),  # only the assistant calls
    (message("assistant", tool_calls={}), "/events/0/message/tool_calls"),  # no list
    (message("assistant", tool_calls=["c1"]), "/events/0/message/tool_calls/0"),  # a string for a call
    (calling(id=...), "/events/0/message/tool_calls/0/id"),  # a call without an id
    (calling(id=None), "/events/0/message/tool_calls/0/id"),  # with null for one
    (calling(function=...), "/events/0/message/tool_calls/0/function"),  # that calls nothing
    (calling(function="f"), "/events/0/message/tool_calls/0/function"),  # or a string
    (function(name=...), "/events/0/message/tool_calls/0/function/name"),  # a function without a name
    (function(arguments=...), "/events/0/message/tool_calls/0/function/arguments"),  # without arguments
    (function(arguments=[1]), "/events/0/message/tool_calls/0/function/arguments"),  # with a list of them
    (function(arguments=None), "/events/0/message/tool_calls/0/function/arguments"),  # with null
]

# The same in JSON that no encoder writes.
_MESSAGE = '{"events":[%s]}'
BAD_TEXTS: list[tuple[str, str]] = [
    (_MESSAGE % r'{"message":{"role":"user","content":"\ud800 half"}}', "/events/0/message/content"),  # lone surrogate
    (_MESSAGE % r'{"message":{"role":"user","content":"\udc00"}}', "/events/0/message/content"),  # the other half
    (
        _MESSAGE % r'{"message":{"role":"user","content":"x","\ud800":1}}',
        "/events/0/message/\N{REPLACEMENT CHARACTER}",
    ),  # in a key
    (_MESSAGE % r'{"message":{"role":"user","content":"x"},"metadata":{"k":["\ud800"]}}', "/events/0/metadata/k/0"),
    (_MESSAGE % r'{"type":"ACME.X","payload":{"a":{"b":"\ud800"}}}', "/events/0/payload/a/b"),  # in a payload
    (_MESSAGE % r'{"message":{"role":"user","content":"x"},"id":"\ud800"}', "/events/0/id"),  # in an id
    (_MESSAGE % '{"message":{"role":"user","content":"x","content":"y"}}', "/events/0/message"),  # a key twice
    (_MESSAGE % '{"message":{"role":"user","content":"x"},"metadata":{"a":{"b":1,"b":2}}}', "/events/0/metadata/a"),
    (_MESSAGE % '{"type":"ACME.X","payload":{"a":1,"a":1}}', "/events/0/payload"),  # equal values do not help
    ('{"events":' + "[" * 101 + "]" * 101 + "}", ""),  # nested too deeply
]

# Not JSON, or not UTF-8.
MALFORMED: list[bytes] = [
    b"",  # nothing at all
    b" ",  # as good as nothing
    b"{",  # not finished
    b"{]",  # closed wrongly
    b'{"events":[{"message":{"role":"user","content":"x"}}]} {}',  # two bodies
    b'{"events":[{"message":{"role":"user","content":"x"}},]}',  # a comma too many
    b"{'events':[]}",  # the wrong quotes
    b'{"events":[{"message":{"role":"user","content":"x","n":NaN}}]}',  # no JSON number
    b'{"events":[{"message":{"role":"user","content":"x","n":Infinity}}]}',  # nor this
    b'{"events":[{"message":{"role":"user","content":"x","n":01}}]}',  # nor this
    b'{"events":[{"message":{"role":"user","content":"a\nb"}}]}',  # a bare newline in a string
    b'{"events":[{"message":{"role":"user","content":"\xff"}}]}',  # not UTF-8
    b'{"events":[{"message":{"role":"user","content":"\xed\xa0\x80"}}]}',  # a surrogate, encoded
    b'\xef\xbb\xbf{"events":[{"message":{"role":"user","content":"x"}}]}',  # a byte order mark
    '{"events":[]}'.encode("utf-16"),  # another encoding
    b"\x00",  # a NUL
]
