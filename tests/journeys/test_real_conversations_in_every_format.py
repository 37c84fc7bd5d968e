"""Real conversations in every provider's format, before and after a compaction: valid, whole, stable as they grow."""

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import shared
from tests.formats import spoken
from tests.formats.spoken import FORMATS, Body
from tests.formats.validators import CHECKS
from tests.talk import Message, Talk

FILES = {"tau-bench-airline": 200, "swe-agent": 5}
PARTS = 8
SUMMARY = "The traveller asked for changes to a booking, and they were made."

every_part = pytest.mark.parametrize(
    ("name", "part"), [("swe-agent", 0), *(("tau-bench-airline", part) for part in range(PARTS))]
)


def conversations(name: str, part: int) -> Iterator[tuple[str, list[Message]]]:
    """Read a part of a file's conversations; the small file is one part."""
    lines = shared(f"data/{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == FILES[name]
    for line in lines[part :: PARTS if name != "swe-agent" else 1]:
        said = json.loads(line)
        yield said["id"], said["messages"]


def read(talk: Talk, output: str, **params: Any) -> Body:
    """Return the view in a format, held to its provider's rules."""
    body = talk.view(output, **params)
    assert CHECKS[output](body) == [], f"{talk.id}, {output}"
    return body


@every_part
def test_real_conversations_in_every_format(http: httpx.Client, name: str, part: int) -> None:
    for number, (title, messages) in enumerate(conversations(name, part)):
        talk = Talk(http, f"{title}-{os.getpid()}")
        talk.append(*messages)
        for output in FORMATS:
            check_whole(output, read(talk, output), messages)
        if number % 2:
            talk.compact(last_turns=2)
        else:
            talk.compact(last_events=12, summary=SUMMARY)
        kept = talk.seqs()
        for output in FORMATS:
            body = read(talk, output)
            check_whole(output, body, [messages[seq - 1] for seq in kept if seq <= len(messages)])
            assert json.dumps(spoken.request(output, body)).count(SUMMARY) == any(seq > len(messages) for seq in kept)


def check_whole(output: str, body: Body, messages: list[Message]) -> None:
    """Hold a body to the messages that it renders: every text, call and result is there, and in order.

    The files hold calls of OpenAI's own form, so nothing in them has to be adapted; a tool that had nothing to say is
    told so in words where a provider wants some.
    """
    assert body["warnings"] == [] or output != "openai"
    things = spoken.said(output, body)
    texts = [one.text.rstrip() for one in things if one.kind in {"system", "text"}]
    expected = [
        m["content"].rstrip() for m in messages if m["role"] != "tool" and m["content"] and m["content"].strip()
    ]
    assert [text for text in texts if text in set(expected)] == expected
    calls = [call["function"] for m in messages for call in m.get("tool_calls") or ()]
    made = [one for one in things if one.kind == "call"]
    assert [(one.name, spoken.arguments(one.text)) for one in made] == [
        (call["name"], spoken.arguments(call["arguments"])) for call in calls
    ]
    results = [m["content"] for m in messages if m["role"] == "tool"]
    answers = [answer.text for _, answer in spoken.pairs(things)]
    assert len(answers) == len(results)
    assert all(result.strip() in answer for result, answer in zip(results, answers, strict=True))


@pytest.mark.parametrize("output", FORMATS)
def test_a_real_conversation_only_grows_at_its_end(http: httpx.Client, output: str) -> None:
    """No call of these files waits for its result across a turn, so everything before the last turn stands still."""
    for title, messages in list(conversations("tau-bench-airline", 3))[:4]:
        talk = Talk(http, f"{title}-grows-{output}-{os.getpid()}")
        talk.append(*messages)
        earlier: list[Any] = []
        for version in range(2, len(messages) + 1):
            body = read(talk, output, at_version=version)
            listed = body[spoken.REQUEST[output][-1]]
            assert listed[: len(earlier)] == earlier, f"{title} at version {version}"
            # An answer that the model has yet to give may still be trimmed; what stands before it is final.
            earlier = listed[:-1]


def test_real_conversations_warn_of_nothing_but_what_providers_cannot_take(http: httpx.Client) -> None:
    codes: dict[str, set[str]] = {output: set() for output in FORMATS}
    for title, messages in list(conversations("tau-bench-airline", 0))[:10]:
        talk = Talk(http, f"{title}-warns-{os.getpid()}")
        talk.append(*messages)
        for output in FORMATS:
            codes[output] |= {one["code"] for one in talk.view(output)["warnings"]}
    assert codes["openai"] == set()
    for output in FORMATS:
        assert len(codes[output]) <= 2, codes
