"""The parts of a message, whatever a provider calls them. Media is passed on: never decoded, never fetched."""

import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from msgspec import Raw

from app.formats import raw_json
from app.formats.rendered import Notes

Provider = Literal["openai", "anthropic", "gemini"]
MediaKind = Literal["image", "audio", "video", "file"]

# Marks the refusal that an OpenAI-shaped message has in a field of its own, and not among its content.
FROM_FIELD: Final = "refusal field"

_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[\w.+-]+)*;base64,(.*)", re.DOTALL)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_LINK: Final = re.compile(r"https?://\S+")
_TEXTS: Final = frozenset({"text", "input_text", "output_text"})
_IMAGES: Final = frozenset({"image_url", "input_image"})
_FILES: Final = frozenset({"file", "input_file"})
# The images that OpenAI's APIs take as base64; the API reads "jpg" for "jpeg".
OPENAI_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """``raw`` is the part as an OpenAI-shaped message had it, ``sent_as`` its type there."""

    raw: Raw | None = field(default=None, compare=False, repr=False)
    sent_as: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(_Sent):
    """Something said."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(_Sent):
    """The model's words of refusal."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Media(_Sent):
    """A picture, sound, film or file: base64 ``data`` of type ``mime``, an address, or an id at its ``owner``."""

    kind: MediaKind
    mime: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""
    owner: Provider = "openai"

    def described(self) -> str:
        """Name it in a text that takes its place: what it is and where it is, never what it holds."""
        return " ".join(filter(None, (self.kind, self.name, self.url or self.file_id or self.mime)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Other(_Sent):
    """A part of a type that only the client, or one provider, understands."""

    kind: str


Part: TypeAlias = Text | Refusal | Media | Other


def in_words(part: Part, seq: int, notes: Notes) -> str:
    """Return the text that stands for a part where nothing but text can be sent; media leave a note and a mark."""
    if isinstance(part, Text | Refusal):
        return part.text
    told = part.described() if isinstance(part, Media) else part.kind
    notes.add("media-left-out", seq, f"a mark stands for what cannot be sent here: {told}")
    return f"[not shown: {told}]"


def is_blank(part: Part) -> bool:
    """Say whether a part is a text without anything to read."""
    return isinstance(part, Text | Refusal) and not part.text.strip()


def read(raw: Raw, owner: Provider = "openai") -> Part:
    """Read one part of an OpenAI-shaped message; ``owner`` is the provider whose file ids it holds."""
    found = raw_json.fields(raw)
    kind = raw_json.string(found.get("type"))
    if kind in _TEXTS:
        return Text(text=raw_json.string(found.get("text")), raw=raw, sent_as=kind)
    if kind == "refusal":
        return Refusal(text=raw_json.string(found.get("refusal")), raw=raw, sent_as=kind)
    media: dict[str, Any] | None = None
    if kind in _IMAGES:
        media = _image(found)
    elif kind == "input_audio":
        media = _audio(raw_json.fields(found.get("input_audio")))
    elif kind in _FILES:
        media = _file(found if kind == "input_file" else raw_json.fields(found.get("file")))
    if media is None:
        return Other(kind=kind, raw=raw, sent_as=kind)
    # Base64 without its type is not what the API takes, so such a part has to be written anew.
    is_bare = media.pop("is_bare", False)
    return Media(**media, owner=owner, raw=raw, sent_as="" if is_bare else kind)


def _image(found: dict[str, Raw]) -> dict[str, Any] | None:
    address = found.get("image_url")
    url = raw_json.string(address) or raw_json.string(raw_json.fields(address).get("url"))
    if url:
        return located(url, "image")
    file_id = raw_json.string(found.get("file_id"))
    return {"kind": "image", "file_id": file_id} if file_id else None


def _audio(found: dict[str, Raw]) -> dict[str, Any] | None:
    data, kind = raw_json.string(found.get("data")), raw_json.string(found.get("format"))
    return {"kind": "audio", "mime": f"audio/{kind or 'wav'}", "data": data} if is_base64(data) else None


def _file(found: dict[str, Raw]) -> dict[str, Any] | None:
    name = raw_json.string(found.get("filename"))
    file_id = raw_json.string(found.get("file_id"))
    place = raw_json.string(found.get("file_url")) or raw_json.string(found.get("file_data"))
    if file_id:
        return {"kind": "file", "file_id": file_id, "name": name}
    media = located(place, "file")
    if media is None and is_base64(place):
        media = {"kind": "file", "mime": "application/pdf", "data": place, "is_bare": True}
    return {**media, "name": name} if media else None


def located(url: str, kind: MediaKind) -> dict[str, Any] | None:
    """Take an address apart: base64 with its type, or a link; None for what no provider could follow."""
    if _LINK.fullmatch(url):
        return {"kind": kind, "url": url}
    found = _DATA_URL.fullmatch(url)
    if found is None or not is_base64(found[2]) or (kind == "image" and kind_of(found[1]) != "image"):
        return None
    return {"kind": kind_of(found[1]) if kind == "file" else kind, "mime": found[1].lower(), "data": found[2]}


def is_base64(data: str) -> bool:
    """Say whether a text is base64 as far as its alphabet and length tell; nothing is decoded."""
    return len(data) % 4 == 0 and _BASE64.fullmatch(data) is not None


def kind_of(mime: str) -> MediaKind:
    """Return what a media type is about."""
    family = mime.partition("/")[0].lower()
    return family if family in {"image", "audio", "video"} else "file"  # type: ignore[return-value]


def shape(part: Part) -> dict[str, Any]:
    """Return a part as an OpenAI-shaped message holds it in the log."""
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Refusal(text=text):
            return {"type": "refusal", "refusal": text}
        case Media():
            return _media_shape(part)
        case Other(kind=kind):
            return {"type": kind}


def _media_shape(media: Media) -> dict[str, Any]:
    data_url = f"data:{media.mime};base64,{media.data}"
    if media.kind == "image" and not media.file_id:
        return {"type": "image_url", "image_url": {"url": media.url or data_url}}
    if media.kind == "audio" and media.data:
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": media.mime.partition("/")[2]}}
    name = {"filename": media.name} if media.name else {}
    if media.file_id:
        return {"type": "file", "file": {**name, "file_id": media.file_id}}
    return {"type": "file", "file": {**name, **({"file_url": media.url} if media.url else {"file_data": data_url})}}
