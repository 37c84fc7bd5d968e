"""Anthropic's messages."""

import json
from typing import Any

import pytest

from app.domain.errors import SummarizerFailed
from app.summarizer import anthropic_messages
from app.summarizer.model import Endpoint
from app.summarizer.prompt import Prompt

PROMPT = Prompt(system="s", user="u")


@pytest.mark.parametrize("base", ["http://host", "http://host/", "http://host/v1"])
def test_the_request_holds_what_the_protocol_asks_for(base: str) -> None:
    made = anthropic_messages.request(Endpoint(base_url=base, model="m", api_key="k"), PROMPT, max_tokens=9)
    assert made.url == "http://host/v1/messages"
    assert made.headers == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    assert made.body == {
        "model": "m",
        "max_tokens": 9,
        "system": "s",
        "messages": [{"role": "user", "content": "u"}],
    }


def test_without_a_key_there_is_no_key_header() -> None:
    made = anthropic_messages.request(Endpoint(base_url="http://host", model="m"), PROMPT, max_tokens=9)
    assert "x-api-key" not in made.headers


def message(*content: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"content": list(content), "stop_reason": "end_turn"} | rest).encode()


def test_texts_are_joined_and_thinking_is_left_out() -> None:
    body = message(
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "text", "text": "They "},
        {"type": "text", "text": "met."},
    )
    assert anthropic_messages.read(body, asked="m").text == "They met."


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        # Nothing, or thoughts alone.
        ([], "empty"),
        ([{"type": "redacted_thinking", "data": "x"}], "only-reasoning"),
        # A call of a tool, the caller's or the server's own.
        ([{"type": "text", "text": "x"}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}], "tool-call"),
        ([{"type": "server_tool_use", "id": "t", "name": "f", "input": {}}], "tool-call"),
    ],
)
def test_what_is_no_text_is_a_failure(content: list[dict[str, Any]], cause: str) -> None:
    with pytest.raises(SummarizerFailed) as caught:
        anthropic_messages.read(message(*content), asked="m")
    assert caught.value.cause == cause


@pytest.mark.parametrize("usage", [None, [], {}, {"input_tokens": "many"}])
def test_usage_and_model_may_be_missing_or_odd(usage: Any) -> None:
    found = anthropic_messages.read(message({"type": "text", "text": "x"}, usage=usage, model=None), asked="m")
    assert (found.model, found.input_tokens, found.output_tokens) == ("m", None, None)
