"""The chat completions validator takes what the API takes, and refuses what it refuses."""

from typing import Any

import pytest

from tests.formats.validators.openai import check

PNG = "data:image/png;base64,iVBORw0KGgo="


def user(content: Any = "hi", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def calls(*ids: str, **more: Any) -> dict[str, Any]:
    made = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def result(call: str, content: Any = "42") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": content}


SYSTEM = {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": "ok"}


def called(**function: Any) -> dict[str, Any]:
    made = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}", **function}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


GOOD = {
    "a question": [user()],
    "a developer leads": [{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, user()],
    "parallel calls, results in another order": [SYSTEM, user(), calls("a", "b"), result("b"), result("a"), ANSWER],
    "an id again in a later turn": [user(), calls("a"), result("a"), ANSWER, user(), calls("a"), result("a")],
    "calls that are still worked on": [user(), calls("a", "b"), result("b")],
    "a tool with nothing to say": [user(), calls("a"), result("a", "")],
    "a refusal": [user(), {"role": "assistant", "content": None, "refusal": "No."}],
    "a refusal part": [user(), {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}],
    "arguments that are no JSON": [user(), called(arguments='{"a": '), result("a")],
    "media": [
        user(
            [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
            ]
        )
    ],
    "a name": [user(name="Ann_Lee-1")],
    "a custom tool": [
        user(),
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]},
        result("a"),
    ],
    "a field of the client's own": [user(my_field=1)],
}

BAD = {
    "no message": [],
    "only the system's": [SYSTEM],
    "a system message later": [user(), SYSTEM],
    "two system messages": [SYSTEM, SYSTEM, user()],
    "a role that is none": [{"role": "function", "name": "f", "content": "x"}],
    "our own key": [user(turnlog={"native": 1})],
    "our own key in a part": [user([{"type": "text", "text": "x", "turnlog": 1}])],
    "a result without a call": [user(), result("a")],
    "a result after something else": [user(), calls("a"), ANSWER, result("a")],
    "a second result": [user(), calls("a"), result("a"), result("a")],
    "a call that is never answered": [user(), calls("a"), user()],
    "one of two calls unanswered": [user(), calls("a", "b"), result("a"), ANSWER],
    "two calls with one id": [user(), calls("a", "a"), result("a")],
    "a long call id": [user(), calls("x" * 65), result("x" * 65)],
    "an empty call id": [user(), calls(""), result("")],
    "no calls in tool_calls": [user(), {"role": "assistant", "content": "x", "tool_calls": []}],
    "calls of the user": [{**calls("a"), "role": "user", "content": "x"}, result("a")],
    "a tool_call_id of the user": [user(tool_call_id="a")],
    "arguments that are an object": [user(), called(arguments={}), result("a")],
    "a tool name with a dot": [user(), called(name="a.b"), result("a")],
    "an empty tool name": [user(), called(name=""), result("a")],
    "a long tool name": [user(), called(name="x" * 65), result("a")],
    "an assistant without content": [user(), {"role": "assistant", "content": None}],
    "an assistant with an empty text": [user(), {"role": "assistant", "content": ""}],
    "an assistant with blanks": [user(), {"role": "assistant", "content": " \n"}],
    "calls beside an empty text": [user(), calls("a", content=""), result("a")],
    "a user without content": [user(None)],
    "a user with an empty text": [user("")],
    "an empty text part": [user([{"type": "text", "text": ""}])],
    "no parts": [user([])],
    "a part that is none of OpenAI's": [user([{"type": "thinking", "thinking": "x"}])],
    "an image of the assistant": [
        user(),
        {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
    ],
    "an image of a tool": [user(), calls("a"), result("a", [{"type": "image_url", "image_url": {"url": PNG}}])],
    "a tool without content": [user(), calls("a"), result("a", None)],
    "an image that is not base64": [user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,§"}}])],
    "an image that is none": [user([{"type": "image_url", "image_url": {"url": "data:text/plain;base64,aGk="}}])],
    "audio of another format": [user([{"type": "input_audio", "input_audio": {"data": "aGk=", "format": "ogg"}}])],
    "a file without anything": [user([{"type": "file", "file": {"filename": "a.pdf"}}])],
    "a name with a blank": [user(name="Ann Lee")],
    "an empty name": [user(name="")],
    "a long name": [user(name="x" * 65)],
}


@pytest.mark.parametrize("messages", GOOD.values(), ids=GOOD)
def test_a_body_that_the_api_takes_breaks_no_rule(messages: list[Any]) -> None:
    assert check({"messages": messages}) == []


@pytest.mark.parametrize("messages", BAD.values(), ids=BAD)
def test_a_body_that_the_api_refuses_breaks_a_rule(messages: list[Any]) -> None:
    assert check({"messages": messages})


def test_calls_at_the_end_are_as_many_as_are_listed_as_open() -> None:
    said = [user(), calls("a", "b"), result("b")]
    assert check({"messages": said, "open_tool_calls": [{"id": "a"}]}) == []
    assert check({"messages": said, "open_tool_calls": []})
    assert check({"messages": [user()], "open_tool_calls": [{"id": "a"}]})


def test_a_body_without_messages_is_none() -> None:
    assert check({"input": [user()]})
