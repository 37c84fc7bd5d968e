"""Rendering a view as chat messages."""

import json
from datetime import UTC, datetime

import pytest

from app.domain import exact_json, message
from app.domain.event import StoredEvent
from app.domain.ranges import NOTHING
from app.domain.view import View
from app.formats import openai, openai_responses, pairing
from tests.formats import validators

HELLO = '{"role":"user","content":"hello"}'


def view_of(*bodies: str, roles: str) -> View[StoredEvent]:
    """Return a view of messages given as their texts, each of which the door takes; roles by their first letters."""
    shapes = [message.check(exact_json.parse(body)) for body in bodies]
    assert [shape.role[0] for shape in shapes] == list(roles)
    events = tuple(
        StoredEvent(
            seq=seq,
            role=shape.role,
            event_id=f"e{seq}",
            body=body,
            metadata="{}",
            timestamp=None,
            stored_at=datetime(2026, 11, 30, tzinfo=UTC),
            calls=shape.calls,
            answers=shape.answers,
        )
        for seq, (shape, body) in enumerate(zip(shapes, bodies, strict=True), start=1)
    )
    return View(version=len(events), boundary=None, covered=NOTHING, events=events)


def messages(view: View[StoredEvent]) -> list[str]:
    found = openai.render(view).fields["messages"]
    assert isinstance(found, list)
    return found


def test_an_empty_view_has_no_messages() -> None:
    rendered = openai.render(view_of(roles=""))
    assert rendered.fields == {"messages": []}
    assert rendered.warnings == ()


def test_a_message_goes_out_as_the_bytes_it_came_in() -> None:
    body = r'{ "content":"\u0041","role" : "user", "n":1.10e400 }'
    assert messages(view_of(body, roles="u")) == [body]


def test_the_newest_system_message_is_first_and_alone() -> None:
    said = [f'{{"role":"{role}","content":"x"}}' for role in ("system", "user", "assistant", "developer", "system")]
    rendered = openai.render(view_of(*said, roles="suads"))
    assert rendered.fields["messages"] == [said[4], said[1], said[2]]
    assert [(one.code, one.seq) for one in rendered.warnings] == [(pairing.SUPERSEDED, 1), (pairing.SUPERSEDED, 4)]


def test_one_system_message_is_no_matter_for_a_warning() -> None:
    said = ['{"role":"user","content":"x"}', '{"role":"system","content":"y"}']
    rendered = openai.render(view_of(*said, roles="us"))
    assert rendered.fields["messages"] == [said[1], said[0]]
    assert rendered.warnings == ()


# What an assistant sends, and what goes out when something has to change.
CALLS = [
    (
        '{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"arguments":"{}","name":"f"}}]}',
        None,
    ),  # a string is the API's own form
    (
        '{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"arguments":{"b":1,"a":2},"name":"f"}}]}',
        r'{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"arguments":"{\"b\":1,\"a\":2}","name":"f"}}]}',
    ),  # an object becomes its own text
    (
        '{"role":"assistant","tool_calls":[{"id":"c","type":"function",'
        '"function":{"arguments": { "n" : 1.10 } ,"name":"f"}}]}',
        r'{"role":"assistant","tool_calls":[{"id":"c","type":"function",'
        r'"function":{"arguments":"{ \"n\" : 1.10 }","name":"f"}}]}',
    ),  # with its space
    (
        '{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"arguments":{},"name":"f"}}]}',
        '{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"arguments":"{}","name":"f"}}]}',
    ),  # an empty one, too
    (
        r'{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{"t":"\u0000\"\\é"}}}]}',
        r'{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":'
        r'"{\"t\":\"\\u0000\\\"\\\\é\"}"}}]}',
    ),  # its escapes are escaped
    (
        '{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{"name":"f","input":"i"}}]}',
        None,
    ),  # a call of another type has none
    (
        '{"n":1e400,"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"x"}},'
        '{"x":[ 1.0 ],"id":"d","type":"function","function":{"name":"g","arguments":{"a":1}}}],"content":null}',
        '{"n":1e400,"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"x"}},'
        r'{"x":[ 1.0 ],"id":"d","type":"function","function":{"name":"g","arguments":"{\"a\":1}"}}],"content":null}',
    ),  # one of two, and everything else as it was
]


@pytest.mark.parametrize(("body", "shown"), CALLS)
def test_arguments_are_always_a_string(body: str, shown: str | None) -> None:
    view = view_of(HELLO, body, roles="ua")
    assert messages(view)[1] == (shown or body)


# What the rules for messages let through and the API would refuse.
ODD_CALLS = [
    '{"id":"c","function":{"name":"f","arguments":"{}"}}',  # without a type
    '{"id":"c","type":"custom","function":"x"}',  # a custom call that is none
    '{"id":"c","type":"custom","function":null}',
    '{"id":"c","type":"custom"}',
    '{"id":"c","type":"acme"}',  # a type nobody knows
]


@pytest.mark.parametrize("call", ODD_CALLS)
def test_an_odd_call_is_shown_as_one_that_the_api_takes(call: str) -> None:
    view = view_of(HELLO, f'{{"role":"assistant","content":null,"tool_calls":[{call}]}}', HELLO, roles="uau")
    rendered = openai.render(view)
    assert validators.openai.check({"messages": [json.loads(text) for text in rendered.fields["messages"]]}) == []
    assert "call-adapted" in {warning.code for warning in rendered.warnings}


def test_the_same_view_gives_the_same_bytes() -> None:
    view = view_of(HELLO, CALLS[1][0], roles="ua")
    assert openai.render(view) == openai.render(view)


PNG = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ({"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}, None),
        ({"type": "image_url", "image_url": {"url": "data:image/bmp;base64,AAAA"}}, "[not shown: image image/bmp]"),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a"}}, None),
        (
            {"type": "file", "file": {"file_data": "data:text/csv;base64,AAAA", "filename": "a.csv"}},
            "[not shown: file a.csv text/csv]",
        ),
        ({"type": "file", "file": {"file_data": "data:video/mp4;base64,AAAA"}}, "[not shown: video video/mp4]"),
        ({"type": "file", "file": {"file_data": PNG}}, {"type": "image_url", "image_url": {"url": PNG}}),
        (
            {"type": "file", "file": {"file_data": "data:audio/wav;base64,AAAA"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        ),
    ],
)
def test_media_of_types_that_the_api_refuses_are_marks(part: dict[str, object], shown: object) -> None:
    body = json.dumps({"role": "user", "content": [{"type": "text", "text": "x"}, part]})
    rendered = openai.render(view_of(body, roles="u"))
    sent = [json.loads(text) for text in rendered.fields["messages"]]
    expected = {"type": "text", "text": shown} if isinstance(shown, str) else shown or part
    assert sent[0]["content"][1] == expected
    assert [one.code for one in rendered.warnings] == (["media-left-out"] if isinstance(shown, str) else [])
    assert validators.openai.check({"messages": sent}) == []


def test_an_image_that_the_responses_api_refuses_is_a_mark() -> None:
    part = '{"type":"image_url","image_url":{"url":"data:image/bmp;base64,AAAA"}}'
    rendered = openai_responses.render(view_of(f'{{"role":"user","content":[{part}]}}', roles="u"))
    assert "[not shown: image image/bmp]" in rendered.fields["input"][0]
