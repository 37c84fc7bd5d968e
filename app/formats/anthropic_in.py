"""Anthropic's messages on their way in."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Raw

from app.domain.errors import InvalidRequest
from app.formats import anthropic, calls, parts, raw_json
from app.formats.incoming import (
    Incoming,
    Sent,
    checked,
    content_of,
    function_call,
    incoming,
    listed,
    needed,
    needed_object,
)
from app.formats.pairing import Slot
from app.formats.parts import Media, Part, Text
from app.formats.reading import Message
from app.formats.rendered import Notes

Block = Mapping[str, Raw]

_ROLES: Final = ("system", "user", "assistant")
_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "base64": ("media_type", "data"), "url": ("url",), "file": ("file_id",), "text": ("data",),
}  # fmt: skip
_BESIDE: Final = ("cache_control", "citations", "is_error", "context")


def parse(messages: Sequence[str], place: str) -> list[Incoming]:
    """Turn messages into messages of the log; the tool results of a user message come before what the user says.

    Raises:
        InvalidRequest: with pointers into the request.
    """
    return [made for at, text in enumerate(messages) for made in _parse(text, f"{place}/{at}")]


def _parse(text: str, place: str) -> Iterator[Incoming]:
    found = checked(text, place)
    role = needed(found, "role", place, f"the role is one of {', '.join(_ROLES)}")
    if role not in _ROLES:
        raise InvalidRequest.at(f"{place}/role", f"the role is one of {', '.join(_ROLES)}")
    also = {key: value for key, value in found.items() if key not in {"role", "content"}}
    if raw_json.is_string(found.get("content")):
        sent = Sent(format="anthropic", pieces=[], also=also, is_list=False)
        yield incoming({"role": role, "content": found["content"]}, sent, place, [], _write)
        return
    blocks = listed(found, "content", place)
    for at, block in enumerate(blocks):
        _check(block, role, f"{place}/content/{at}")
    pairs = list(zip(raw_json.items(found["content"]), blocks, strict=True))
    results = [pair for pair in pairs if _kind(pair[1]) == "tool_result"]
    rest = [pair for pair in pairs if _kind(pair[1]) != "tool_result"]
    for raw, block in results:
        yield _result(raw, block, place)
    if rest or not results:
        yield _spoken(role, rest, also, place)


def _kind(block: Block) -> str:
    return raw_json.string(block.get("type"))


def _check(block: Block, role: str, place: str) -> None:
    kind = needed(block, "type", place, "a block has a type")
    if kind == "text":
        needed(block, "text", place, "a text block has a text")
    elif kind == "tool_use":
        if role != "assistant":
            raise InvalidRequest.at(place, "only the assistant uses tools")
        needed(block, "id", place, "a tool use has an id")
        needed(block, "name", place, "a tool use names its tool")
        needed_object(block, "input", place, "a tool use has an input")
    elif kind == "tool_result":
        if role != "user":
            raise InvalidRequest.at(place, "tool results are in messages of the user")
        needed(block, "tool_use_id", place, "a tool result names the tool use it answers")
        _check_inner(block, place)
    elif kind in {"image", "document"}:
        _check_source(block, place)
    elif kind in anthropic.THINKING and role != "assistant":
        raise InvalidRequest.at(place, "only the assistant thinks")


def _check_inner(block: Block, place: str) -> None:
    """Check the content of a tool result or of a document: a text, blocks, or nothing."""
    content = block.get("content")
    if content is None or raw_json.is_string(content) or raw_json.text_of(content).strip() == "null":
        return
    for at, inner in enumerate(listed(block, "content", place)):
        _check(inner, "", f"{place}/content/{at}")


def _check_source(block: Block, place: str) -> None:
    source = raw_json.fields(needed_object(block, "source", place, "images and documents have a source"))
    told = needed(source, "type", f"{place}/source", "a source has a type")
    for field in _SOURCES.get(told, ()):
        needed(source, field, f"{place}/source", f"a source of the type {told} has it")
    if told == "url" and not raw_json.string(source["url"]).startswith(("https://", "http://")):
        raise InvalidRequest.at(f"{place}/source/url", "is a link")
    if told == "base64" and not parts.is_base64(raw_json.string(source["data"])):
        raise InvalidRequest.at(f"{place}/source/data", "is base64")
    if told == "content":
        _check_inner(source, f"{place}/source")


def _result(raw: Raw, block: Block, place: str) -> Incoming:
    content = block.get("content")
    only = [key for key in _BESIDE if not raw_json.is_nothing(block.get(key)) and block.get(key) != Raw(b"false")]
    said: list[Part] = []
    shaped: Any = None
    if raw_json.is_string(content):
        shaped = content
    elif content is not None:
        said, more = _parts([raw_json.fields(item) for item in raw_json.items(content)])
        only += more
        shaped = content_of(said)
    call_id = raw_json.string(block["tool_use_id"])
    shape = {"role": "tool", "tool_call_id": call_id, "content": shaped}
    return incoming(shape, Sent(format="anthropic", pieces=[raw], only=only), place, said, _write_result)


def _spoken(role: str, pairs: Sequence[tuple[Raw, Block]], also: Mapping[str, Raw], place: str) -> Incoming:
    blocks = [block for _, block in pairs]
    said, only = _parts([block for block in blocks if _kind(block) != "tool_use"])
    only += [key for block in blocks for key in _BESIDE if not raw_json.is_nothing(block.get(key))]
    uses = [block for block in blocks if _kind(block) == "tool_use"]
    content = content_of(said)
    shape: dict[str, Any] = {"role": role, "content": content if role == "assistant" else content or []}
    if uses:
        shape["tool_calls"] = [
            function_call(raw_json.string(use["id"]), raw_json.string(use["name"]), use["input"]) for use in uses
        ]
    sent = Sent(format="anthropic", pieces=[raw for raw, _ in pairs], only=only, also=also)
    return incoming(shape, sent, place, said, _write)


def _parts(blocks: Sequence[Block]) -> tuple[list[Part], list[str]]:
    """Return what other providers can be told of some blocks, and the types of the blocks that they cannot."""
    said: list[Part] = []
    private: list[str] = []
    for block in blocks:
        found = list(_of_block(block))
        said += found
        if not found and _kind(block) != "text":
            private.append(_kind(block))
    return said, private


def _of_block(block: Block) -> Iterator[Part]:
    kind = _kind(block)
    if kind == "text":
        yield Text(text=raw_json.string(block.get("text")))
    elif kind in {"image", "document"}:
        yield from _of_source(block, kind)
    elif kind == "search_result":
        yield Text(text="\n".join(raw_json.string(block.get(key)) for key in ("title", "source")))
        yield from _parts([raw_json.fields(item) for item in raw_json.items(block.get("content"))])[0]


def _of_source(block: Block, kind: str) -> Iterator[Part]:
    source = raw_json.fields(block.get("source"))
    told = raw_json.string(source.get("type"))
    name = raw_json.string(block.get("title"))
    media_kind: parts.MediaKind = "image" if kind == "image" else "file"
    mime, data = raw_json.string(source.get("media_type")), raw_json.string(source.get("data"))
    if told == "text":
        yield Text(text=f"{name}\n{data}" if name else data)
    elif told == "content":
        content = source.get("content")
        if name:
            yield Text(text=name)
        if raw_json.is_string(content):
            yield Text(text=raw_json.string(content))
        yield from _parts([raw_json.fields(item) for item in raw_json.items(content)])[0]
    elif told == "base64" and mime and parts.is_base64(data):
        yield Media(kind=media_kind, mime=mime, data=data, name=name)
    elif told == "url":
        yield Media(kind=media_kind, url=raw_json.string(source.get("url")), name=name)
    elif told == "file":
        yield Media(kind=media_kind, file_id=raw_json.string(source.get("file_id")), name=name, owner="anthropic")


def _write(message: Message) -> list[str]:
    slots = [Slot(call=call, id=call.id, name=call.name) for call in message.calls]
    return anthropic.blocks(message, Notes(), slots)


def _write_result(message: Message) -> list[str]:
    call = Slot(call=calls.UNKNOWN, id=message.answers or "", name="", results=[message])
    return [anthropic.result(call, 0, Notes())]
