"""The log over HTTP: append, read, find."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.api.asking import (
    BAD_APPENDS,
    BAD_TEXTS,
    CALL,
    HELLO,
    INSTANT,
    MALFORMED,
    UUID7,
    expire,
    pointers,
    problem,
    raw,
)
from tests.conftest import Service
from tests.talk import Talk, assistant, custom, system, tool, turns, user

JSON = {"Content-Type": "application/json"}


def post(talk: Talk, content: str | bytes, **params: str) -> httpx.Response:
    """Append a body that is JSON text already."""
    return talk.http.post(talk.path + "/events", content=content, headers=JSON, params=params)


def weighty(said: dict[str, Any]) -> dict[str, Any]:
    """Return a message as an event of so many tokens that any summary is shorter."""
    return {"message": said, "token_count": 500}


def seqs(page: dict[str, Any]) -> list[int]:
    return [event["seq"] for event in page["data"]]


# Append.


def test_an_append_says_where_each_event_stands(http: httpx.Client, talk: Talk) -> None:
    http.put(talk.path)
    events = [HELLO, {"id": "e2", "message": assistant("hi"), "token_count": 31}, custom()]

    made = http.post(talk.path + "/events", json={"events": events})

    assert made.status_code == 201
    assert made.headers["content-type"] == "application/json"
    answer = made.json()
    assert set(answer) == {"session_id", "version", "events"}
    assert (answer["session_id"], answer["version"]) == (talk.id, 3)
    assert [set(event) for event in answer["events"]] == [{"id", "seq", "token_count", "replayed"}] * 3
    assert [event["seq"] for event in answer["events"]] == [1, 2, 3]
    assert [event["replayed"] for event in answer["events"]] == [False] * 3
    assert UUID7.fullmatch(answer["events"][0]["id"])
    assert answer["events"][1] == {"id": "e2", "seq": 2, "token_count": 31, "replayed": False}
    assert answer["events"][0]["token_count"] > 0
    assert answer["events"][2]["token_count"] == 0


def test_an_append_continues_the_log(talk: Talk) -> None:
    talk.append(HELLO)
    answer = talk.append(HELLO, HELLO, status=201)
    assert [event["seq"] for event in answer["events"]] == [2, 3]
    assert answer["version"] == 3


def test_a_session_is_created_only_when_the_append_says_so(http: httpx.Client, talk: Talk) -> None:
    body = {"events": [HELLO]}
    problem(http.post(talk.path + "/events", json=body), 404, "session-not-found")
    problem(http.post(talk.path + "/events", json=body, params={"create": "false"}), 404, "session-not-found")
    assert http.post(talk.path + "/events", json=body, params={"create": "true"}).status_code == 201
    session = talk.session()
    assert (session["version"], session["metadata"], session["policy"]) == (1, {}, None)
    assert session["expires_at"] is not None


def test_an_append_that_fails_creates_no_session(http: httpx.Client, talk: Talk) -> None:
    for body, status in (({"events": [{}]}, 422), ({"events": [HELLO], "expected_version": 5}, 412)):
        assert http.post(talk.path + "/events", json=body, params={"create": "true"}).status_code == status
        problem(http.get(talk.path), 404, "session-not-found")


@pytest.mark.parametrize(("body", "pointer"), BAD_APPENDS, ids=lambda value: str(value)[:70])
def test_every_bad_field_is_named_and_nothing_is_stored(
    http: httpx.Client, talk: Talk, body: Any, pointer: str
) -> None:
    http.put(talk.path)
    assert pointers(post(talk, json.dumps(body))) == [pointer]
    assert talk.session()["version"] == 0


@pytest.mark.parametrize(("text", "pointer"), BAD_TEXTS, ids=lambda value: str(value)[:90])
def test_what_cannot_be_kept_exactly_is_named(http: httpx.Client, talk: Talk, text: str, pointer: str) -> None:
    http.put(talk.path)
    assert pointers(post(talk, text)) == [pointer]
    assert talk.session()["version"] == 0


@pytest.mark.parametrize("content", MALFORMED, ids=lambda value: repr(value[:60]))
def test_what_is_not_json_in_utf8_is_malformed(http: httpx.Client, talk: Talk, content: bytes) -> None:
    http.put(talk.path)
    problem(post(talk, content), 400, "malformed-request")
    assert talk.session()["version"] == 0


def test_each_wrong_event_of_a_batch_is_named(http: httpx.Client, talk: Talk) -> None:
    http.put(talk.path)
    body = {"events": [{"message": {"role": "x"}}, HELLO, {"type": "bad", "payload": {}}, {"payload": {}}]}
    assert pointers(http.post(talk.path + "/events", json=body)) == [
        "/events/0/message/role",
        "/events/2/type",
        "/events/3/message",
    ]


def test_one_bad_event_stores_nothing_of_its_batch(http: httpx.Client, talk: Talk) -> None:
    talk.append(HELLO)
    before = talk.session()
    body = {"events": [HELLO, HELLO, {"message": {"role": "user"}}, HELLO]}
    assert pointers(http.post(talk.path + "/events", json=body)) == ["/events/2/message/content"]
    assert talk.session() == before
    assert len(talk.log()) == 1


GOOD_MESSAGES = [
    user("hello"),  # a string
    user(""),  # an empty one
    {"role": "user", "content": []},  # no parts
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]},
    {"role": "user", "content": [{"type": "hologram", "beam": 1}]},  # a part nobody knows yet
    {"role": "user", "content": "x", "name": "alice"},
    {"role": "user", "content": "x", "name": None},
    {"role": "developer", "content": "be kind"},
    {"role": "system", "content": [{"type": "text", "text": "be kind"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "assistant", "tool_calls": [CALL]},  # without content at all
    {"role": "assistant", "content": None, "refusal": "no"},
    {"role": "assistant", "content": "x", "tool_calls": None},
    {"role": "assistant", "content": "x", "tool_calls": []},
    {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"b": 1}}}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "custom", "custom": {"input": "x"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "shipped"},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "shipped"}]},
    {"role": "user", "content": "x", "unknown": {"z": 1, "a": [None]}, "cache_control": {"type": "ephemeral"}},
]


@pytest.mark.parametrize("said", GOOD_MESSAGES, ids=str)
def test_a_good_message_is_kept_as_it_is(talk: Talk, said: dict[str, Any]) -> None:
    talk.append({"message": said})
    assert talk.log()[0]["message"] == said


# Key order, big numbers, NUL, escapes and space, in every place where a client's own JSON stands.
EXACT = (
    r'{"z": 1, "a":123456789012345678901234567890, "f": 1.10,"g":-1E+400, "n": "\u0000 \u00e9 \/ é \ud83d\ude00",'
    r' "e":{"y" : [ ], "x":null}}'
)


def test_what_a_client_sent_comes_back_byte_for_byte(talk: Talk) -> None:
    message = r'{ "content":"\u0000\u0041 é", "role":"user", "extra":' + EXACT + "}"
    calls = (
        r'{"role":"assistant","tool_calls":[{"function":{"arguments":' + EXACT + r',"name":"f"},"id":"\u0063",'
        r'"index":0}],"content":null}'
    )
    events = f'{{"message":{message},"metadata":{EXACT},"id":"e1"}},{{"message":{calls}}},'
    body = f'{{"events":[{events}{{"type":"ACME.X","payload":{EXACT}}}]}}'
    assert post(talk, body, create="true").status_code == 201

    log = talk.http.get(talk.path + "/events").text
    view = talk.http.get(talk.path + "/view").text
    one = talk.http.get(talk.path + "/events/e1").text
    for text in (log, view, one):
        assert f'"message":{message}' in text
        assert f'"metadata":{EXACT}' in text
    assert f'"message":{calls}' in log
    assert f'"message":{calls}' in view
    assert f'"payload":{EXACT}' in log


def test_an_integer_longer_than_python_converts_is_kept(talk: Talk) -> None:
    number = "9" * 6000
    body = f'{{"events":[{{"message":{{"role":"user","content":"x","n":{number}}},"metadata":{{"n":-{number}}}}}]}}'
    assert post(talk, body, create="true").status_code == 201
    assert talk.http.get(talk.path + "/events").text.count(number) == 2


def test_ids_may_be_anything_but_control_characters(talk: Talk) -> None:
    ids = ["a/b", "..", ".", "100%", "%2F", "%252F", "a b", "?x=1#y", "Zoë 🦊", "é", "e\u0301", "'\";--", "i" * 255]
    ids += ["🦊" * 255, "\u00a0", "+", "a\\b", ";v=1", "*"]
    talk.append(*({**HELLO, "id": one} for one in ids))
    assert [event["id"] for event in talk.log()] == ids


AWKWARD_IDS = [
    "a/b",  # a slash
    "/",  # nothing else
    "a/events/b",  # what looks like a path
    "100%",  # a percent sign
    "%2F",  # what looks encoded
    "%252F",  # twice
    "a%2Fb/c",  # both
    "a b?c#d",  # where a path would end
    "Zoë 🦊",  # more than a byte each
    "..",  # another folder
    ".",
    "+",  # no space
    ";v=1",
]


@pytest.mark.parametrize("event_id", AWKWARD_IDS)
def test_an_event_is_found_by_its_id_whatever_characters_it_has(service: Service, talk: Talk, event_id: str) -> None:
    talk.append({**HELLO, "id": "other"}, {**HELLO, "id": event_id})
    encoded = "".join(f"%{byte:02x}" for byte in event_id.encode())
    status, _, body = raw(service, "GET", f"{talk.path}/events/{encoded}")
    assert status == 200, body
    assert json.loads(body)["id"] == event_id
    if event_id not in {".", ".."}:  # which client libraries take out of a path
        assert talk.get("/events/" + quote(event_id, safe=""))["seq"] == 2


MISSING_IDS = ["nope", "E1", "e1 ", "%00", "x" * 3000, "%FF"]


@pytest.mark.parametrize("event_id", MISSING_IDS, ids=lambda value: value[:10])
def test_an_event_that_is_not_there_is_not_found(service: Service, talk: Talk, event_id: str) -> None:
    talk.append({**HELLO, "id": "e1"})
    status, headers, body = raw(service, "GET", f"{talk.path}/events/{event_id.replace(' ', '%20')}")
    assert (status, json.loads(body)["code"]) == (404, "event-not-found")
    assert headers["content-type"] == "application/problem+json"


def test_an_event_of_another_session_is_not_found(http: httpx.Client, talk: Talk) -> None:
    other = Talk(http, talk.id + "-other")
    other.append({**HELLO, "id": "theirs"})
    talk.append({**HELLO, "id": "mine"})
    problem(http.get(talk.path + "/events/theirs"), 404, "event-not-found")


def test_an_event_reads_the_same_by_id_in_the_log_and_in_the_view(talk: Talk) -> None:
    talk.append({**HELLO, "id": "e1", "metadata": {"m": 1}, "timestamp": "2026-11-30T10:00:00Z", "token_count": 9})
    one = talk.get("/events/e1")
    assert INSTANT.fullmatch(one.pop("stored_at"))
    assert one == {
        "id": "e1",
        "session_id": talk.id,
        "seq": 1,
        "type": "MESSAGE",
        "timestamp": "2026-11-30T10:00:00.000000Z",
        "message": HELLO["message"],
        "metadata": {"m": 1},
        "synthetic": False,
        "token_count": 9,
        "covered": False,
    }
    assert talk.log() == talk.view()["events"] == [talk.get("/events/e1")]


def test_a_custom_event_has_a_payload_and_no_message(talk: Talk) -> None:
    talk.append({"type": "ACME.AUDIT", "payload": {"action": "exported"}, "id": "e1", "token_count": 0})
    one = talk.get("/events/e1")
    assert (one["type"], one["payload"], one["token_count"]) == ("ACME.AUDIT", {"action": "exported"}, 0)
    assert "message" not in one


INSTANTS = [
    ("2026-11-30T10:00:00Z", "2026-11-30T10:00:00.000000Z"),  # as it is
    ("2026-11-30T10:00:00.123456Z", "2026-11-30T10:00:00.123456Z"),  # with microseconds
    ("2026-11-30T12:00:00+02:00", "2026-11-30T10:00:00.000000Z"),  # of another zone
    ("2026-11-30T00:00:00-11:30", "2026-11-30T11:30:00.000000Z"),  # of the other side
    ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),  # the first
    ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),  # the last
    (None, None),  # not known
]


@pytest.mark.parametrize(("given", "kept"), INSTANTS)
def test_a_timestamp_is_kept_as_an_instant(talk: Talk, given: str | None, kept: str | None) -> None:
    talk.append({**HELLO, "timestamp": given})
    assert talk.log()[0]["timestamp"] == kept


def test_timestamps_order_nothing(talk: Talk) -> None:
    talk.append({**HELLO, "timestamp": "2030-01-01T00:00:00Z"}, {**HELLO, "timestamp": "2000-01-01T00:00:00Z"})
    assert [event["timestamp"][:4] for event in talk.log()] == ["2030", "2000"]
    assert talk.seqs() == [1, 2]


def test_the_events_of_a_batch_are_stored_at_one_moment(talk: Talk) -> None:
    talk.append(*turns(3))
    assert len({event["stored_at"] for event in talk.log()}) == 1
    assert all(INSTANT.fullmatch(event["stored_at"]) for event in talk.log())


# Limits.


def test_a_batch_has_at_most_a_thousand_events(http: httpx.Client, talk: Talk) -> None:
    http.put(talk.path)
    assert pointers(http.post(talk.path + "/events", json={"events": [HELLO] * 1001})) == ["/events"]
    short = {"format": "openai", "messages": [HELLO["message"]] * 1001}
    assert pointers(http.post(talk.path + "/events", json=short)) == ["/messages"]
    assert talk.append(*[HELLO] * 1000, status=201)["version"] == 1000


def test_an_event_has_at_most_four_mebibytes(http: httpx.Client, talk: Talk) -> None:
    http.put(talk.path)
    text = "word " * (4 * 1024 * 1024 // 5)
    answer = http.post(talk.path + "/events", json={"events": [HELLO, {"message": user(text)}]})
    assert problem(answer, 413, "payload-too-large")["limit_bytes"] == 4 * 1024 * 1024
    assert "/events/1" in answer.json()["detail"]
    assert talk.append({"message": user(text[:-100])}, status=201)["version"] == 1


def test_nesting_is_taken_up_to_the_limit(http: httpx.Client, talk: Talk) -> None:
    http.put(talk.path)
    deep = '{"events":[{"message":{"role":"user","content":"[[[[","x":%s}}]}'
    assert post(talk, deep % ("[" * 96 + "]" * 96)).status_code == 201
    assert pointers(post(talk, deep % ("[" * 97 + "]" * 97))) == [""]
    assert pointers(post(talk, deep % ('{"a":' * 97 + "1" + "}" * 97))) == [""]


# Once, however often it is sent.


def test_a_replayed_event_comes_back_with_its_seq_and_moves_nothing(http: httpx.Client, talk: Talk) -> None:
    events = [{**HELLO, "id": "e1"}, {**HELLO, "id": "e2"}]
    talk.append(*events, status=201)
    talk.append(HELLO)
    before = talk.session()

    again = http.post(talk.path + "/events", json={"events": events[::-1]})

    assert again.status_code == 200
    answer = again.json()
    assert [(event["id"], event["seq"], event["replayed"]) for event in answer["events"]] == [
        ("e2", 2, True),
        ("e1", 1, True),
    ]
    assert answer["version"] == 3
    assert talk.session() == before


SAME_CONTENT = [
    ('{"role":"user","content":"x","a":1,"b":2}', '{"b":2,"content":"x","role":"user","a":1}'),  # another key order
    ('{"role":"user","content":"x","n":1.0}', '{"role":"user","content":"x","n":1}'),  # another notation
    ('{"role":"user","content":"x","n":100}', '{"role":"user","content":"x","n":1e2}'),
    (r'{"role":"user","content":"\u0041"}', '{"role": "user", "content": "A"}'),  # an escape, and space
]
OTHER_CONTENT = [
    ('{"role":"user","content":"x"}', '{"role":"user","content":"y"}'),  # another text
    ('{"role":"user","content":"x"}', '{"role":"assistant","content":"x"}'),  # another speaker
    ('{"role":"user","content":"x"}', '{"role":"user","content":"x","n":null}'),  # another field
    ('{"role":"user","content":"x","n":1}', '{"role":"user","content":"x","n":true}'),  # true is not 1
    ('{"role":"user","content":"x","n":1}', '{"role":"user","content":"x","n":"1"}'),  # nor is "1"
    (
        '{"role":"user","content":"x","n":9007199254740993}',
        '{"role":"user","content":"x","n":9007199254740992}',
    ),  # which a double cannot tell apart
    (r'{"role":"user","content":"\u00e9"}', r'{"role":"user","content":"e\u0301"}'),  # looks the same and is not
    ('{"role":"user","content":"x","l":[1,2]}', '{"role":"user","content":"x","l":[2,1]}'),  # a list has an order
]


def body_with_id(message: str, metadata: str = "{}") -> str:
    return f'{{"events":[{{"id":"e1","message":{message},"metadata":{metadata}}}]}}'


@pytest.mark.parametrize(("first", "second"), SAME_CONTENT)
def test_the_same_content_is_a_replay(talk: Talk, first: str, second: str) -> None:
    assert post(talk, body_with_id(first), create="true").status_code == 201
    assert post(talk, body_with_id(second)).status_code == 200
    hello = '{"role":"user","content":"x"}'
    assert post(talk, body_with_id(hello, first).replace("e1", "m1")).status_code == 201
    assert post(talk, body_with_id(hello, second).replace("e1", "m1")).status_code == 200


@pytest.mark.parametrize(("first", "second"), OTHER_CONTENT)
def test_other_content_under_the_same_id_is_a_conflict(talk: Talk, first: str, second: str) -> None:
    talk.append(HELLO)
    assert post(talk, body_with_id(first)).status_code == 201
    found = problem(post(talk, body_with_id(second)), 409, "event-id-conflict")
    assert (found["event_id"], found["seq"]) == ("e1", 2)


CONFLICTS = [
    {"type": "ACME.X", "payload": HELLO["message"]},  # another type, the same JSON
    {**HELLO, "metadata": {"a": 1}},  # other metadata
]


@pytest.mark.parametrize("other", CONFLICTS)
def test_another_type_or_other_metadata_is_a_conflict(http: httpx.Client, talk: Talk, other: dict[str, Any]) -> None:
    talk.append({**HELLO, "id": "e1"})
    found = problem(
        http.post(talk.path + "/events", json={"events": [HELLO, {**other, "id": "e1"}]}), 409, "event-id-conflict"
    )
    assert (found["event_id"], found["seq"]) == ("e1", 1)
    assert talk.session()["version"] == 1


def test_a_replay_may_leave_out_what_the_service_filled_in(talk: Talk) -> None:
    talk.append({**HELLO, "id": "e1", "token_count": 77, "timestamp": "2026-01-01T00:00:00Z"})
    again = talk.append({**HELLO, "id": "e1", "type": "MESSAGE", "metadata": {}}, status=200)
    assert again["events"] == [{"id": "e1", "seq": 1, "token_count": 77, "replayed": True}]


def test_the_ids_of_compactions_cannot_be_taken(http: httpx.Client, talk: Talk) -> None:
    talk.append(*map(weighty, turns(3)))
    talk.compact(last_turns=1, summary="s")
    boundary, _, summary = talk.log()[-3:]
    for stored in (boundary, summary):
        event = {"id": stored["id"], "message": summary["message"], "metadata": summary["metadata"]}
        problem(http.post(talk.path + "/events", json={"events": [event]}), 409, "event-id-conflict")


def test_a_batch_of_replays_and_new_events_stores_the_new_ones(talk: Talk) -> None:
    talk.append({**HELLO, "id": "e1"}, {**HELLO, "id": "e2"})
    answer = talk.append(
        {**HELLO, "id": "e3"}, {**HELLO, "id": "e2"}, HELLO, {**HELLO, "id": "e1"}, {**HELLO, "id": "e4"}, status=201
    )
    assert [(event["seq"], event["replayed"]) for event in answer["events"]] == [
        (3, False),
        (2, True),
        (4, False),
        (1, True),
        (5, False),
    ]
    assert answer["version"] == 5
    assert [event["seq"] for event in talk.log()] == [1, 2, 3, 4, 5]
    assert talk.session()["view"]["events"] == 5


def test_a_batch_with_a_conflict_stores_nothing(http: httpx.Client, talk: Talk) -> None:
    talk.append({**HELLO, "id": "e1"})
    body = {"events": [{**HELLO, "id": "new"}, {"message": user("other"), "id": "e1"}]}
    problem(http.post(talk.path + "/events", json=body), 409, "event-id-conflict")
    assert talk.session()["version"] == 1


def test_the_same_id_may_be_used_in_every_session(http: httpx.Client, talk: Talk) -> None:
    talk.append({**HELLO, "id": "e1"}, status=201)
    Talk(http, talk.id + "-other").append({"message": user("other"), "id": "e1"}, status=201)


# Versions.


def test_an_append_may_insist_on_a_version(http: httpx.Client, talk: Talk) -> None:
    talk.append(HELLO, expected_version=0, status=201)
    talk.append(HELLO, expected_version=1, status=201)
    for wrong in (0, 1, 3, 2**63 - 1):
        answer = http.post(talk.path + "/events", json={"events": [HELLO], "expected_version": wrong})
        assert problem(answer, 412, "version-conflict")["current_version"] == 2
    assert talk.session()["version"] == 2


MATCHES = ['"1"', "1"]


@pytest.mark.parametrize("if_match", MATCHES)
def test_if_match_is_the_expected_version(http: httpx.Client, talk: Talk, if_match: str) -> None:
    talk.append(HELLO)
    body, headers = {"events": [HELLO]}, {"If-Match": if_match}
    assert http.post(talk.path + "/events", json=body, headers=headers).status_code == 201
    found = problem(http.post(talk.path + "/events", json=body, headers=headers), 412, "version-conflict")
    assert found["current_version"] == 2


def test_if_match_of_anything_that_exists_matches(http: httpx.Client, talk: Talk) -> None:
    talk.append(HELLO)
    headers = {"If-Match": "*"}
    assert http.post(talk.path + "/events", json={"events": [HELLO]}, headers=headers).status_code == 201


BAD_MATCHES = ['W/"1"', '"one"', '"1", "2"', '"-1"', '"1.0"', '"', '""', '"99999999999999999999"', "None"]


@pytest.mark.parametrize("if_match", BAD_MATCHES)
def test_an_if_match_that_names_no_version_is_malformed(http: httpx.Client, talk: Talk, if_match: str) -> None:
    talk.append(HELLO)
    answer = http.post(talk.path + "/events", json={"events": [HELLO]}, headers={"If-Match": if_match})
    problem(answer, 400, "malformed-request")
    assert talk.session()["version"] == 1


def test_if_match_and_expected_version_may_both_be_sent_when_they_agree(http: httpx.Client, talk: Talk) -> None:
    talk.append(HELLO)
    path, headers = talk.path + "/events", {"If-Match": '"1"'}
    disagree = http.post(path, json={"events": [HELLO], "expected_version": 0}, headers=headers)
    assert pointers(disagree) == ["/expected_version"]
    agree = http.post(path, json={"events": [HELLO], "expected_version": 1}, headers=headers)
    assert agree.status_code == 201


def test_a_retry_after_a_lost_answer_succeeds_although_its_version_has_passed(talk: Talk) -> None:
    talk.append(HELLO)
    batch = [{**HELLO, "id": "e2"}, {**HELLO, "id": "e3"}]
    first = talk.append(*batch, expected_version=1, status=201)
    talk.append(HELLO)

    again = talk.append(*batch, expected_version=1, status=200)

    assert [event["seq"] for event in again["events"]] == [event["seq"] for event in first["events"]] == [2, 3]
    assert again["version"] == 4


def test_new_events_among_replays_are_subject_to_the_version(http: httpx.Client, talk: Talk) -> None:
    talk.append({**HELLO, "id": "e1"})
    body = {"events": [{**HELLO, "id": "e1"}, {**HELLO, "id": "e2"}], "expected_version": 0}
    assert problem(http.post(talk.path + "/events", json=body), 412, "version-conflict")["current_version"] == 1
    assert http.post(talk.path + "/events", json={**body, "expected_version": 1}).status_code == 201


def test_of_many_who_insist_on_one_version_one_appends(service: Service, talk: Talk) -> None:
    talk.append(HELLO)
    gate = threading.Barrier(8)

    def append(_: int) -> int:
        with service.client() as client:
            gate.wait()
            body = {"events": [HELLO, HELLO], "expected_version": 1}
            return client.post(talk.path + "/events", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(append, range(8))) == [201] + [412] * 7
    assert talk.session()["version"] == 3


def test_many_who_append_at_once_get_seqs_without_gaps(service: Service, talk: Talk) -> None:
    def append(number: int) -> dict[str, Any]:
        with service.client() as client:
            return Talk(client, talk.id).append(user(f"{number} a"), user(f"{number} b"))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(append, range(40)))

    pairs = sorted([event["seq"] for event in answer["events"]] for answer in answers)
    assert [seq for pair in pairs for seq in pair] == list(range(1, 81))
    assert [event["seq"] for event in talk.log()] == list(range(1, 81))
    by_seq = {event["seq"]: event["message"]["content"] for event in talk.log()}
    assert all(by_seq[first].split()[0] == by_seq[second].split()[0] for first, second in pairs)


# Idempotency-Key.


def keyed(talk: Talk, body: Any, key: str = "k", **params: str) -> httpx.Response:
    return talk.http.post(
        talk.path + "/events", json=body, headers={"Idempotency-Key": key}, params={"create": "true", **params}
    )


def test_a_request_with_a_key_is_repeatable_for_ever(talk: Talk) -> None:
    body = {"events": [HELLO, custom()], "expected_version": 0}
    first = keyed(talk, body)
    talk.append(*turns(2))
    again = keyed(talk, body)

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["version"] == first.json()["version"] == 2
    assert [event["replayed"] for event in again.json()["events"]] == [True, True]
    assert [{**event, "replayed": False} for event in again.json()["events"]] == first.json()["events"]
    assert talk.session()["version"] == 6


OTHER_BODIES = [
    {"events": [{"message": user("other")}, custom()]},  # other content
    {"events": [HELLO]},  # fewer events
    {"events": [HELLO, custom(), HELLO]},  # more events
    {"events": [custom(), HELLO]},  # another order
    {"events": [{**HELLO, "metadata": {"a": 1}}, custom()]},  # other metadata
    {"format": "openai", "messages": [HELLO["message"]]},  # the short form of the beginning
]


@pytest.mark.parametrize("body", OTHER_BODIES, ids=str)
def test_a_key_with_another_body_is_refused(talk: Talk, body: dict[str, Any]) -> None:
    assert keyed(talk, {"events": [HELLO, custom()]}).status_code == 201
    problem(keyed(talk, body), 409, "idempotency-key-reused")
    assert talk.session()["version"] == 2


def test_the_short_form_with_the_same_content_is_the_same_request(talk: Talk) -> None:
    assert keyed(talk, {"events": [HELLO]}).status_code == 201
    assert keyed(talk, {"format": "openai", "messages": [HELLO["message"]]}).status_code == 200


def test_a_key_goes_with_no_ids_of_the_clients_own(talk: Talk) -> None:
    assert pointers(keyed(talk, {"events": [HELLO, {**HELLO, "id": "mine"}]})) == ["/events/1/id"]


def test_a_key_means_something_else_in_every_session(http: httpx.Client, talk: Talk) -> None:
    other = Talk(http, talk.id + "-other")
    first, second = keyed(talk, {"events": [HELLO]}), keyed(other, {"events": [{"message": user("other")}]})
    assert (first.status_code, second.status_code) == (201, 201)
    assert other.texts() == ["other"]


def test_a_key_of_a_request_that_failed_is_free(talk: Talk) -> None:
    talk.append(HELLO)
    problem(keyed(talk, {"events": [HELLO], "expected_version": 7}), 412, "version-conflict")
    assert keyed(talk, {"events": [{"message": user("other")}], "expected_version": 1}).status_code == 201


def test_other_keys_are_other_requests(talk: Talk) -> None:
    for key in ("a", "A", "a ", "1:a", "a:1", "é".encode("latin-1").decode("latin-1")):
        answer = talk.http.post(
            talk.path + "/events",
            json={"events": [HELLO]},
            headers={b"Idempotency-Key": key.strip().encode("latin-1") + b"-"},
            params={"create": "true"},
        )
        assert answer.status_code == (200 if key == "a " else 201)


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_a_key_has_a_bounded_length(talk: Talk, key: str) -> None:
    assert pointers(keyed(talk, {"events": [HELLO]}, key)) == ["Idempotency-Key"]
    assert keyed(talk, {"events": [HELLO]}, "k" * 255).status_code == 201


def test_a_request_that_is_sent_many_times_at_once_is_stored_once(service: Service, talk: Talk) -> None:
    gate = threading.Barrier(8)

    def append(_: int) -> httpx.Response:
        with service.client() as client:
            gate.wait()
            return keyed(Talk(client, talk.id), {"events": turns_as_events(3)})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(append, range(8)))

    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({tuple(event["seq"] for event in answer.json()["events"]) for answer in answers}) == 1
    assert talk.session()["version"] == 6


def turns_as_events(count: int) -> list[dict[str, Any]]:
    return [{"message": message} for message in turns(count)]


# Append and read in one round trip.


@pytest.mark.parametrize("output", ["events", "openai", "text"])
def test_an_append_can_give_the_view_back(talk: Talk, output: str) -> None:
    talk.append(system("p"), *turns(4))
    talk.compact(last_turns=2)
    answer = talk.http.post(
        talk.path + "/events", json={"events": [HELLO]}, params={"return": "view", "format": output}
    )
    assert answer.status_code == 201
    view = answer.json()["view"]
    assert {key: view[key] for key in ("session_id", "version", "boundary", "turns", "token_count")} == {
        key: talk.view()[key] for key in ("session_id", "version", "boundary", "turns", "token_count")
    }
    if output == "text":
        assert view["text"] == talk.http.get(talk.path + "/view", params={"format": "text"}).text
    else:
        assert view == talk.view(output)


def test_a_view_comes_back_as_events_unless_another_format_is_named(talk: Talk) -> None:
    answer = talk.http.post(talk.path + "/events", json={"events": [HELLO]}, params={"create": "1", "return": "view"})
    assert answer.json()["view"] == talk.view()


def test_a_replay_gives_the_view_back_too(talk: Talk) -> None:
    body = {"events": [{**HELLO, "id": "e1"}]}
    talk.append(*body["events"])
    answer = talk.http.post(talk.path + "/events", json=body, params={"return": "view"})
    assert (answer.status_code, answer.json()["view"]) == (200, talk.view())


BAD_PARAMETERS = [
    ({"return": "log"}, "return"),  # only the view can be given back
    ({"return": "view", "format": "xml"}, "format"),  # in a format that there is
    ({"create": "maybe"}, "create"),  # yes or no
]


@pytest.mark.parametrize(("params", "name"), BAD_PARAMETERS)
def test_a_bad_parameter_of_an_append_is_named(talk: Talk, params: dict[str, str], name: str) -> None:
    talk.append(HELLO)
    assert pointers(talk.http.post(talk.path + "/events", json={"events": [HELLO]}, params=params)) == [name]
    assert talk.session()["version"] == 1


# The short form.


def test_openai_messages_are_appended_as_they_are(talk: Talk) -> None:
    messages = [system("p"), user("q"), assistant(None, c1="f"), tool("c1", "r"), assistant("a")]
    answer = talk.http.post(
        talk.path + "/events",
        json={"format": "openai", "messages": messages, "expected_version": 0},
        params={"create": "true"},
    )
    assert answer.status_code == 201
    assert [event["message"] for event in talk.log()] == messages
    wrong = {"format": "openai", "messages": messages, "expected_version": 0}
    problem(talk.http.post(talk.path + "/events", json=wrong), 412, "version-conflict")


# Read the log.


@pytest.fixture
def mixed(talk: Talk) -> Talk:
    """A log of 12: system, q1, a1, custom, q2, call, result, a2, boundary, question, summary, q3."""
    said = [user("q2"), assistant(None, c1="f"), tool("c1", "r"), assistant("a2")]
    talk.append(system("p"), weighty(user("q1")), weighty(assistant("a1")), custom("ACME.X", n=1), *said)
    talk.compact(last_turns=1, summary="short")
    talk.append(user("q3"))
    assert talk.session()["version"] == 12, "the summary was taken"
    return talk


READS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),  # everything, covered or not
    ({"after": 9}, [10, 11, 12]),  # after a seq
    ({"after": 0}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),  # from the beginning
    ({"after": 12}, []),  # nothing new
    ({"after": 2**63 - 1}, []),  # far beyond
    ({"before": 3}, [1, 2]),  # before a seq
    ({"before": 1}, []),
    ({"before": 0}, []),
    ({"after": 3, "before": 7}, [4, 5, 6]),  # between two
    ({"after": 7, "before": 3}, []),  # between two that cross
    ({"order": "desc"}, [12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),  # newest first
    ({"order": "desc", "before": 4}, [3, 2, 1]),
    ({"limit": 2}, [1, 2]),
    ({"limit": 2, "order": "desc"}, [12, 11]),
    ({"limit": 1, "after": 4}, [5]),
    ({"types": "COMPACTION"}, [9]),  # the boundaries
    ({"types": "ACME.X"}, [4]),
    ({"types": "ACME.X,COMPACTION"}, [4, 9]),  # any of them
    ({"types": "ACME.NONE"}, []),
    ({"types": "MESSAGE"}, [1, 2, 3, 5, 6, 7, 8, 10, 11, 12]),
    ({"roles": "user"}, [2, 5, 10, 12]),
    ({"roles": "system,tool"}, [1, 7]),
    ({"roles": "developer"}, []),  # a role of its own
    ({"roles": "user", "types": "MESSAGE,ACME.X"}, [2, 5, 10, 12]),  # both must hold
    ({"roles": "user", "synthetic": "false"}, [2, 5, 12]),
    ({"synthetic": "true"}, [10, 11]),
    ({"synthetic": "false"}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 12]),
    ({"active": "true"}, [1, 10, 11, 5, 6, 7, 8, 12]),  # what is in the view, in its order
    ({"active": "true", "roles": "user"}, [10, 5, 12]),
    ({"active": "true", "synthetic": "false"}, [1, 5, 6, 7, 8, 12]),
    ({"active": "true", "types": "ACME.X"}, []),  # never in a view
    ({"active": "true", "limit": 3}, [1, 10, 11]),
    ({"active": "false"}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    ({"last_n": 1}, [12]),  # lands on a turn's start
    ({"last_n": 2}, [5, 6, 7, 8, 9, 10, 11, 12]),  # lands on the summary, which starts no turn
    ({"last_n": 8}, [5, 6, 7, 8, 9, 10, 11, 12]),
    ({"last_n": 9}, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),  # lands on the custom event of turn 1
    ({"last_n": 12}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),  # all there is
    ({"last_n": 1000}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),  # more than there is
    ({"last_n": 2, "order": "desc"}, [12, 11, 10, 9, 8, 7, 6, 5]),
    ({"last_n": 2, "roles": "assistant,tool"}, [8, 11]),  # no user message among the matches
    ({"last_n": 2, "roles": "user"}, [5, 10, 12]),  # lands on the summary's question
    ({"last_n": 2, "synthetic": "false", "types": "MESSAGE"}, [5, 6, 7, 8, 12]),
    ({"last_n": 1, "types": "ACME.NONE"}, []),
    ({"last_n": 2, "active": "true"}, [5, 6, 7, 8, 12]),  # lands in a turn of the view
    ({"last_n": 6, "active": "true"}, [11, 5, 6, 7, 8, 12]),  # before the first turn: just the newest
]


@pytest.mark.parametrize(("params", "found"), READS, ids=lambda value: str(value)[:60])
def test_the_log_is_read_as_asked(mixed: Talk, params: dict[str, Any], found: list[int]) -> None:
    assert seqs(mixed.get("/events", params=params)) == found


BAD_READS: list[tuple[dict[str, Any], str]] = [
    ({"after": -1}, "after"),  # before the beginning
    ({"before": -1}, "before"),
    ({"after": 2**63}, "after"),  # beyond any seq
    ({"after": "x"}, "after"),  # no number
    ({"limit": 0}, "limit"),
    ({"limit": 1001}, "limit"),
    ({"order": "up"}, "order"),
    ({"types": ""}, "types"),  # an empty list
    ({"types": "message"}, "types"),  # no type's name
    ({"types": "MESSAGE,"}, "types"),  # nothing after the comma
    ({"types": "A" * 65}, "types"),
    ({"types": "A\0"}, "types"),
    ({"roles": "robot"}, "roles"),  # no role
    ({"roles": ""}, "roles"),
    ({"roles": "User"}, "roles"),
    ({"roles": "user", "types": "ACME.X"}, "roles"),  # only messages have a role
    ({"roles": "user", "types": "COMPACTION,ACME.X"}, "roles"),
    ({"synthetic": "maybe"}, "synthetic"),
    ({"active": "maybe"}, "active"),
    ({"last_n": 0}, "last_n"),  # the newest none
    ({"last_n": -1}, "last_n"),
    ({"last_n": "x"}, "last_n"),
    ({"last_n": 1, "after": 1}, "last_n"),  # with what pages
    ({"last_n": 1, "before": 9}, "last_n"),
    ({"last_n": 1, "limit": 9}, "last_n"),
    ({"last_n": 1, "active": "true", "limit": 9}, "last_n"),
    ({"active": "true", "after": 1}, "active"),  # the view's order is not that of seqs
    ({"active": "true", "before": 1}, "active"),
    ({"active": "true", "order": "desc"}, "active"),
]


@pytest.mark.parametrize(("params", "name"), BAD_READS, ids=lambda value: str(value)[:60])
def test_a_bad_parameter_of_a_read_is_named(mixed: Talk, params: dict[str, Any], name: str) -> None:
    assert pointers(mixed.http.get(mixed.path + "/events", params=params)) == [name]


WALKS: list[dict[str, Any]] = [
    {},
    {"order": "desc"},
    {"after": 2, "before": 11},  # bounds hold on every page
    {"after": 2, "before": 11, "order": "desc"},
    {"roles": "user,assistant"},  # and so do filters
    {"types": "MESSAGE", "synthetic": "false", "order": "desc"},
    {"active": "true"},
    {"active": "true", "synthetic": "false"},
]


@pytest.mark.parametrize("params", WALKS, ids=str)
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_add_up_to_the_whole(mixed: Talk, params: dict[str, Any], limit: int) -> None:
    whole = mixed.get("/events", params=params)
    assert (whole["has_more"], whole["next_cursor"]) == (False, None)
    assert mixed.log(**params, limit=limit) == whole["data"]


def test_the_last_page_says_that_it_is_the_last(mixed: Talk) -> None:
    page = mixed.get("/events", params={"limit": 11})
    assert page["has_more"]
    page = mixed.get("/events", params={"limit": 1, "cursor": page["next_cursor"]})
    assert (seqs(page), page["has_more"], page["next_cursor"]) == ([12], False, None)


def test_a_page_holds_a_hundred_events_unless_it_is_told(talk: Talk) -> None:
    talk.append(*[HELLO] * 150)
    assert seqs(talk.get("/events")) == list(range(1, 101))
    assert len(talk.get("/events", params={"active": "true"})["data"]) == 100
    assert len(talk.get("/events", params={"limit": 1000})["data"]) == 150


def test_a_walk_sees_what_is_appended_meanwhile(talk: Talk) -> None:
    talk.append(*turns(2))
    page = talk.get("/events", params={"limit": 3})
    talk.append(HELLO)
    assert seqs(talk.get("/events", params={"cursor": page["next_cursor"]})) == [4, 5]


def test_a_walk_over_the_view_sees_one_view_whatever_happens_meanwhile(talk: Talk) -> None:
    talk.append(*turns(3))
    page = talk.get("/events", params={"active": "true", "limit": 4})
    talk.compact(last_turns=1)
    talk.append(HELLO)
    assert seqs(talk.get("/events", params={"active": "true", "cursor": page["next_cursor"]})) == [5, 6]


def test_covered_events_are_marked_and_others_are_not(mixed: Talk) -> None:
    covered = [event["seq"] for event in mixed.log() if event["covered"]]
    assert covered == [2, 3]
    assert not any(event["covered"] for event in mixed.log(active="true"))
    by_id = {event["seq"]: event["id"] for event in mixed.log()}
    assert mixed.get("/events/" + by_id[2])["covered"]
    assert not mixed.get("/events/" + by_id[4])["covered"]
    assert [event["seq"] for event in mixed.log() if event["synthetic"]] == [10, 11]


def test_a_boundary_reads_as_a_compaction_event(talk: Talk) -> None:
    talk.append(*({"message": message, "token_count": 10} for message in (system("p"), *turns(2))))
    talk.append(custom())
    talk.append(*({"message": message, "token_count": 10} for message in turns(2)))
    window, trigger = {"rule": "last_turns", "size": 1}, {"type": "turn_count", "threshold": 2}
    talk.post("/compact", {"window": window, "trigger": trigger})
    talk.append(*({"message": message, "token_count": 500} for message in turns(2)))
    talk.compact(last_turns=1, summary="short", trigger={"type": "always"})

    first, second = talk.get("/events", params={"types": "COMPACTION"})["data"]

    assert first["seq"] == 11
    assert first["type"] == "COMPACTION"
    assert (first["synthetic"], first["token_count"], first["covered"], first["metadata"]) == (False, 0, False, {})
    assert first["timestamp"] is None
    assert "message" not in first
    shown = {key: first["payload"][key] for key in SHAPE}
    assert shown == {
        "covered": [[2, 8]],
        "newly_covered": [[2, 8]],
        "pinned": [1],
        "preserved": [[9, 10]],
        "summary": [],
        "trigger": trigger,
        "window": window,
        "summarizer": None,
        "tokens": {"before": 90, "after": 30, "saved": 60},
    }
    payload = second["payload"]
    assert {key: payload[key] for key in SHAPE if key != "tokens"} == {
        "covered": [[2, 13]],
        "newly_covered": [[9, 13]],
        "pinned": [1],
        "preserved": [[14, 15]],
        "summary": [17, 18],
        "trigger": {"type": "always"},
        "window": window,
        "summarizer": {"type": "text"},
    }
    question, summary = talk.log()[-2:]
    assert [question["message"]["role"], summary["message"]["role"]] == ["user", "assistant"]
    assert summary["message"]["content"] == "short"
    assert question["metadata"] == summary["metadata"] == {"boundary": 16}
    assert payload["tokens"]["after"] == talk.session()["view"]["tokens"]


SHAPE = ("covered", "newly_covered", "pinned", "preserved", "summary", "trigger", "window", "summarizer", "tokens")


def test_an_expired_session_is_recreated_by_an_append_that_may_create(service: Service, talk: Talk) -> None:
    talk.append(*turns(2))
    expire(service, talk.id)
    assert talk.append(HELLO, status=201)["version"] == 1


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("filters", [{}, {"types": "MESSAGE", "roles": "user", "synthetic": False}])
def test_a_page_of_long_events_ends_early_and_the_next_goes_on(talk: Talk, order: str, filters: dict[str, Any]) -> None:
    long = "x" * 3_000_000
    for number in range(8):
        talk.append({"role": "user", "content": f"{number} {long}"}, {"role": "user", "content": f"{number} short"})
    params = {"order": order, "limit": 100, **filters}
    seqs: list[int] = []
    lengths: list[int] = []
    while True:
        answer = talk.http.get(talk.path + "/events", params=params)
        page = answer.json()
        lengths.append(len(answer.content))
        seqs += [event["seq"] for event in page["data"]]
        assert page["has_more"] == (page["next_cursor"] is not None)
        if not page["has_more"]:
            break
        params["cursor"] = page["next_cursor"]
    assert seqs == ([*range(1, 17)] if order == "asc" else [*range(16, 0, -1)])
    assert len(lengths) == 2
    assert max(lengths) < 21 * 1024 * 1024
