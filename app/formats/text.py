"""A transcript to be read: one paragraph for each message, its speaker named."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from app.domain.event import StoredEvent
from app.domain.view import View
from app.formats.rendered import Rendered


class _Function(Struct):
    name: str
    arguments: Raw = Raw(b'""')


class _Call(Struct):
    id: str
    function: _Function | None = None


class _Message(Struct):
    role: str
    content: Any = None
    name: str | None = None
    refusal: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[_Call] | None = None


def render(view: View[StoredEvent]) -> Rendered:
    """Render a view as plain text, with tool calls, results, refusals and a mark for everything that is not text."""
    return Rendered(text="\n\n".join(paragraph(event) for event in view.events) + ("\n" if view.events else ""))


def paragraph(event: StoredEvent) -> str:
    """Return one message as ``speaker: what was said``."""
    message = msgspec.json.decode(event.body, type=_Message)
    speaker = message.role + (f" ({message.name})" if message.name else "")
    if message.tool_call_id is not None:
        speaker += f" [{message.tool_call_id}]"
    said = [*_content(message.content), *map(_call, message.tool_calls or [])]
    if message.refusal:
        said.append(f"(refused) {message.refusal}")
    return f"{speaker}: " + "\n".join(said)


def _content(content: Any) -> list[str]:
    if not isinstance(content, list):
        return [content] if content else []
    return [part["text"] if part["type"] == "text" else f"[{part['type']}]" for part in content]


def _call(call: _Call) -> str:
    if call.function is None:
        return f"[call {call.id}]"
    arguments = bytes(call.function.arguments).decode()
    # Arguments come as an object, or as a string that holds one; both read the same.
    shown = msgspec.json.decode(arguments) if arguments.startswith('"') else arguments
    return f"[call {call.id}] {call.function.name}({shown})"
