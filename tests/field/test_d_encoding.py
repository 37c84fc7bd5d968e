"""Field cases D: what JSON, Unicode and PostgreSQL each think of as text. Bodies are sent as the bytes they are."""

import json
import secrets
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.field.conftest import Copies, fresh_id
from tests.field.refusals import places, refused
from tests.talk import Talk, assistant, custom, tool, turns, user
from tests.validity import assert_valid

JSON = {"content-type": "application/json"}
FORMATS = ["events", "openai", "text"]


def send(talk: Talk, body: str | bytes, path: str = "/events?create=true", **headers: str) -> httpx.Response:
    """POST a body byte for byte."""
    return talk.http.post(
        talk.path + path, content=body.encode() if isinstance(body, str) else body, headers={**JSON, **headers}
    )


def every_read(talk: Talk) -> Iterator[httpx.Response]:
    """Read the session in every way there is."""
    for path in ("", "/events", "/events?active=true", "/events?last_n=3", "/compactions"):
        yield talk.http.get(talk.path + path)
    for output in FORMATS:
        yield talk.http.get(f"{talk.path}/view?format={output}")


def readable(talk: Talk) -> None:
    """Check that every read of the session works and is JSON where it says so."""
    for response in every_read(talk):
        assert response.status_code == 200, response.text[:500]
        if response.headers["content-type"] == "application/json":
            json.loads(response.content, parse_int=Decimal, parse_constant=pytest.fail)


# C27


def test_c27_a_nul_character_in_a_tool_result_comes_back(talk: Talk) -> None:
    sent = r'{"role": "tool", "tool_call_id": "c", "content": "abc\u0000def"}'
    talk.append(user("run it"), assistant(None, c="run"))
    assert send(talk, f'{{"events": [{{"message": {sent}}}]}}').status_code == 201
    talk.append(user("next"), assistant("ok"))
    for output in ("events", "openai"):
        assert sent.encode() in talk.http.get(f"{talk.path}/view?format={output}").content
    assert talk.texts()[2] == "abc\0def"
    assert len(talk.log()[2]["message"]["content"]) == 7
    assert "abc\0def" in talk.http.get(f"{talk.path}/view?format=text").text
    assert_valid(talk)
    readable(talk)
    assert talk.compact(token_budget=20)["status"] == "applied"
    assert talk.texts() == ["next", "ok"]
    assert talk.log()[2]["message"]["content"] == "abc\0def"
    readable(talk)


NUL_EVENTS = {
    "call id and name": [assistant(None, **{"c\0": "f\0"}), tool("c\0", "x")],
    "argument": [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a\0": "\0"}}}],
        }
    ],
    "part": [user("a"), {"role": "user", "content": [{"type": "text", "text": "\0"}]}],
    "name and unknown field": [{"role": "user", "content": "a", "name": "\0", "x\0": "\0"}],
    "payload": [custom(text="\0", **{"\0": 1})],
    "metadata": [{"metadata": {"\0": "\0"}, "message": user("a")}],
}


@pytest.mark.parametrize("events", NUL_EVENTS.values(), ids=NUL_EVENTS)
def test_c27_a_nul_character_comes_back_from_every_place(talk: Talk, events: list[dict[str, Any]]) -> None:
    talk.append(*events)
    talk.append(user("next"))
    log = talk.log()
    for sent, stored in zip(events, log, strict=False):
        given = sent if "message" in sent or "type" in sent else {"message": sent}
        assert {field: stored[field] for field in given} == given
    readable(talk)
    talk.compact(last_turns=1)
    readable(talk)


def test_c27_a_nul_character_in_a_summary_and_in_session_metadata_comes_back(talk: Talk, http: httpx.Client) -> None:
    talk.append(*turns(9))
    assert talk.compact(last_turns=1, summary="so\0far")["summary"] == "so\0far"
    assert talk.texts()[1] == "so\0far"
    assert talk.get("/compactions")["data"][0]["summary"] == "so\0far"
    assert http.patch(talk.path, json={"metadata": {"k\0": "v\0", "k": "v"}}).json()["metadata"] == {
        "k\0": "v\0",
        "k": "v",
    }
    readable(talk)
    assert http.get("/v1/sessions", params={"metadata.k": "v\0"}).json()["data"] == []


def test_c27_a_nul_character_in_an_id_is_refused(talk: Talk) -> None:
    problem = refused(send(talk, r'{"events": [{"id": "a\u0000b", "message": {"role": "user", "content": "x"}}]}'), 422)
    assert places(problem) == ["/events/0/id"]
    talk.append(user("x"))
    refused(talk.http.get(f"{talk.path}/events/a%00b"), 404, code="event-not-found")


# C28


@pytest.mark.parametrize(
    "text",
    [
        r"hi \ud83d\ude00",  # a whole pair, escaped
        "hi 😀",
        "👩‍👩‍👧‍👦",  # joined by U+200D
        r"\ud83d\udc69\u200d\ud83d\udc67",
        "🇩🇰",
        "e\u0301 é",  # never normalised
        "\u202eabc \ufeff \u2028 \u0085",
        "\U0010ffff \uffff",
        r"\u00e9 \/ \u0041 \t",
    ],
    ids=ascii,
)
def test_c28_valid_text_comes_back_as_the_bytes_it_came_in(talk: Talk, text: str) -> None:
    sent = f'{{"role":"user","content":"{text}"}}'
    assert send(talk, f'{{"events":[{{"message":{sent}}}]}}').status_code == 201
    for path in ("/view", "/view?format=openai", "/events"):
        assert sent.encode() in talk.http.get(talk.path + path).content
    assert json.loads(f'"{text}"') in talk.http.get(talk.path + "/view?format=text").text
    readable(talk)


HALVES = [
    ('"message": {"role": "user", "content": "hi HALF"}', "/message/content"),
    ('"message": {"role": "user", "content": [{"type": "text", "text": "HALF"}]}', "/message/content/0/text"),
    ('"message": {"role": "user", "content": "a", "name": "HALF"}', "/message/name"),
    ('"message": {"role": "user", "content": "a", "x": {"y": ["HALF"]}}', "/message/x/y/0"),
    (
        '"message": {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",'
        ' "function": {"name": "f", "arguments": {"k": "HALF"}}}]}',
        "/message/tool_calls/0/function/arguments/k",
    ),
    (
        '"message": {"role": "assistant", "content": null, "tool_calls": [{"id": "HALF", "type": "function",'
        ' "function": {"name": "f", "arguments": "{}"}}]}',
        "/message/tool_calls/0/id",
    ),
    ('"message": {"role": "tool", "tool_call_id": "c", "content": "HALF"}', "/message/content"),
    ('"type": "ACME.X", "payload": {"k": "HALF"}', "/payload/k"),
    ('"metadata": {"k": "HALF"}, "message": {"role": "user", "content": "a"}', "/metadata/k"),
]


@pytest.mark.parametrize("half", [r"\ud83d", r"\udc00x", r"\uDBFF\uD800", r"\udc00\ud83d", r"\ud83d\\udc00"])
@pytest.mark.parametrize(("event", "place"), HALVES, ids=[place for _, place in HALVES])
def test_c28_half_of_a_surrogate_pair_is_refused_by_its_place(talk: Talk, event: str, place: str, half: str) -> None:
    talk.append(user("before"))
    good = '{"message": {"role": "user", "content": "good"}}'
    response = send(talk, f'{{"events": [{good}, {{{event.replace("HALF", half)}}}]}}')
    assert places(refused(response, 422, code="invalid-request")) == [f"/events/1{place}"]
    assert talk.texts() == ["before"]


def test_c28_half_of_a_surrogate_pair_in_a_key_is_refused(talk: Talk) -> None:
    response = send(talk, r'{"events": [{"type": "ACME.X", "payload": {"k\ud83d": 1}}]}')
    assert [place.startswith("/events/0/payload/k") for place in places(refused(response, 422))] == [True]
    refused(talk.http.get(talk.path), 404)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/events?create=true", r'{"events": [{"id": "\ud83d", "message": {"role": "user", "content": "a"}}]}'),
        ("/events?create=true", r'{"events": [{"type": "\ud83d", "payload": {}}]}'),
        ("/events?create=true", r'{"events": [{"timestamp": "\ud83d", "message": {"role": "user", "content": "a"}}]}'),
        ("/events?create=true", r'{"\ud83d": 1, "events": []}'),
        (
            "/compact",
            r'{"window": {"rule": "last_turns", "size": 1}, "summarizer": {"type": "text", "text": "\ud83d"}}',
        ),
        ("/compact", r'{"window": {"rule": "\ud83d", "size": 1}}'),
    ],
)
def test_c28_half_of_a_surrogate_pair_in_the_envelope_is_refused(talk: Talk, path: str, body: str) -> None:
    talk.append(*turns(5))
    refused(send(talk, body, path), 400, 422)
    assert talk.session()["version"] == 10
    readable(talk)


def test_c28_half_of_a_surrogate_pair_in_session_metadata_is_refused(http: httpx.Client, talk: Talk) -> None:
    name = fresh_id()
    body = rf'{{"id": "{name}", "metadata": {{"a": "\ud83d"}}}}'
    problem = refused(http.post("/v1/sessions", content=body.encode(), headers=JSON), 422)
    assert places(problem) == ["/metadata/a"]
    refused(http.get(f"/v1/sessions/{name}"), 404)
    talk.append(user("a"))
    problem = refused(http.patch(talk.path, content=rb'{"metadata": {"a": "\ud83d"}}', headers=JSON), 422)
    assert places(problem) == ["/metadata/a"]
    assert talk.session()["metadata"] == {}


def test_c28_an_escaped_backslash_is_no_surrogate(talk: Talk) -> None:
    # The text of arguments that a model wrote: a string in which an escape stands as text.
    sent = r'{"role":"user","content":"C:\\ud83d \\\\ud83d"}'
    assert send(talk, f'{{"events":[{{"message":{sent}}}]}}').status_code == 201
    assert sent.encode() in talk.http.get(talk.path + "/view").content


# C29


def calling(arguments: str) -> str:
    """Return an assistant message, as JSON text, whose call has these arguments."""
    return (
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",'
        f'"function":{{"name":"f","arguments":{arguments}}}}}]}}'
    )


def test_c29_key_order_and_exact_text_come_back(talk: Talk) -> None:
    as_object = '{"zebra":1,"alpha":{"y":2,"x":1},"beta":[]}'
    as_string = json.dumps('{"zebra": 1,  "alpha": 2}')
    payload = '{"zz": 1.0, "a": 100000000000000000000000000000001, "m": 1e2, "b": -0, "c": 0.10}'
    results = '{"role":"tool","tool_call_id":"c","content":"1"}'
    body = ",".join(
        [
            '{"message":{"role":"user","content":"go"}}',
            f'{{"message":{calling(as_object)}}}', f'{{"message":{results}}}',
            f'{{"message":{calling(as_string)}}}', f'{{"message":{results}}}',
            f'{{"type":"ACME.X","payload":{payload}}}',
        ]
    )  # fmt: skip
    assert send(talk, f'{{"events":[{body}]}}').status_code == 201
    log = talk.http.get(talk.path + "/events").text
    for sent in (calling(as_object), calling(as_string), payload):
        assert sent in log
    assert calling(as_object) in talk.http.get(talk.path + "/view").text
    rendered = talk.view("openai")["messages"]
    assert [rendered[at]["tool_calls"][0]["function"]["arguments"] for at in (1, 3)] == [
        as_object,
        json.loads(as_string),
    ]
    text = talk.http.get(talk.path + "/view?format=text").text
    assert as_object in text
    assert json.loads(as_string) in text
    assert_valid(talk)


@pytest.mark.parametrize(
    ("event", "place"),
    [
        (f'"message":{calling(json.dumps({"a": 1}).replace("}", ", " + chr(34) + "a" + chr(34) + ": 2}"))}',
         "/message/tool_calls/0/function/arguments"),
        ('"type":"ACME.X","payload":{"b":1,"a":1,"a":2}', "/payload"),
        ('"message":{"role":"user","content":"x","content":"y"}', "/message"),
        ('"message":{"role":"user","content":"x"},"metadata":{"a":{"b":1,"b":1}}', "/metadata/a"),
    ],
    ids=["arguments", "payload", "message", "metadata"],
)  # fmt: skip
def test_c29_a_key_that_occurs_twice_is_refused(talk: Talk, event: str, place: str) -> None:
    assert places(refused(send(talk, f'{{"events":[{{{event}}}]}}'), 422)) == [f"/events/0{place}"]
    refused(talk.http.get(talk.path), 404)


def test_c29_a_key_that_occurs_twice_in_an_argument_string_is_the_models_own_business(talk: Talk) -> None:
    text = '{"a":1,"a":2}'
    assert send(talk, f'{{"events":[{{"message":{calling(json.dumps(text))}}}]}}').status_code == 201
    assert talk.view("openai")["messages"][0]["tool_calls"][0]["function"]["arguments"] == text


# C30

CALL = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


@pytest.mark.parametrize(
    "said",
    [
        {"role": "assistant", "content": None, "tool_calls": CALL},
        {"role": "assistant", "content": "", "tool_calls": CALL},
        {"role": "assistant", "tool_calls": CALL},
    ],
    ids=["null", "empty", "missing"],
)
def test_c30_an_assistant_message_that_only_calls_needs_no_content(talk: Talk, said: dict[str, Any]) -> None:
    talk.append(user("go"), said, tool("c", "1"), assistant("one"))
    assert talk.log()[1]["message"] == said
    assert talk.view()["events"][1]["message"] == said
    assert talk.view("openai")["messages"][1] in (said, {**said, "content": None}, {"role": "assistant"} | said)
    text = talk.http.get(talk.path + "/view?format=text").text
    assert "null" not in text
    assert "None" not in text
    assert_valid(talk)
    talk.append(*turns(3))
    assert talk.compact(token_budget=40)["status"] == "applied"
    readable(talk)


@pytest.mark.parametrize("role", ["user", "system", "developer"])
@pytest.mark.parametrize("said", [{"content": None}, {}, {"content": 7}, {"content": {}}], ids=repr)
def test_c30_whoever_speaks_without_calling_says_something(talk: Talk, role: str, said: dict[str, Any]) -> None:
    problem = refused(
        talk.http.post(talk.path + "/events?create=true", json={"events": [{"message": {"role": role, **said}}]}), 422
    )
    assert places(problem) == ["/events/0/message/content"]


EMPTY = [user(""), user("   "), {"role": "user", "content": []}, assistant(""), assistant("   "), assistant(None)]


@pytest.mark.parametrize("said", EMPTY, ids=repr)
def test_c30_empty_content_is_accepted_and_read_back_as_it_was(talk: Talk, said: dict[str, Any]) -> None:
    talk.append(user("a"), assistant("b"), said, user("c"), assistant("d"))
    assert talk.log()[2]["message"] == said
    assert talk.view()["events"][2]["message"] == said
    text = talk.http.get(talk.path + "/view?format=text").text
    assert "null" not in text
    assert "None" not in text
    assert talk.compact(last_turns=1)["status"] == "applied"
    assert talk.texts() == ["c", "d"]
    readable(talk)


@pytest.mark.parametrize("said", EMPTY[3:], ids=repr)
def test_c30_an_empty_assistant_message_is_never_rendered_as_an_empty_block(talk: Talk, said: dict[str, Any]) -> None:
    talk.append(user("a"), said, user("c"), assistant("d"))
    assert_valid(talk)


@pytest.mark.parametrize("content", ["", None, []], ids=repr)
def test_c30_a_tool_result_can_be_empty(talk: Talk, content: Any) -> None:
    talk.append(user("a"), assistant(None, c="touch"), {"role": "tool", "tool_call_id": "c", "content": content})
    talk.append(assistant("done"), *turns(2))
    assert talk.log()[2]["message"]["content"] == content
    assert_valid(talk)
    readable(talk)
    assert talk.compact(last_turns=1)["status"] == "applied"


# C31

LIMIT = 255


def hexadecimal(characters: int) -> str:
    """Return random hex digits, which no compression makes short enough for an index row."""
    return secrets.token_hex(characters // 2 + 1)[:characters]


@pytest.mark.parametrize("characters", [LIMIT + 1, 3_000, 8_000])
def test_c31_a_session_id_that_is_too_long_is_refused_with_the_limit(http: httpx.Client, characters: int) -> None:
    name = hexadecimal(characters)
    batch = {"events": [{"message": user("a")}]}
    for response in (
        http.post("/v1/sessions", json={"id": name}),
        http.put(f"/v1/sessions/{name}", json={}),
        http.post(f"/v1/sessions/{name}/events?create=true", json=batch),
        http.post(f"/v1/chat-memory/{name}/messages", json={"messages": [user("a")]}),
    ):
        assert str(LIMIT) in refused(response, 422)["detail"]
    refused(http.get(f"/v1/sessions/{name}/view"), 404)


@pytest.mark.parametrize("name", [hexadecimal(LIMIT), "😀" * LIMIT, "的" * LIMIT, "/" * LIMIT, "%" * LIMIT, "a"])
def test_c31_an_event_id_at_the_limit_is_reached_by_every_route(talk: Talk, name: str) -> None:
    event = {"id": name, "message": user("a")}
    assert talk.append(event)["events"][0] == {"id": name, "seq": 1, "token_count": 5, "replayed": False}
    assert talk.append(event)["events"][0]["replayed"] is True
    assert talk.get(f"/events/{quote(name, safe='')}")["id"] == name
    assert talk.view()["events"][0]["id"] == talk.log()[0]["id"] == name
    refused(talk.http.post(talk.path + "/events", json={"events": [{"id": name, "message": user("b")}]}), 409)


@pytest.mark.parametrize("name", [hexadecimal(LIMIT + 1), hexadecimal(8_000), "😀" * (LIMIT + 1), ""], ids=len)
def test_c31_an_event_id_outside_the_limit_is_refused_with_the_limit(talk: Talk, name: str) -> None:
    body = {"events": [{"message": user("good")}, {"id": name, "message": user("a")}]}
    problem = refused(talk.http.post(talk.path + "/events?create=true", json=body), 422)
    assert places(problem) == ["/events/1/id"]
    assert str(LIMIT) in problem["detail"]
    talk.append(user("a"))
    if name:
        refused(talk.http.get(f"{talk.path}/events/{quote(name, safe='')}"), 404, code="event-not-found")


@pytest.mark.parametrize("name", [hexadecimal(8_000), "😀" * 2_000, "c" * LIMIT], ids=len)
def test_c31_a_tool_call_id_of_any_length_is_kept(talk: Talk, name: str) -> None:
    talk.append(user("a"), assistant(None, **{name: "f"}), tool(name, "1"), assistant("b"), *turns(2))
    log = talk.log()
    assert log[1]["message"]["tool_calls"][0]["id"] == log[2]["message"]["tool_call_id"] == name
    readable(talk)
    assert talk.compact(last_turns=1)["status"] == "applied"
    readable(talk)


def test_c31_an_idempotency_key_has_a_limit_in_bytes(talk: Talk) -> None:
    body = json.dumps({"events": [{"message": user("a")}]}).encode()

    def send_with(key: bytes) -> httpx.Response:
        return talk.http.post(
            talk.path + "/events?create=true",
            content=body,
            headers=[(b"content-type", b"application/json"), (b"idempotency-key", key)],
        )

    for key in (hexadecimal(LIMIT).encode(), ("😀" * (LIMIT // 4)).encode()):
        assert send_with(key).status_code == 201
        assert send_with(key).status_code == 200
    for key in (hexadecimal(LIMIT + 1).encode(), hexadecimal(8_000).encode(), ("😀" * (LIMIT // 4 + 1)).encode(), b""):
        assert str(LIMIT) in refused(send_with(key), 422)["detail"]
    assert talk.session()["version"] == 2


# C32

POSTS = ["/events", "/compact", ""]


@pytest.mark.parametrize("path", POSTS, ids=["append", "compact", "patch"])
@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (b'{"events": [{"message": {"role": "user", "content": "topsecret \xff\xfe"}}]}', {400}),
        (b'\xff\xfe{\x00"\x00}\x00', {400}),  # UTF-16
        (b'{"topsecret": "\xed\xa0\xbd"}', {400}),  # half of a pair, as no UTF-8 has it
        (
            b'{"events": [{"message": {"role": "user", "content": "topsecret',
            {400, 422},
        ),  # whichever is seen first: the end, or a field of another route
        (b'{"events": "topsecret"', {400, 422}),
        (b"topsecret", {400}),
        (b"{'events': ['topsecret']}", {400}),
        (b'{"events": [],}', {400, 422}),
        (b'{} {"a": "topsecret"}', {400}),
        (b"\x00", {400}),
        (b"null", {400, 422}),
        (b"[]", {400, 422}),
        (b'["topsecret"]', {400, 422}),
        (b'"topsecret"', {400, 422}),
        (b"12345678901234567890", {400, 422}),
        (b"true", {400, 422}),
        (b'\xef\xbb\xbf{"events": [{"message": {"role": "user", "content": "topsecret"}}]}', {400}),
        (b" ", {400}),
    ],
    ids=ascii,
)
def test_c32_a_body_that_is_no_json_object_is_refused_without_an_echo(
    copy_of: Copies, path: str, body: bytes, statuses: set[int]
) -> None:
    talk = copy_of(turns(2))
    method = "POST" if path else "PATCH"
    response = talk.http.request(method, talk.path + path, content=body, headers=JSON)
    refused(response, *statuses, unsaid="topsecret")
    assert talk.session()["version"] == 4


def test_c32_an_empty_body_is_no_batch(talk: Talk) -> None:
    refused(send(talk, b""), 400, 422)
    refused(talk.http.get(talk.path), 404)


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "x"],
)
def test_c32_a_wrong_content_type_is_refused(talk: Talk, kind: str) -> None:
    body = json.dumps({"events": [{"message": user("topsecret")}]})
    response = send(talk, body, **{"content-type": kind})
    refused(response, 415, code="unsupported-media-type", unsaid="topsecret")
    refused(talk.http.get(talk.path), 404)


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "application/vnd.acme+json"])
def test_c32_json_under_any_of_its_names_is_read(talk: Talk, kind: str) -> None:
    assert send(talk, json.dumps({"events": [{"message": user("a")}]}), **{"content-type": kind}).status_code == 201


@pytest.mark.parametrize(
    "message",
    [
        None, "topsecret", ["topsecret"], {}, {"role": "topsecret", "content": "a"}, {"role": ["topsecret"]},
        {"role": "user", "content": ["topsecret"]}, {"role": "user", "content": [{"text": "topsecret"}]},
        {"role": "user", "content": [{"type": "text", "text": {"topsecret": 1}}]},
        {"role": "user", "content": "a", "name": ["topsecret"]},
        {"role": "tool", "content": "topsecret"}, {"role": "tool", "content": "a", "tool_call_id": {"topsecret": 1}},
        {"role": "user", "content": "a", "tool_calls": ["topsecret"]},
        {"role": "assistant", "content": "a", "tool_calls": "topsecret"},
        {"role": "assistant", "content": "a", "tool_calls": ["topsecret"]},
        {"role": "assistant", "content": "a", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
        {"role": "assistant", "content": "a", "tool_calls": [{"id": "c", "function": {"name": 1, "arguments": ""}}]},
        {"role": "assistant", "content": "a", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": 5}}]},
    ],
    ids=repr,
)  # fmt: skip
def test_c32_json_that_is_no_message_is_refused_by_its_place(talk: Talk, message: Any) -> None:
    body = {"events": [{"message": user("good")}, {"message": message}]}
    problem = refused(talk.http.post(talk.path + "/events?create=true", json=body), 422, unsaid="topsecret")
    assert all(place.startswith("/events/1/message") for place in places(problem))
    refused(talk.http.get(talk.path), 404)


@pytest.mark.parametrize(
    ("event", "place"),
    [
        ({"type": "topsecret", "payload": {}}, "type"),
        ({"type": "ACME.X", "payload": "topsecret"}, "payload"),
        ({"type": "ACME.X", "payload": ["topsecret"]}, "payload"),
        ({"type": "ACME.X", "message": user("topsecret")}, "message"),
        ({"type": "ACME.X"}, "payload"),
        ({"type": 1, "payload": {}}, "type"),
        ({"message": user("a"), "payload": {"topsecret": 1}}, "payload"),
        ({"message": user("a"), "metadata": "topsecret"}, "metadata"),
        ({"message": user("a"), "metadata": None}, "metadata"),
        ({"message": user("a"), "token_count": "topsecret"}, "token_count"),
        ({"message": user("a"), "token_count": -1}, "token_count"),
        ({"message": user("a"), "token_count": 2**31}, "token_count"),
        ({"message": user("a"), "token_count": 10**30}, "token_count"),
        ({"message": user("a"), "id": 7}, "id"),
        ({"message": user("a"), "unknown": "topsecret"}, "unknown"),
        ({"type": "COMPACTION", "payload": {}}, "type"),
        ({"type": "TURNLOG.X", "payload": {}}, "type"),
        ({"type": "MESSAGE", "payload": {}}, "message"),
        ({"message": user("a"), "synthetic": True}, "synthetic"),
        ({}, "message"),
        ("topsecret", ""),
        (None, ""),
    ],
    ids=repr,
)
def test_c32_json_that_is_no_event_is_refused_by_its_place(talk: Talk, event: Any, place: str) -> None:
    body = {"events": [{"message": user("good")}, event]}
    problem = refused(talk.http.post(talk.path + "/events?create=true", json=body), 422, unsaid="topsecret")
    assert places(problem) == [f"/events/1/{place}".rstrip("/")]
    refused(talk.http.get(talk.path), 404)


# C33


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "nan", "+1", "01", ".5", "1.", "0x10", "1e"])
@pytest.mark.parametrize(
    "event",
    [
        f'"message":{calling("NUMBER_OBJECT")}',
        '"type":"ACME.X","payload":{"n":[NUMBER]}',
        '"message":{"role":"user","content":"a","n":NUMBER}',
        '"message":{"role":"user","content":"a"},"metadata":{"n":NUMBER}',
        '"message":{"role":"user","content":"a"},"token_count":NUMBER',
    ],
    ids=["arguments", "payload", "message", "metadata", "envelope"],
)
def test_c33_what_is_no_json_number_is_refused(talk: Talk, event: str, number: str) -> None:
    talk.append(user("before"))
    wrong = event.replace("NUMBER_OBJECT", f'{{"n":{number}}}').replace("NUMBER", number)
    refused(send(talk, f'{{"events":[{{"message":{{"role":"user","content":"good"}}}},{{{wrong}}}]}}'), 400, 422)
    assert talk.texts() == ["before"]
    readable(talk)


@pytest.mark.parametrize(
    "number", ["1e999", "-1E+999", "1e-999", "1.0", "-0.0", "1" * 5000, "0." + "1" * 5000, "2e308"]
)
def test_c33_every_json_number_comes_back_as_it_was_written(talk: Talk, number: str) -> None:
    arguments, payload = f'{{"n":{number}}}', f'{{"n": [{number}]}}'
    body = (
        f'{{"events":[{{"message":{{"role":"user","content":"go"}}}},{{"message":{calling(arguments)}}},'
        f'{{"type":"ACME.X","payload":{payload},"metadata":{arguments}}}]}}'
    )
    assert send(talk, body).status_code == 201
    log = talk.http.get(talk.path + "/events").text
    assert calling(arguments) in log
    assert payload in log
    assert talk.view("openai")["messages"][1]["tool_calls"][0]["function"]["arguments"] == arguments
    assert send(talk, body).status_code == 201
    readable(talk)


def test_c33_numbers_in_session_metadata_are_held_to_the_same(talk: Talk, http: httpx.Client) -> None:
    talk.append(user("a"))
    for number in ("NaN", "Infinity"):
        refused(http.patch(talk.path, content=f'{{"metadata":{{"n":{number}}}}}'.encode(), headers=JSON), 400, 422)
    changed = http.patch(talk.path, content=b'{"metadata":{"n":1e999,"m":100000000000000000000001}}', headers=JSON)
    assert '"n":1e999' in changed.text
    assert '"m":100000000000000000000001' in http.get(talk.path).text
