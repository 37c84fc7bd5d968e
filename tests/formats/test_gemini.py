"""What is Gemini's own: parts, signatures, results by name."""

import time
from typing import Any

import pytest

from app.domain.errors import InvalidRequest
from app.formats import gemini, openai
from tests.formats.views import body_of, taken, view_of
from tests.talk import assistant, tool, user

SIGNED = {"functionCall": {"name": "f", "args": {"n": 1}}, "thoughtSignature": "U0lH"}

INLINE = {"mimeType": "image/png", "data": "AAAA"}
RESPONSE = {"name": "f", "response": {}}


def part(role: str, **data: Any) -> dict[str, Any]:
    """A content of one part."""
    return {"role": role, "parts": [data]}


def contents(*messages: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(gemini.render(view_of(*messages)))["contents"]
    return found


def test_a_signature_comes_back_on_its_part() -> None:
    said = [{"text": "hm", "thought": True}, SIGNED, {"functionCall": {"name": "f", "args": {}}}]
    (_, model) = contents(user("q"), *taken("gemini", {"role": "model", "parts": said}))
    assert model["parts"] == said


def test_a_call_that_gemini_did_not_make_has_the_documented_stand_in_once() -> None:
    (_, model) = contents(user("q"), assistant(None, a="f", b="g"))
    assert [part.get("thoughtSignature") for part in model["parts"]] == [gemini.NO_SIGNATURE, None]


def test_calls_without_ids_find_their_results_by_name_and_number() -> None:
    calls = {"role": "model", "parts": [{"functionCall": {"name": "f"}}, {"functionCall": {"name": "f"}}]}
    results = [
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": one}}}]} for one in "xy"
    ]
    found = contents(user("q"), *taken("gemini", calls, *results))
    assert [part["functionResponse"]["response"] for part in found[2]["parts"]] == [{"output": "x"}, {"output": "y"}]


def test_what_a_user_says_after_responses_is_a_content_of_its_own() -> None:
    found = contents(user("q"), assistant(None, a="f"), tool("a", "r"), user("and?"))
    assert [content["role"] for content in found] == ["user", "model", "user", "user"]


def test_names_in_snake_case_are_read_too() -> None:
    stored = taken("gemini", {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}, "text": None}]})
    assert '"id":"f-1"' in stored[0]


def test_a_renamed_call_in_snake_case_is_written_once() -> None:
    call = {"function_call": {"name": "1 odd", "args": {}}, "thought_signature": "U0lH"}
    (_, model) = contents(user("q"), *taken("gemini", {"role": "model", "parts": [call]}))
    (part,) = model["parts"]
    assert part.keys() == call.keys()
    assert part["function_call"]["name"].startswith("_1_odd_")


def test_the_system_instruction_is_taken_as_an_element() -> None:
    for prompt in ({"role": "system", "content": "S"}, {"role": "system", "parts": [{"text": "S"}]}):
        rendered = gemini.render(view_of(*taken("gemini", prompt), user("q")))
        assert body_of(rendered)["systemInstruction"] == {"parts": [{"text": "S"}]}


def test_many_calls_at_once_take_no_longer_than_as_many_in_turn() -> None:
    ids = [f"c{at}" for at in range(4000)]
    view = view_of(user("q"), assistant(None, **dict.fromkeys(ids, "f")), *(tool(one, one) for one in ids))
    began = time.process_time()
    rendered = gemini.render(view)
    assert time.process_time() - began < 2
    assert rendered.fields["contents"][2].count('"functionResponse"') == len(ids)


def test_base64_for_urls_is_told_to_others_in_the_standard_alphabet() -> None:
    sent = part("user", inlineData={"mimeType": "image/png", "data": "-_-_"})
    view = view_of(*taken("gemini", sent))
    assert contents(*taken("gemini", sent)) == [sent]
    assert "data:image/png;base64,+/+/" in openai.render(view).fields["messages"][0]


def test_a_content_of_the_model_without_parts_is_an_empty_message() -> None:
    for silent in ({"role": "model"}, {"role": "model", "parts": None}):
        assert contents(user("q"), *taken("gemini", silent), user("?")) == [
            {"role": "user", "parts": [{"text": "q"}, {"text": "?"}]}
        ]


def test_arguments_of_null_go_back_as_an_object() -> None:
    (_, model) = contents(user("q"), *taken("gemini", part("model", functionCall={"name": "f", "args": None})))
    assert model["parts"][0]["functionCall"] == {"name": "f", "args": {}}


def test_the_system_instruction_has_texts_alone() -> None:
    prompt = {"role": "system", "parts": [{"text": "S"}, {"inlineData": INLINE}]}
    rendered = gemini.render(view_of(*taken("gemini", prompt), user("q")))
    assert body_of(rendered)["systemInstruction"] == {"parts": [{"text": "S"}]}
    assert [warning.code for warning in rendered.warnings] == ["media-left-out"]


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"role": "assistant", "parts": []}, "/messages/0/role"),
        ({"role": "user"}, "/messages/0/parts"),
        ({"role": "user", "parts": [SIGNED]}, "/messages/0/parts/0"),
        ({"role": "model", "parts": [{"functionCall": {}}]}, "/messages/0/parts/0/functionCall/name"),
        ({"role": "model", "parts": [{"text": 1}]}, "/messages/0/parts/0/text"),
        (part("model", text="a", functionCall={"name": "f"}), "/messages/0/parts/0"),
        (part("user", text="a", inline_data=INLINE), "/messages/0/parts/0"),
        (part("user"), "/messages/0/parts/0"),
        (part("user", text=None, thought=None), "/messages/0/parts/0"),
        (part("user", text="a", thought=True), "/messages/0/parts/0"),
        (part("user", executableCode={"language": "PYTHON", "code": "1"}), "/messages/0/parts/0"),
        (part("model", functionCall={"name": "f", "args": "{}"}), "/messages/0/parts/0/functionCall/args"),
        (part("user", function_response={"name": "f"}), "/messages/0/parts/0/function_response/response"),
        (part("user", functionResponse=RESPONSE | {"response": "a"}), "/messages/0/parts/0/functionResponse/response"),
        (
            part("user", functionResponse=RESPONSE | {"parts": [{"text": "a"}]}),
            "/messages/0/parts/0/functionResponse/parts/0",
        ),
        (part("user", fileData={"mimeType": "image/png"}), "/messages/0/parts/0/fileData/fileUri"),
        (part("user", inlineData={"mimeType": "image/png", "data": "?"}), "/messages/0/parts/0/inlineData/data"),
    ],
)
def test_a_refusal_names_the_place(message: Any, pointer: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        taken("gemini", message)
    assert [problem.pointer for problem in refused.value.problems] == [pointer]
