"""One thing said or done: as a client drafts it, and as the log holds it."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

from app.domain.errors import InvalidRequest
from app.domain.ranges import Ranges

type_name = re.compile(r"[A-Z][A-Z0-9_.]{0,63}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

MESSAGE: Final = "MESSAGE"
COMPACTION: Final = "COMPACTION"
RESERVED_PREFIX: Final = "TURNLOG."
MAX_ID_CHARACTERS: Final = 255
# For the document; ``check_id`` says which rule is broken.
ID_PATTERN: Final = r"^[^\x00-\x1F\x7F]*$"

Role = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: Final[tuple[Role, ...]] = ("system", "developer", "user", "assistant", "tool")


class Draft(NamedTuple):
    """An event that is not stored yet.

    ``body`` is the message (type MESSAGE) or the payload (every other type) as JSON text, exactly as the client wrote
    it. ``calls`` are the ids of the tool calls that an assistant message makes, ``answers`` the call that a tool
    message answers. ``event_id`` is the client's, or was made for it by the service.
    """

    event_id: str
    type: str
    role: Role | None
    body: str
    metadata: str
    timestamp: datetime | None
    token_count: int
    calls: tuple[str, ...] = ()
    answers: str | None = None
    synthetic: bool = False

    @property
    def starts_turn(self) -> bool:
        """A turn starts at a user message that no compaction wrote (rule 9)."""
        return self.role == "user" and not self.synthetic


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A stored event as far as the rules look at it: where it stands and what part it plays, not what it says.

    ``covered`` is a boundary's cumulative coverage, and None for every other event.
    """

    seq: int
    type: str = MESSAGE
    role: Role | None = None
    synthetic: bool = False
    token_count: int = 0
    calls: tuple[str, ...] = ()
    answers: str | None = None
    covered: Ranges | None = None

    @property
    def is_message(self) -> bool:
        """Only message events are ever in a view."""
        return self.type == MESSAGE

    @property
    def is_system(self) -> bool:
        """Developer messages are system messages under a newer name; a compaction never writes either."""
        return self.role in {"system", "developer"}

    @property
    def starts_turn(self) -> bool:
        """A turn starts at a user message that no compaction wrote (rule 9)."""
        return self.role == "user" and not self.synthetic


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent(Event):
    """A stored event with what it says: ``body`` and ``metadata`` are the client's JSON text, byte for byte."""

    event_id: str
    body: str
    metadata: str
    timestamp: datetime | None
    stored_at: datetime


def check_id(event_id: str) -> str:
    """Return ``event_id`` when a client may choose it.

    It has 1 to 255 characters (not bytes), none of them a control character: those cannot be kept in an index.

    Raises:
        InvalidRequest: at ``/id``.
    """
    if not 1 <= len(event_id) <= MAX_ID_CHARACTERS:
        raise InvalidRequest.at("/id", f"an event id has 1 to {MAX_ID_CHARACTERS} characters")
    if _CONTROL.search(event_id):
        raise InvalidRequest.at("/id", "an event id has no control characters")
    return event_id


def check_type(name: str) -> str:
    """Return ``name`` when a client may append an event of this type (rules 6 and 7).

    Raises:
        InvalidRequest: at ``/type``.
    """
    if not type_name.fullmatch(name):
        raise InvalidRequest.at("/type", f"a type matches ^{type_name.pattern}$")
    if name == COMPACTION or name.startswith(RESERVED_PREFIX):
        raise InvalidRequest.at("/type", f"the type {name} is reserved")
    return name
