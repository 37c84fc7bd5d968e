"""OpenAI chat completions: `messages`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Raw

from app.domain.event import StoredEvent
from app.domain.message import RESERVED
from app.domain.view import View
from app.formats import pairing, parts, raw_json, reading
from app.formats.calls import Call, Ids, Names
from app.formats.pairing import NO_RESULT, Exchange, Rules, Slot
from app.formats.parts import FROM_FIELD, Media, Part, Text
from app.formats.reading import Message
from app.formats.rendered import Notes, Rendered

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANY: Final = re.compile(r".+", re.DOTALL)
NAMES: Final = Names(_NAME, re.compile(r"[^A-Za-z0-9_-]"))
RULES: Final = Rules(target="openai", names=NAMES, ids=lambda: Ids(_ANY, re.compile(r"(?!)"), 64), ids_per_message=True)
# Which parts a message of each role may hold.
_TAKES: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "tool": frozenset({"text"}),
}


def render(view: View[StoredEvent]) -> Rendered:
    """Render a view as chat messages. A message goes out as the bytes it came in unless something has to change."""
    notes = Notes()
    talk = pairing.arrange(view, RULES, notes)
    messages = [_message(talk.prompt, notes)] if talk.prompt else []
    for item in talk.items:
        if isinstance(item, Exchange):
            messages += _exchange(item, notes)
        else:
            messages.append(_message(item, notes))
    return Rendered(fields={"messages": messages}, warnings=notes.warnings, open_calls=talk.open_calls)


def _exchange(exchange: Exchange, notes: Notes) -> Iterator[str]:
    """Write the calls, a result for each in the order of the calls, and then the media that no tool message takes."""
    message = exchange.message
    calls = [_call(slot, message.seq, notes) for slot in exchange.slots]
    changed = any(call is not slot.call.raw for call, slot in zip(calls, exchange.slots, strict=True))
    yield _message(message, notes, {"tool_calls": raw_json.raw(raw_json.dump(calls))} if changed else {})
    shown: list[Part] = []
    answered = exchange.answered
    is_closed = len(answered) == len(exchange.slots)
    for slot in answered:
        yield _result(slot, message.seq, notes)
        shown += media_of(slot, notes, is_closed=is_closed)
    if shown:
        yield raw_json.dump({"role": "user", "content": [_part(part, "user", message.seq, notes) for part in shown]})


def media_of(slot: Slot, notes: Notes, *, is_closed: bool) -> list[Part]:
    """Return the media of a result, labelled, for a user message after the results; none while calls are open."""
    media = [part for part in slot.parts if isinstance(part, Media)]
    if not media:
        return []
    seq = slot.results[0].seq
    if not is_closed:
        notes.add("media-left-out", seq, "the media of a result are sent once all calls have their results")
        return []
    notes.add("result-media-moved", seq, "the media of a result are sent by a user message after the results")
    return [Text(text=f"[From the result of the tool {slot.name}]"), *media]


def _call(slot: Slot, seq: int, notes: Notes) -> Raw:
    """Write a call as the API takes it: its own bytes if they will do."""
    call = slot.call
    assert call.raw is not None  # noqa: S101 - calls of the log always have it
    if not call.is_function:
        notes.add("call-adapted", seq, f"a call of the type {call.name} is shown as a call of a function")
        return raw_json.raw(raw_json.dump(_function(slot, call)))
    found = raw_json.fields(call.raw)
    changes: dict[str, Raw] = {}
    if slot.id != call.id:
        changes["id"] = raw_json.raw(raw_json.dump(slot.id))
    if "type" not in found:
        notes.add("call-adapted", seq, "a call without a type is shown as a call of a function")
        changes["type"] = raw_json.raw('"function"')
    kind = "custom" if call.custom else "function"
    inner = raw_json.fields(found[kind])
    told = "input" if call.custom else "arguments"
    if slot.name != call.name or not raw_json.is_string(inner.get(told)):
        inner |= {"name": raw_json.raw(raw_json.dump(slot.name)), told: raw_json.raw(raw_json.dump(call.arguments))}
        changes[kind] = raw_json.raw(raw_json.dump(inner))
    return raw_json.raw(raw_json.dump({**found, **changes})) if changes else call.raw


def _function(slot: Slot, call: Call) -> dict[str, Any]:
    return {"id": slot.id, "type": "function", "function": {"name": slot.name, "arguments": call.arguments}}


def _result(slot: Slot, seq: int, notes: Notes) -> str:
    if not slot.results:
        return raw_json.dump({"role": "tool", "tool_call_id": slot.id, "content": NO_RESULT})
    first = slot.results[0]
    changes: dict[str, Raw] = {}
    if slot.id != first.answers:
        changes["tool_call_id"] = raw_json.raw(raw_json.dump(slot.id))
    if len(slot.results) > 1 or not _fits(first):
        if not first.parts and len(slot.results) == 1:
            notes.add("empty-result", first.seq, "a result of nothing is shown as an empty text")
        changes["content"] = raw_json.raw(raw_json.dump(result_text(slot)))
    return _message(first, notes, changes)


def result_text(slot: Slot) -> str:
    """Return what the results of a call say in words; several of them, one below the other."""
    if len(slot.results) == 1:
        return reading.text(slot.results[0])
    return "\n\n".join(filter(None, map(reading.text, slot.results)))


def _fits(message: Message) -> bool:
    """Say whether the content may go out as it is."""
    if message.listed is not None:
        sent = [part for part in message.parts if part.sent_as != FROM_FIELD]
        return 0 < len(sent) == message.listed and all(_goes_as_sent(part, message.role) for part in sent)
    is_text = raw_json.is_string(message.fields.get("content"))
    if message.role == "tool":
        return is_text
    return not is_text or any(part.sent_as != FROM_FIELD for part in message.parts)


def _message(message: Message, notes: Notes, changes: Mapping[str, Raw] | None = None) -> str:
    """Write a message: the bytes that the log has, or the same fields with those that had to change."""
    if not message.fields:
        return raw_json.dump({"role": message.role, "content": _written(message, notes)})
    changes = dict(changes or {})
    if "content" not in changes and not _fits(message):
        changes["content"] = raw_json.raw(raw_json.dump(_written(message, notes)))
    gone = set(_unfit(message, notes))
    if not changes and not gone and f'"{RESERVED}"' not in message.body:
        return message.body
    return raw_json.dump({key: value for key, value in {**message.fields, **changes}.items() if key not in gone})


def _unfit(message: Message, notes: Notes) -> Iterator[str]:
    """Name the fields that the API would refuse in this message."""
    if message.name and not _NAME.fullmatch(message.name):
        notes.add("name-left-out", message.seq, "the name has characters or a length that the API refuses")
        yield "name"
    elif "name" in message.fields and not message.name:
        yield "name"
    if "tool_calls" in message.fields and not message.calls:
        yield "tool_calls"
    if message.role != "tool" and "tool_call_id" in message.fields:
        notes.add("fields-left-out", message.seq, "only a tool message names a call: tool_call_id")
        yield "tool_call_id"


def _written(message: Message, notes: Notes) -> str | list[dict[str, Any] | Raw] | None:
    """Write the content anew, from what can be sent of it."""
    said = [part for part in message.parts if part.sent_as != FROM_FIELD]
    if not said:
        return None
    if message.listed is None:
        return reading.text(message)
    return [_part(part, message.role, message.seq, notes) for part in said]


def _part(part: Part, role: str, seq: int, notes: Notes) -> dict[str, Any] | Raw:
    if part.raw is not None and _goes_as_sent(part, role):
        return part.raw
    shape = parts.shape(part)
    if shape["type"] in _TAKES[role] and _is_sendable(part):
        return shape
    return parts.shape(Text(text=parts.in_words(part, seq, notes)))


def _goes_as_sent(part: Part, role: str) -> bool:
    if part.sent_as not in _TAKES[role] or not _is_sendable(part):
        return False
    # A picture or a sound that came as a file is written as what it is.
    return not isinstance(part, Media) or parts.shape(part)["type"] == part.sent_as


def _is_sendable(part: Part) -> bool:
    if not isinstance(part, Media):
        return True
    if part.kind == "audio":
        return part.mime in {"audio/wav", "audio/mp3"}
    if part.file_id:
        return part.owner == "openai"
    if part.kind == "image":
        return not part.data or part.mime in parts.OPENAI_IMAGES
    return bool(part.data) and part.mime == "application/pdf"
