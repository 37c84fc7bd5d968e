"""OpenAI responses: `instructions` and `input`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Raw

from app.domain.event import StoredEvent
from app.domain.view import View
from app.formats import openai, pairing, parts, raw_json
from app.formats.calls import Ids
from app.formats.pairing import NO_RESULT, Exchange, Rules, Slot
from app.formats.parts import Media, Part, Refusal, Text
from app.formats.reading import Message
from app.formats.rendered import Notes, Rendered
from app.formats.responses_items import Item, calls_last, calls_tool, has_fit_parts, is_silent, kind_of, tidy

_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_OUTPUTS: Final = frozenset(f"{kind}_output" for kind in _CALLS)


def _speaks(message: Message) -> bool:
    """Say whether there is something to read in a message's items; parts that no provider takes are nothing."""
    for item in map(raw_json.fields, message.native or ()):
        if not is_silent(item) and (message.parts or kind_of(item) != "message" or has_fit_parts(item)):
            return True
    return False


RULES: Final = Rules(
    target="openai-responses",
    names=openai.NAMES,
    # An output finds its call by the id alone, wherever it stands, so that each id may be there once.
    ids=lambda: Ids(re.compile(r".+", re.DOTALL), re.compile(r"(?!)"), 64),
    speaks=_speaks,
)


def render(view: View[StoredEvent]) -> Rendered:
    """Render a view as the instructions and a list of items."""
    notes = Notes()
    talk = pairing.arrange(view, RULES, notes)
    items: list[Item] = []
    for item in talk.items:
        if isinstance(item, Exchange):
            kinds = _kinds(item)
            made = _items(item.message, notes, item.slots, kinds)
            items += made if len(item.answered) == len(item.slots) else calls_last(made)
            items += [
                Item(output(slot, kind, notes), _seq(slot, item))
                for slot, kind in zip(item.slots, kinds, strict=True)
                if slot.results or not item.is_live
            ]
        else:
            items += _items(item, notes)
    fields: dict[str, Any] = {}
    if talk.prompt is not None:
        fields["instructions"] = raw_json.dump("".join(p.text for p in talk.prompt.parts if isinstance(p, Text)))
    fields["input"] = tidy(items, notes) or _opener(items, notes)
    return Rendered(fields=fields, warnings=notes.warnings, open_calls=talk.open_calls)


def _opener(items: list[Item], notes: Notes) -> list[str]:
    """Return something to send where all there is was reasoning that led to nothing yet."""
    if not items:
        return []
    notes.add("opener-added", items[0].seq, "a neutral user message opens the list, for the provider wants one")
    return [raw_json.dump({"role": "user", "content": pairing.OPENER})]


def _seq(slot: Slot, exchange: Exchange) -> int:
    """Return the seq of the event that an output is about."""
    return slot.results[0].seq if slot.results else exchange.message.seq


def _kinds(exchange: Exchange) -> list[str]:
    """Return the types under which the calls go out.

    An output answers only a call of its own type, and only of functions and custom tools turnlog can write one. So a
    call of one of the API's own tools stays what it is only with the result that came for it, or while it is open.
    """
    own = [kind_of(item) for item in map(raw_json.fields, exchange.message.native or ()) if calls_tool(item)]
    if len(own) != len(exchange.slots):
        return [_kind_of_call(slot) for slot in exchange.slots]
    return [
        kind if kind in _CALLS or _is_answered_as(kind, slot, exchange) else "function_call"
        for kind, slot in zip(own, exchange.slots, strict=True)
    ]


def _kind_of_call(slot: Slot) -> str:
    return "custom_tool_call" if slot.call.custom else "function_call"


def _is_answered_as(kind: str, slot: Slot, exchange: Exchange) -> bool:
    if not slot.results:
        return exchange.is_live
    sent = _sent_alone(slot)
    return sent is not None and kind_of(sent) == f"{kind}_output"


def _sent_alone(slot: Slot) -> Mapping[str, Raw] | None:
    """Return the item of a call's only result, if it came as one."""
    return raw_json.fields(slot.results[0].native[0]) if len(slot.results) == 1 and slot.results[0].native else None


def _items(message: Message, notes: Notes, slots: Sequence[Slot] = (), kinds: Sequence[str] = ()) -> list[Item]:
    return [Item(text, message.seq) for text in write(message, notes, slots, kinds)]


def write(message: Message, notes: Notes, slots: Sequence[Slot] = (), kinds: Sequence[str] = ()) -> list[str]:
    """Write a message's items: its own if it came as items, else what can be said of it in items.

    ``kinds`` are the types under which the calls of its own items go out.
    """
    if message.native is not None:
        return list(_native(message, message.native, zip(slots, kinds, strict=True), notes))
    said = [raw_json.dump({"role": message.role, "content": _content(message, notes)})] if message.parts else []
    return [*said, *(_call(slot, message.seq, notes) for slot in slots)]


def _native(
    message: Message, native: tuple[Raw, ...], slots: Iterator[tuple[Slot, str]], notes: Notes
) -> Iterator[str]:
    """Pass on items byte for byte, save for ids, names, parts and calls that had to change."""
    for raw in native:
        item = raw_json.fields(raw)
        if kind_of(item) == "message" and not has_fit_parts(item):
            yield from _refitted(message, item, notes)
            continue
        slot, kind = next(slots, (None, "")) if calls_tool(item) else (None, "")
        if slot is None:
            yield raw_json.text_of(raw)
        elif kind != kind_of(item):
            yield _adapted(slot, item, message.seq, notes)
        else:
            yield _renamed(slot, item, raw)


def _renamed(slot: Slot, item: Mapping[str, Raw], raw: Raw) -> str:
    if slot.id == slot.call.id and slot.name == slot.call.name:
        return raw_json.text_of(raw)
    changes = {"call_id": raw_json.raw(raw_json.dump(slot.id))}
    if "name" in item:
        changes["name"] = raw_json.raw(raw_json.dump(slot.name))
    return raw_json.dump({**item, **changes})


def _adapted(slot: Slot, item: Mapping[str, Raw], seq: int, notes: Notes) -> str:
    """Write a call of one of the API's own tools as a call of a function; its id tells ``tidy`` that it cannot stay."""
    notes.add("call-adapted", seq, f"a {kind_of(item)} without an output of its own is shown as a call of a function")
    item_id = {"id": item["id"]} if "id" in item else {}
    return raw_json.dump({**raw_json.fields(_call(slot, seq, notes)), **item_id})


def _refitted(message: Message, item: Mapping[str, Raw], notes: Notes) -> Iterator[str]:
    """Write a message item with parts that the API does not take there from what the OpenAI shape says."""
    notes.add("part-adapted", message.seq, "parts of types that a message of this role cannot have are written anew")
    if message.parts:
        yield raw_json.dump({**item, "content": _content(message, notes)})


def _content(message: Message, notes: Notes) -> str | list[dict[str, Any]]:
    has_refusal = any(isinstance(part, Refusal) for part in message.parts)
    if message.listed is None and not has_refusal:
        return "".join(part.text for part in message.parts if isinstance(part, Text))
    return [_part(part, message, notes) for part in message.parts]


def _part(part: Part, message: Message, notes: Notes) -> dict[str, Any]:
    is_assistant = message.role == "assistant"
    if isinstance(part, Refusal) and is_assistant:
        return {"type": "refusal", "refusal": part.text}
    shaped = media_part(part) if isinstance(part, Media) and not is_assistant else None
    if shaped:
        return shaped
    text = parts.in_words(part, message.seq, notes)
    return {"type": "output_text" if is_assistant else "input_text", "text": text}


def media_part(media: Media) -> dict[str, Any] | None:
    """Return the part for media, None for sound, film and other providers' files."""
    is_refused = media.kind == "image" and bool(media.data) and media.mime not in parts.OPENAI_IMAGES
    if is_refused or (media.file_id and media.owner != "openai"):
        return None
    data_url = f"data:{media.mime};base64,{media.data}" if media.data else ""
    if media.kind == "image":
        detail = raw_json.string(_inner(media).get("detail"))
        place = {"file_id": media.file_id} if media.file_id else {"image_url": media.url or data_url}
        return {"type": "input_image", **place, "detail": detail or "auto"}
    if media.kind != "file":
        return None
    name = {"filename": media.name} if media.name else {}
    if media.file_id:
        return {"type": "input_file", "file_id": media.file_id}
    if media.url:
        return {"type": "input_file", "file_url": media.url}
    return {"type": "input_file", **(name or {"filename": "file"}), "file_data": data_url}


def _inner(media: Media) -> Mapping[str, Raw]:
    return raw_json.fields(raw_json.fields(media.raw).get("image_url"))


def _call(slot: Slot, seq: int, notes: Notes) -> str:
    call = slot.call
    if call.custom:
        return raw_json.dump(
            {"type": "custom_tool_call", "call_id": slot.id, "name": slot.name, "input": call.arguments}
        )
    if not call.is_function:
        notes.add("call-adapted", seq, f"a call of the type {call.name} is shown as a call of a function")
    return raw_json.dump({"type": "function_call", "call_id": slot.id, "name": slot.name, "arguments": call.arguments})


def output(slot: Slot, kind: str, notes: Notes) -> str:
    """Write the output of one call of a type; of several results all, one after the other."""
    kind = f"{kind}_output"
    shown: str | list[dict[str, Any]] = NO_RESULT
    if slot.results:
        sent = _sent_alone(slot)
        if sent and _fits(sent, kind):
            call_id = raw_json.raw(raw_json.dump(slot.id))
            return raw_json.dump({**sent, "type": raw_json.raw(raw_json.dump(kind)), "call_id": call_id})
        listed = [_part(part, result, notes) for result in slot.results for part in result.parts]
        is_text = all(result.listed is None for result in slot.results)
        shown = openai.result_text(slot) if is_text or not listed else listed
    return raw_json.dump({"type": kind, "call_id": slot.id, "output": shown})


def _fits(sent: Mapping[str, Raw], kind: str) -> bool:
    """Say whether an output that came as an item may go out as one of this type."""
    if kind not in _OUTPUTS:
        return kind_of(sent) == kind
    return kind_of(sent) in _OUTPUTS and has_fit_parts(sent)
