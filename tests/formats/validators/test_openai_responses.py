"""The responses validator takes what the API takes, and refuses what it refuses."""

from typing import Any

import pytest

from tests.formats.validators.openai_responses import check

PNG = "data:image/png;base64,iVBORw0KGgo="
USER = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "ok"}


def call(call_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **more}


def output(call_id: str = "a", said: Any = "42", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": said, **more}


def said(*parts: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(parts), **more}


def text(kind: str, words: str = "hi") -> dict[str, Any]:
    return {"type": kind, "text": words}


def reasoning(item_id: str = "rs_1") -> dict[str, Any]:
    return {"type": "reasoning", "id": item_id, "summary": [{"type": "summary_text", "text": "hm"}]}


GOOD = {
    "a question": [USER],
    "parallel calls": [USER, call("a"), call("b"), output("b"), output("a"), ANSWER],
    "calls that are still worked on": [USER, call("a"), call("b"), output("a")],
    "a tool with nothing to say": [USER, call(), output(said="")],
    "an image from a tool": [
        USER,
        call(),
        output(said=[text("input_text"), {"type": "input_image", "image_url": PNG}]),
    ],
    "media": [
        said(
            text("input_text"),
            {"type": "input_image", "detail": "auto", "image_url": "https://example.com/a.png"},
            {"type": "input_image", "detail": "low", "file_id": "file-1"},
            {"type": "input_file", "file_id": "file-1"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        )
    ],
    "a message as the model made it": [
        USER,
        reasoning(),
        said(
            {**text("output_text"), "annotations": []},
            role="assistant",
            id="msg_1",
            status="completed",
            phase="commentary",
        ),
    ],
    "a message without its id": [USER, said(text("output_text"), role="assistant")],
    "a refusal": [USER, said({"type": "refusal", "refusal": "No."}, role="assistant")],
    "reasoning before a call": [USER, reasoning(), call(id="fc_1"), output()],
    "two pieces of reasoning before a call": [USER, reasoning(), reasoning("rs_2"), call(), output()],
    "arguments that are no JSON": [USER, call(arguments='{"a": '), output()],
}

BAD = {
    "no item": [],
    "a system message": [{"role": "system", "content": "Be brief."}, USER],
    "a developer message": [{"role": "developer", "content": "Be brief."}, USER],
    "our own key": [{**USER, "turnlog": 1}],
    "a field that the API does not know": [{**USER, "name": "Ann"}],
    "an item of no type": [USER, {"call_id": "a"}],
    "an output without a call": [USER, output()],
    "an output before its call": [USER, output(), call()],
    "a second output": [USER, call(), output(), output()],
    "a call that is never answered": [USER, call(), USER],
    "one of two calls unanswered": [USER, call("a"), call("b"), output("a"), ANSWER],
    "two calls with one call_id": [USER, call(), output(), USER, call(), output()],
    "a long call_id": [USER, call("x" * 65), output("x" * 65)],
    "an empty call_id": [USER, call(""), output("")],
    "arguments that are an object": [USER, call(arguments={}), output()],
    "a tool name with a dot": [USER, call(name="a.b"), output()],
    "an empty tool name": [USER, call(name=""), output()],
    "reasoning at the end": [USER, reasoning()],
    "reasoning before a user message": [USER, reasoning(), USER],
    "reasoning before an output": [USER, call(), reasoning(), output()],
    "reasoning without a summary": [USER, {"type": "reasoning", "id": "rs_1"}, ANSWER],
    "an id of another kind": [USER, call(id="msg_1"), output()],
    "a message's id of another kind": [USER, said(text("output_text"), role="assistant", id="fc_1")],
    "an id with other characters": [USER, call(id="fc|1"), output()],
    "an id twice": [USER, reasoning(), ANSWER, reasoning(), ANSWER],
    "an output_text of the user": [said(text("output_text"))],
    "an input_text of the assistant": [USER, said(text("input_text"), role="assistant")],
    "a chat part": [said({"type": "image_url", "image_url": {"url": PNG}})],
    "an empty text": [{"role": "user", "content": ""}],
    "an assistant without text": [USER, {"role": "assistant", "content": " "}],
    "an empty part": [said(text("input_text", ""))],
    "no parts": [said()],
    "no content": [{"role": "user", "content": None}],
    "an output that is nothing": [USER, call(), output(said=None)],
    "an image of nothing": [said({"type": "input_image", "detail": "auto", "image_url": None})],
    "a file of nothing": [said({"type": "input_file", "filename": "a.pdf"})],
}


@pytest.mark.parametrize("items", GOOD.values(), ids=GOOD)
def test_a_body_that_the_api_takes_breaks_no_rule(items: list[Any]) -> None:
    assert check({"instructions": "Be brief.", "input": items}) == []


@pytest.mark.parametrize("items", BAD.values(), ids=BAD)
def test_a_body_that_the_api_refuses_breaks_a_rule(items: list[Any]) -> None:
    assert check({"input": items})


@pytest.mark.parametrize("instructions", ["", " ", [], {"text": "x"}])
def test_instructions_are_a_text(instructions: Any) -> None:
    assert check({"instructions": instructions, "input": [USER]})


def test_calls_at_the_end_are_as_many_as_are_listed_as_open() -> None:
    assert check({"input": [USER, call()], "open_tool_calls": [{"id": "a"}]}) == []
    assert check({"input": [USER, call()], "open_tool_calls": []})
    assert check({"input": [USER], "open_tool_calls": [{"id": "a"}]})
