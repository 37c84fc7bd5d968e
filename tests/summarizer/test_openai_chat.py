"""OpenAI's chat completions, as several servers speak them."""

import json
from typing import Any

import pytest

from app.domain.errors import SummarizerFailed
from app.summarizer import openai_chat
from app.summarizer.model import Endpoint
from app.summarizer.prompt import Prompt

PROMPT = Prompt(system="s", user="u")


@pytest.mark.parametrize("base", ["http://host/v1", "http://host/v1/"])
def test_the_request_holds_what_every_model_takes_and_nothing_else(base: str) -> None:
    made = openai_chat.request(Endpoint(base_url=base, model="m", api_key="k"), PROMPT, max_tokens=9)
    assert made.url == "http://host/v1/chat/completions"
    assert made.headers == {"Authorization": "Bearer k"}
    assert made.body == {
        "model": "m",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "max_tokens": 9,
    }


def test_without_a_key_there_is_no_authorization() -> None:
    assert not openai_chat.request(Endpoint(base_url="http://host/v1", model="m"), PROMPT, max_tokens=9).headers


def test_the_limit_can_have_its_newer_name() -> None:
    endpoint = Endpoint(base_url="http://host/v1", model="m")
    made = openai_chat.request(endpoint, PROMPT, max_tokens=9, limit_name="max_completion_tokens")
    assert "max_tokens" not in made.body
    assert made.body["max_completion_tokens"] == 9


def completion(message: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]} | rest).encode()


def test_an_answer_in_parts_is_one_text() -> None:
    parts = [{"type": "text", "text": "They "}, {"type": "thinking", "text": "hm"}, {"type": "text", "text": "met."}]
    assert openai_chat.read(completion({"content": parts}), asked="m").text == "They met."


@pytest.mark.parametrize(
    "message",
    [
        # vLLM's empty list of calls, and the reasoning that it and others put beside the text.
        {"content": "They met.", "tool_calls": [], "reasoning_content": "hm"},
        {"content": "They met.", "function_call": None, "reasoning": "hm", "refusal": None},
        # Fields of the future.
        {"content": "They met.", "annotations": [{"x": 1}], "audio": None},
    ],
)
def test_what_servers_add_does_not_matter(message: dict[str, Any]) -> None:
    assert openai_chat.read(completion(message), asked="m").text == "They met."


@pytest.mark.parametrize("usage", [None, [], {}, {"prompt_tokens": "many"}])
def test_usage_and_model_may_be_missing_or_odd(usage: Any) -> None:
    found = openai_chat.read(completion({"content": "x"}, usage=usage, model=None), asked="m")
    assert (found.model, found.input_tokens, found.output_tokens) == ("m", None, None)


def test_an_old_function_call_is_a_tool_call() -> None:
    with pytest.raises(SummarizerFailed) as caught:
        openai_chat.read(completion({"content": "x", "function_call": {"name": "f", "arguments": "{}"}}), asked="m")
    assert caught.value.cause == "tool-call"
