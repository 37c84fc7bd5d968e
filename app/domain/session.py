"""A session: one conversation's id, times, metadata and figures."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from app.domain.event import MAX_ID_CHARACTERS
from app.domain.exact_json import Json

_ID: Final = re.compile(rf"[A-Za-z0-9._~:@+=,-]{{1,{MAX_ID_CHARACTERS}}}")
ID_RULE: Final = (
    f"a session id has 1 to {MAX_ID_CHARACTERS} characters out of A-Z a-z 0-9 . _ ~ : @ + = , - and is not . or .."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFigures:
    """What the current view amounts to; ``boundary`` is the seq of the newest boundary."""

    events: int
    turns: int
    tokens: int
    boundary: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A stored session. ``metadata`` and ``policy`` are JSON text as the client wrote it; no policy is None."""

    session_id: str
    created_at: datetime
    expires_at: datetime | None
    metadata: str
    policy: str | None
    version: int
    view: ViewFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page of sessions begins: right after this session."""

    created_at: datetime
    key: UUID


def is_id(session_id: str) -> bool:
    """Say whether a session can have this id: ids need no escaping in a URL and name no other folder."""
    return bool(_ID.fullmatch(session_id)) and session_id not in {".", ".."}


def labels(metadata: dict[str, Json]) -> dict[str, str]:
    """Return the part of ``metadata`` that a list of sessions can be filtered by: top-level scalars as strings.

    Numbers and booleans compare as their JSON text. Texts with a NUL character cannot be in the database's index, so
    no filter finds them.
    """
    shown = {key: _as_text(value) for key, value in metadata.items()}
    return {key: text for key, text in shown.items() if text is not None and "\0" not in key + text}


def _as_text(value: Json) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, dict | list):
        return None
    return str(value)
