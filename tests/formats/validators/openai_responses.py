"""OpenAI responses: the `input` and the `instructions` of a request.

From the API reference, and from the errors that users met: "No tool call found for function call output", "No tool
output found for function call", "Duplicate item found with id", "Item 'rs_…' of type 'reasoning' was provided without
its required following item", "Invalid 'input[3].id': Expected an ID that begins with 'fc'", "Invalid value:
'input_text'. Supported values are: 'output_text' and 'refusal'", "Unknown parameter", "call_id: string too long …
64".
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from tests.formats.validators import openai, reading, sdk
from tests.formats.validators.reading import said

Item = dict[str, Any]

LONGEST_CALL_ID: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_PREFIX: Final = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
_CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
_OUTPUTS: Final = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
_TEXTS: Final = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
_PARTS: Final = {
    "user": {"input_text", "input_image", "input_file", "input_audio"},
    "assistant": {"output_text", "refusal"},
    "output": {"input_text", "input_image", "input_file"},
}


def check(body: dict[str, Any]) -> list[str]:
    """Return the rules that the `input` and the `instructions` of a body break."""
    items = body.get("input")
    if not isinstance(items, list) or not items:
        return ["there is no list of input items"]
    broken = [*reading.reserved_keys(items, "/input")]
    if body.get("instructions") is not None and not said(body["instructions"]):
        broken.append("the instructions are no text")
    for at, item in enumerate(items):
        broken += [f"item {at} {problem}" for problem in _item(item)]
    if broken:
        return broken
    return [*_ids(items), *_reasoning(items), *_pairs(body, items)]


def _kind(item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    return item.get("type", "message" if "role" in item else None)


def _item(item: Any) -> Iterator[str]:
    kind = _kind(item)
    if kind is None:
        yield "has no type"
        return
    if problems := sdk.responses_item(item):
        yield from problems
        return
    if item.get("id") is not None:
        yield from _id(item["id"], _PREFIX.get(kind, ""))
    if kind == "message":
        yield from _message(item)
    elif kind in _CALLS:
        yield from _call(item, _CALLS[kind])
    elif kind in _OUTPUTS:
        yield from _call_id(item)
        yield from _content(item.get("output"), "output")
    elif kind == "reasoning" and not isinstance(item.get("summary"), list):
        yield "is reasoning without a summary"


def _id(item_id: str, prefix: str) -> Iterator[str]:
    if not _ID.fullmatch(item_id):
        yield "has an id of other characters than letters, numbers, underscores and dashes"
    if not item_id.startswith(prefix):
        yield f"has an id that does not begin with {prefix}"


def _message(item: Item) -> Iterator[str]:
    if item.get("role") not in {"user", "assistant"}:
        yield f"is a message of role {item.get('role')}: the prompt belongs into the instructions"
        return
    yield from _content(item.get("content"), item["role"])


def _content(content: Any, of: str) -> Iterator[str]:
    if isinstance(content, str):
        if of != "output" and not said(content):
            yield "has a content without text"
        return
    if not isinstance(content, list) or not content:
        yield "has neither text nor parts"
        return
    for part in content:
        yield from _part(part, of)


def _part(part: Item, of: str) -> Iterator[str]:
    kind = part.get("type")
    if kind not in _PARTS[of]:
        yield f"has a part of type {kind}, which it cannot have ({of})"
    elif kind in _TEXTS and not said(part.get(_TEXTS[kind])):
        yield f"has an empty {kind} part"
    elif kind == "input_image" and not (part.get("file_id") or _is_image(part.get("image_url"))):
        yield "has an image that is neither a file id, a link nor a base64 data URL"
    elif kind == "input_file" and not (
        part.get("file_id") or reading.is_link(part.get("file_url")) or reading.data_url(part.get("file_data"))
    ):
        yield "has a file without an id, a link or a data URL"


def _is_image(url: Any) -> bool:
    found = reading.data_url(url)
    return found[0].lower() in openai.IMAGES if found else reading.is_link(url)


def _call(item: Item, arguments: str) -> Iterator[str]:
    yield from _call_id(item)
    if not _NAME.fullmatch(str(item.get("name"))):
        yield "calls a tool by a name of other characters than A-Z a-z 0-9 _ -, or of more than 64"
    if not isinstance(item.get(arguments), str):
        yield "has arguments that are no string"


def _call_id(item: Item) -> Iterator[str]:
    if not isinstance(item.get("call_id"), str) or not 1 <= len(item["call_id"]) <= LONGEST_CALL_ID:
        yield "has a call_id that is empty or longer than 64 characters"


def _ids(items: list[Item]) -> Iterator[str]:
    ids = [item["id"] for item in items if item.get("id") is not None]
    yield from (f"the id {one} occurs twice" for one in sorted({one for one in ids if ids.count(one) > 1}))


def _reasoning(items: list[Item]) -> Iterator[str]:
    """Reasoning stands directly before what it led to: a message or a call of the model."""
    for at, item in enumerate(items):
        if _kind(item) != "reasoning":
            continue
        follower = next((other for other in items[at + 1 :] if _kind(other) != "reasoning"), None)
        kind = follower and _kind(follower)
        if kind is None or kind in _OUTPUTS or (kind == "message" and follower.get("role") != "assistant"):
            yield f"item {at} is reasoning without what followed it"


def _pairs(body: dict[str, Any], items: list[Item]) -> Iterator[str]:
    """Outputs find their call by its id alone, wherever it stands, so an id names one call."""
    made: dict[str, tuple[int, str]] = {}
    answered: set[str] = set()
    for at, item in enumerate(items):
        kind, call = _kind(item), item.get("call_id")
        if kind in _CALLS:
            if call in made:
                yield f"item {at} is a second call with one call_id"
            made[call] = (at, kind)
        elif kind in _OUTPUTS:
            if call not in made or made[call][1] != _OUTPUTS[kind]:
                yield f"item {at} is an output without its call before it"
            elif call in answered:
                yield f"item {at} is a second output of one call"
            answered.add(call)
    waiting = [at for call, (at, _) in made.items() if call not in answered]
    last = max(
        (at for at, item in enumerate(items) if _kind(item) not in {"reasoning", *_CALLS, *_OUTPUTS}), default=-1
    )
    yield from (f"the call in item {at} has no output, and something follows it" for at in waiting if at < last)
    yield from reading.still_open(body, sum(at > last for at in waiting))
