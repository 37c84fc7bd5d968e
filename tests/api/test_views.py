"""The view over HTTP."""

import json
from typing import Any

import httpx
import pytest

from tests.api.asking import HELLO, expire, pointers, problem, raw, url_of
from tests.conftest import Service, execute
from tests.talk import Talk, assistant, custom, developer, system, tool, turns, user

JSON = {"Content-Type": "application/json"}


def heavy(said: dict[str, Any], tokens: int = 100) -> dict[str, Any]:
    return {"message": said, "token_count": tokens}


def read(talk: Talk, **params: Any) -> httpx.Response:
    return talk.http.get(talk.path + "/view", params=params)


@pytest.fixture
def compacted(talk: Talk) -> Talk:
    """Ten events: prompt, q1, a1, q2, a2, boundary, question, summary, q3, a3."""
    talk.append(*map(heavy, (system("p"), *turns(2))))
    assert talk.compact(last_turns=1, summary="short")["status"] == "applied"
    talk.append(*map(heavy, turns(1, first=3)))
    return talk


# Formats.


def test_a_view_says_what_it_is_a_view_of(compacted: Talk) -> None:
    view = compacted.view()
    assert set(view) == {"session_id", "version", "boundary", "turns", "token_count", "events"}
    assert (view["session_id"], view["version"], view["boundary"], view["turns"]) == (compacted.id, 10, 6, 2)
    assert [event["seq"] for event in view["events"]] == [1, 7, 8, 4, 5, 9, 10]
    assert view["token_count"] == sum(event["token_count"] for event in view["events"])
    figures = compacted.session()["view"]
    assert figures == {"events": 7, "turns": 2, "tokens": view["token_count"], "boundary": 6}


def test_events_are_the_format_unless_another_is_named(compacted: Talk) -> None:
    assert read(compacted).text == read(compacted, format="events").text


def test_the_openai_view_has_messages_and_warnings(compacted: Talk) -> None:
    view = compacted.view("openai")
    figures = {"session_id", "version", "boundary", "turns", "token_count"}
    assert set(view) == figures | {"messages", "warnings", "open_tool_calls"}
    assert [message["role"] for message in view["messages"]] == ["system", *["user", "assistant"] * 3]
    assert view["messages"] == [event["message"] for event in compacted.view()["events"]]
    assert view["warnings"] == []
    same = ("session_id", "version", "boundary", "turns", "token_count")
    assert [view[field] for field in same] == [compacted.view()[field] for field in same]


def test_the_text_view_is_a_transcript(talk: Talk) -> None:
    talk.append(system("Be kind."), user("Where?"), assistant(None, c1="find"), tool("c1", "here"), assistant("Here."))
    response = read(talk, format="text")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.text == (
        "system: Be kind.\n\nuser: Where?\n\nassistant: [call c1] find({})\n\ntool [c1]: here\n\nassistant: Here.\n"
    )


def test_the_view_of_an_empty_log_is_empty(http: httpx.Client, talk: Talk) -> None:
    http.put(talk.path)
    assert talk.view() == {
        "session_id": talk.id,
        "version": 0,
        "boundary": None,
        "turns": 0,
        "token_count": 0,
        "events": [],
    }
    assert talk.view("openai")["messages"] == []
    assert read(talk, format="text").text == ""


@pytest.mark.parametrize("output", ["", "xml", "OpenAI", "events,text"])
def test_a_format_that_there_is_not_is_refused(talk: Talk, output: str) -> None:
    talk.append(HELLO)
    assert pointers(read(talk, format=output)) == ["format"]


def test_custom_events_are_never_in_a_view(talk: Talk) -> None:
    talk.append(custom(), HELLO, custom())
    assert talk.seqs() == [2]
    assert talk.view("openai")["messages"] == [HELLO["message"]]
    assert "ACME" not in read(talk, format="text").text


def test_the_prompt_alone_is_in_the_system_slot_first(talk: Talk) -> None:
    talk.append(system("old"), user("q1"), developer("newer"), assistant("a1"), system("newest"), user("q2"))
    view = talk.view("openai")
    assert view["messages"] == [system("newest"), user("q1"), assistant("a1"), user("q2")]
    assert [(warning["code"], warning["seq"]) for warning in view["warnings"]] == [
        ("superseded-system-message", 1),
        ("superseded-system-message", 3),
    ]
    assert all(warning["detail"] for warning in view["warnings"])
    assert talk.texts() == ["old", "q1", "newer", "a1", "newest", "q2"]


ARGUMENTS = (
    r'{"z": 1, "a":123456789012345678901234567890, "f": 1.10, "e":{"y" : [ 1e400 ], "x":null}, "n":"\u0000\n\"é\/"}'
)


def test_arguments_that_were_sent_as_an_object_become_their_own_text(talk: Talk) -> None:
    call = f'{{"id":"c1","index":0,"function":{{"arguments":{ARGUMENTS},"name":"f"}},"type":"function"}}'
    message = f'{{"role":"assistant", "x": 1.10, "tool_calls":[{call}],"content":null}}'
    body = f'{{"events":[{{"message":{message}}}]}}'
    answer = talk.http.post(talk.path + "/events", content=body, headers=JSON, params={"create": "true"})
    assert answer.status_code == 201

    shown = talk.view("openai")["messages"][0]

    assert list(shown) == ["role", "x", "tool_calls", "content"]
    assert list(shown["tool_calls"][0]) == ["id", "index", "function", "type"]
    assert list(shown["tool_calls"][0]["function"]) == ["arguments", "name"]
    assert shown["tool_calls"][0]["function"]["arguments"] == ARGUMENTS
    assert '"x":1.10' in read(talk, format="openai").text


def test_arguments_that_were_sent_as_a_string_stay_byte_for_byte(talk: Talk) -> None:
    call = r'{"id":"c1","type":"function","function":{"name":"f","arguments":" {\"a\": \u00e9,,"}}'
    message = f'{{"role":"assistant","tool_calls":[{call}]}}'
    body = f'{{"events":[{{"message":{message}}}]}}'
    talk.http.post(talk.path + "/events", content=body, headers=JSON, params={"create": "true"})
    assert message in read(talk, format="openai").text


# Messages that are taken, and must then be readable in every format.
AWKWARD_MESSAGES = [
    r'{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"custom","function":"x"}]}',
    r'{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"custom","function":{}}]}',
    r'{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"custom","function":{"name":7}}]}',
    r'{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"custom","custom":{"name":"f","input":"i"}}]}',
    r'{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":null,"function":null}]}',
    r'{"role":"assistant","content":"x","tool_call_id":7}',  # a field that means nothing here
    r'{"role":"user","content":"x","tool_call_id":{"a":1}}',
    r'{"role":"user","content":[{"type":"image_url","n":1e400}]}',  # more than a double holds
    r'{"role":"user","content":[{"type":"text","text":"x","n":-1e999}]}',
    r'{"role":"user","content":[{"type":"text","text":"x","n":' + "9" * 5000 + "}]}",
    r'{"role":"user","content":[{"type":"text","text":"\u0000"}]}',
    r'{"role":"user","content":[{"type":"","x":1}]}',
    r'{"role":"user","content":[]}',
    r'{"role":"user","content":"","name":""}',
    r'{"role":"assistant"}',
    r'{"role":"assistant","content":null,"tool_calls":[{"id":"","function":{"name":"","arguments":""}}]}',
    r'{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"n":1e400}}}]}',
    r'{"role":"tool","tool_call_id":"","content":null}',
    r'{"role":"tool","tool_call_id":"c","content":[{"type":"json","json":{"n":1e999}}]}',
    r'{"role":"tool","tool_call_id":"c","content":"x","tool_calls":7,"function":1}',
    r'{"role":"system","content":[{"type":"text","text":"p"},{"type":"x"}]}',
]


@pytest.mark.parametrize("output", ["events", "openai", "text"])
@pytest.mark.parametrize("message", AWKWARD_MESSAGES, ids=lambda value: value[:100])
def test_what_was_taken_can_be_read_in_every_format(talk: Talk, message: str, output: str) -> None:
    body = f'{{"events":[{{"message":{message}}}]}}'
    answer = talk.http.post(talk.path + "/events", content=body, headers=JSON, params={"create": "true"})
    if answer.status_code != 201:
        problem(answer, 422, "invalid-request")
        return
    response = read(talk, format=output)
    assert response.status_code == 200, response.text


# Versions.


def test_every_earlier_view_can_be_read(compacted: Talk) -> None:
    assert compacted.seqs(at_version=0) == []
    assert compacted.seqs(at_version=1) == [1]
    assert compacted.seqs(at_version=5) == [1, 2, 3, 4, 5]
    assert compacted.seqs(at_version=6) == [1, 4, 5]
    assert compacted.seqs(at_version=8) == [1, 7, 8, 4, 5]
    assert compacted.seqs(at_version=10) == compacted.seqs()
    earlier = compacted.view(at_version=5)
    assert (earlier["version"], earlier["boundary"], earlier["turns"], earlier["token_count"]) == (5, None, 2, 500)
    assert not any(event["covered"] for event in earlier["events"])


def test_the_view_of_now_is_the_view_at_the_current_version(compacted: Talk) -> None:
    for output in ("events", "openai", "text"):
        assert read(compacted, format=output).content == read(compacted, format=output, at_version=10).content


BAD_VERSIONS = [
    11,  # not there yet
    10**9,  # far beyond
    2**63 - 1,  # the largest that is a version at all
    2**63,  # larger
    10**30,  # much larger
    -1,  # before the beginning
    "now",  # no number
    "",
]


@pytest.mark.parametrize("version", BAD_VERSIONS)
def test_a_version_that_the_log_has_not_is_refused(compacted: Talk, version: Any) -> None:
    assert pointers(read(compacted, at_version=version)) == ["at_version"]


LASTS = [
    (1, [9, 10]),  # back to the start of the turn
    (2, [9, 10]),
    (3, [4, 5, 9, 10]),
    (4, [4, 5, 9, 10]),
    (5, [8, 4, 5, 9, 10]),  # no turn starts there or before
    (7, [1, 7, 8, 4, 5, 9, 10]),  # all of it
    (100, [1, 7, 8, 4, 5, 9, 10]),
    (2**63 - 1, [1, 7, 8, 4, 5, 9, 10]),
]


@pytest.mark.parametrize(("count", "found"), LASTS)
def test_the_newest_part_of_a_view_begins_with_a_turn(compacted: Talk, count: int, found: list[int]) -> None:
    assert compacted.seqs(last_n=count) == found
    view = compacted.view(last_n=count)
    assert view["token_count"] == sum(event["token_count"] for event in view["events"])
    assert (view["version"], view["boundary"]) == (10, 6)


def test_the_newest_part_of_an_earlier_view(compacted: Talk) -> None:
    assert compacted.seqs(last_n=1, at_version=5) == [4, 5]
    assert compacted.view("openai", last_n=2)["messages"] == [user("question 3"), assistant("answer 3")]
    assert read(compacted, format="text", last_n=1).text.startswith("user: question 3")


@pytest.mark.parametrize("count", [0, -1, "x", 2**63])
def test_a_part_of_nothing_is_refused(compacted: Talk, count: Any) -> None:
    assert pointers(read(compacted, last_n=count)) == ["last_n"]


# Conditional reads.


@pytest.mark.parametrize("output", ["events", "openai", "text"])
def test_a_view_has_a_tag_of_its_version_and_format(compacted: Talk, output: str) -> None:
    response = read(compacted, format=output)
    assert response.headers["etag"] == f'"10-{output}"'
    assert read(compacted, format=output, at_version=7).headers["etag"] == f'"7-{output}"'

    same = compacted.http.get(
        compacted.path + "/view", params={"format": output}, headers={"If-None-Match": response.headers["etag"]}
    )
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", response.headers["etag"])

    compacted.append(HELLO)
    newer = compacted.http.get(
        compacted.path + "/view", params={"format": output}, headers={"If-None-Match": response.headers["etag"]}
    )
    assert (newer.status_code, newer.headers["etag"]) == (200, f'"11-{output}"')


TAGS = [
    ('"10-openai"', 304),  # the one it has
    ('W/"10-openai"', 304),  # compared weakly
    ("*", 304),  # anything
    ('"3-openai", "10-openai"', 304),  # in a list
    ('"10-openai","9-openai"', 304),  # without a space
    ('"10-openai", "10-text", "x"', 304),  # among others
    ('"x", W/"10-openai"', 304),
    ('"9-openai"', 200),  # an older one
    ('"11-openai"', 200),  # one that is to come
    ('"10-events"', 200),  # of another format
    ('"10"', 200),  # of nothing
    ("10-openai", 200),  # without quotes it is no tag
    ('"1-openai", "2-openai"', 200),
    ('"99999999999999999999999-openai"', 200),  # larger than any version
    ('""', 200),
    ("", 200),
    ('"*"', 200),  # a star in quotes is a tag like any other
]


@pytest.mark.parametrize(("tags", "status"), TAGS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_view_that_the_client_has_is_not_sent_again(compacted: Talk, method: str, tags: str, status: int) -> None:
    response = compacted.http.request(
        method, compacted.path + "/view", params={"format": "openai"}, headers={"If-None-Match": tags}
    )
    assert response.status_code == status
    assert response.headers["etag"] == '"10-openai"'
    assert bool(response.content) == (status == 200 and method == "GET")


def test_several_headers_are_one_list(service: Service, compacted: Talk) -> None:
    response = compacted.http.get(
        compacted.path + "/view", headers=[("If-None-Match", '"3-events"'), ("If-None-Match", '"10-events"')]
    )
    assert response.status_code == 304
    response = compacted.http.get(
        compacted.path + "/view", headers=[("If-None-Match", '"10-events"'), ("If-None-Match", '"3-events"')]
    )
    assert response.status_code == 304


def test_a_view_that_the_client_has_of_a_session_that_is_gone_is_an_error(service: Service, compacted: Talk) -> None:
    for tags in ('"10-events"', "*"):
        missing = compacted.http.get("/v1/sessions/nobody/view", headers={"If-None-Match": tags})
        problem(missing, 404, "session-not-found")
    expire(service, compacted.id)
    gone = compacted.http.get(compacted.path + "/view", headers={"If-None-Match": '"10-events"'})
    problem(gone, 410, "session-expired")


def test_a_bad_request_is_an_error_whatever_the_client_has(compacted: Talk) -> None:
    answer = compacted.http.get(
        compacted.path + "/view", params={"at_version": 11}, headers={"If-None-Match": '"11-events"'}
    )
    assert pointers(answer) == ["at_version"]


TOUCHLESS = [
    '"{version}-events"',  # the version that is current
    '"1-events", "{version}-events"',  # in a list
    '"{version}-events", "2-events", "3-events"',
    "*",  # any
]


@pytest.mark.parametrize("boundary", [False, True], ids=["without a boundary", "with a boundary"])
@pytest.mark.parametrize("tags", TOUCHLESS)
def test_a_304_touches_no_event_rows(own_service: Service, tags: str, boundary: bool) -> None:
    with own_service.client() as http:
        talk = Talk(http, "s1")
        talk.append(*map(heavy, turns(3)))
        if boundary:
            talk.compact(last_turns=1)
        version = talk.session()["version"]
        # From here on, whoever reads a row of an event falls.
        execute(
            url_of(own_service),
            "ALTER TABLE events RENAME TO stored_events",
            "CREATE FUNCTION touched() RETURNS boolean LANGUAGE plpgsql COST 1000 AS"
            " $$ BEGIN RAISE EXCEPTION 'an event row was touched'; END $$",
            "CREATE VIEW events AS SELECT * FROM stored_events WHERE touched()",
        )
        assert http.get(talk.path + "/view").status_code == 500, "the trap works"
        known = http.get(talk.path + "/view", headers={"If-None-Match": tags.format(version=version)})
        assert known.status_code == 304


def test_head_answers_like_get_without_a_body(compacted: Talk) -> None:
    for output in ("events", "openai", "text"):
        full = read(compacted, format=output)
        head = compacted.http.head(compacted.path + "/view", params={"format": output})
        assert (head.status_code, head.content) == (200, b"")
        for name in ("etag", "content-type", "content-length"):
            assert head.headers[name] == full.headers[name]


def test_head_of_what_is_missing_is_an_error_without_a_body(service: Service, talk: Talk) -> None:
    status, headers, body = raw(service, "HEAD", talk.path + "/view")
    assert (status, body) == (404, b"")
    assert headers["content-type"] == "application/problem+json"


# Between two boundaries a view only grows.


def test_a_view_only_grows_at_its_end_until_it_is_compacted(compacted: Talk) -> None:
    before = [json.dumps(event) for event in compacted.view()["events"]]
    messages = read(compacted, format="openai").json()["messages"]
    text = read(compacted, format="text").text
    compacted.append(custom(), *turns(2, first=4))
    assert [json.dumps(event) for event in compacted.view()["events"]][: len(before)] == before
    assert read(compacted, format="openai").json()["messages"][: len(messages)] == messages
    assert read(compacted, format="text").text.startswith(text)


def test_the_same_view_is_the_same_bytes(service: Service, compacted: Talk) -> None:
    with Service(service.settings) as other, other.client() as client:
        for output in ("events", "openai", "text"):
            elsewhere = client.get(compacted.path + "/view", params={"format": output})
            assert elsewhere.content == read(compacted, format=output).content
