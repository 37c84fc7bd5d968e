"""The Anthropic validator takes what the API takes, and refuses what it refuses."""

from typing import Any

import pytest

from tests.formats.validators.anthropic import check

MARK = {"cache_control": {"type": "ephemeral"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "U0lH"}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks) or "hi"}


def model(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks) or "ok"}


def text(words: str = "hi", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(call: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": "look", "input": {}, **more}


def result(call: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": "42", **more}


def source(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "source": fields}


GOOD = {
    "a question": [user()],
    "a conversation": [user(), model(), user()],
    "parallel calls": [user(), model(text(), use("a"), use("b")), user(result("b"), result("a"), text()), model()],
    "calls that are still worked on": [user(), model(use("a"), use("b")), user(result("b"))],
    "calls that nothing follows": [user(), model(use("a"))],
    "thinking": [user(), model(THINKING, text(), use()), user(result()), model(THINKING, text())],
    "redacted thinking": [user(), model({"type": "redacted_thinking", "data": "eA=="}, text())],
    "media": [
        user(
            text(),
            IMAGE,
            PDF,
            source("image", type="url", url="https://example.com/a.png"),
            source("document", type="url", url="https://example.com/a.pdf"),
            source("document", type="text", media_type="text/plain", data="words"),
        )
    ],
    "an image from a tool": [user(), model(use()), user(result(content=[text(), IMAGE]))],
    "a tool with nothing to say": [user(), model(use()), user({"type": "tool_result", "tool_use_id": "a"})],
    "a tool that failed": [user(), model(use()), user(result(is_error=True))],
    "cache marks": [user(text(**MARK)), model(use(**MARK)), user(result(**MARK)), model()],
    "white space at the end, but not of the last": [user(), model(text("ok ")), user()],
}

BAD = {
    "no message": [],
    "a system message": [{"role": "system", "content": "Be brief."}, user()],
    "the assistant first": [model(), user()],
    "two of the user": [user(), user()],
    "two of the assistant": [user(), model(), model()],
    "our own key": [{**user(), "turnlog": 1}],
    "a field of the message": [{**user(), "name": "Ann"}],
    "a field of a block": [user(text(zzz=1))],
    "an empty content": [user(), {"role": "assistant", "content": ""}],
    "blanks": [{"role": "user", "content": "  "}],
    "no blocks": [{"role": "user", "content": []}],
    "no content": [{"role": "user", "content": None}],
    "an empty block": [user(text(""))],
    "a blank block": [user(text(), text("\n"))],
    "a block that is none of Anthropic's": [user({"type": "image_url", "image_url": {"url": "https://example.com"}})],
    "an image of the assistant": [user(), model(IMAGE)],
    "a call of the user": [user(use())],
    "thinking of the user": [user(THINKING)],
    "a result of the assistant": [user(), model(use()), user(result()), model(result())],
    "a result without a call": [user(result())],
    "a result that comes late": [user(), model(use()), user(), model(), user(result())],
    "a call that is never answered": [user(), model(use()), user()],
    "one of two calls unanswered": [user(), model(use("a"), use("b")), user(result("a")), model()],
    "an open call beside text": [user(), model(use("a"), use("b")), user(result("a"), text())],
    "two results of one call": [user(), model(use()), user(result(), result())],
    "text before a result": [user(), model(use()), user(text(), result())],
    "an id twice in a message": [user(), model(use(), use()), user(result())],
    "an id twice in the conversation": [user(), model(use()), user(result()), model(use()), user(result())],
    "an id with other characters": [user(), model(use("a.b")), user(result("a.b"))],
    "an empty id": [user(), model(use("")), user(result(""))],
    "a tool name with a dot": [user(), model(use(name="a.b")), user(result())],
    "an empty tool name": [user(), model(use(name="")), user(result())],
    "an input that is a string": [user(), model(use(input="{}")), user(result())],
    "an input that is a list": [user(), model(use(input=[])), user(result())],
    "an empty result text": [user(), model(use()), user(result(content=""))],
    "an empty result block": [user(), model(use()), user(result(content=[text("")]))],
    "no result blocks": [user(), model(use()), user(result(content=[]))],
    "a call in a result": [user(), model(use()), user(result(content=[use("b")]))],
    "a cache mark inside a result": [user(), model(use()), user(result(content=[text(**MARK)]))],
    "thinking without a signature": [user(), model({"type": "thinking", "thinking": "hm"}, text())],
    "thinking with an empty signature": [user(), model({**THINKING, "signature": ""}, text())],
    "thinking at the end": [user(), model(text(), THINKING)],
    "a cache mark on thinking": [user(), model({**THINKING, **MARK}, text())],
    "white space at the very end": [user(), model(text("ok\n"))],
    "white space at the very end of a text": [user(), {"role": "assistant", "content": "ok "}],
    "five cache marks": [user(*(text(**MARK) for _ in range(5)))],
    "an image of another type": [user(source("image", type="base64", media_type="image/bmp", data="Qk0="))],
    "an image that is not base64": [user(source("image", type="base64", media_type="image/png", data="§"))],
    "an image as a data URL": [user(source("image", type="url", url="data:image/png;base64,iVBORw0KGgo="))],
    "a document of another type": [user(source("document", type="base64", media_type="text/plain", data="aGk="))],
    "an image of nothing": [user({"type": "image"})],
}


@pytest.mark.parametrize("messages", GOOD.values(), ids=GOOD)
def test_a_body_that_the_api_takes_breaks_no_rule(messages: list[Any]) -> None:
    assert check({"system": "Be brief.", "messages": messages}) == []


@pytest.mark.parametrize("messages", BAD.values(), ids=BAD)
def test_a_body_that_the_api_refuses_breaks_a_rule(messages: list[Any]) -> None:
    assert check({"messages": messages})


def test_the_system_slot_holds_text() -> None:
    assert check({"system": [text(**MARK)], "messages": [user()]}) == []
    for slot in ("", " ", [], [IMAGE], [text("")], {"type": "text", "text": "x"}):
        assert check({"system": slot, "messages": [user()]}), slot


def test_the_marks_of_the_system_slot_count() -> None:
    marked = [user(*(text(**MARK) for _ in range(4)))]
    assert check({"messages": marked}) == []
    assert check({"system": [text(**MARK)], "messages": marked})


def test_calls_at_the_end_are_as_many_as_are_listed_as_open() -> None:
    waiting = [user(), model(use("a"), use("b")), user(result("b"))]
    assert check({"messages": waiting, "open_tool_calls": [{"id": "a"}]}) == []
    assert check({"messages": waiting, "open_tool_calls": []})
    assert check({"messages": [user()], "open_tool_calls": [{"id": "a"}]})
