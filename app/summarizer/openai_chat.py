"""OpenAI's chat completions, as OpenAI, Azure, vLLM, Ollama and most gateways speak them. Pure."""

from typing import Any, Final, Literal, TypeAlias

import msgspec

from app.summarizer import answer, rejection
from app.summarizer.answer import Answer, Raw
from app.summarizer.model import Endpoint, Request
from app.summarizer.prompt import Prompt

LimitName: TypeAlias = Literal["max_tokens", "max_completion_tokens"]

_BAD_REQUEST: Final = 400


class _Part(msgspec.Struct):
    type: str
    text: str = ""


class _Message(msgspec.Struct):
    # Some gateways answer in parts.
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None
    # vLLM, DeepSeek and gateways keep reasoning beside the text, under either name.
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    model: Any = None
    usage: Any = None


def request(endpoint: Endpoint, prompt: Prompt, *, max_tokens: int, limit_name: LimitName = "max_tokens") -> Request:
    """Build the call; the base URL ends in ``/v1``.

    There is nothing in it that some model refuses: no temperature, for reasoning models have their own.
    """
    return Request(
        url=endpoint.base_url.rstrip("/") + "/chat/completions",
        headers={"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {},
        body={
            "model": endpoint.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            limit_name: max_tokens,
        },
    )


def wants_other_limit_name(status: int, body: bytes) -> bool:
    """Say whether a refusal asks for ``max_completion_tokens`` instead of ``max_tokens``, as newer models do.

    vLLM names both when the prompt is too long; that is about the prompt.
    """
    return (
        status == _BAD_REQUEST
        and "max_completion_tokens" in rejection.said(body)
        and not rejection.is_about_length(status, body)
    )


def read(body: bytes, *, asked: str) -> Answer:
    """Read a successful answer; ``asked`` is the model's name where the answer has none.

    Raises:
        SummarizerFailed: it is no summary (``answer.judged``), or ``unreadable``.
    """
    completion = answer.decoded(body, _Completion, "a chat completion in JSON")
    if not completion.choices:
        raise answer.unreadable("it holds no choice")
    choice = completion.choices[0]
    usage = completion.usage if isinstance(completion.usage, dict) else {}
    return answer.judged(
        _raw(choice),
        model=completion.model if isinstance(completion.model, str) and completion.model else asked,
        used=(usage.get("prompt_tokens"), usage.get("completion_tokens")),
    )


def _raw(choice: _Choice) -> Raw:
    message = choice.message
    content = message.content
    return Raw(
        text="".join(part.text for part in content if part.type == "text") if isinstance(content, list) else content,
        stop=choice.finish_reason,
        refused=bool(message.refusal),
        has_tool_calls=bool(message.tool_calls or message.function_call),
        has_reasoning=bool(message.reasoning_content or message.reasoning),
    )
