"""A transcript to be read: one paragraph for each message, its speaker named."""

import msgspec
from msgspec import Raw

from app.domain.event import StoredEvent
from app.domain.view import View
from app.formats.rendered import Rendered


def render(view: View[StoredEvent]) -> Rendered:
    """Render a view as plain text, with tool calls, results, refusals and a mark for everything that is not text."""
    return Rendered(text="\n\n".join(paragraph(event) for event in view.events) + ("\n" if view.events else ""))


def paragraph(event: StoredEvent) -> str:
    """Return one message as ``speaker: what was said``."""
    message = msgspec.json.decode(event.body, type=dict[str, Raw])
    name = _string(message.get("name"))
    speaker = f"{event.role} ({name})" if name else str(event.role)
    if event.answers is not None:
        speaker += f" [{event.answers}]"
    said = _content(message.get("content"))
    if event.calls:
        said += map(_call, msgspec.json.decode(message["tool_calls"], type=list[dict[str, Raw]]))
    refusal = _string(message.get("refusal"))
    if refusal:
        said.append(f"(refused) {refusal}")
    return f"{speaker}: " + "\n".join(said)


def _content(content: Raw | None) -> list[str]:
    if content is None or not bytes(content).startswith(b"["):
        text = _string(content)
        return [text] if text else []
    return [_part(part) for part in msgspec.json.decode(content, type=list[dict[str, Raw]])]


def _part(part: dict[str, Raw]) -> str:
    kind = _string(part["type"])
    return _string(part["text"]) if kind == "text" else f"[{kind}]"


def _call(call: dict[str, Raw]) -> str:
    called = f"[call {_string(call['id'])}]"
    if "type" in call and _string(call["type"]) != "function":
        return called
    function = msgspec.json.decode(call["function"], type=dict[str, Raw])
    arguments = function["arguments"]
    # Arguments come as an object, or as a string that holds one; both read the same.
    shown = _string(arguments) if bytes(arguments).startswith(b'"') else bytes(arguments).decode()
    return f"{called} {_string(function['name'])}({shown})"


def _string(value: Raw | None) -> str:
    """Return a field that is a string or null; only such fields are looked into, whatever else a message holds."""
    return (msgspec.json.decode(value, type=str | None) if value is not None else None) or ""
