"""Anthropic messages: the `system` and the `messages` of a request.

From the API reference, and from the errors that users met: "first message must use the user role", "roles must
alternate", "`tool_use` ids were found without `tool_result` blocks immediately after", "unexpected `tool_use_id`
found in `tool_result` blocks", "`tool_use` ids must be unique", "Did not find 1 tool_result block(s) at the beginning
of this message", "text content blocks must be non-empty", "… must contain non-whitespace text", "final assistant
content cannot end with trailing whitespace", "The final block in an assistant message cannot be `thinking`", "A
maximum of 4 blocks with cache_control may be provided", "thinking.cache_control: Extra inputs are not permitted",
"cache_control may not be specified within `tool_result.content`", "String should match pattern '^[a-zA-Z0-9_-]+$'".
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from tests.formats.validators import reading, sdk
from tests.formats.validators.reading import said

Message = dict[str, Any]

MOST_CACHE_MARKS: Final = 4
_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_BLOCKS: Final = {
    "user": {"text", "image", "document", "search_result", "tool_result"},
    "assistant": {"text", "tool_use", "server_tool_use", "web_search_tool_result", *_THINKING},
    "tool_result": {"text", "image", "document", "search_result"},
    "system": {"text"},
}


def check(body: dict[str, Any]) -> list[str]:
    """Return the rules that the `system` and the `messages` of a body break."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["there is no list of messages"]
    broken = [*reading.reserved_keys([body.get("system"), messages]), *_system(body.get("system"))]
    for at, message in enumerate(messages):
        broken += [f"message {at} {problem}" for problem in _message(message)]
    if broken:
        return broken
    return [*_roles(messages), *_pairs(body, messages), *_ends_well(messages), *_cache_marks(body)]


def _system(system: Any) -> Iterator[str]:
    if system is None or said(system):
        return
    if not isinstance(system, list) or not system:
        yield "the system slot holds no text"
        return
    for block in system:
        yield from (f"the system slot {problem}" for problem in _block(block, "system"))


def _message(message: Any) -> Iterator[str]:
    if not isinstance(message, dict) or message.get("role") not in {"user", "assistant"}:
        yield "has a role that is neither user nor assistant"
        return
    if unknown := message.keys() - {"role", "content"}:
        yield f"has fields that the API does not know: {', '.join(sorted(unknown))}"
    if problems := sdk.anthropic_message(message):
        yield from problems
        return
    role, content = message["role"], message.get("content")
    if isinstance(content, str):
        if not said(content):
            yield "has a content without text"
        return
    if not isinstance(content, list) or not content:
        yield "has neither text nor blocks"
        return
    yield from _blocks(content, role)


def _blocks(content: list[Any], role: str) -> Iterator[str]:
    for block in content:
        yield from _block(block, role)
    kinds = [block.get("type") for block in content]
    if role == "assistant" and kinds[-1] in _THINKING:
        yield "ends with a thinking block"
    results = [at for at, kind in enumerate(kinds) if kind == "tool_result"]
    if results != list(range(len(results))):
        yield "has tool results that do not come first"


def _block(block: Any, of: str) -> Iterator[str]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in _BLOCKS[of]:
        yield f"has a block of type {kind}, which it cannot have ({of})"
        return
    if unknown := block.keys() - (sdk.anthropic_keys(kind) or block.keys()):
        yield f"has a {kind} block with fields that the API does not know: {', '.join(sorted(unknown))}"
    if of == "tool_result" and "cache_control" in block:
        yield "has a cache mark inside a tool result"
    rule = {
        "text": _text, "image": _image, "document": _document, "tool_use": _tool_use, "tool_result": _tool_result,
        "thinking": _thinking, "redacted_thinking": _unmarked,
    }.get(kind)  # fmt: skip
    if rule:
        yield from rule(block)


def _text(block: Message) -> Iterator[str]:
    if not said(block.get("text")):
        yield "has an empty text block"


def _image(block: Message) -> Iterator[str]:
    yield from _source(block, base64_types=_IMAGES, kinds={"base64", "url", "file"})


def _document(block: Message) -> Iterator[str]:
    yield from _source(
        block, base64_types=frozenset({"application/pdf"}), kinds={"base64", "url", "file", "text", "content"}
    )


def _source(block: Message, *, base64_types: frozenset[str], kinds: set[str]) -> Iterator[str]:
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    if kind not in kinds:
        yield f"has a {block['type']} whose source is none"
    elif kind == "base64" and (
        source.get("media_type") not in base64_types or not reading.is_base64(source.get("data"))
    ):
        yield f"has a {block['type']} that is not base64 of a type that the API takes"
    elif kind == "url" and not reading.is_link(source.get("url")):
        yield f"has a {block['type']} whose address is none"
    elif kind == "file" and not said(source.get("file_id")):
        yield f"has a {block['type']} without a file id"
    elif kind == "text" and (source.get("media_type") != "text/plain" or not said(source.get("data"))):
        yield f"has a {block['type']} whose text is none"


def _tool_use(block: Message) -> Iterator[str]:
    if not _ID.fullmatch(str(block.get("id"))):
        yield "has a tool_use id of other characters than A-Z a-z 0-9 _ -"
    if not _NAME.fullmatch(str(block.get("name"))):
        yield "uses a tool by a name of other characters than A-Z a-z 0-9 _ -, or of more than 128"
    if not isinstance(block.get("input"), dict):
        yield "has an input that is no object"


def _tool_result(block: Message) -> Iterator[str]:
    if not _ID.fullmatch(str(block.get("tool_use_id"))):
        yield "has a tool_use_id of other characters than A-Z a-z 0-9 _ -"
    content = block.get("content")
    if content is None:
        return
    if isinstance(content, str):
        if not said(content):
            yield "has a tool result with an empty text"
        return
    if not isinstance(content, list) or not content:
        yield "has a tool result whose content is neither text nor blocks"
        return
    for inner in content:
        yield from (f"has a tool result that {problem}" for problem in _block(inner, "tool_result"))


def _thinking(block: Message) -> Iterator[str]:
    if not reading.is_base64(block.get("signature")):
        yield "has a thinking block without its signature"
    yield from _unmarked(block)


def _unmarked(block: Message) -> Iterator[str]:
    if "cache_control" in block:
        yield "has a cache mark on a thinking block"


def _roles(messages: list[Message]) -> Iterator[str]:
    if messages[0]["role"] != "user":
        yield "the first message is not the user's"
    for at, (one, other) in enumerate(pairwise(messages), start=1):
        if one["role"] == other["role"]:
            yield f"message {at} has the role of the one before"


def _of(message: Message, kind: str) -> list[Message]:
    content = message["content"]
    return [block for block in content if block["type"] == kind] if isinstance(content, list) else []


def _pairs(body: dict[str, Any], messages: list[Message]) -> Iterator[str]:
    """Each message's calls are answered in the very next one, each once, and nothing else is answered there."""
    ids = [block["id"] for message in messages for block in _of(message, "tool_use")]
    yield from (f"the tool_use id {one} occurs twice" for one in sorted({one for one in ids if ids.count(one) > 1}))
    waiting: list[str] = []
    for at, message in enumerate(messages):
        results = [block["tool_use_id"] for block in _of(message, "tool_result")]
        yield from (
            f"message {at} answers {one}, which the one before did not call" for one in results if one not in waiting
        )
        if len(set(results)) < len(results):
            yield f"message {at} answers a call twice"
        unanswered = [one for one in waiting if one not in results]
        content = message["content"]
        ends_here = at == len(messages) - 1 and isinstance(content, list) and len(results) == len(content)
        if not ends_here:
            yield from (f"message {at} does not answer {one}" for one in unanswered)
        waiting = [block["id"] for block in _of(message, "tool_use")] or (unanswered if ends_here else [])
    yield from reading.still_open(body, len(waiting))


def _ends_well(messages: list[Message]) -> Iterator[str]:
    last = messages[-1]
    if last["role"] != "assistant":
        return
    content = last["content"]
    text = content if isinstance(content, str) else content[-1].get("text", "")
    if text != text.rstrip():
        yield "the last assistant text ends in white space"


def _cache_marks(body: dict[str, Any]) -> Iterator[str]:
    marks = sum(1 for _ in _marked([body.get("system"), body["messages"]]))
    if marks > MOST_CACHE_MARKS:
        yield f"there are {marks} cache marks, and at most {MOST_CACHE_MARKS} are taken"


def _marked(value: Any) -> Iterator[None]:
    if isinstance(value, dict):
        if value.get("cache_control") is not None:
            yield None
        for key, inner in value.items():
            if key != "input":
                yield from _marked(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _marked(inner)
