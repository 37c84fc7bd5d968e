"""A session: one conversation's id, times, metadata and figures."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from app.domain.event import MAX_ID_CHARACTERS

ID_PATTERN: Final = rf"^(?!\.{{1,2}}$)[A-Za-z0-9._~:@+=,-]{{1,{MAX_ID_CHARACTERS}}}$"
_ID: Final = re.compile(ID_PATTERN)
# A hundred years: longer lives are "never", and beyond some point Postgres has no date for them.
LONGEST_TTL_SECONDS: Final = 100 * 365 * 24 * 3600
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
    """A stored session. ``metadata`` and ``policy`` are JSON text as the client wrote it; no policy is None.

    ``retry_at`` is until when it waits after a compaction that failed, None when it does not.
    """

    session_id: str
    created_at: datetime
    expires_at: datetime | None
    metadata: str
    policy: str | None
    version: int
    retry_at: datetime | None
    view: ViewFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page of sessions begins: right after this session."""

    created_at: datetime
    key: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A session whose trigger fires, with its own policy as JSON text, None for the server's."""

    key: UUID
    tenant: str
    session_id: str
    created_at: datetime
    policy: str | None
    version: int
    failures: int
    view: ViewFigures


class Count(NamedTuple):
    """How many sessions are due now, and how many more would be but wait after failures or are being worked on.

    ``summarizing`` are those of the due ones whose policy calls a model.
    """

    due: int
    deferred: int
    summarizing: int


def is_id(session_id: str) -> bool:
    """Say whether a session can have this id: ids need no escaping in a URL and name no other folder."""
    return bool(_ID.fullmatch(session_id))


def labels(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return what a list of sessions can be filtered by, from the JSON text of each of the metadata's values.

    Top-level strings as they are, numbers and booleans as their JSON text. Texts with a NUL character cannot be in the
    database's index, so no filter finds them.
    """
    shown = {
        key: json.loads(text) if text[0] == '"' else text for key, text in metadata.items() if text[0] not in "{[n"
    }
    return {key: text for key, text in shown.items() if "\0" not in key + text}
