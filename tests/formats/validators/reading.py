"""What all four validators look at in the same way: blank texts, our own field, calls that are still open, media."""

import base64
import re
from collections.abc import Iterator
from typing import Any, Final

# Under this key the log keeps what only one provider understands. It is never part of a request.
RESERVED: Final = "turnlog"

_DATA_URL: Final = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[\w.+-]+)*;base64,(?P<data>.*)", re.DOTALL)
_LINK: Final = re.compile(r"(?:https?|gs)://\S+")
MEDIA_TYPE: Final = re.compile(r"[a-z]+/[\w.+-]+")


def said(text: Any) -> bool:
    """Say whether a text is one, with something other than white space in it."""
    return isinstance(text, str) and bool(text.strip())


def reserved_keys(body: Any, at: str = "") -> Iterator[str]:
    """Find our own key wherever a body holds it, save inside what is a tool's or a model's own JSON."""
    if isinstance(body, dict):
        for key, value in body.items():
            if key == RESERVED:
                yield f"{at or 'the body'} holds the key {RESERVED}"
            if key not in {"args", "arguments", "input", "response"} or not isinstance(value, dict):
                yield from reserved_keys(value, f"{at}/{key}")
    elif isinstance(body, list):
        for number, value in enumerate(body):
            yield from reserved_keys(value, f"{at}/{number}")


def still_open(body: dict[str, Any], unanswered: int) -> list[str]:
    """Hold the calls that nothing follows yet against those that the body lists as open, where it lists them."""
    listed = body.get("open_tool_calls")
    if listed is None or len(listed) == unanswered:
        return []
    return [f"{unanswered} calls at the end have no result, and {len(listed)} are listed as open"]


def is_base64(data: Any) -> bool:
    """Say whether something is base64 text, in either alphabet, and not empty."""
    if not isinstance(data, str) or not data:
        return False
    try:
        base64.b64decode(data.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        return False
    return True


def data_url(url: Any) -> tuple[str, str] | None:
    """Return the media type and the data of a base64 data URL, None for everything else."""
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    return (found["type"], found["data"]) if found and is_base64(found["data"]) else None


def is_link(url: Any) -> bool:
    """Say whether something is an address that a provider would fetch."""
    return isinstance(url, str) and bool(_LINK.fullmatch(url))
