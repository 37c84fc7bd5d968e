"""What came in as a provider's own messages goes out equal to the same provider, and whole to every other."""

import copy
import itertools
import json
import os
from typing import Any

import httpx
import pytest

from tests.formats import spoken
from tests.formats.conversations import CONVERSATIONS, PROMPT
from tests.formats.spoken import FORMATS, Body, Said
from tests.formats.validators import CHECKS
from tests.talk import Talk, system

every_conversation = pytest.mark.parametrize("name", CONVERSATIONS)
every_format = pytest.mark.parametrize("output", FORMATS)
_numbers = itertools.count(1)


@pytest.fixture
def talk(http: httpx.Client) -> Talk:
    return Talk(http, f"trip-{os.getpid()}-{next(_numbers)}")


def tell(talk: Talk, source: str, messages: list[Body], status: int = 201) -> Any:
    """Append messages in a provider's own form."""
    return talk.post("/events", {"format": source, "messages": messages}, status, params={"create": "true"})


def read(talk: Talk, output: str, **params: Any) -> Body:
    """Return the view in a format, held to its provider's rules."""
    body = talk.view(output, **params)
    assert CHECKS[output](body) == [], f"{output}: {json.dumps(body, ensure_ascii=False)[:4000]}"
    return body


def normal(output: str, messages: list[Body]) -> list[Body]:
    """Write messages in the one of several ways that a provider itself takes for the same.

    Anthropic: a text is a list of one text block; ``is_error`` is false unless it is said.
    Responses: an item with a role is a message; a text is a list of one part; text of the model has no annotations
    unless they are said; an image's detail is auto.
    Gemini: a call without args has none; a content without a role is the user's.
    OpenAI: there is but one way.
    """
    return [_NORMAL[output](copy.deepcopy(message)) for message in messages]


def _anthropic(message: Body) -> Body:
    message["content"] = _as_blocks(message["content"])
    for block in message["content"]:
        if block["type"] == "tool_result":
            block["content"] = _as_blocks(block.get("content", []))
            block.setdefault("is_error", False)
    return message


def _as_blocks(content: Any) -> list[Body]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _responses(item: Body) -> Body:
    item.setdefault("type", "message")
    if item["type"] == "message":
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        item["content"] = _as_parts(item["content"], kind)
    if item["type"] == "function_call_output":
        item["output"] = _as_parts(item["output"], "input_text")
    return item


def _as_parts(content: Any, kind: str) -> list[Body]:
    parts: list[Body] = [{"type": kind, "text": content}] if isinstance(content, str) else content
    for part in parts:
        if part["type"] == "output_text":
            part.setdefault("annotations", [])
        if part["type"] == "input_image":
            part.setdefault("detail", "auto")
    return parts


def _gemini(content: Body) -> Body:
    content.setdefault("role", "user")
    for part in content["parts"]:
        if "functionCall" in part:
            part["functionCall"].setdefault("args", {})
    return content


_NORMAL = {"openai": dict, "openai-responses": _responses, "anthropic": _anthropic, "gemini": _gemini}


def as_body(source: str, messages: list[Body]) -> Body:
    """Return messages as the list of a request."""
    return {spoken.REQUEST[source][-1]: messages}


def without_prompt(output: str, body: Body) -> list[Body]:
    listed: list[Body] = body[spoken.REQUEST[output][-1]]
    return listed[1:] if output == "openai" else listed


@every_conversation
def test_a_hand_written_conversation_is_one_that_its_provider_takes(name: str) -> None:
    source, messages = CONVERSATIONS[name]
    assert CHECKS[source](as_body(source, messages)) == []


@every_conversation
def test_what_came_in_goes_out_equal(talk: Talk, name: str) -> None:
    source, messages = CONVERSATIONS[name]
    talk.append(system(PROMPT))
    tell(talk, source, messages)
    body = read(talk, source)
    assert normal(source, without_prompt(source, body)) == normal(source, messages)
    assert [one.text for one in spoken.said(source, body) if one.kind == "system"] == [PROMPT]
    assert body["warnings"] == []
    assert body["open_tool_calls"] == []


@every_conversation
def test_what_came_in_step_by_step_goes_out_as_what_came_in_at_once(talk: Talk, http: httpx.Client, name: str) -> None:
    """A step is what a client has to tell at a time: its own messages, or everything that one answer held."""
    source, messages = CONVERSATIONS[name]
    tell(talk, source, messages)
    other = Talk(http, talk.id + "-slowly")
    for _, step in itertools.groupby(messages, is_of_the_client):
        tell(other, source, list(step))
        for output in FORMATS:
            read(other, output)
    for output in FORMATS:
        assert spoken.request(output, read(talk, output)) == spoken.request(output, read(other, output))


def is_of_the_client(message: Body) -> bool:
    return message.get("role") in {"user", "tool"} or message.get("type", "").endswith("_output")


@every_conversation
def test_what_came_in_piece_by_piece_is_as_valid_and_as_whole(talk: Talk, name: str) -> None:
    source, messages = CONVERSATIONS[name]
    for message in messages:
        tell(talk, source, [message])
        for output in FORMATS:
            read(talk, output)
    given = spoken.said(source, as_body(source, messages))
    for output in FORMATS:
        sent = spoken.said(output, read(talk, output))
        assert sorted(words(given)) == sorted(one for one in words(sent) if one in words(given))
        assert len(spoken.pairs(sent)) == len(spoken.pairs(given))


@every_conversation
@every_format
def test_at_every_step_of_a_conversation_every_format_is_valid(talk: Talk, name: str, output: str) -> None:
    source, messages = CONVERSATIONS[name]
    tell(talk, source, messages)
    for version in range(1, talk.session()["version"] + 1):
        read(talk, output, at_version=version)


@every_conversation
@every_format
def test_what_came_in_goes_whole_to_every_other_provider(talk: Talk, name: str, output: str) -> None:
    source, messages = CONVERSATIONS[name]
    talk.append(system(PROMPT))
    receipt = tell(talk, source, messages)
    body = read(talk, output)
    warned = {one["seq"] for one in body["warnings"]}
    assert warned <= {one["seq"] for one in receipt["events"]}
    given, sent = spoken.said(source, as_body(source, messages)), spoken.said(output, body)
    assert words(given) == [one for one in words(sent) if one in words(given)], "texts are lost, or out of order"
    assert [(made.name, spoken.arguments(made.text)) for made, _ in spoken.pairs(sent)] == [
        (made.name, spoken.arguments(made.text)) for made, _ in spoken.pairs(given)
    ]
    for (_, before), (_, after) in zip(spoken.pairs(given), spoken.pairs(sent), strict=True):
        for word in before.text.split():
            assert word in after.text, f"{before} became {after}"
    missing = [one for one in media(given) if one not in media(sent)]
    assert not missing or warned, f"{missing} left without a warning"
    assert len(missing) <= len(body["warnings"]), f"{missing} left with only {body['warnings']}"
    every_string = "\n".join(one.text for one in sent if one.kind not in {"media"})
    assert not any(len(one) > 20 and one in every_string for one in media(given)), "media became text"


def words(things: list[Said]) -> list[tuple[str, str]]:
    return [(one.by, one.text) for one in things if one.kind == "text" and one.text]


def media(things: list[Said]) -> list[str]:
    return [data for one in things for data in ((one.text,) if one.kind == "media" else one.media)]


@every_conversation
@every_format
def test_thoughts_go_to_nobody_but_the_provider_they_came_from(talk: Talk, name: str, output: str) -> None:
    source, messages = CONVERSATIONS[name]
    tell(talk, source, messages)
    text = json.dumps(spoken.request(output, read(talk, output)))
    for secret in ("two pictures", "c2VjcmV0", "U0lHTg==", "U0lHTjI=", "Z0FBQQ==", "rs_1", "a cat, then"):
        if secret in json.dumps(messages):
            assert (secret in text) == (output == source), secret


@every_conversation
def test_a_compaction_leaves_the_kept_turn_as_it_came_in(talk: Talk, name: str) -> None:
    source, messages = CONVERSATIONS[name]
    talk.append(system(PROMPT))
    tell(talk, source, messages)
    again = messages[:-2]
    tell(talk, source, again)
    turns = talk.view()["turns"]
    assert talk.compact(last_turns=turns // 2)["status"] == "applied"
    kept = without_prompt(source, read(talk, source))
    assert normal(source, kept) == normal(source, again)
    for output in FORMATS:
        read(talk, output)


def test_one_conversation_told_by_all_four_is_one_conversation(talk: Talk) -> None:
    for source, messages in CONVERSATIONS.values():
        tell(talk, source, messages)
    for output in FORMATS:
        body = read(talk, output)
        texts = [text for _, text in words(spoken.said(output, body))]
        assert texts.count("You are welcome.") == len(CONVERSATIONS)
        answers = [result.text for _, result in spoken.pairs(spoken.said(output, body))]
        assert sum("a cat" in one for one in answers) == len(CONVERSATIONS)


SEARCHED = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "cats"},
}


def test_an_answer_that_was_told_twice_is_still_valid(talk: Talk) -> None:
    """A client that tells one answer of the Responses API again sends items with the ids that the log has already."""
    for _ in range(2):
        tell(
            talk,
            "openai-responses",
            [{"role": "user", "content": "look"}, SEARCHED, *CONVERSATIONS["openai-responses"][1][1:]],
        )
    for output in FORMATS:
        read(talk, output)


def test_a_call_of_one_provider_and_its_result_from_another_belong_together(talk: Talk) -> None:
    """The model is changed while a tool runs: its call came as one provider's, the result as the other's."""
    for called, answered in itertools.product(SAME, repeat=2):
        copy_of = Talk(talk.http, f"{talk.id}-{called}-{answered}")
        before, after = copy.deepcopy(SAME[called]), copy.deepcopy(SAME[answered])
        if answered == "gemini":
            after[2]["parts"][0]["functionResponse"]["id"] = "c"
        if called == "gemini":
            before[1]["parts"][1]["functionCall"]["id"] = "c"
        tell(copy_of, called, before[:-2])
        tell(copy_of, answered, after[-2:])
        for output in FORMATS:
            ((made, result),) = spoken.pairs(spoken.said(output, read(copy_of, output)))
            assert (made.name, spoken.arguments(made.text)) == ("find", {"id": 9})
            assert "shipped" in result.text


SAME: dict[str, list[Body]] = {
    "openai": [
        {"role": "user", "content": "Where is my order?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"id":9}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "shipped"},
        {"role": "assistant", "content": "It has been shipped."},
    ],
    "openai-responses": [
        {"role": "user", "content": "Where is my order?"},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c", "name": "find", "arguments": '{"id":9}'},
        {"type": "function_call_output", "call_id": "c", "output": "shipped"},
        {"role": "assistant", "content": "It has been shipped."},
    ],
    "anthropic": [
        {"role": "user", "content": "Where is my order?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c", "name": "find", "input": {"id": 9}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "shipped"}]},
        {"role": "assistant", "content": "It has been shipped."},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Where is my order?"}]},
        {"role": "model", "parts": [{"text": "Let me see."}, {"functionCall": {"name": "find", "args": {"id": 9}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "find", "response": {"output": "shipped"}}}]},
        {"role": "model", "parts": [{"text": "It has been shipped."}]},
    ],
}


@pytest.mark.parametrize("source", SAME)
def test_token_counts_follow_the_content_whatever_the_format(talk: Talk, http: httpx.Client, source: str) -> None:
    other = Talk(http, talk.id + "-openai")
    tell(other, "openai", SAME["openai"])
    tell(talk, source, SAME[source])
    # Four events, or five where the text and the call came as two items, with a few tokens' frame for each.
    expected, counted = other.view()["token_count"], talk.view()["token_count"]
    assert abs(counted - expected) <= 12


@pytest.mark.parametrize("source", FORMATS)
def test_media_and_signatures_do_not_count_as_text(talk: Talk, source: str) -> None:
    large = "A" * 400_000
    messages: dict[str, list[Body]] = {
        "openai": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{large}"}}]}
        ],
        "openai-responses": [
            {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{large}"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": large},
            {"role": "assistant", "content": "ok"},
        ],
        "anthropic": [
            {
                "role": "user",
                "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": large}}],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": large},
                    {"type": "text", "text": "ok"},
                ],
            },
        ],
        "gemini": [
            {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": large}}]},
            {"role": "model", "parts": [{"text": "ok", "thoughtSignature": large}]},
        ],
    }
    tell(talk, source, messages[source])
    assert 0 < talk.view()["token_count"] < 2000


WRONG: list[tuple[str, Any]] = [
    ("anthropic", {"role": "tool", "content": "x"}),
    ("anthropic", {"role": "user"}),
    ("anthropic", {"role": "user", "content": 7}),
    ("anthropic", {"role": "user", "content": ["x"]}),
    ("anthropic", {"role": "user", "content": [{"text": "x"}]}),
    ("anthropic", {"role": "user", "content": [{"type": "text"}]}),
    ("anthropic", {"role": "user", "content": [{"type": "tool_result", "content": "x"}]}),
    ("anthropic", {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]}),
    ("anthropic", {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]}),
    ("anthropic", "hi"),
    ("anthropic", None),
    ("gemini", {"role": "assistant", "parts": [{"text": "x"}]}),
    ("gemini", {"role": "user"}),
    ("gemini", {"role": "user", "parts": "x"}),
    ("gemini", {"role": "user", "parts": [7]}),
    ("gemini", {"role": "user", "parts": [{"text": 7}]}),
    ("gemini", {"role": "model", "parts": [{"functionCall": {"args": {}}}]}),
    ("gemini", {"role": "user", "parts": [{"functionResponse": {"response": {}}}]}),
    ("gemini", []),
    ("openai-responses", {"role": "tool", "content": "x"}),
    ("openai-responses", {"role": "user", "content": 7}),
    ("openai-responses", {"type": "function_call", "name": "f", "arguments": "{}"}),
    ("openai-responses", {"type": "function_call", "call_id": "a", "arguments": "{}"}),
    ("openai-responses", {"type": "function_call_output", "output": "x"}),
    ("openai-responses", {"content": "x"}),
    ("openai-responses", 1),
    ("openai", {"role": "model", "content": "x"}),
]


@pytest.mark.parametrize(("source", "message"), WRONG, ids=[f"{source}-{one}" for source, one in WRONG])
def test_what_is_no_message_of_the_provider_is_refused_by_its_place(talk: Talk, source: str, message: Any) -> None:
    good = SAME[source][0]
    talk.append(system(PROMPT))
    problem = tell(talk, source, [good, message], status=422)
    assert all(one["pointer"].startswith("/messages/1") for one in problem["errors"])
    assert talk.session()["version"] == 1, "a batch is all or nothing"
