"""From a stored event to what it says, as far as the provider that is rendered for may be told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from msgspec import Raw

from app.domain.event import Role, StoredEvent
from app.domain.message import RESERVED
from app.formats import calls, parts, raw_json
from app.formats.calls import Call
from app.formats.parts import Other, Part, Provider, Refusal, Text
from app.formats.rendered import Notes

Format: TypeAlias = Literal["openai", "openai-responses", "anthropic", "gemini"]
FORMATS: Final[tuple[Format, ...]] = ("openai", "openai-responses", "anthropic", "gemini")

PIECES: Final[Mapping[Format, str]] = {
    "openai": "content",
    "openai-responses": "items",
    "anthropic": "content",
    "gemini": "parts",
}
_KNOWN: Final = frozenset({"role", "content", "name", "refusal", "tool_calls", "tool_call_id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of the view.

    ``native`` are the pieces that the provider which is rendered for sent itself, None when the message came
    another way. ``listed`` is how many parts the content had as a list, None when it was no list. ``fields`` is the
    OpenAI-shaped message; a message that a renderer made up has none.
    """

    seq: int
    role: Role
    parts: tuple[Part, ...]
    body: str = ""
    fields: Mapping[str, Raw]
    listed: int | None = None
    calls: tuple[Call, ...] = ()
    answers: str | None = None
    name: str = ""
    native: tuple[Raw, ...] | None = None

    @property
    def is_plain(self) -> bool:
        """The content was a string, and there is nothing but that."""
        return self.listed is None and len(self.parts) == 1 and isinstance(self.parts[0], Text)


def made(seq: int, role: Role, text: str, *more: Part) -> Message:
    """Return a message that no event holds; ``seq`` is that of the event which made it necessary."""
    return Message(
        seq=seq, role=role, parts=(Text(text=text), *more), fields={}, listed=len(more) + 1 if more else None
    )


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as text, with its place in the log."""

    seq: int
    role: Role
    body: str


def read(event: StoredEvent, target: Format, notes: Notes) -> Message:
    """Read an event for a provider, with a note for everything in it that this provider cannot be told."""
    return read_text(Stored(event.seq, cast("Role", event.role), event.body), target, notes)


def read_text(event: Stored, target: Format, notes: Notes) -> Message:
    """Read a message that may not be stored yet."""
    fields = raw_json.fields(event.body)
    reserved = raw_json.fields(fields.pop(RESERVED, None))
    origin = cast("Format", raw_json.string(reserved.get("format")) or "openai")
    native = None
    if reserved and origin == target and PIECES[origin] in reserved:
        native = tuple(raw_json.items(reserved[PIECES[origin]]))
    elif reserved:
        _note_private(event, reserved, origin, notes)
    if target != "openai":
        _note_fields(event, fields, notes)
    quiet = notes if native is None else Notes()
    content = fields.get("content")
    answers = fields.get("tool_call_id") if event.role == "tool" else None
    return Message(
        seq=event.seq,
        role=event.role,
        parts=_content(event, fields, _owner(origin), quiet),
        body=event.body,
        fields=fields,
        listed=None if content is None or not raw_json.text_of(content).lstrip().startswith("[") else _count(content),
        calls=_calls(event, fields),
        answers=None if answers is None else raw_json.string(answers),
        name=raw_json.string(fields.get("name")),
        native=native,
    )


def _owner(origin: Format) -> Provider:
    return "openai" if origin == "openai-responses" else origin


def _count(content: Raw) -> int:
    return len(raw_json.items(content))


def _note_private(event: Stored, reserved: Mapping[str, Raw], origin: Format, notes: Notes) -> None:
    only = [raw_json.string(name) for name in raw_json.items(reserved.get("only"))]
    if only:
        notes.add("provider-only-left-out", event.seq, f"only {origin} understands: {', '.join(only)}")


def _note_fields(event: Stored, fields: Mapping[str, Raw], notes: Notes) -> None:
    extra = [name for name, value in fields.items() if name not in _KNOWN and not raw_json.is_nothing(value)]
    if extra:
        notes.add(
            "fields-left-out", event.seq, f"only OpenAI's chat format has a place for: {', '.join(sorted(extra))}"
        )
    if raw_json.string(fields.get("name")) and event.role != "tool":
        notes.add("name-left-out", event.seq, "this provider has no place for the name of a speaker")


def _calls(event: Stored, fields: Mapping[str, Raw]) -> tuple[Call, ...]:
    return tuple(map(calls.read, raw_json.items(fields.get("tool_calls")))) if event.role == "assistant" else ()


def _content(event: Stored, fields: Mapping[str, Raw], owner: Provider, notes: Notes) -> tuple[Part, ...]:
    content = fields.get("content")
    refusal = Refusal(text=raw_json.string(fields.get("refusal")), sent_as=parts.FROM_FIELD)
    said: list[Part] = []
    if raw_json.is_string(content):
        said.append(Text(text=raw_json.string(content)))
    else:
        said += [parts.read(part, owner) for part in raw_json.items(content)]
    kept = tuple(part for part in said if not isinstance(part, Other) and not parts.is_blank(part))
    if len(said) > 1 and any(map(parts.is_blank, said)):
        notes.add("empty-part-left-out", event.seq, "left out: a text part with nothing to read")
    others = sorted({part.kind for part in said if isinstance(part, Other)})
    if others:
        notes.add("part-left-out", event.seq, f"left out: parts that no provider takes: {', '.join(others)}")
    return kept if parts.is_blank(refusal) else (*kept, refusal)


def text(message: Message) -> str:
    """Return all that a message says in words."""
    return "".join(part.text for part in message.parts if isinstance(part, Text | Refusal))
