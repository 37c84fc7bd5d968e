"""Chat memories, errors and what the server says of itself, as JSON."""

from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from app.api.wire import StoredMessage


class NewMessages(Struct, forbid_unknown_fields=True, kw_only=True):
    """Messages to add to a chat memory."""

    messages: list[Raw]


class ChatMemory(Struct, kw_only=True):
    """A chat memory: the messages in it, oldest first."""

    messages: list[StoredMessage]


class Capabilities(Struct, kw_only=True):
    """What this server is and takes."""

    version: str
    formats: dict[str, list[str]]
    limits: dict[str, int]
    defaults: dict[str, Any]
    tokens: dict[str, Any]
    summarizer: dict[str, Any]


class Health(Struct, kw_only=True):
    """Alive."""

    status: Literal["ok"] = "ok"


class Readiness(Struct, kw_only=True):
    """Ready. A newer release than this one may have added to the database's schema."""

    status: Literal["ok"] = "ok"
    schema: Literal["current", "newer"] = "current"


class ProblemPlace(Struct, kw_only=True):
    """One wrong place: a JSON pointer into the body, or the name of a parameter."""

    pointer: str
    detail: str


class Problem(Struct, kw_only=True):
    """An error, as RFC 9457 has it. `code` is stable; some codes carry facts of their own."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[ProblemPlace] | UnsetType = UNSET
    event_id: str | UnsetType = UNSET
    seq: int | UnsetType = UNSET
    expected_version: int | UnsetType = UNSET
    current_version: int | UnsetType = UNSET
    limit_bytes: int | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    cause: str | UnsetType = UNSET
