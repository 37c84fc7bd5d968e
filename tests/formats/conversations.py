"""A rich conversation of each provider, written by hand in that provider's own form, all about the same thing."""

from collections.abc import Mapping
from typing import Any, Final

Body = dict[str, Any]

PNG_A: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PNG_B: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
PDF: Final = "JVBERi0xLjQKJcOkw7zDtsOfCg=="
WAV: Final = "UklGRiQAAABXQVZFZm10IA=="
PROMPT: Final = "You look at pictures."

OPENAI: Final[list[Body]] = [
    {
        "role": "user",
        "name": "Ann",
        "content": [
            {"type": "text", "text": "What is "},
            {"type": "text", "text": "in these?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG_A}", "detail": "high"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/second.png"}},
            {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}},
            {"type": "file", "file": {"file_id": "file-123"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
        ],
    },
    {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"z": 1,  "a": [1.50]}'}},
            {"id": "call_2", "type": "function", "function": {"name": "zoom", "arguments": '{"at": "left"}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "a cat"},
    {
        "role": "tool",
        "tool_call_id": "call_2",
        "content": [{"type": "text", "text": "a larger "}, {"type": "text", "text": "cat"}],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "A cat."}], "annotations": []},
    {"role": "user", "content": "Whose is it?"},
    {"role": "assistant", "content": None, "refusal": "I do not name owners."},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "You are welcome."},
]

ANTHROPIC: Final[list[Body]] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is in these?", "cache_control": {"type": "ephemeral"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_A}},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/second.png"}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                "title": "a.pdf",
            },
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "  two pictures\n", "signature": "U0lHTg=="},
            {"type": "redacted_thinking", "data": "c2VjcmV0"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"z": 1, "a": [1.5]}},
            {"type": "tool_use", "id": "toolu_2", "name": "zoom", "input": {"at": "left"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [
                    {"type": "text", "text": "a cat"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_B}},
                ],
            },
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "content": "no zoom",
                "is_error": True,
                "cache_control": {"type": "ephemeral"},
            },
            {"type": "text", "text": "and hurry"},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "a cat, then", "signature": "U0lHTjI="},
            {"type": "text", "text": "A cat."},
        ],
    },
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "You are welcome."},
]

RESPONSES: Final[list[Body]] = [
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What is in these?"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG_A}", "detail": "high"},
            {"type": "input_image", "image_url": "https://example.com/second.png", "detail": "auto"},
            {"type": "input_image", "file_id": "file-9", "detail": "auto"},
            {"type": "input_file", "file_id": "file-123"},
            {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
        ],
    },
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "two pictures"}],
        "encrypted_content": "Z0FBQQ==",
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "look",
        "arguments": '{"z": 1,  "a": [1.50]}',
        "status": "completed",
    },
    {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "zoom", "arguments": '{"at": "left"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "a cat"},
    {
        "type": "function_call_output",
        "call_id": "call_2",
        "output": [
            {"type": "input_text", "text": "a larger cat"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG_B}", "detail": "auto"},
        ],
    },
    {"type": "reasoning", "id": "rs_2", "summary": []},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "A cat.", "annotations": []}],
    },
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "You are welcome."},
]


def _gemini(*, ids: bool) -> list[Body]:
    first, second = ({"id": "call_1"}, {"id": "call_2"}) if ids else ({}, {})
    return [
        {
            "role": "user",
            "parts": [
                {"text": "What is in these?"},
                {"inlineData": {"mimeType": "image/png", "data": PNG_A}},
                {"inlineData": {"mimeType": "audio/wav", "data": WAV}},
                {"fileData": {"mimeType": "image/png", "fileUri": "https://example.com/second.png"}},
                {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "two pictures", "thought": True},
                {"text": "Let me look."},
                {
                    "functionCall": {**first, "name": "look", "args": {"z": 1, "a": [1.5]}},
                    "thoughtSignature": "U0lHTg==",
                },
                {"functionCall": {**second, "name": "look", "args": {"at": "left"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        **first,
                        "name": "look",
                        "response": {"output": "a cat"},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG_B}}],
                    }
                },
                {"functionResponse": {**second, "name": "look", "response": {"size": "larger", "of": ["cat"]}}},
            ],
        },
        {"role": "model", "parts": [{"text": "A cat."}, {"text": "", "thoughtSignature": "U0lHTjI="}]},
        {"role": "user", "parts": [{"text": "Thanks"}]},
        {"role": "model", "parts": [{"text": "You are welcome."}]},
    ]


GEMINI: Final = _gemini(ids=True)
GEMINI_WITHOUT_IDS: Final = _gemini(ids=False)

CONVERSATIONS: Final[Mapping[str, tuple[str, list[Body]]]] = {
    "openai": ("openai", OPENAI),
    "openai-responses": ("openai-responses", RESPONSES),
    "anthropic": ("anthropic", ANTHROPIC),
    "gemini": ("gemini", GEMINI),
    "gemini without ids": ("gemini", GEMINI_WITHOUT_IDS),
}
