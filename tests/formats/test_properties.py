"""Whatever a log holds, its views are valid for every provider, stable, and lose nothing without saying so.

Every text that a generated log holds is a word of its own, so that it can be found again wherever it went.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain import turn
from app.domain.event import COMPACTION, StoredEvent
from app.domain.view import View
from tests.formats import spoken
from tests.formats.logs import Body, Log, body_of, render, text_of
from tests.formats.natives import PNG
from tests.formats.spoken import FORMATS, Said
from tests.formats.telling import Step, Teller, steps
from tests.formats.validators import CHECKS
from tests.talk import Message

every_format = pytest.mark.parametrize("output", FORMATS)
thoroughly = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=True,
)


def logs() -> st.SearchStrategy[Log]:
    return steps.map(lambda told: Teller().tell(told))


def versions(log: Log) -> Iterator[int]:
    """Return the versions that the log ever stood at and that have a view worth a request: with a message in it.

    A boundary and its summary are written in one transaction, so the log never stood between them.
    """
    stood_at = (event.seq - 1 for event in log.events[1:] if not event.synthetic)
    yield from (version for version in (*stood_at, log.version) if log.view(version).events)


@every_format
@thoroughly
@given(log=logs())
def test_every_view_is_valid_for_its_provider(output: str, log: Log) -> None:
    for version in versions(log):
        body = body_of(render(output, log.view(version)))
        assert CHECKS[output](body) == [], f"at version {version}: {shown(body)}"


@every_format
@thoroughly
@given(log=logs())
def test_rendering_twice_gives_the_same_bytes(output: str, log: Log) -> None:
    again = Log()
    again.events = [*log.events]
    assert text_of(render(output, log.view())) == text_of(render(output, again.view()))


@every_format
@thoroughly
@given(log=logs())
def test_between_boundaries_a_rendered_view_only_grows_at_its_end(output: str, log: Log) -> None:
    """Hold each version against the one before it.

    What is rendered of a view may change only where it is unsettled: from the start of its last turn on (the whole
    preamble, as long as there is no turn), and from a call on whose result has just come. Before that, every message
    stays as it is; the very last one may have grown at its end.
    """
    earlier: View[StoredEvent] | None = None
    for version in versions(log):
        view = log.view(version)
        if earlier and earlier.boundary == view.boundary:
            before, after = (rendered_list(output, one) for one in (earlier, view))
            check_growth(before, after, settled_words(earlier, view), f"{output} at version {version}")
        earlier = view


def check_growth(before: list[Any], after: list[Any], settled: set[str], where: str) -> None:
    kept = 0
    while kept < min(len(before), len(after)) and before[kept] == after[kept]:
        kept += 1
    changed = before[kept:]
    if len(changed) == 1 and len(after) > kept and grew(changed[0], after[kept]):
        return
    for at, one in enumerate(changed):
        found = words_in(one)
        assert not found or not found <= settled, (
            f"{where}: message {kept + at} changed: {shown(one)} to {shown(after)}"
        )


def grew(before: Any, after: Any) -> bool:
    """Say whether a message is another one with more parts at its end."""
    one, other = parts_of(before), parts_of(after)
    return other[: len(one)] == one


def parts_of(message: Body) -> list[Any]:
    content = message.get("parts", message.get("content"))
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [message.get("role"), message.get("tool_calls"), *parts]


def rendered_list(output: str, view: View[StoredEvent]) -> list[Any]:
    """Return what is rendered apart from the system slot."""
    body = body_of(render(output, view))
    listed = body[spoken.REQUEST[output][-1]]
    return [one for one in listed if one.get("role") not in {"system", "developer"}]


def settled_words(earlier: View[StoredEvent], later: View[StoredEvent]) -> set[str]:
    """Return the words of the earlier view's events that come before anything unsettled."""
    events = [event for event in earlier.events if not event.is_system]
    starts = [at for at, event in enumerate(events) if event.starts_turn]
    new = {event.seq for event in later.events} - {event.seq for event in earlier.events}
    now = [event for event in later.events if not event.is_system]
    late = [
        next((at for at, event in enumerate(events) if event.seq == now[call].seq), len(events))
        for call, result in turn.pairs(now)
        if now[result].seq in new
    ]
    unsettled = min([starts[-1] if starts else 0, *late])
    return {word for event in events[:unsettled] for word in words_in(json.loads(event.body))}


def words_in(value: Any) -> set[str]:
    """Return the words of their own that a JSON value holds: each starts with its kind and ends in a z."""
    found: set[str] = set()
    for text in spoken.strings(value):
        for kind in ("said", "told", "argued", "result", "ruled"):
            for piece in text.split(kind)[1:]:
                number = piece.partition("z")[0]
                if number.replace("x", "").isdigit():
                    found.add(f"{kind}{number}z")
    return found


@every_format
@thoroughly
@given(log=logs())
def test_nothing_that_was_said_is_lost_without_a_warning(output: str, log: Log) -> None:
    view = log.view()
    if not view.events:
        return
    body = body_of(render(output, view))
    request = spoken.request(output, body)
    warned = {one["seq"] for one in body["warnings"]}
    sent = words_in(request)
    everything = "\n".join(spoken.strings(request))
    for event in view.events:
        # Words are never left out, warning or not, save those of a system message that a newer one supersedes.
        if event.is_system and event.seq in warned:
            continue
        missing = words_in(sayings(json.loads(event.body))) - sent
        assert not missing, f"{missing} of {event.body} in {shown(request)}"
        if event.seq in warned:
            continue
        for medium in media_in(json.loads(event.body)):
            assert medium in everything, f"{medium} of {event.body} in {shown(request)}"
    assert "hidden" not in everything, "a custom event was sent"
    assert output == "openai" or "inner" not in everything, "a field of OpenAI's that is no part of the talk was sent"
    assert not any(PNG in one.text for one in spoken.said(output, body) if one.kind != "media"), "data sent as text"


def sayings(message: Message) -> list[Any]:
    """Return what a message says to a model: its texts, refusal, result and arguments. An unknown part has no words."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") or part.get("refusal") for part in parts if part["type"] in {"text", "refusal"}]
    calls = [call["function"]["arguments"] for call in message.get("tool_calls") or ()]
    return [*texts, message.get("refusal"), *calls]


def media_in(message: Message) -> Iterator[str]:
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if part["type"] == "image_url":
            yield spoken.bare(part["image_url"]["url"])
        elif part["type"] == "input_audio":
            yield part["input_audio"]["data"]
        elif part["type"] == "file":
            file = part["file"]
            yield file.get("file_id") or file.get("file_url") or spoken.bare(file["file_data"])


@every_format
@thoroughly
@given(log=logs())
def test_unknown_parts_are_sent_or_warned_about(output: str, log: Log) -> None:
    body = body_of(render(output, log.view())) if log.view().events else {"warnings": []}
    warned = {one["seq"] for one in body["warnings"]}
    for event in log.view().events:
        assert "acme_part" not in event.body or event.seq in warned


@every_format
@thoroughly
@given(log=logs())
def test_every_call_and_result_is_there_and_belongs_together_or_is_warned_about(output: str, log: Log) -> None:
    view = log.view()
    if not view.events:
        return
    body = body_of(render(output, view))
    warned = {one["seq"] for one in body["warnings"]}
    things = spoken.said(output, body)
    made = [one for one in things if one.kind == "call"]
    answers = {word: call for call, result in spoken.pairs(things) for word in words_in(result.text)}
    for event in view.events:
        if event.calls and event.seq not in warned:
            check_calls(event, made)
    events = view.events
    for call, result in turn.pairs(events):
        if {events[call].seq, events[result].seq} & warned:
            continue
        for word in words_in(sayings(json.loads(events[result].body))):
            assert word in answers, f"{word} is no tool's answer in {shown(things)}"
            argued = words_in(answers[word].text)
            assert not argued or argued <= words_in(json.loads(events[call].body)), f"{word} answers another call"


def check_calls(event: StoredEvent, made: list[Said]) -> None:
    message = json.loads(event.body)
    for call in message["tool_calls"]:
        function = call["function"]
        given_as = function["arguments"]
        expected = given_as if isinstance(given_as, dict) else spoken.arguments(given_as)
        assert any(one.name == function["name"] and spoken.arguments(one.text) == expected for one in made), (
            f"{call} is not among {shown(made)}"
        )


@every_format
@thoroughly
@given(log=logs())
def test_thoughts_and_signatures_go_out_as_they_came_in_or_not_at_all(output: str, log: Log) -> None:
    view = log.view()
    request = spoken.request(output, body_of(render(output, view)))
    kept = [piece for event in view.events for piece in objects_in(json.loads(event.body).get("turnlog"))]
    for piece in objects_in(request):
        signed = piece.get("signature") is not None or piece.get("type") in {"redacted_thinking", "reasoning"}
        if signed or (piece.get("thoughtSignature") not in {None, NO_SIGNATURE}):
            assert piece in kept, f"{piece} came from nobody"
    everything = "\n".join(spoken.strings(request))
    for source in {"anthropic", "gemini", "responses"} - {output.removeprefix("openai-")}:
        assert f"thinks{source}" not in everything, f"thoughts of {source} were sent"


# What Google's own page tells to send where a call has no signature, for another model made it.
NO_SIGNATURE = "skip_thought_signature_validator"


def objects_in(value: Any) -> Iterator[Body]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from objects_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects_in(inner)


@every_format
@thoroughly
@given(log=logs())
def test_warnings_tell_of_events_that_are_in_the_view(output: str, log: Log) -> None:
    view = log.view()
    seqs = {event.seq for event in view.events}
    for one in render(output, view).warnings:
        assert one.seq in seqs
        assert one.code
        assert one.code == one.code.lower()
        assert one.detail


def shown(value: Any) -> str:
    return str(value)[:6000]


ODD = [
    Step(what, (number, number * 7 % 60, number * 3 % 60, number * 11 % 60, number * 13 % 60, number * 17 % 60))
    for number in range(40)
    for what in ("user", "calls", "result", "assistant", "result", "system")
    if what != "system" or number % 9 == 0
]

_HASHED = """
from tests.formats.logs import render, text_of
from tests.formats.telling import Teller
from tests.formats.test_properties import FORMATS, ODD
import hashlib
log = Teller().tell(ODD)
print([hashlib.sha256(text_of(render(output, log.view())).encode()).hexdigest() for output in FORMATS])
"""


def test_two_processes_give_the_same_bytes() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", _HASHED],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


@every_format
def test_one_long_odd_log_is_valid_at_every_version(output: str) -> None:
    log = Teller().tell(ODD)
    for version in [*versions(log)][::7]:
        assert CHECKS[output](body_of(render(output, log.view(version)))) == [], version
    assert COMPACTION not in {event.type for event in log.events}
