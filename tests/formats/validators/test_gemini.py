"""The Gemini validator takes what the API takes, and refuses what it refuses."""

from typing import Any

import pytest

from tests.formats.validators.gemini import check

PNG = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts or [{"text": "hi"}])}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts or [{"text": "ok"}])}


def call(name: str = "look", beside: Any = None, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}, **more}, **(beside or {})}


def response(name: str = "look", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "42"}, **more}}


GOOD = {
    "a question": [user()],
    "a conversation": [user(), model(), user()],
    "parallel calls": [user(), model(call("f"), call("g")), user(response("f"), response("g")), model()],
    "parallel calls of one name, by id": [
        user(), model(call(id="1"), call(id="2")), user(response(id="1"), response(id="2")), model(),
    ],
    "text before a call": [user(), model({"text": "ok"}, call()), user(response())],
    "the user after responses": [user(), model(call()), user(response()), user(), model()],
    "calls after responses": [user(), model(call()), user(response()), model(call()), user(response())],
    "calls that are still worked on": [user(), model(call("f"), call("g")), user(response("g"))],
    "calls that nothing follows": [user(), model(call())],
    "a call without args": [user(), model({"functionCall": {"name": "look"}}), user(response())],
    "thoughts": [
        user(), model({"text": "hm", "thought": True}, call(beside={"thoughtSignature": "U0lH"})), user(response()),
    ],
    "a signature alone": [user(), model({"text": "ok"}, {"text": "", "thoughtSignature": "U0lH"})],
    "media": [user({"text": "see"}, PNG, {"fileData": {"fileUri": "https://example.com/a", "mimeType": "video/mp4"}})],
    "an image from a tool": [user(), model(call()), user(response(parts=[PNG]))],
}  # fmt: skip

BAD = {
    "no content": [],
    "a system content": [{"role": "system", "parts": [{"text": "x"}]}, user()],
    "a role of OpenAI's": [user(), {"role": "assistant", "parts": [{"text": "x"}]}],
    "the model first": [model(), user()],
    "two of the user": [user(), user()],
    "two of the model": [user(), model(), model()],
    "two with responses": [user(), model(call(), call()), user(response()), user(response())],
    "our own key": [{**user(), "turnlog": 1}],
    "a field that the API does not know": [user({"text": "x", "cache_control": {}})],
    "a snake_case field": [user({"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo="}})],
    "no parts": [{"role": "user", "parts": []}],
    "parts that are a text": [{"role": "user", "parts": "hi"}],
    "an empty part": [user({})],
    "an empty text": [user({"text": ""})],
    "blanks": [user(), model({"text": " "})],
    "two kinds of data in one part": [user({"text": "x", **PNG})],
    "a call of the user": [user(call())],
    "a response of the model": [user(), model(call()), model(response())],
    "a response without a call": [user(response())],
    "a response that comes late": [user(), model(call()), user(), model(), user(response())],
    "a call that is never answered": [user(), model(call()), user()],
    "one of two calls unanswered": [user(), model(call("f"), call("g")), user(response("f")), model()],
    "more responses than calls": [user(), model(call()), user(response(), response())],
    "a response by another name": [user(), model(call("f")), user(response("g"))],
    "responses in another order": [user(), model(call("f"), call("g")), user(response("g"), response("f"))],
    "responses to other ids": [user(), model(call(id="1"), call(id="2")), user(response(id="2"), response(id="1"))],
    "an id that is not sent back": [user(), model(call(id="1")), user(response())],
    "an id that the call does not have": [user(), model(call()), user(response(id="1"))],
    "text beside responses": [user(), model(call()), user(response(), {"text": "x"})],
    "args that are a string": [user(), model(call(args="{}")), user(response())],
    "args that are a list": [user(), model(call(args=[])), user(response())],
    "a response that is a string": [user(), model(call()), user(response(response="42"))],
    "a name that begins with a digit": [user(), model(call("1f")), user(response("1f"))],
    "a name with a blank": [user(), model(call("a b")), user(response("a b"))],
    "an empty name": [user(), model(call("")), user(response(""))],
    "a long name": [user(), model(call("x" * 65)), user(response("x" * 65))],
    "a signature of the user": [user({"text": "x", "thoughtSignature": "U0lH"})],
    "a signature that is not base64": [user(), model({"text": "x", "thoughtSignature": "§"})],
    "data that is not base64": [user({"inlineData": {"mimeType": "image/png", "data": "§"}})],
    "data of no type": [user({"inlineData": {"data": "aGk="}})],
    "a file without an address": [user({"fileData": {"mimeType": "image/png"}})],
    "text inside a response's parts": [user(), model(call()), user(response(parts=[{"text": "x"}]))],
}


@pytest.mark.parametrize("contents", GOOD.values(), ids=GOOD)
def test_a_body_that_the_api_takes_breaks_no_rule(contents: list[Any]) -> None:
    assert check({"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": contents}) == []


@pytest.mark.parametrize("contents", BAD.values(), ids=BAD)
def test_a_body_that_the_api_refuses_breaks_a_rule(contents: list[Any]) -> None:
    assert check({"contents": contents})


@pytest.mark.parametrize("instruction", ["Be brief.", {}, {"parts": []}, {"parts": [{"text": ""}]}, {"parts": [PNG]}])
def test_the_system_instruction_is_a_content_of_text(instruction: Any) -> None:
    assert check({"systemInstruction": instruction, "contents": [user()]})


def test_calls_at_the_end_are_as_many_as_are_listed_as_open() -> None:
    waiting = [user(), model(call("f"), call("g")), user(response("g"))]
    assert check({"contents": waiting, "open_tool_calls": [{"id": "a"}]}) == []
    assert check({"contents": waiting, "open_tool_calls": []})
    assert check({"contents": [user()], "open_tool_calls": [{"id": "a"}]})
