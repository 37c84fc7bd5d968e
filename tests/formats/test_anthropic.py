"""What is Anthropic's own: blocks, marks, ends."""

from typing import Any

import pytest

from app.domain.errors import InvalidRequest
from app.formats import anthropic, openai
from tests.formats.views import body_of, taken, view_of
from tests.talk import assistant, tool, user

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "U0lH"}
MARK = {"cache_control": {"type": "ephemeral"}}


def answered(content: Any) -> dict[str, Any]:
    """A message of the user with one tool result."""
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": content}]}


def test_plain_messages_are_stored_as_they_are_and_without_a_copy() -> None:
    assert taken("anthropic", '{"role": "user", "content": "hi"}') == ['{"role":"user","content":"hi"}']
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    (stored,) = taken("anthropic", {"role": "user", "content": [{"type": "text", "text": "look"}, image]})
    assert "turnlog" not in stored


def test_results_come_before_what_the_user_says_beside_them() -> None:
    results = [{"type": "tool_result", "tool_use_id": one, "content": one} for one in "ab"]
    stored = taken("anthropic", {"role": "user", "content": [*results, {"type": "text", "text": "and?"}]})
    assert [one.partition('"role":"')[2].partition('"')[0] for one in stored] == ["tool", "tool", "user"]


def test_own_blocks_keep_their_bytes() -> None:
    block = '{"signature": "U0lH",  "type":"thinking", "thinking":"\\u0041"}'
    said = '{"type":"text","text":"t"}'
    view = view_of(user("q"), *taken("anthropic", f'{{"role":"assistant","content":[{block},{said}]}}'))
    assert block in anthropic.render(view).fields["messages"][1]
    assert "hinking" not in openai.render(view).fields["messages"][1]


@pytest.mark.parametrize(
    ("content", "left"),
    [
        ([{"type": "thinking", "thinking": "unsigned"}, {"type": "text", "text": "t"}], ["text"]),
        ([{"type": "text", "text": "t"}, THOUGHT], ["text"]),
        ([THOUGHT, {"type": "text", "text": ""}, {"type": "text", "text": "t"}], ["thinking", "text"]),
    ],
    ids=["unsigned", "at the end", "empty text"],
)
def test_blocks_that_the_api_refuses_are_left_out_with_a_warning(content: list[Any], left: list[str]) -> None:
    rendered = anthropic.render(view_of(user("q"), *taken("anthropic", {"role": "assistant", "content": content})))
    assert [block["type"] for block in body_of(rendered)["messages"][1]["content"]] == left
    assert len(rendered.warnings) == 1


def test_the_first_four_cache_marks_stay() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}}]}
    rendered = anthropic.render(
        view_of(*(one for _ in range(6) for one in (*taken("anthropic", marked), assistant("a"))))
    )
    assert ["cache_control" in text for text in rendered.fields["messages"][::2]] == [True] * 4 + [False] * 2


def test_only_the_end_of_the_view_is_trimmed() -> None:
    rendered = anthropic.render(view_of(user("q"), assistant("a "), user("q"), assistant("b ")))
    assert [message["content"] for message in body_of(rendered)["messages"]] == ["q", "a ", "q", "b"]


def test_what_a_user_says_after_results_joins_them_without_a_warning() -> None:
    result = {"type": "tool_result", "content": "r", "tool_use_id": "c"}
    view = view_of(user("q"), assistant(None, c="f"), *taken("anthropic", {"role": "user", "content": [result]}))
    rendered = anthropic.render(view_of(*(event.body for event in view.events), user("and?"), user("or?")))
    assert [block["type"] for block in body_of(rendered)["messages"][2]["content"]] == ["tool_result", "text", "text"]
    assert not rendered.warnings


def test_a_result_with_an_error_keeps_it_for_anthropic_alone() -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}
    view = view_of(user("q"), assistant(None, c="f"), *taken("anthropic", {"role": "user", "content": [result]}))
    assert body_of(anthropic.render(view))["messages"][2]["content"] == [result]
    assert body_of(openai.render(view))["messages"][2] == tool("c", "no")


def test_the_title_of_a_text_document_is_told_to_every_provider() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Be brief."}
    document = {"type": "document", "title": "House rules", "source": source}
    view = view_of(*taken("anthropic", {"role": "user", "content": [document]}))
    assert "House rules\\nBe brief." in openai.render(view).fields["messages"][0]
    assert body_of(anthropic.render(view))["messages"][0]["content"] == [document]


def test_the_system_slot_has_texts_alone_and_keeps_its_cache_mark() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    prompt = {"role": "system", "content": [{"type": "text", "text": "S"}, image | MARK]}
    rendered = anthropic.render(view_of(*taken("anthropic", prompt), user("q")))
    assert body_of(rendered)["system"] == [{"type": "text", "text": "S"} | MARK]
    assert [warning.code for warning in rendered.warnings] == ["media-left-out"]


def test_a_block_of_an_unknown_type_goes_back_as_it_came_but_for_the_system_slot() -> None:
    new = {"type": "of_the_future", "n": 1}
    text = {"type": "text", "text": "S"}
    view = view_of(*taken("anthropic", *({"role": role, "content": [text, new]} for role in ("system", "user"))))
    rendered = anthropic.render(view)
    assert body_of(rendered)["system"] == [text]
    assert body_of(rendered)["messages"][0]["content"] == [text, new]
    assert [warning.code for warning in rendered.warnings] == ["part-left-out"]


def test_texts_of_the_system_slot_go_back_as_they_came() -> None:
    prompt = {"role": "system", "content": [{"type": "text", "text": "S"} | MARK, {"type": "text", "text": "T"}]}
    rendered = anthropic.render(view_of(*taken("anthropic", prompt), user("q")))
    assert body_of(rendered)["system"] == prompt["content"]


def test_cache_marks_are_left_out_where_the_api_takes_none() -> None:
    text = {"type": "text", "text": "t"}
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    said = taken("anthropic", {"role": "assistant", "content": [THOUGHT | MARK, use]}, answered([text | MARK]))
    rendered = anthropic.render(view_of(user("q"), *said))
    (_, thought, result) = body_of(rendered)["messages"]
    assert thought["content"] == [THOUGHT, use]
    assert result["content"][0]["content"] == [text]
    assert [warning.code for warning in rendered.warnings] == ["cache-mark-left-out"] * 2


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"role": "tool", "content": "x"}, "/messages/0/role"),
        ({"role": "user"}, "/messages/0/content"),
        ({"role": "user", "content": ["x"]}, "/messages/0/content/0"),
        ({"role": "user", "content": [{"type": "text"}]}, "/messages/0/content/0/text"),
        (
            {"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            "/messages/0/content/0",
        ),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]},
            "/messages/0/content/0/input",
        ),
        ({"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]}, "/messages/0/content/0"),
        ({"role": "user", "content": "x", "turnlog": {}}, "/messages/0/turnlog"),
        (answered({"a": 1}), "/messages/0/content/0/content"),
        (answered({}), "/messages/0/content/0/content"),
        (answered(5), "/messages/0/content/0/content"),
        (answered(["a"]), "/messages/0/content/0/content/0"),
        (answered([{"type": "text"}]), "/messages/0/content/0/content/0/text"),
        ({"role": "user", "content": [{"type": "image"}]}, "/messages/0/content/0/source"),
        ({"role": "user", "content": [{"type": "document", "source": {}}]}, "/messages/0/content/0/source/type"),
        (
            {"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]},
            "/messages/0/content/0/source/url",
        ),
        ({"role": "user", "content": [THOUGHT]}, "/messages/0/content/0"),
    ],
)
def test_a_refusal_names_the_place(message: Any, pointer: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        taken("anthropic", message)
    assert [problem.pointer for problem in refused.value.problems] == [pointer]
