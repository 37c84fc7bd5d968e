"""What all providers' messages have in common on their way in: checked, and turned into messages of the log."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from msgspec import Raw

from app.domain import exact_json
from app.domain.errors import InvalidRequest
from app.domain.event import Role
from app.domain.exact_json import Json
from app.domain.message import RESERVED
from app.formats import parts, raw_json, reading
from app.formats.parts import Media, Part, Text
from app.formats.reading import PIECES, Format, Message, Stored
from app.formats.rendered import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One message for the log, OpenAI-shaped.

    ``native`` is the JSON text of what is kept under the reserved key, None when the shape says everything. ``place``
    is the JSON pointer of what it was made from.
    """

    message: str
    native: str | None
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What one message of the log was made from: the provider's pieces, and fields beside them that it does not read.

    ``only`` names what no other provider can be told. ``is_whole`` when the pieces were a list, and not a string.
    """

    format: Format
    pieces: Sequence[Raw]
    only: Iterable[str] = ()
    also: Mapping[str, Raw] | None = None
    is_list: bool = True


def checked(text: str, place: str) -> dict[str, Raw]:
    """Return the fields of a provider's message, all of it checked to be something that can be kept.

    Raises:
        InvalidRequest: with pointers into the request.
    """
    try:
        value = exact_json.parse(text)
    except InvalidRequest as error:
        raise error.below(place) from error
    if not isinstance(value, dict):
        raise InvalidRequest.at(place, "a message is an object")
    if RESERVED in value:
        raise InvalidRequest.at(f"{place}/{RESERVED}", "is a field that turnlog keeps for itself")
    return raw_json.fields(text)


def needed(found: Mapping[str, Raw], field: str, place: str, detail: str) -> str:
    """Return a string that must be there.

    Raises:
        InvalidRequest: it is not, or it is no string.
    """
    if not raw_json.is_string(found.get(field)):
        raise InvalidRequest.at(f"{place}/{field}", f"{detail}: a string")
    return raw_json.string(found[field])


def needed_object(found: Mapping[str, Raw], field: str, place: str, detail: str) -> Raw:
    """Return an object that must be there.

    Raises:
        InvalidRequest: it is not, or it is something else.
    """
    value = found.get(field)
    if value is None or not raw_json.text_of(value).lstrip().startswith("{"):
        raise InvalidRequest.at(f"{place}/{field}", f"{detail}: an object")
    return value


def listed(found: Mapping[str, Raw], field: str, place: str) -> list[dict[str, Raw]]:
    """Return the objects of a list.

    Raises:
        InvalidRequest: it is no list, or one of its items is no object.
    """
    value = found.get(field)
    if value is None or not raw_json.text_of(value).lstrip().startswith("["):
        raise InvalidRequest.at(f"{place}/{field}", "is a list")
    items = raw_json.items(value)
    for at, item in enumerate(items):
        if not raw_json.text_of(item).lstrip().startswith("{"):
            raise InvalidRequest.at(f"{place}/{field}/{at}", "is an object")
    return [raw_json.fields(item) for item in items]


def content_of(said: Sequence[Part], *, as_text: bool = False) -> Any:
    """Return an OpenAI-shaped content: parts, or the text alone where ``as_text`` and there is nothing but one text."""
    if as_text and len(said) == 1 and isinstance(said[0], Text):
        return said[0].text
    return [parts.shape(part) for part in said] or None


def function_call(call_id: str, name: str, arguments: Raw | str) -> dict[str, Any]:
    """Return an OpenAI-shaped call; the arguments are JSON text that stays what it is."""
    text = arguments if isinstance(arguments, str) else raw_json.text_of(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def incoming(
    shape: Mapping[str, Any], sent: Sent, place: str, said: Sequence[Part], write: Callable[[Message], list[str]]
) -> Incoming:
    """Return a message for the log. The provider's pieces are kept only where ``write`` would not write the same."""
    text = raw_json.dump(shape)
    has_ids = any(isinstance(part, Media) and part.file_id for part in said)
    kept: dict[str, Any] = {"format": sent.format}
    if sent.is_list and (has_ids or not _writes_the_same(text, sent, write)):
        kept[PIECES[sent.format]] = list(sent.pieces)
    only = list(dict.fromkeys(sent.only))
    kept |= {"only": only} if only else {}
    kept |= {"also": dict(sent.also)} if sent.also else {}
    return Incoming(message=text, native=raw_json.dump(kept) if len(kept) > 1 else None, place=place)


def _writes_the_same(text: str, sent: Sent, write: Callable[[Message], list[str]]) -> bool:
    role = cast("Role", raw_json.string(raw_json.fields(text)["role"]))
    message = reading.read_text(Stored(0, role, text), sent.format, Notes())
    return exact_json.equal(_value(write(message)), _value(map(raw_json.text_of, sent.pieces)))


def _value(texts: Iterable[str]) -> Json:
    return exact_json.parse(f"[{','.join(texts)}]")
