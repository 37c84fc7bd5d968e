"""What is the Responses API's own: items, reasoning, ids."""

from typing import Any

import pytest

from app.domain.errors import InvalidRequest
from app.formats import openai, openai_responses
from tests.formats.views import body_of, taken, view_of
from tests.talk import developer, user

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z0FB"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "r"}


def items(*messages: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(openai_responses.render(view_of(*messages)))["input"]
    return found


def test_what_the_model_does_in_a_row_is_one_message() -> None:
    stored = taken("openai-responses", {"role": "user", "content": "q"}, REASONING, CALL, OUTPUT)
    assert len(stored) == 3
    assert items(*stored) == [{"role": "user", "content": "q"}, REASONING, CALL, OUTPUT]
    assert "Z0FB" not in "".join(openai.render(view_of(*stored)).fields["messages"])


def test_a_second_message_takes_the_reasoning_before_it_along() -> None:
    message = {"role": "assistant", "content": "a"}
    first, second = taken("openai-responses", message, REASONING, message)
    assert "rs_1" not in first
    assert "rs_1" in second


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    assert items(user("q"), *taken("openai-responses", REASONING)) == [{"role": "user", "content": "q"}]
    assert len(items(*taken("openai-responses", REASONING))) == 1, "and an opener keeps the list from being empty"


def test_an_id_is_there_once() -> None:
    again = taken("openai-responses", CALL, OUTPUT)
    found = items(user("q"), *again, *again)
    assert [item.get("id") for item in found] == [None, "fc_1", None, None, None]
    assert found[3]["call_id"] == found[4]["call_id"] != "c"


def test_nothing_follows_a_call_that_is_open() -> None:
    found = items(user("q"), *taken("openai-responses", CALL, {"role": "assistant", "content": "moment"}))
    assert [item.get("type") for item in found] == [None, None, "function_call"]


def test_the_prompt_is_the_instructions() -> None:
    rendered = openai_responses.render(view_of(developer("S"), user("q")))
    assert body_of(rendered) == {"instructions": "S", "input": [{"role": "user", "content": "q"}]}


SAID = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}


@pytest.mark.parametrize(
    ("reasoning", "said", "call"),
    [
        ("rs_0", "msg_1", "fc_1"),  # this reasoning is there already
        ("rs_1", "msg_0", "fc_1"),  # or one of those it led to
        ("rs_1", "msg_1", "fc_0"),
        ("x", "msg_1", "fc_1"),
        ("rs_1", "x", "fc_1"),
    ],
)
def test_reasoning_and_what_it_led_to_keep_their_ids_together(reasoning: str, said: str, call: str) -> None:
    first = [{**REASONING, "id": "rs_0"}, {**SAID, "id": "msg_0"}, {**CALL, "id": "fc_0"}, OUTPUT]
    second = [{**REASONING, "id": reasoning}, {**SAID, "id": said}, {**CALL, "id": call, "call_id": "d"}]
    rendered = openai_responses.render(view_of(user("q"), *taken("openai-responses", *first, *second)))
    found = body_of(rendered)["input"]
    assert found[1:5] == first
    assert [(item["type"], item.get("id")) for item in found[5:]] == [("message", None), ("function_call", None)]
    assert [one.code for one in rendered.warnings] == ["reasoning-left-out"]


@pytest.mark.parametrize(
    ("item", "pointer"),
    [
        ({}, "/messages/0/type"),
        ({"role": "tool", "content": "x"}, "/messages/0/role"),
        ({"role": "user", "content": None}, "/messages/0/content"),
        ({"type": "function_call", "call_id": "c", "name": "f"}, "/messages/0/arguments"),
        ({"type": "function_call_output", "output": "x"}, "/messages/0/call_id"),
        ({"type": "function_call_output", "call_id": "c"}, "/messages/0/output"),
        ({"type": "function_call_output", "call_id": "c", "output": {"a": 1}}, "/messages/0/output"),
        ({"type": "function_call_output", "call_id": "c", "output": None}, "/messages/0/output"),
        ({"type": "function_call_output", "call_id": "c", "output": ["x"]}, "/messages/0/output/0"),
        ({"type": "custom_tool_call_output", "call_id": "c", "output": [{"text": "x"}]}, "/messages/0/output/0/type"),
        ({**CALL, "role": "user"}, "/messages/0/role"),
        ({**CALL, "content": "x"}, "/messages/0/content"),
        ({**REASONING, "role": "assistant"}, "/messages/0/role"),
        ([], "/messages/0"),
    ],
)
def test_a_refusal_names_the_place(item: Any, pointer: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        taken("openai-responses", item)
    assert [problem.pointer for problem in refused.value.problems] == [pointer]


@pytest.mark.parametrize(
    ("role", "sent", "out"),
    [
        ("user", {"type": "text", "text": "x"}, {"type": "input_text", "text": "x"}),
        ("user", {"type": "output_text", "text": "x"}, {"type": "input_text", "text": "x"}),
        ("assistant", {"type": "input_text", "text": "x"}, {"type": "output_text", "text": "x"}),
        ("user", {"type": "blob", "x": 1}, None),
    ],
)
def test_a_part_that_a_message_of_its_role_cannot_have_is_written_anew(role: str, sent: Any, out: Any) -> None:
    fit = {"type": "output_text" if role == "assistant" else "input_text", "text": "y"}
    rendered = openai_responses.render(
        view_of(user("q"), *taken("openai-responses", {"role": role, "content": [sent, fit]}))
    )
    assert body_of(rendered)["input"][1]["content"] == ([out, fit] if out else [fit])
    assert "part-adapted" in [one.code for one in rendered.warnings]


def test_a_message_of_unknown_parts_alone_is_a_silent_one() -> None:
    stored = taken("openai-responses", {"role": "user", "content": [{"type": "blob"}]})
    assert items(*stored) == [{"role": "user", "content": "(empty message)"}]


def test_an_output_of_parts_that_the_api_does_not_take_is_written_anew() -> None:
    output = {**OUTPUT, "output": [{"type": "text", "text": "x"}]}
    found = items(*taken("openai-responses", CALL, output))
    assert found[1]["output"] == [{"type": "input_text", "text": "x"}]


SHELL = {
    "type": "local_shell_call",
    "id": "lsh_1",
    "call_id": "c",
    "status": "completed",
    "action": {"type": "exec", "command": ["ls"], "env": {}},
}
SHELL_OUTPUT = {"type": "local_shell_call_output", "id": "lsho_1", "call_id": "c", "output": "a.txt"}


def test_a_call_of_the_apis_own_tool_stays_what_it_is_with_its_own_output_and_while_it_is_open() -> None:
    stored = taken("openai-responses", {"role": "user", "content": "q"}, REASONING, SHELL, SHELL_OUTPUT)
    assert items(*stored)[1:] == [REASONING, SHELL, SHELL_OUTPUT]
    assert items(*stored[:-1])[1:] == [REASONING, SHELL]


@pytest.mark.parametrize("more", [[user("next")], [OUTPUT, {"role": "user", "content": "next"}]])
def test_without_it_the_call_is_one_of_a_function(more: list[Any]) -> None:
    stored = taken("openai-responses", {"role": "user", "content": "q"}, SHELL, *more)
    rendered = openai_responses.render(view_of(*stored))
    call, output = body_of(rendered)["input"][1:3]
    assert (call["type"], call["name"], call["call_id"]) == ("function_call", "local_shell", "c")
    assert '"ls"' in call["arguments"]
    assert "id" not in call
    assert (output["type"], output["call_id"]) == ("function_call_output", "c")
    assert "call-adapted" in [one.code for one in rendered.warnings]


def test_an_output_of_the_apis_own_tool_that_answers_a_function_is_written_as_the_functions() -> None:
    found = items(*taken("openai-responses", CALL, SHELL_OUTPUT))
    assert found == [CALL, {"type": "function_call_output", "call_id": "c", "output": "a.txt"}]
