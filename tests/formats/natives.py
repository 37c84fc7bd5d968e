"""Messages in a provider's own form, as odd as a provider or a client makes them, from a few numbers to decide with."""

from collections.abc import Callable
from typing import Any, Final

Body = dict[str, Any]
Word = Callable[..., str]

IDS: Final = ["a", "b", "toolu_1", "call_0", "functions.f:0", "é"]
PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_SOURCE: Final = {"type": "base64", "media_type": "image/png", "data": PNG}
_INLINE: Final = {"inlineData": {"mimeType": "image/png", "data": PNG}}
_INPUT_IMAGE: Final = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
_MARK: Final = {"cache_control": {"type": "ephemeral"}}


def _some(pieces: list[Any], how: int, which: int) -> list[Any]:
    """Pick a run of pieces: where it starts and how long it is."""
    start = how % len(pieces)
    return (pieces[start:] + pieces[:start])[: which % 4 + 1]


def anthropic(word: Word, how: int, which: int, call: int, other: int) -> list[Body]:
    """A user or assistant message of Anthropic's, with results, thoughts, marks and blocks of the server's tools."""
    if which % 7 == 6:
        return [{"role": "user" if how % 2 else "assistant", "content": ["", word("said"), " "][call % 3]}]
    if how % 2:
        return [{"role": "user", "content": _anthropic_user(word, how // 2, which, call, other)}]
    blocks: list[Any] = [
        {"type": "thinking", "thinking": f" {word('thinksanthropic')}\n", "signature": f"U0lH{call:04}"},
        {"type": "text", "text": word("told")},
        {"type": "tool_use", "id": IDS[call % 6], "name": "f", "input": {"k": word("argued"), "n": [1, 2.50]}},
        {"type": "thinking", "thinking": word("thinksanthropic", 1), "signature": ""},
        {"type": "tool_use", "id": IDS[other % 6], "name": "a_b", "input": {}, **_MARK},
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
        {"type": "text", "text": f"{word('told', 1)} ", **_MARK},
        {"type": "thinking", "thinking": word("thinksanthropic", 2)},
        {"type": "text", "text": " "},
        {"type": "server_tool_use", "id": f"srvtoolu_{call}", "name": "web_search", "input": {"query": "x"}},
    ]
    return [{"role": "assistant", "content": _some(blocks, how // 2, which)}]


def _anthropic_user(word: Word, how: int, which: int, call: int, other: int) -> list[Any]:
    told = [{"type": "text", "text": word("result", 1)}]
    shown = [{"type": "image", "source": _SOURCE}]
    blocks: list[Any] = [
        {"type": "tool_result", "tool_use_id": IDS[call % 6], "content": word("result"), **_MARK},
        {"type": "tool_result", "tool_use_id": IDS[other % 6], "content": told},
        {"type": "text", "text": word("said"), **_MARK},
        {"type": "image", "source": _SOURCE},
        {"type": "tool_result", "tool_use_id": IDS[call % 6], "is_error": True, "content": shown},
        {"type": "tool_result", "tool_use_id": IDS[other % 6]},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": word("said", 1)}},
        {"type": "text", "text": "\n"},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "text", "text": word("said", 2), **_MARK},
    ]
    return _some(blocks, how, which)


def gemini(word: Word, how: int, which: int, call: int, other: int) -> list[Body]:
    """A content of Gemini's, with thoughts, signatures, calls with and without ids, responses, code and media."""
    first, second = ({"id": IDS[call % 6]}, {"id": IDS[other % 6]}) if call % 2 else ({}, {})
    if how % 2:
        parts: list[Any] = [
            {"text": word("said")},
            {"functionResponse": {**first, "name": "f", "response": {"output": word("result")}}},
            {"functionResponse": {**second, "name": "g.h", "response": {"k": word("result", 1), "n": 1}}},
            {"text": ""},
            _INLINE,
            {
                "functionResponse": {
                    **first,
                    "name": "f",
                    "response": {},
                    "parts": [_INLINE],
                }
            },
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/film.mp4"}},
            {"text": word("said", 1)},
        ]
        return [{"role": "user", "parts": _some(parts, how // 2, which)}]
    parts = [
        {"text": word("thinksgemini"), "thought": True},
        {"functionCall": {**first, "name": "f", "args": {"k": word("argued")}}, "thoughtSignature": f"U0lH{call:04}"},
        {"functionCall": {**second, "name": "g.h"}},
        {"text": word("told"), "thoughtSignature": "U0lI"},
        {"text": "", "thoughtSignature": "U0lJ"},
        {"text": " "},
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        _INLINE,
        {"text": f"{word('told', 1)}\n"},
    ]
    return [{"role": "model", "parts": _some(parts, how // 2, which)}]


def responses(word: Word, how: int, which: int, call: int, other: int) -> list[Body]:
    """A few items of OpenAI's responses: reasoning anywhere, calls, outputs, messages with ids, the server's tools."""
    item, first, second = call % 4, IDS[call % 6], IDS[other % 6]
    argued = f'{{"k": "{word("argued")}"}}'
    thought = [{"type": "summary_text", "text": word("thinksresponses")}]
    told = [{"type": "output_text", "text": word("told"), "annotations": []}]
    searched = {"type": "search", "query": "x"}
    items: list[Any] = [
        {"type": "reasoning", "id": f"rs_{item}", "summary": thought},
        {"type": "function_call", "id": f"fc_{item}", "call_id": first, "name": "f", "arguments": argued},
        {"type": "function_call", "call_id": second, "name": "g", "arguments": ""},
        _output(first, word("result")),
        _output(second, [{"type": "input_text", "text": word("result", 1)}]),
        {"type": "message", "id": f"msg_{item}", "role": "assistant", "status": "completed", "content": told},
        {"role": "user", "content": word("said")},
        {"type": "reasoning", "id": f"rs_{other % 4}", "summary": [], "encrypted_content": "c2VjcmV0"},
        {"role": "assistant", "content": [" ", word("told", 1)][other % 2]},
        {"role": "user", "content": [_INPUT_IMAGE]},
        _output(first, ""),
        {"type": "web_search_call", "id": word("ws_"), "status": "completed", "action": searched},
        {"type": "reasoning", "id": f"rs_{item}", "summary": []},
    ]
    return _some(items, how, which)


def _output(call: str, said: Any) -> Body:
    return {"type": "function_call_output", "call_id": call, "output": said}


SOURCES: Final[list[tuple[str, Callable[..., list[Body]]]]] = [
    ("anthropic", anthropic),
    ("gemini", gemini),
    ("openai-responses", responses),
]
