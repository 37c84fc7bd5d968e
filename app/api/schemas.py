"""The JSON of requests and answers.

What a client wrote inside a message, payload or metadata is Raw: the bytes it sent, untouched.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from app.domain.compaction import Reason
from app.domain.event import MESSAGE
from app.service.boundary import TokenFigures
from app.service.compactions import Status
from app.service.policies import Policy, Summarizer, Trigger, Window
from app.service.sessions import LONGEST_TTL_SECONDS
from app.service.views import ProviderFormat

TokenCount = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Version = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Ttl = Annotated[int, Meta(ge=1, le=LONGEST_TTL_SECONDS, description="seconds from now; null is never")]
Instant = Annotated[datetime, Meta(tz=True)]
Pair = tuple[int, int]


class NewSession(Struct, forbid_unknown_fields=True, kw_only=True):
    """A session to create."""

    id: str | UnsetType = UNSET
    ttl_seconds: Ttl | UnsetType | None = UNSET
    metadata: Raw | UnsetType = UNSET
    policy: Policy | None = None


class FoundSession(Struct, forbid_unknown_fields=True, kw_only=True):
    """A session to find, or to create when there is none."""

    ttl_seconds: Ttl | UnsetType | None = UNSET
    metadata: Raw | UnsetType = UNSET
    policy: Policy | None = None


class SessionChange(Struct, forbid_unknown_fields=True, kw_only=True):
    """What to change in a session: `metadata` is merged, a null value removes its key; `policy: null` removes it."""

    ttl_seconds: Ttl | UnsetType | None = UNSET
    metadata: Raw | UnsetType = UNSET
    policy: Policy | UnsetType | None = UNSET


class ViewFigures(Struct, kw_only=True):
    """What the current view of a session amounts to; `boundary` is the seq of the newest boundary."""

    events: int
    turns: int
    tokens: int
    boundary: int | None


class Session(Struct, kw_only=True):
    """A session; `version` is the seq of its newest event."""

    id: str
    created_at: str
    expires_at: str | None
    metadata: Raw
    policy: Raw | None
    version: int
    view: ViewFigures


class SessionList(Struct, kw_only=True):
    """A page of sessions."""

    data: list[Session]
    has_more: bool
    next_cursor: str | None


class NewEvent(Struct, forbid_unknown_fields=True, kw_only=True):
    """An event to append: a `message` for type MESSAGE, a `payload` (an object) for every other type."""

    id: str | UnsetType = UNSET
    type: str = MESSAGE
    timestamp: Instant | None = None
    message: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    metadata: Raw | UnsetType = UNSET
    token_count: TokenCount | None = None


class NewEvents(Struct, forbid_unknown_fields=True, kw_only=True):
    """A batch to append: `events`, or `format` and a provider's own `messages`."""

    events: list[NewEvent] | UnsetType = UNSET
    format: ProviderFormat | UnsetType = UNSET
    messages: list[Raw] | UnsetType = UNSET
    expected_version: Version | None = None


class AppendedEvent(Struct, kw_only=True):
    """Where an event of a batch stands in the log; `replayed` when it was stored before."""

    id: str
    seq: int
    token_count: int
    replayed: bool


class Warning(Struct, kw_only=True):  # noqa: A001 - the contract's name for it
    """One thing in which a rendered view differs from the log."""

    code: str
    seq: int
    detail: str


class OpenToolCall(Struct, kw_only=True):
    """A tool call at the live end of a view that waits for its result; `id` and `name` are those in the log."""

    id: str
    seq: int
    name: str


class View(Struct, kw_only=True, rename={"system_instruction": "systemInstruction"}):
    """What the model should be sent, in the shape of the format that was asked for.

    `messages` (openai), `instructions` and `input` (openai-responses), `system` and `messages` (anthropic) or
    `systemInstruction` and `contents` (gemini) are as the provider's own API takes them.
    """

    session_id: str
    version: int
    boundary: int | None
    turns: int
    token_count: int
    events: "list[Event] | UnsetType" = UNSET
    instructions: Raw | UnsetType = UNSET
    input: list[Raw] | UnsetType = UNSET
    system: Raw | UnsetType = UNSET
    messages: list[Raw] | UnsetType = UNSET
    system_instruction: Raw | UnsetType = UNSET
    contents: list[Raw] | UnsetType = UNSET
    warnings: list[Warning] | UnsetType = UNSET
    open_tool_calls: list[OpenToolCall] | UnsetType = UNSET
    text: str | UnsetType = UNSET


class Receipt(Struct, kw_only=True):
    """The answer to an append."""

    session_id: str
    version: int
    events: list[AppendedEvent]
    view: View | UnsetType = UNSET


class Event(Struct, kw_only=True):
    """A stored event; `covered` when the newest boundary hides it from the view."""

    id: str
    session_id: str
    seq: int
    type: str
    timestamp: str | None
    stored_at: str
    message: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    metadata: Raw
    synthetic: bool
    token_count: int
    covered: bool


class EventList(Struct, kw_only=True):
    """A page of a log."""

    data: list[Event]
    has_more: bool
    next_cursor: str | None


class CompactionRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A compaction to run; without a `window` the session's policy runs, else the server's."""

    window: Window | None = None
    trigger: Trigger | None = None
    summarizer: Summarizer | None = None
    dry_run: bool = False
    expected_version: Version | None = None


class RangesOut(Struct, kw_only=True):
    """Closed ranges of seq, and how many message events they stand for."""

    ranges: list[Pair]
    events: int


class Compaction(Struct, kw_only=True):
    """How a compaction ended, or what it would do."""

    status: Status
    reason: Reason | None
    detail: str | None
    version: int
    boundary: int | None
    covered: RangesOut
    pinned: list[int]
    preserved: RangesOut
    summary: str | None
    tokens: TokenFigures
    over_budget: bool


class CompactionList(Struct, kw_only=True):
    """A page of a session's compactions, newest first."""

    data: list[Compaction]
    has_more: bool
    next_cursor: str | None


class PurgeRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which expired sessions to remove; `expired_before` is now unless given."""

    expired_before: Instant | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class Purged(Struct, kw_only=True):
    """What a purge removed and what it left."""

    purged: int
    remaining: int


class NewMessages(Struct, forbid_unknown_fields=True, kw_only=True):
    """Messages to add to a chat memory."""

    messages: list[Raw]


class ChatMemory(Struct, kw_only=True):
    """A chat memory: the messages in it, oldest first."""

    messages: list[Raw]


class Capabilities(Struct, kw_only=True):
    """What this server is and takes."""

    version: str
    formats: dict[str, list[str]]
    limits: dict[str, int]
    defaults: dict[str, Any]
    tokens: dict[str, Any]
    summarizer: dict[str, bool]


class Health(Struct, kw_only=True):
    """Alive, or ready."""

    status: Literal["ok"] = "ok"


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


Body: TypeAlias = NewSession | FoundSession | SessionChange | NewEvents | CompactionRequest | PurgeRequest | NewMessages


def raw(text: str) -> Raw:
    """Return JSON text as something that is encoded as it is."""
    return Raw(text.encode())


def text_of(value: Raw | UnsetType) -> str | None:
    """Return the JSON text that a client sent for a field, None when it sent none."""
    return None if value is UNSET else bytes(value).decode()


def instant(value: datetime) -> str:
    """Write a time in RFC 3339, UTC, with microseconds."""
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
