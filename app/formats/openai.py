"""OpenAI chat completions: `messages`."""

from typing import Final

import msgspec
from msgspec import Raw

from app.domain.event import StoredEvent
from app.domain.view import View
from app.formats.rendered import Rendered, Warned

SUPERSEDED: Final = "superseded-system-message"


def render(view: View[StoredEvent]) -> Rendered:
    """Render a view as chat messages.

    The prompt alone is in the system slot, first; superseded system messages are left out with a warning (rule
    16). A message goes out as the bytes it came in, save that arguments sent as an object become the string that
    the API takes.
    """
    system = [event for event in view.events if event.is_system]
    prompt = max(system, key=lambda event: event.seq, default=None)
    shown = [event for event in view.events if not event.is_system]
    warnings = tuple(
        Warned(code=SUPERSEDED, seq=event.seq, detail="left out: a newer system message has taken its place")
        for event in system
        if event is not prompt
    )
    ordered = [prompt, *shown] if prompt else shown
    return Rendered(fields={"messages": [_message(event) for event in ordered]}, warnings=warnings)


def _message(event: StoredEvent) -> str:
    if not event.calls:
        return event.body
    message = msgspec.json.decode(event.body, type=dict[str, Raw])
    calls = msgspec.json.decode(message["tool_calls"], type=list[dict[str, Raw]])
    if not any(map(_argue_in_text, calls)):
        return event.body
    message["tool_calls"] = Raw(msgspec.json.encode(calls))
    return msgspec.json.encode(message).decode()


def _argue_in_text(call: dict[str, Raw]) -> bool:
    """Turn arguments that are an object into the string of their own JSON text; say whether there was one.

    Only slices of the client's text are moved about, so key order and numbers stay what they were.
    """
    if "type" in call and msgspec.json.decode(call["type"]) != "function":
        return False
    function = msgspec.json.decode(call["function"], type=dict[str, Raw])
    arguments = bytes(function.get("arguments", b'""'))
    if not arguments.startswith(b"{"):
        return False
    function["arguments"] = Raw(msgspec.json.encode(arguments.decode()))
    call["function"] = Raw(msgspec.json.encode(function))
    return True
