"""JSON text in slices: a client's text is looked at one level at a time, and what nobody looks at stays its bytes."""

from typing import Any

import msgspec
from msgspec import Raw


def fields(text: Raw | str | None) -> dict[str, Raw]:
    """Return the fields of an object, none when it is something else."""
    content = _bytes(text)
    return msgspec.json.decode(content, type=dict[str, Raw]) if content.startswith(b"{") else {}


def items(text: Raw | str | None) -> list[Raw]:
    """Return the items of an array, none when it is something else."""
    content = _bytes(text)
    return msgspec.json.decode(content, type=list[Raw]) if content.startswith(b"[") else []


def string(text: Raw | str | None) -> str:
    """Return a string, the empty one when it is something else."""
    content = _bytes(text)
    return msgspec.json.decode(content, type=str) if content.startswith(b'"') else ""


def is_string(text: Raw | str | None) -> bool:
    """Say whether a value is a string."""
    return _bytes(text).startswith(b'"')


def is_nothing(text: Raw | str | None) -> bool:
    """Say whether a value says nothing: absent, null, or empty."""
    return _bytes(text).strip() in {b"", b"null", b"[]", b"{}", b'""'}


def raw(text: str) -> Raw:
    """Return JSON text as something that is encoded as it is."""
    return Raw(text.encode())


def dump(value: Any) -> str:
    """Encode a value; Raw inside it goes out as it is."""
    return msgspec.json.encode(value).decode()


def text_of(value: Raw) -> str:
    """Return the JSON text of a slice."""
    return bytes(value).decode()


def _bytes(text: Raw | str | None) -> bytes:
    if text is None:
        return b""
    return (text.encode() if isinstance(text, str) else bytes(text)).lstrip()
