"""The official SDKs' own types, held against single messages. They import slowly, so each does so when first needed."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

_STRICT = ConfigDict(extra="forbid")


@cache
def _openai_message() -> TypeAdapter[Any]:
    from openai.types.chat import ChatCompletionMessageParam  # noqa: PLC0415

    # Chat completions leave unknown fields alone, and clients' own are kept in the log.
    return TypeAdapter(ChatCompletionMessageParam)


@cache
def _responses_item() -> TypeAdapter[Any]:
    from openai.types.responses import ResponseInputItemParam  # noqa: PLC0415

    # "Unknown parameter: 'input[2].…'": the Responses API refuses what it does not know.
    return TypeAdapter(ResponseInputItemParam, config=_STRICT)


@cache
def _anthropic_message() -> TypeAdapter[Any]:
    from anthropic.types import MessageParam  # noqa: PLC0415

    return TypeAdapter(MessageParam, config=_STRICT)


@cache
def anthropic_keys(kind: str) -> frozenset[str] | None:
    """Return the fields that a content block of a type may have, None for a type that the SDK does not know."""
    from anthropic import types  # noqa: PLC0415

    names = {
        "text": types.TextBlockParam,
        "image": types.ImageBlockParam,
        "document": types.DocumentBlockParam,
        "search_result": types.SearchResultBlockParam,
        "thinking": types.ThinkingBlockParam,
        "redacted_thinking": types.RedactedThinkingBlockParam,
        "tool_use": types.ToolUseBlockParam,
        "tool_result": types.ToolResultBlockParam,
        "server_tool_use": types.ServerToolUseBlockParam,
        "web_search_tool_result": types.WebSearchToolResultBlockParam,
    }
    block = names.get(kind)
    return frozenset(block.__required_keys__ | block.__optional_keys__) if block else None


def openai_message(message: Any) -> list[str]:
    """Hold a chat message against ChatCompletionMessageParam."""
    return _refused(_openai_message(), message)


def responses_item(item: Any) -> list[str]:
    """Hold an input item against ResponseInputItemParam.

    A model's own message may be sent back without the id, the status and the annotations that it came with, though
    the type insists on them.
    """
    content = item.get("content") if isinstance(item, dict) else None
    if isinstance(content, list) and item.get("role") == "assistant":
        parts = [{"annotations": [], **part} if part.get("type") == "output_text" else part for part in content]
        item = {"type": "message", "id": "msg_1", "status": "completed", **item, "content": parts}
    return _refused(_responses_item(), item)


def anthropic_message(message: Any) -> list[str]:
    """Hold a message against MessageParam."""
    return _refused(_anthropic_message(), message)


def gemini_content(content: Any) -> list[str]:
    """Hold a content against types.Content, which refuses unknown fields."""
    from google.genai import types  # noqa: PLC0415

    try:
        types.Content.model_validate(content)
    except ValidationError as error:
        return [_told(error)]
    return []


def _refused(adapter: TypeAdapter[Any], value: Any) -> list[str]:
    try:
        _exhaust(adapter.validate_python(value))
    except ValidationError as error:
        return [_told(error)]
    return []


def _exhaust(value: Any) -> None:
    """Walk a validated value to its leaves: what the SDKs declare as Iterable is only checked when it is read."""
    if isinstance(value, dict):
        for inner in value.values():
            _exhaust(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for inner in value:
            _exhaust(inner)


def _told(error: ValidationError) -> str:
    """Say what is wrong, in one line: a union lists the reasons of all its members, of which the deepest tells most."""
    first = min(error.errors(include_url=False), key=lambda one: (one["type"] == "missing", -len(one["loc"])))
    return f"is not of the SDK's type: {'.'.join(map(str, first['loc']))}: {first['msg']}"
