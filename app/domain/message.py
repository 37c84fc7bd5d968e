"""Chat messages as clients send them: the OpenAI shape, checked, with everything unknown left alone."""

from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Any, Final, NamedTuple, cast

from app.domain.errors import InvalidRequest
from app.domain.event import ROLES, Role
from app.domain.exact_json import Json

# Under this key a stored message keeps what only the provider it came from understands. Clients do not send it.
RESERVED: Final = "turnlog"
_TEXT_OR_NOTHING: Final = (str, NoneType)
# What the OpenAI shape carries of the pieces of Anthropic, of the Responses API and of Gemini.
_SHAPED_BLOCKS: Final = frozenset({"text", "image", "document", "search_result", "tool_use", "tool_result"})
_SHAPED_ITEMS: Final = frozenset(
    {"message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)
_SHAPED_PARTS: Final = frozenset(
    {"text", "functionCall", "functionResponse", "inlineData", "fileData"}
    | {"function_call", "function_response", "inline_data", "file_data"}
)


class Shape(NamedTuple):
    """What the rules need to know of a message: who speaks, which tool calls it makes and which it answers."""

    role: Role
    calls: tuple[str, ...] = ()
    answers: str | None = None


def check(message: Json) -> Shape:
    """Check a message and return its shape.

    Content is a string, a list of parts, or null; null only for the assistant (whose calls or refusal speak) and for
    a tool (whose result can be nothing). Unknown fields and unknown part types are kept and not looked into.

    Raises:
        InvalidRequest: with pointers from the message's own root.
    """
    if not isinstance(message, dict):
        raise InvalidRequest.at("", "a message is an object")
    if RESERVED in message:
        raise InvalidRequest.at(f"/{RESERVED}", "is a field that turnlog keeps for itself")
    role = message.get("role")
    if role not in ROLES:
        raise InvalidRequest.at("/role", f"the role is one of {', '.join(ROLES)}")
    role = cast("Role", role)
    _check_content(message.get("content"), role)
    for field in ("name", "refusal", "tool_call_id"):
        if not isinstance(message.get(field), _TEXT_OR_NOTHING):
            raise InvalidRequest.at(f"/{field}", "is a string")
    calls = _calls(message, role)
    if role == "tool":
        return Shape(role, answers=_text(message, "tool_call_id", "", "a tool message names the call it answers"))
    return Shape(role, calls=calls)


def _check_content(content: Json, role: Role) -> None:
    if isinstance(content, str) or (content is None and role in {"assistant", "tool"}):
        return
    if not isinstance(content, list):
        raise InvalidRequest.at("/content", f"the content of a {role} message is a string or a list of parts")
    types = {_part_type(part, f"/content/{at}") for at, part in enumerate(content)}
    if role == "user" and types == {"tool_result"}:
        # As a user message it would start a turn in the middle of a tool call (rule 10).
        raise InvalidRequest.at("/content", "tool results are messages of role tool, or come with format anthropic")


def _part_type(part: Json, pointer: str) -> str:
    if not isinstance(part, dict):
        raise InvalidRequest.at(pointer, "a part is an object")
    kind = _text(part, "type", pointer, "a part has a type")
    if kind == "text":
        _text(part, "text", pointer, "a text part has a text")
    return kind


def _calls(message: dict[str, Json], role: Role) -> tuple[str, ...]:
    calls = message.get("tool_calls")
    if calls is None:
        return ()
    if role != "assistant":
        raise InvalidRequest.at("/tool_calls", "only the assistant calls tools")
    if not isinstance(calls, list):
        raise InvalidRequest.at("/tool_calls", "is a list")
    return tuple(_call(call, f"/tool_calls/{at}") for at, call in enumerate(calls))


def _call(call: Json, pointer: str) -> str:
    """Check one tool call and return its id. Calls of a type other than function only need an id."""
    if not isinstance(call, dict):
        raise InvalidRequest.at(pointer, "a tool call is an object")
    call_id = _text(call, "id", pointer, "a tool call has an id")
    if "type" in call and _text(call, "type", pointer, "a tool call has a type") != "function":
        return call_id
    function = call.get("function")
    if not isinstance(function, dict):
        raise InvalidRequest.at(f"{pointer}/function", "a function call names its function and arguments")
    _text(function, "name", f"{pointer}/function", "a function has a name")
    if not isinstance(function.get("arguments"), str | dict):
        raise InvalidRequest.at(f"{pointer}/function/arguments", "arguments are a string or an object")
    return call_id


def _text(value: dict[str, Json], field: str, pointer: str, detail: str) -> str:
    text = value.get(field)
    if not isinstance(text, str):
        raise InvalidRequest.at(f"{pointer}/{field}", f"{detail}: a string")
    return text


def unshaped(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the pieces of a stored message that the OpenAI shape does not carry: thoughts, uses of a provider's tools.

    They are among the pieces that its provider sent. All else in those is in the message itself, too.
    """
    kept = message.get(RESERVED) or {}
    for field, is_shaped in _SHAPED.items():
        for piece in kept.get(field) or ():
            if not is_shaped(piece):
                yield piece


def _is_shaped_block(block: Mapping[str, Any]) -> bool:
    return _kind(block) in _SHAPED_BLOCKS


def _is_shaped_item(item: Mapping[str, Any]) -> bool:
    """Of a call of the API's own tools the shape has the action, and of what answers it the output."""
    kind = _kind(item)
    if kind in _SHAPED_ITEMS or "role" in item:
        return True
    is_tied = isinstance(item.get("call_id"), str)
    return is_tied and (kind.endswith("_call_output") or (kind.endswith("_call") and "action" in item))


def _is_shaped_part(part: Mapping[str, Any]) -> bool:
    return part.get("thought") is not True and any(part.get(field) is not None for field in _SHAPED_PARTS)


def _kind(piece: Mapping[str, Any]) -> str:
    kind = piece.get("type")
    return kind if isinstance(kind, str) else ""


# By the field that has a provider's pieces.
_SHAPED: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    "content": _is_shaped_block,
    "items": _is_shaped_item,
    "parts": _is_shaped_part,
}
