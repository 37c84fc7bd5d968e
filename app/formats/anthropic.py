"""Anthropic messages: `system` and `messages`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Raw

from app.domain.event import StoredEvent
from app.domain.view import View
from app.formats import anthropic_marks, calls, pairing, parts, raw_json
from app.formats.calls import Ids, Names
from app.formats.pairing import NO_RESULT, Exchange, Rules, Slot
from app.formats.parts import Media, Part, Text
from app.formats.reading import Message
from app.formats.rendered import Notes, Rendered

THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_TOLD: Final = frozenset({"text", "image", "document", "search_result"})
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_LONGEST_ID: Final = 256


def _speaks(message: Message) -> bool:
    """Thinking alone is no message, and neither is a text with nothing to read."""
    return any(not _is_empty(found) and _kind(found) not in THINKING for found in _found(message))


RULES: Final = Rules(
    target="anthropic",
    names=Names(re.compile(r"[A-Za-z0-9_-]{1,128}"), _OTHER, 128),
    ids=lambda: Ids(re.compile(r"[A-Za-z0-9_-]+"), _OTHER, _LONGEST_ID),
    user_first=True,
    speaks=_speaks,
)


@dataclass(slots=True)
class _Turn:
    """A message that is being put together; ``text`` is its content when that may stay a string."""

    role: str
    blocks: list[str] = field(default_factory=list)
    text: str | None = None
    holds_results: bool = False


def render(view: View[StoredEvent]) -> Rendered:
    """Render a view as the system text and alternating messages of users and assistants."""
    notes = Notes()
    talk = pairing.arrange(view, RULES, notes)
    turns: list[_Turn] = []
    for item in talk.items:
        if isinstance(item, Exchange):
            _add(turns, "assistant", blocks(item.message, notes, item.slots))
            _add_results(turns, item, notes)
            continue
        if turns and turns[-1].role == item.role and not turns[-1].holds_results:
            notes.add("messages-merged", item.seq, "joined to the message before, for roles take turns")
        _add(turns, item.role, blocks(item, notes), item)
    _trim_end(turns, talk.items[-1] if talk.items else None, notes)
    system = [] if talk.prompt is None else _system(talk.prompt, notes)
    system, messages = anthropic_marks.limit(system, [turn.blocks for turn in turns], notes, view.version)
    fields: dict[str, Any] = {}
    if talk.prompt is not None:
        is_text = talk.prompt.native is None and talk.prompt.listed is None
        fields["system"] = raw_json.dump(_words(talk.prompt)) if is_text else f"[{','.join(system)}]"
    fields["messages"] = [_written(turn, blocks) for turn, blocks in zip(turns, messages, strict=True)]
    return Rendered(fields=fields, warnings=notes.warnings, open_calls=talk.open_calls)


def _system(prompt: Message, notes: Notes) -> list[str]:
    """Write the system slot, which takes texts alone: the prompt's own blocks if they are, else what it says in words.

    Of the cache marks on other blocks the last one goes to the last text.
    """
    found = _found(prompt)
    if found and all(_kind(block) == "text" for block in found):
        return blocks(prompt, notes)
    said: list[dict[str, Any]] = [
        {"type": "text", "text": part.text} for part in prompt.parts if isinstance(part, Text)
    ]
    if any(_kind(block) not in _TOLD for block in found):
        notes.add("part-left-out", prompt.seq, "the system slot takes text alone")
    marks = [mark for block in found if not raw_json.is_nothing(mark := block.get("cache_control"))]
    if marks:
        said[-1]["cache_control"] = marks[-1]
    return [raw_json.dump(text) for text in said]


def _words(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _add(turns: list[_Turn], role: str, blocks: Iterable[str], message: Message | None = None) -> None:
    """Put blocks at the end: into the last message when it has the same role, else into a new one."""
    blocks = list(blocks)
    if not blocks:
        return
    if turns and turns[-1].role == role:
        turns[-1].blocks += blocks
        turns[-1].text = None
        return
    plain = message is not None and message.native is None and message.is_plain
    turns.append(_Turn(role, blocks, _words(message) if plain and message else None))


def _add_results(turns: list[_Turn], exchange: Exchange, notes: Notes) -> None:
    """Begin the message of the user that has the results; what the user says after them joins it without a note."""
    results = [result(slot, exchange.message.seq, notes) for slot in exchange.answered]
    if results:
        turns.append(_Turn("user", results, holds_results=True))


def _written(turn: _Turn, blocks: list[str]) -> str:
    content = raw_json.dump(turn.text) if turn.text is not None else f"[{','.join(blocks)}]"
    return f'{{"role":"{turn.role}","content":{content}}}'


def _trim_end(turns: list[_Turn], last: pairing.Item | None, notes: Notes) -> None:
    """Take white space off the end of a view that ends with the assistant's words."""
    if not turns or turns[-1].role != "assistant" or last is None:
        return
    turn = turns[-1]
    block = raw_json.fields(turn.blocks[-1])
    text = raw_json.string(block.get("text"))
    if _kind(block) != "text" or text == text.rstrip():
        return
    seq = last.message.seq if isinstance(last, Exchange) else last.seq
    notes.add("trailing-space-trimmed", seq, "the last words of the assistant may not end in white space")
    turn.blocks[-1] = raw_json.dump({**block, "text": text.rstrip()})
    turn.text = turn.text and turn.text.rstrip()


def _kind(block: dict[str, Raw]) -> str:
    return raw_json.string(block.get("type"))


def _found(message: Message) -> list[dict[str, Raw]]:
    return [raw_json.fields(block) for block in message.native or ()]


def _is_empty(block: dict[str, Raw]) -> bool:
    """Say whether a block would be refused: a text with nothing to read, or thinking without its signature."""
    kind = _kind(block)
    if kind == "text":
        return not raw_json.string(block.get("text")).strip()
    return kind == "thinking" and not raw_json.string(block.get("signature"))


def blocks(message: Message, notes: Notes, slots: Iterable[Slot] = ()) -> list[str]:
    """Write a message's blocks: its own if it came from Anthropic, else what can be said of it in blocks."""
    if message.native is not None:
        return _native(message, message.native, notes, list(slots))
    return [
        *(_part(part, message, notes) for part in message.parts),
        *(_call(slot, message.seq, notes) for slot in slots),
    ]


def _native(message: Message, native: tuple[Raw, ...], notes: Notes, slots: list[Slot]) -> list[str]:
    """Pass on blocks byte for byte, save for what the API would refuse and for ids that had to change."""
    calls_left = iter(slots)
    found: list[tuple[str, str]] = []
    for raw, block in zip(native, _found(message), strict=True):
        kind = _kind(block)
        slot = next(calls_left, None) if kind == "tool_use" else None
        if _is_empty(block):
            _note_empty(kind, message.seq, notes)
        elif slot is not None and (slot.id != slot.call.id or slot.name != slot.call.name):
            named = {"id": raw_json.raw(raw_json.dump(slot.id)), "name": raw_json.raw(raw_json.dump(slot.name))}
            found.append((kind, raw_json.dump({**block, **named})))
        elif kind in THINKING and anthropic_marks.MARK in block:
            found.append((kind, raw_json.dump(anthropic_marks.without(block, message.seq, notes))))
        else:
            found.append((kind, raw_json.text_of(raw)))
    while found and found[-1][0] in THINKING:
        found.pop()
        notes.add("thinking-left-out", message.seq, "left out: a message cannot end with thinking")
    return [text for _, text in found]


def _note_empty(kind: str, seq: int, notes: Notes) -> None:
    if kind == "thinking":
        notes.add("thinking-left-out", seq, "left out: thinking without its signature")
    else:
        notes.add("empty-part-left-out", seq, "left out: a text part with nothing to read")


def _part(part: Part, message: Message, notes: Notes) -> str:
    shaped = media_block(part) if isinstance(part, Media) and message.role in {"user", "tool"} else None
    return raw_json.dump(shaped or {"type": "text", "text": parts.in_words(part, message.seq, notes)})


def media_block(media: Media) -> dict[str, Any] | None:
    """Return the block for media, None when Anthropic does not take it."""
    kind = "image" if media.kind == "image" or media.mime in _IMAGES else "document"
    if media.file_id:
        source = {"type": "file", "file_id": media.file_id} if media.owner == "anthropic" else None
    elif media.url:
        source = {"type": "url", "url": media.url} if media.kind in {"image", "file"} else None
    elif media.mime in _IMAGES or media.mime == "application/pdf":
        source = {"type": "base64", "media_type": media.mime, "data": media.data}
    else:
        source = None
    title = {"title": media.name} if media.name and kind == "document" else {}
    return {"type": kind, "source": source, **title} if source else None


def _call(slot: Slot, seq: int, notes: Notes) -> str:
    arguments, wrapped = calls.as_object(slot.call)
    if wrapped:
        notes.add("arguments-wrapped", seq, f"the arguments of the call {slot.call.id} are no JSON object")
    return raw_json.dump({"type": "tool_use", "id": slot.id, "name": slot.name, "input": raw_json.raw(arguments)})


def result(slot: Slot, seq: int, notes: Notes) -> str:
    """Write the result of one call; of several results all, one after the other."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": slot.id}
    if not slot.results:
        return raw_json.dump({**block, "content": NO_RESULT})
    first = slot.results[0]
    if len(slot.results) == 1 and first.native:
        sent = raw_json.fields(first.native[0])
        return raw_json.dump(
            _sent_result(sent | {"tool_use_id": raw_json.raw(raw_json.dump(slot.id))}, first.seq, notes)
        )
    if len(slot.results) == 1 and first.is_plain:
        return raw_json.dump({**block, "content": _words(first)})
    shown = [_part(part, result, notes) for result in slot.results for part in result.parts]
    return raw_json.dump({**block, "content": raw_json.raw(f"[{','.join(shown)}]")} if shown else block)


def _sent_result(block: dict[str, Raw], seq: int, notes: Notes) -> dict[str, Raw]:
    """Return a tool result that Anthropic's own client sent, without a content that the API would refuse."""
    content = block.get("content")
    if raw_json.is_string(content):
        keeps = bool(raw_json.string(content).strip())
        return block if keeps else {key: value for key, value in block.items() if key != "content"}
    found = [raw_json.fields(item) for item in raw_json.items(content)]
    inner = [anthropic_marks.without(item, seq, notes) for item in found if not _is_empty(item)]
    if inner and inner == found:
        return block
    rest = {key: value for key, value in block.items() if key != "content"}
    return {**rest, "content": raw_json.raw(raw_json.dump(inner))} if inner else rest
