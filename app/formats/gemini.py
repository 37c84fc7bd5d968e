"""Gemini generateContent: `systemInstruction` and `contents`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Raw

from app.domain.event import StoredEvent
from app.domain.view import View
from app.formats import calls, openai, pairing, parts, raw_json
from app.formats.calls import Ids, Names
from app.formats.pairing import NO_RESULT, Exchange, Rules, Slot
from app.formats.parts import Media, Part, Refusal, Text
from app.formats.reading import Message
from app.formats.rendered import Notes, Rendered

# Google's documented stand-in for a call that Gemini did not make itself; Gemini 3 refuses calls without any signature.
NO_SIGNATURE: Final = "skip_thought_signature_validator"
_ANY: Final = re.compile(r".*", re.DOTALL)
_MIME_OF: Final[Mapping[str, str]] = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
    "pdf": "application/pdf", "mp3": "audio/mp3", "wav": "audio/wav", "mp4": "video/mp4",
}  # fmt: skip


def _speaks(message: Message) -> bool:
    """Thoughts alone are no content, and neither is a text with nothing to read."""
    return any(not is_thought(found) and not _is_empty(found) for found in map(raw_json.fields, message.native or ()))


RULES: Final = Rules(
    target="gemini",
    names=Names(re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}"), re.compile(r"[^A-Za-z0-9_.:-]")),
    # Results are matched by their place and name, so that ids need not be unique, or there at all.
    ids=lambda: Ids(_ANY, re.compile(r"(?!)"), 2**31),
    ids_per_message=True,
    user_first=True,
    speaks=_speaks,
)


@dataclass(slots=True)
class _Turn:
    """A content that is being put together; function responses are a content of their own."""

    role: str
    parts: list[str] = field(default_factory=list)
    is_response: bool = False


def render(view: View[StoredEvent]) -> Rendered:
    """Render a view as the system instruction and alternating contents of user and model."""
    notes = Notes()
    talk = pairing.arrange(view, RULES, notes)
    turns: list[_Turn] = []
    for item in talk.items:
        if isinstance(item, Exchange):
            _add_exchange(turns, item, notes)
            continue
        if turns and turns[-1].role == _role(item) and not turns[-1].is_response:
            notes.add("messages-merged", item.seq, "joined to the content before, for roles take turns")
        _add(turns, _role(item), write(item, notes))
    fields: dict[str, Any] = {}
    if talk.prompt is not None:
        fields["systemInstruction"] = f'{{"parts":[{",".join(_instruction(talk.prompt, notes))}]}}'
    fields["contents"] = [f'{{"role":"{turn.role}","parts":[{",".join(turn.parts)}]}}' for turn in turns]
    return Rendered(fields=fields, warnings=notes.warnings, open_calls=talk.open_calls)


def _role(message: Message) -> str:
    return "model" if message.role == "assistant" else "user"


def _add(turns: list[_Turn], role: str, said: Iterable[str], *, is_response: bool = False) -> None:
    said = list(said)
    if not said:
        return
    if turns and turns[-1].role == role and not turns[-1].is_response and not is_response:
        turns[-1].parts += said
    else:
        turns.append(_Turn(role, said, is_response))


def _add_exchange(turns: list[_Turn], exchange: Exchange, notes: Notes) -> None:
    """Add the calls, as many responses in their order, and then the media that responses do not hold."""
    message = exchange.message
    _add(turns, "model", write(message, notes, exchange.slots))
    ids = _own_ids(message)
    shown = [(at, slot) for at, slot in enumerate(exchange.slots) if slot.results or not exchange.is_live]
    _add(turns, "user", [response(slot, ids.get(at, "")) for at, slot in shown], is_response=True)
    is_closed = len(shown) == len(exchange.slots)
    after = [
        part for _, slot in shown if not _is_native(slot) for part in openai.media_of(slot, notes, is_closed=is_closed)
    ]
    _add(turns, "user", [_part(part, message, notes) for part in after])


def _own_ids(message: Message) -> dict[int, str]:
    """Return the ids that Gemini itself gave its calls, by their place: the responses have to bear them, too."""
    own = [call for raw in message.native or () if (call := pick(raw_json.fields(raw), "functionCall"))]
    ids = ((at, raw_json.string(raw_json.fields(call).get("id"))) for at, call in enumerate(own))
    return {at: call_id for at, call_id in ids if call_id}


def _is_native(slot: Slot) -> bool:
    return len(slot.results) == 1 and bool(slot.results[0].native)


def is_thought(part: Mapping[str, Raw]) -> bool:
    """Say whether a part is what the model thought, and not what it said."""
    return "thought" in part and raw_json.text_of(part["thought"]) == "true"


def _is_empty(part: Mapping[str, Raw]) -> bool:
    text = pick(part, "text")
    return text is not None and not raw_json.string(text).strip()


def _is_signed(part: Mapping[str, Raw]) -> bool:
    return not raw_json.is_nothing(pick(part, "thoughtSignature"))


def _instruction(prompt: Message, notes: Notes) -> list[str]:
    if prompt.native is not None:
        found = [(raw, raw_json.fields(raw)) for raw in prompt.native]
        kept = [raw_json.text_of(raw) for raw, part in found if pick(part, "text") is not None and not _is_empty(part)]
        if any(not {"text", "inlineData", "fileData", "inline_data", "file_data"} & part.keys() for _, part in found):
            notes.add("part-left-out", prompt.seq, "the system instruction takes text alone")
        return kept or [_text(part.text) for part in prompt.parts if isinstance(part, Text)]
    return [_text(part.text) for part in prompt.parts if isinstance(part, Text)]


def _text(text: str) -> str:
    return raw_json.dump({"text": text})


def write(message: Message, notes: Notes, slots: Iterable[Slot] = ()) -> list[str]:
    """Write a message's parts: its own if it came from Gemini, else what can be said of it in parts."""
    if message.native is not None:
        return _native(message, message.native, notes, list(slots))
    made: list[str] = []
    for at, slot in enumerate(slots):
        arguments, wrapped = calls.as_object(slot.call)
        if wrapped:
            notes.add("arguments-wrapped", message.seq, f"the arguments of the call {slot.call.id} are no JSON object")
        part = {"functionCall": {"name": slot.name, "args": raw_json.raw(arguments)}}
        made.append(raw_json.dump(part if at else {**part, "thoughtSignature": NO_SIGNATURE}))
    return [*(_part(part, message, notes) for part in message.parts), *made]


def _native(message: Message, native: tuple[Raw, ...], notes: Notes, slots: list[Slot]) -> list[str]:
    """Pass on parts byte for byte, save for texts that say nothing and names that had to change."""
    calls_left = iter(slots)
    found: list[str] = []
    for raw in native:
        part = raw_json.fields(raw)
        call = pick(part, "functionCall")
        slot = next(calls_left, None) if call else None
        if _is_empty(part) and not (_is_signed(part) and raw_json.string(part["text"]) == ""):
            notes.add("empty-part-left-out", message.seq, "left out: a text part with nothing to read")
        elif slot is not None and (changed := _changed(raw_json.fields(call), slot)):
            found.append(raw_json.dump({**part, key_of(part, "functionCall"): changed}))
        else:
            found.append(raw_json.text_of(raw))
    return found


def _changed(call: dict[str, Raw], slot: Slot) -> dict[str, Raw]:
    """Return a call of Gemini's own as the API takes it, nothing where it does as it is."""
    has_null = "args" in call and pick(call, "args") is None
    if slot.name == slot.call.name and not has_null:
        return {}
    arguments = {"args": Raw(b"{}")} if has_null else {}
    return {**call, **arguments, "name": raw_json.raw(raw_json.dump(slot.name))}


def _part(part: Part, message: Message, notes: Notes) -> str:
    if isinstance(part, Text | Refusal):
        return _text(part.text)
    shaped = media_part(part) if isinstance(part, Media) else None
    return raw_json.dump(shaped) if shaped else _text(parts.in_words(part, message.seq, notes))


def media_part(media: Media) -> dict[str, Any] | None:
    """Return the part for media, None for another provider's file."""
    if media.data:
        return {"inlineData": {"mimeType": media.mime, "data": media.data}}
    address = media.url or (media.file_id if media.owner == "gemini" else "")
    if not address:
        return None
    mime = media.mime or _MIME_OF.get(address.rpartition(".")[2].lower(), "")
    return {"fileData": {**({"mimeType": mime} if mime else {}), "fileUri": address}}


def response(slot: Slot, call_id: str) -> str:
    """Write the response to one call, under the call's name; of several results all, one below the other."""
    if _is_native(slot):
        sent = raw_json.fields((slot.results[0].native or ())[0])
        key = key_of(sent, "functionResponse")
        inner = {**raw_json.fields(sent[key]), "name": raw_json.raw(raw_json.dump(slot.name))}
        if not call_id:
            # The call came another way and is sent without an id, so that its response may have none.
            inner.pop("id", None)
        return raw_json.dump({**sent, key: inner})
    told = {"id": call_id} if call_id else {}
    text = openai.result_text(slot) if slot.results else NO_RESULT
    return raw_json.dump({"functionResponse": {**told, "name": slot.name, "response": {"output": text}}})


def key_of(part: Mapping[str, Raw], name: str) -> str:
    """Return the name that a field goes by here: its own, or the same in snake case, for the API takes both."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return snake if name not in part and snake in part else name


def pick(part: Mapping[str, Raw], name: str) -> Raw | None:
    """Return a field under its name or the same in snake case; None when it is null."""
    value = part.get(key_of(part, name))
    return None if value is None or raw_json.text_of(value).strip() == "null" else value
