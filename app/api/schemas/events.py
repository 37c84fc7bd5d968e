"""Events and views as JSON. What a client wrote inside a message, payload or metadata is Raw: the bytes it sent."""

from msgspec import UNSET, Raw, Struct, UnsetType

from app.api.wire import Instant, Moment, Object, StoredMessage, TokenCount, Version
from app.domain.event import MESSAGE
from app.service.views import ProviderFormat


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


class ViewWarning(Struct, kw_only=True):
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
    warnings: list[ViewWarning] | UnsetType = UNSET
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
    timestamp: Moment | None
    stored_at: Moment
    message: StoredMessage | UnsetType = UNSET
    payload: Object | UnsetType = UNSET
    metadata: Object
    synthetic: bool
    token_count: int
    covered: bool


class EventList(Struct, kw_only=True):
    """A page of a log."""

    data: list[Event]
    has_more: bool
    next_cursor: str | None
