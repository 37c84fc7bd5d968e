"""A transcript to be read: one paragraph for each message, its speaker named."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from app.domain import turn
from app.domain.event import StoredEvent
from app.domain.view import View
from app.formats.rendered import Rendered


def render(view: View[StoredEvent]) -> Rendered:
    """Render a view as plain text, with tool calls, results, refusals and a mark for everything that is not text."""
    return Rendered(text="\n\n".join(paragraph(event) for event in view.events) + ("\n" if view.events else ""))


def paragraph(event: StoredEvent) -> str:
    """Return one message as ``speaker: what was said``; the ids of tool calls tie results to them."""
    message = _fields(event)
    said = _content(message.get("content"))
    for call in _calls(event, message):
        called = f"[call {call.call_id}]"
        said.append(f"{called} {call.spoken}" if call.spoken else called)
    return _told(event, message, said, f" [{event.answers}]" if event.answers is not None else "")


def transcript(events: Sequence[StoredEvent]) -> list[str]:
    """Return messages as paragraphs for a reader who has no use for ids: a tool result names the tool it comes from.

    Every line after a paragraph's first is indented, so that nobody's words can pass for another speaker's.
    """
    messages = [_fields(event) for event in events]
    made = [_calls(event, message) for event, message in zip(events, messages, strict=True)]
    asked = {result: at for at, result in turn.pairs(events)}
    told = []
    for at, (event, message) in enumerate(zip(events, messages, strict=True)):
        tools = [call.name for call in made[asked[at]] if call.call_id == event.answers] if at in asked else []
        said = [*_content(message.get("content")), *(f"[call] {call.spoken}".rstrip() for call in made[at])]
        paragraph_ = _told(event, message, said, f" [{tools[0]}]" if tools and tools[0] else "")
        told.append(_LINE_END.sub(r"\g<0>  ", paragraph_))
    return told


# Everything that some reader takes for the end of a line.
_LINE_END: Final = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


class _Call(NamedTuple):
    call_id: str
    name: str
    arguments: str

    @property
    def spoken(self) -> str:
        return f"{self.name}({self.arguments})" if self.name else ""


def _fields(event: StoredEvent) -> dict[str, Raw]:
    return msgspec.json.decode(event.body, type=dict[str, Raw])


def _told(event: StoredEvent, message: dict[str, Raw], said: list[str], mark: str) -> str:
    name = _string(message.get("name"))
    refusal = _string(message.get("refusal"))
    if refusal:
        said.append(f"(refused) {refusal}")
    return f"{event.role}{f' ({name})' if name else ''}{mark}: " + "\n".join(said)


def _content(content: Raw | None) -> list[str]:
    if content is None or not bytes(content).startswith(b"["):
        text = _string(content)
        return [text] if text else []
    return [_part(part) for part in msgspec.json.decode(content, type=list[dict[str, Raw]])]


def _part(part: dict[str, Raw]) -> str:
    kind = _string(part["type"])
    return _string(part["text"]) if kind == "text" else f"[{kind}]"


def _calls(event: StoredEvent, message: dict[str, Raw]) -> list[_Call]:
    return (
        [_call(one) for one in msgspec.json.decode(message["tool_calls"], type=list[dict[str, Raw]])]
        if (event.calls)
        else []
    )


def _call(call: dict[str, Raw]) -> _Call:
    call_id = _string(call["id"])
    if "type" in call and _string(call["type"]) != "function":
        return _Call(call_id, "", "")
    function = msgspec.json.decode(call["function"], type=dict[str, Raw])
    arguments = function["arguments"]
    # Arguments come as an object, or as a string that holds one; both read the same.
    shown = _string(arguments) if bytes(arguments).startswith(b'"') else bytes(arguments).decode()
    return _Call(call_id, _string(function["name"]), shown)


def _string(value: Raw | None) -> str:
    """Return a field that is a string or null; only such fields are looked into, whatever else a message holds."""
    return (msgspec.json.decode(value, type=str | None) if value is not None else None) or ""
