"""Field cases F, and those of A, B and D that end in a rendered view: every format, read as its provider would."""

import itertools
import json
import os
import re
from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from tests.formats import spoken
from tests.formats.spoken import FORMATS, Body, Said
from tests.formats.validators import CHECKS
from tests.talk import Message, Talk, assistant, developer, rounds, system, tool, turns, user

PNG_A = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PNG_B = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
LONG = " and so on" * 40

every_format = pytest.mark.parametrize("output", FORMATS)
_numbers = itertools.count(1)


@pytest.fixture
def talk(http: httpx.Client) -> Talk:
    return fresh(http)


def fresh(http: httpx.Client) -> Talk:
    return Talk(http, f"rendering-{os.getpid()}-{next(_numbers)}")


def copy_of(talk: Talk, messages: Iterable[Message]) -> Talk:
    """Build a session of its own that says ``messages``."""
    copy = fresh(talk.http)
    copy.append(*messages)
    return copy


def read(talk: Talk, output: str) -> Body:
    """Return the view in a format, held to its provider's rules."""
    body = talk.view(output)
    assert CHECKS[output](body) == [], f"{output}: {json.dumps(body, ensure_ascii=False)[:4000]}"
    return body


def said(talk: Talk, output: str) -> list[Said]:
    return spoken.said(output, read(talk, output))


def assert_valid(talk: Talk) -> None:
    """Valid for all formats."""
    for output in FORMATS:
        read(talk, output)


def texts(things: Iterable[Said], *kinds: str) -> list[str]:
    """Return the texts of the things of some kinds, of texts unless told otherwise."""
    return [one.text for one in things if one.kind in (kinds or ("text",))]


def everything(talk: Talk, output: str) -> str:
    """Return all that a model is shown, in one string."""
    return "\n".join(spoken.strings(spoken.request(output, read(talk, output))))


def logged(talk: Talk) -> list[Message]:
    return [event["message"] for event in talk.log() if event["type"] == "MESSAGE"]


def call(call_id: str, name: str, arguments: Any = "{}") -> Message:
    made = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def calls(*made: tuple[str, str, str], content: str | None = None) -> Message:
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in made
        ],
    }


def answered(things: list[Said]) -> list[tuple[str, Any, str]]:
    """Return each answered call as its name, its arguments and its result."""
    return [(made.name, spoken.arguments(made.text), result.text) for made, result in spoken.pairs(things)]


PORTO = [
    user("Plan a weekend in Porto"),
    assistant("Sure."),
    user("Weather and trains?"),
    assistant(None, a="weather", b="trains"),
    tool("a", "sunny"),
    tool("b", "9:15"),
    assistant("Sunny, 9:15."),
    user("Book it"),
    assistant("Booked."),
]


def test_c01_a_cut_never_lands_inside_a_parallel_tool_batch(talk: Talk) -> None:
    talk.append(*PORTO)
    assert_valid(talk)
    talk.compact(last_events=4)
    assert talk.seqs() in ([3, 4, 5, 6, 7, 8, 9], [8, 9])
    assert_valid(talk)
    for kept in range(1, 10):
        copy = copy_of(talk, PORTO)
        copy.compact(last_events=kept)
        assert_valid(copy)


@pytest.mark.parametrize("first", range(1, 121, 20))
def test_c02_a_sliding_window_leaves_every_format_valid_after_every_append(http: httpx.Client, first: int) -> None:
    conversation = rounds(30)
    for posted in range(first, first + 20):
        copy = fresh(http)
        copy.append(*conversation[:posted])
        copy.compact(last_events=posted % 12 + 1)
        for output in FORMATS:
            things = [one for one in said(copy, output) if one.kind != "system"]
            assert things[0].by == "user", f"{output} after {posted}"


def test_c02_one_session_that_is_compacted_after_every_append_stays_valid(talk: Talk) -> None:
    for posted, message in enumerate(rounds(8), start=1):
        talk.append(message)
        talk.compact(last_events=posted % 12 + 1)
        assert_valid(talk)


def test_c04_a_steering_message_between_call_and_result_parts_nothing(talk: Talk) -> None:
    talk.append(
        user("Count the rows"),
        assistant(None, q="sql"),
        user("also the archive table"),
        tool("q", "812"),
        assistant("812 and 90."),
        user("thanks"),
        assistant("ok"),
    )
    for output in FORMATS:
        things = said(talk, output)
        assert answered(things) == [("sql", {}, "812")]
        assert "also the archive table" in "".join(texts(things))
    talk.compact(last_turns=2)
    assert_valid(talk)
    talk.compact(last_turns=1)
    assert talk.seqs() == [6, 7]
    assert_valid(talk)


def test_c05_a_call_that_never_got_its_result_is_closed_or_covered(talk: Talk) -> None:
    talk.append(user("start the export"), assistant(None, z="export"))
    assert_valid(talk)
    for first in range(1, 41, 10):
        talk.append(*turns(10, first))
        for output in FORMATS:
            things = said(talk, output)
            made = [one for one in things if one.kind == "call"]
            assert len(spoken.pairs(things)) == len(made), "z has an explicit placeholder"
        talk.compact(last_turns=5)
        assert_valid(talk)
    assert talk.view()["turns"] == 5


@every_format
def test_c11_the_live_question_stays_last_and_verbatim(talk: Talk, output: str) -> None:
    talk.append(
        user("walk me through the repo" + LONG),
        assistant("it has three rooms" + LONG),
        user("add tests" + LONG),
        assistant("done" + LONG),
        user("which file has the bug?"),
    )
    assert talk.compact(last_turns=1, summary="We walked through the repo and added tests.")["status"] == "applied"
    things = said(talk, output)
    assert things[-1].by == "user"
    assert things[-1].text.endswith("which file has the bug?")
    assert spoken.speakers(output, talk.view(output))[-1] == "user"
    shown = everything(talk, output)
    assert shown.count("We walked through the repo and added tests.") == 1
    assert shown.index("We walked through") < shown.index("which file has the bug?")
    assert "walk me through the repo" not in shown


@every_format
def test_c13_a_session_without_a_user_message_is_never_an_empty_list(talk: Talk, output: str) -> None:
    talk.append(system("Nightly job"), assistant(None, r="report"), tool("r", "ok"), assistant("Report sent."))
    for _ in range(2):
        things = said(talk, output)
        assert texts(things, "system") == ["Nightly job"]
        assert answered(things) == [("report", {}, "ok")]
        assert "Report sent." in texts(things)
        assert talk.compact(last_turns=1, summary="nothing")["reason"] == "no-turn"
        assert talk.compact(token_budget=10)["reason"] == "no-turn"
    if output == "openai":
        assert talk.view(output)["messages"] == logged(talk)


REUSED = [
    user("look it up"),
    call("call_0", "lookup", '{"k":"red"}'),
    tool("call_0", "17"),
    assistant("17"),
    user("remove it"),
    call("call_0", "remove", '{"k":"blue"}'),
    tool("call_0", "done"),
    assistant("ok"),
]


@every_format
def test_c18_a_call_id_used_again_in_a_later_turn_belongs_to_both(talk: Talk, output: str) -> None:
    talk.append(*REUSED)
    assert answered(said(talk, output)) == [("lookup", {"k": "red"}, "17"), ("remove", {"k": "blue"}, "done")]
    talk.compact(last_turns=1)
    assert talk.seqs() == [5, 6, 7, 8]
    assert answered(said(talk, output)) == [("remove", {"k": "blue"}, "done")]


@every_format
def test_c19_results_in_another_order_go_to_their_own_calls(talk: Talk, output: str) -> None:
    conversation = [
        user("read both"),
        calls(("a", "read", '{"f":"one"}'), ("b", "read", '{"f":"two"}')),
        tool("b", "two!"),
        tool("a", "one!"),
        assistant("ok"),
    ]
    talk.append(*conversation)
    found = answered(said(talk, output))
    assert sorted(found, key=str) == [("read", {"f": "one"}, "one!"), ("read", {"f": "two"}, "two!")]
    if output == "gemini":
        assert [result for *_, result in found] == ["one!", "two!"]
    assert logged(talk) == conversation


@every_format
def test_c20_a_result_before_its_call_is_refused_or_rendered_validly(talk: Talk, output: str) -> None:
    talk.append(user("go"))
    response = talk.http.post(talk.path + "/events", json={"events": [{"message": tool("k", "42")}]})
    assert response.status_code in {201, 409, 422}
    talk.append(call("k", "calc"), user("and?"))
    shown = everything(talk, output)
    assert response.status_code != httpx.codes.CREATED or "42" in shown
    assert "and?" in shown


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}], ids=["null", "empty", "missing"])
@every_format
def test_c30_calls_with_content_null_empty_or_missing_are_calls_alone(
    talk: Talk, output: str, content: Message
) -> None:
    made = assistant(None, c="f")
    del made["content"]
    talk.append(user("go"), {**made, **content}, tool("c", "1"), assistant("one"))
    things = said(talk, output)
    assert texts(things) == ["go", "one"]
    assert answered(things) == [("f", {}, "1")]
    assert not re.search("null|None", everything(talk, output))


@pytest.mark.parametrize("empty", [assistant(""), user(""), user("   ")], ids=["A", "U", "U-blanks"])
def test_c30_an_empty_message_is_refused_or_never_rendered_as_an_empty_text(talk: Talk, empty: Message) -> None:
    talk.append(user("go"), assistant("ok"))
    response = talk.http.post(talk.path + "/events", json={"events": [{"message": empty}]})
    assert response.status_code in {201, 422}
    assert_valid(talk)
    for output in FORMATS:
        assert all(text.strip() for text in texts(said(talk, output)))
        assert not re.search("null|None", everything(talk, output))
    talk.append(user("and?"))
    assert_valid(talk)


def test_c30_a_user_message_of_null_is_refused(talk: Talk) -> None:
    talk.append(user("go"))
    talk.append({"role": "user", "content": None}, status=422)


CHECKING = [
    user("check"),
    assistant("checking", a="f", b="g", c="h"),
    tool("a", "1"),
    tool("b", "2"),
    tool("c", "3"),
    assistant("done"),
]


def test_c42_parallel_results_for_anthropic(talk: Talk) -> None:
    talk.append(*CHECKING)
    assert_valid(talk)
    messages = talk.view("anthropic")["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert [block["type"] for block in messages[1]["content"]] == ["text", "tool_use", "tool_use", "tool_use"]
    assert [block["type"] for block in messages[2]["content"]] == ["tool_result"] * 3


TWICE = calls(("a", "f", '{"n":1}'), ("b", "f", '{"n":2}'))


def test_c43_parallel_results_for_gemini_carry_the_functions_name(talk: Talk) -> None:
    talk.append(user("go"), TWICE, tool("a", "x"), tool("b", "y"), assistant("ok"))
    assert_valid(talk)
    contents = talk.view("gemini")["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user", "model"]
    assert [part["functionCall"]["args"] for part in contents[1]["parts"]] == [{"n": 1}, {"n": 2}]
    assert [part["functionResponse"]["name"] for part in contents[2]["parts"]] == ["f", "f"]
    assert answered(said(talk, "gemini")) == [("f", {"n": 1}, "x"), ("f", {"n": 2}, "y")]


@every_format
def test_c43_text_between_calls_and_results_is_moved_and_not_lost(talk: Talk, output: str) -> None:
    talk.append(user("go"), TWICE, assistant("one moment"), tool("a", "x"), tool("b", "y"), assistant("ok"))
    things = said(talk, output)
    assert answered(things) == [("f", {"n": 1}, "x"), ("f", {"n": 2}, "y")]
    assert "one moment" in "\n".join(texts(things))


def test_c44_two_user_messages_in_a_row(talk: Talk) -> None:
    conversation = [user("draft a letter"), user("make it formal"), assistant("Dear …")]
    talk.append(*conversation)
    for output in FORMATS:
        assert "".join(texts(said(talk, output))).replace("\n", "") == "draft a lettermake it formalDear …"
    for output in ("anthropic", "gemini"):
        assert len(spoken.speakers(output, talk.view(output))) == 2
    assert talk.view("openai")["messages"] == conversation
    assert logged(talk) == conversation
    talk.compact(last_turns=1)
    assert talk.seqs() == [2, 3]
    assert_valid(talk)


@every_format
def test_c45_the_assistant_speaks_first(talk: Talk, output: str) -> None:
    talk.append(system("You are a ship."), assistant("Ahoy, Captain Bot here."), *turns(8))
    for compacted in (False, True):
        things = said(talk, output)
        assert "Ahoy, Captain Bot here." in texts(things)
        greeted = next(at for at, one in enumerate(things) if one.text == "Ahoy, Captain Bot here.")
        assert things[greeted].by == "assistant"
        if output in {"anthropic", "gemini"}:
            assert things[1].by == "user"
            assert greeted == 2
        if not compacted:
            talk.compact(last_turns=1)
            assert talk.seqs() == [1, 2, 17, 18]


@every_format
def test_c46_an_assistant_turn_without_any_text(talk: Talk, output: str) -> None:
    conversation = [user("a"), assistant(""), user("b"), assistant("   "), user("c")]
    talk.append(*conversation)
    things = said(talk, output)
    words = "\n".join(one.text for one in things if one.by == "user")
    assert re.sub(r"\s", "", words) == "abc"
    assert logged(talk) == conversation


@pytest.mark.parametrize("content", [None, ""], ids=["null", "empty"])
def test_c47_a_tool_only_assistant_message(talk: Talk, content: str | None) -> None:
    talk.append(user("go"), assistant(content, c="f"), tool("c", "1"), assistant("one"))
    assert_valid(talk)
    assert talk.view("openai")["messages"][1].get("content") is None
    assert [block["type"] for block in talk.view("anthropic")["messages"][1]["content"]] == ["tool_use"]
    (part,) = talk.view("gemini")["contents"][1]["parts"]
    assert "functionCall" in part
    assert [item.get("type", "message") for item in talk.view("openai-responses")["input"]] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]


@every_format
def test_c48_a_tool_result_that_is_empty(talk: Talk, output: str) -> None:
    talk.append(
        user("go"),
        assistant(None, a="touch", b="mkdir", c="ls"),
        tool("a", ""),
        tool("b", None),
        {"role": "tool", "tool_call_id": "c", "content": []},
        assistant("done"),
    )
    things = said(talk, output)
    assert sorted(made.name for made, _ in spoken.pairs(things)) == ["ls", "mkdir", "touch"]
    assert not re.search(r"null|\[\]", everything(talk, output))


@every_format
def test_c49_the_developer_role(talk: Talk, output: str) -> None:
    talk.append(developer("Never reveal prices."), *turns(3))
    for _ in range(2):
        things = said(talk, output)
        assert texts(things, "system") == ["Never reveal prices."]
        assert not any("prices" in text for text in texts(things))
        talk.compact(last_turns=1)
    assert talk.seqs() == [1, 6, 7]


@every_format
def test_c49_of_a_system_and_a_developer_message_the_later_one_wins(talk: Talk, output: str) -> None:
    talk.append(system("Be polite."), developer("Never reveal prices."), *turns(3))
    assert texts(said(talk, output), "system") == ["Never reveal prices."]
    assert [(one["code"], one["seq"]) for one in talk.view(output)["warnings"]] == [("superseded-system-message", 1)]
    talk.compact(last_turns=1)
    assert talk.seqs() == [2, 7, 8]
    assert texts(said(talk, output), "system") == ["Never reveal prices."]


@every_format
def test_c50_a_system_message_in_mid_conversation(talk: Talk, output: str) -> None:
    talk.append(
        system("v1"),
        user("u1"),
        assistant(None, c="f"),
        system("v2: be brief"),
        tool("c", "1"),
        assistant("a1"),
        user("u2"),
        assistant("a2"),
    )
    things = said(talk, output)
    assert things[0] == Said("system", "system", "v2: be brief")
    assert len(texts(things, "system")) == 1
    assert "v1" not in everything(talk, output)
    kinds = [one.kind for one in things]
    assert kinds.index("result") == kinds.index("call") + 1
    talk.compact(last_turns=1)
    assert talk.seqs() == [4, 7, 8]
    assert texts(said(talk, output), "system") == ["v2: be brief"]


def thinking(number: int, what: str) -> Body:
    return {"type": "thinking", "thinking": f"  thought {what} {number}\n", "signature": f"U0lH{number:04}"}


def thoughtful_turn(number: int) -> list[Body]:
    used = {"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": {"z": number, "a": [1.50]}}
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": [thinking(number, "first"), {"type": "text", "text": "let me look"}, used]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "seen"}]},
        {
            "role": "assistant",
            "content": [thinking(number, "then"), {"type": "text", "text": f"answer {number}"}],
        },
    ]


def tell(talk: Talk, output: str, *messages: Body) -> None:
    """Append messages in a provider's own form."""
    talk.post("/events", {"format": output, "messages": list(messages)}, 201, params={"create": "true"})


def test_c51_thinking_blocks_come_back_byte_for_byte_with_their_signature(talk: Talk) -> None:
    for number in (1, 2, 3):
        tell(talk, "anthropic", *thoughtful_turn(number))
    unsigned = {"type": "thinking", "thinking": "unsigned secret"}
    tell(
        talk,
        "anthropic",
        {"role": "user", "content": "one more"},
        {"role": "assistant", "content": [unsigned, {"type": "text", "text": "last answer"}]},
    )
    assert_valid(talk)
    body = talk.view("anthropic")
    raw = talk.http.get(talk.path + "/view", params={"format": "anthropic"}).text
    assert "unsigned secret" not in raw
    for number in (1, 2, 3):
        messages = body["messages"][4 * (number - 1) : 4 * number]
        for at, place in ((1, "first"), (3, "then")):
            blocks = [block for block in messages[at]["content"] if block["type"] == "thinking"]
            assert blocks in ([thinking(number, place)], [])
            assert number != 3 or blocks, "the newest thoughts are kept"
            if blocks:
                assert messages[at]["content"][0] == thinking(number, place)
    talk.compact(last_turns=2)
    assert_valid(talk)
    kept = spoken.said("anthropic", talk.view("anthropic"))
    assert [one.text for one in kept if one.kind == "thought"] == ["  thought first 3\n", "  thought then 3\n"]
    for output in ("openai", "openai-responses", "gemini"):
        shown = everything(talk, output)
        assert not re.search("thought (first|then)|secret", shown)


ODD_IDS = ["functions.Bash:0", "call|fc_1", "x" * 40 + "functions:" + "y" * 36]


def test_c52_call_ids_that_another_provider_does_not_accept(talk: Talk) -> None:
    conversation = [
        message
        for number, odd in enumerate(ODD_IDS)
        for message in (user(f"q{number}"), call(odd, "bash"), tool(odd, f"r{number}"), assistant(f"a{number}"))
    ]
    talk.append(*conversation)
    for output in FORMATS:
        assert answered(said(talk, output)) == [("bash", {}, f"r{number}") for number in range(3)]
        ids = [one.call for one in said(talk, output) if one.kind == "call" and one.call]
        assert len(set(ids)) == len(ids), "two ids became one"
        first, second = (talk.http.get(talk.path + "/view", params={"format": output}).content for _ in range(2))
        assert first == second
    assert logged(talk) == conversation
    before = {one.text: one.call for one in said(talk, "anthropic") if one.kind == "result"}
    talk.compact(last_turns=2)
    after = {one.text: one.call for one in said(talk, "anthropic") if one.kind == "result"}
    assert after == {text: before[text] for text in ("r1", "r2")}


@pytest.mark.parametrize("arguments", ['{"value": ', "", "[1]", "null", '"x"'])
@every_format
def test_c53_arguments_that_are_not_a_json_object(talk: Talk, output: str, arguments: str) -> None:
    conversation = [user("go"), call("c", "f", arguments), tool("c", "invalid arguments"), user("continue")]
    talk.append(*conversation)
    things = said(talk, output)
    (made,) = (one for one in things if one.kind == "call")
    if output in {"anthropic", "gemini"}:
        assert isinstance(json.loads(made.text), dict)
    else:
        assert made.text in {arguments, "{}"}
    if not arguments:
        assert spoken.arguments(made.text) == {}
    assert [result.text for _, result in spoken.pairs(things)] == ["invalid arguments"]
    assert logged(talk) == conversation


@every_format
def test_c54_a_crash_in_mid_turn_then_a_new_user_message(talk: Talk, output: str) -> None:
    conversation = [
        user("delete temp files"),
        assistant(None, a="rm", b="ls"),
        tool("b", "x"),
        user("are you there?"),
    ]
    talk.append(*conversation)
    things = said(talk, output)
    results = {made.name: result.text for made, result in spoken.pairs(things)}
    assert results["ls"] == "x"
    placeholder = results.get("rm")
    assert placeholder != "x"
    assert "are you there?" in "\n".join(texts(things))
    assert talk.view(output)["open_tool_calls"] == []
    assert logged(talk) == conversation, "nothing is written to the log"
    talk.append(tool("a", "gone"))
    things = said(talk, output)
    shown = everything(talk, output)
    assert shown.count("gone") == 1
    assert placeholder is None or shown.count(placeholder) <= 1, "a second placeholder"
    assert sum(result.text == "x" for _, result in spoken.pairs(things)) == 1


@pytest.mark.parametrize("last", [[user("next?"), assistant("that one")], [user("next?")]], ids=["complete", "open"])
@every_format
def test_c55_the_summary_is_background_before_the_kept_turn(talk: Talk, output: str, last: list[Message]) -> None:
    told = [message for number in range(4) for message in (user(f"q{number}{LONG}"), assistant(f"a{number}{LONG}"))]
    talk.append(system("Be kind."), *told, *last)
    assert talk.compact(last_turns=1, summary="Four questions were answered.")["status"] == "applied"
    things = said(talk, output)
    assert texts(things, "system") == ["Be kind."]
    summary = next(at for at, one in enumerate(things) if "Four questions were answered." in one.text)
    assert everything(talk, output).count("Four questions were answered.") == 1
    assert things[summary].by == "assistant"
    assert things[summary - 1].by == "user"
    label = things[summary - 1].text + things[summary].text
    assert re.search(r"summar|background|so far|earlier", label, re.IGNORECASE)
    assert [one.text for one in things[summary + 1 :]] == [message["content"] for message in last]
    assert things[-1].text == last[-1]["content"], "the summary is not the last word"


def image(data: str) -> Body:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def text(words: str) -> Body:
    return {"type": "text", "text": words}


@every_format
def test_c56_multi_part_content_is_neither_flattened_nor_lost(talk: Talk, output: str) -> None:
    conversation = [
        {"role": "user", "content": [text("one "), text("two"), image(PNG_A), text("three")]},
        call("c", "shot"),
        {"role": "tool", "tool_call_id": "c", "content": [text("screenshot"), image(PNG_B)]},
        assistant("ok"),
    ]
    talk.append(*conversation)
    things = said(talk, output)
    assert [(one.kind, one.text) for one in things[:4]] == [
        ("text", "one "),
        ("text", "two"),
        ("media", PNG_A),
        ("text", "three"),
    ]
    ((_, result),) = spoken.pairs(things)
    assert "screenshot" in result.text
    shown = [*result.media, *(one.text for one in things[4:] if one.kind == "media")]
    if output in {"anthropic", "openai-responses", "gemini"}:
        assert shown == [PNG_B]
    else:
        assert shown == [PNG_B] or 3 in {one["seq"] for one in talk.view(output)["warnings"]}
    words = [one.text for one in things if one.kind in {"text", "result"}]
    assert not any(PNG_A in one or PNG_B in one or "{'" in one or "image_url" in one for one in words)
    assert logged(talk) == conversation


@pytest.mark.parametrize("name", ["Ann Lee", "Zoë/1", "", "x" * 200])
def test_c57_the_name_field(talk: Talk, name: str) -> None:
    conversation = [{"role": "user", "content": "hi", "name": name}, assistant("hello")]
    talk.append(*conversation)
    assert_valid(talk)
    for output in FORMATS:
        assert texts(said(talk, output))[-1] == "hello"
        assert "hi" in texts(said(talk, output))[0]
    assert logged(talk) == conversation
