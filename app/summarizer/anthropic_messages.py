"""Anthropic's messages. Pure."""

from typing import Any, Final

import msgspec

from app.summarizer import answer
from app.summarizer.answer import Answer, Raw
from app.summarizer.model import Endpoint, Request
from app.summarizer.prompt import Prompt

VERSION: Final = "2023-06-01"

_REASONING: Final = frozenset({"thinking", "redacted_thinking"})


class _Block(msgspec.Struct):
    type: str
    text: str = ""


class _Message(msgspec.Struct):
    content: list[_Block]
    stop_reason: str | None = None
    model: Any = None
    usage: Any = None


def request(endpoint: Endpoint, prompt: Prompt, *, max_tokens: int) -> Request:
    """Build the call; the base URL may end in ``/v1`` or not."""
    return Request(
        url=endpoint.base_url.rstrip("/").removesuffix("/v1") + "/v1/messages",
        headers={"anthropic-version": VERSION} | ({"x-api-key": endpoint.api_key} if endpoint.api_key else {}),
        body={
            "model": endpoint.model,
            "max_tokens": max_tokens,
            "system": prompt.system,
            "messages": [{"role": "user", "content": prompt.user}],
        },
    )


def read(body: bytes, *, asked: str) -> Answer:
    """Read a successful answer; ``asked`` is the model's name where the answer has none.

    Raises:
        SummarizerFailed: it is no summary (``answer.judged``), or ``unreadable``.
    """
    message = answer.decoded(body, _Message, "an Anthropic message in JSON")
    kinds = {block.type for block in message.content}
    raw = Raw(
        # A text with citations comes in several blocks that are one text.
        text="".join(block.text for block in message.content if block.type == "text"),
        stop=message.stop_reason,
        has_tool_calls=any(kind.endswith("tool_use") for kind in kinds),
        has_reasoning=bool(kinds & _REASONING),
    )
    usage = message.usage if isinstance(message.usage, dict) else {}
    return answer.judged(
        raw,
        model=message.model if isinstance(message.model, str) and message.model else asked,
        used=(usage.get("input_tokens"), usage.get("output_tokens")),
    )
