"""OpenAI chat completions: the `messages` of a request.

From the API reference (roles, parts, `tool_calls`), and from the errors that users met: "messages with role 'tool'
must be a response to a preceding message with 'tool_calls'", "an assistant message with 'tool_calls' must be followed
by tool messages responding to each 'tool_call_id'", "Duplicate value for 'tool_call_id'", "string too long. Expected
a string with maximum length 64", "string does not match pattern '^[a-zA-Z0-9_-]+$'", "[] is too short -
'tool_calls'".
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from tests.formats.validators import reading, sdk
from tests.formats.validators.reading import said

Message = dict[str, Any]

LONGEST_CALL_ID: Final = 64
IMAGES: Final = {"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"}
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SYSTEM: Final = frozenset({"system", "developer"})
_PARTS: Final = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


def check(body: dict[str, Any]) -> list[str]:
    """Return the rules that the `messages` of a body break."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return ["there is no list of messages"]
    broken = [*reading.reserved_keys(messages, "/messages")]
    for at, message in enumerate(messages):
        broken += [f"message {at} {problem}" for problem in _message(message)]
    if broken:
        return broken
    return [*_system_leads(messages), *_pairs(body, messages)]


def _system_leads(messages: list[Message]) -> Iterator[str]:
    for at, message in enumerate(messages):
        if message["role"] in _SYSTEM and at > 0:
            yield f"message {at} is a system message that does not lead"
    if not any(message["role"] not in _SYSTEM for message in messages):
        yield "there is no message but the system's"


def _pairs(body: dict[str, Any], messages: list[Message]) -> Iterator[str]:
    """Every result answers a call of the nearest assistant message, and every call is answered before anything else."""
    waiting: dict[str, int] = {}
    answered: set[str] = set()
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            call = message["tool_call_id"]
            if call in waiting:
                del waiting[call]
                answered.add(call)
            elif call in answered:
                yield f"message {at} is a second result of one call"
            else:
                yield f"message {at} is a result without its call right before"
            continue
        for made in waiting.values():
            yield f"a call of message {made} has no result before message {at}"
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(calls)) < len(calls):
            yield f"message {at} has two calls with one id"
        waiting, answered = dict.fromkeys(calls, at), set()
    yield from reading.still_open(body, len(waiting))


def _message(message: Any) -> Iterator[str]:
    if not isinstance(message, dict) or message.get("role") not in _PARTS:
        yield "has no role that the API knows"
        return
    role = message["role"]
    if problems := sdk.openai_message(message):
        yield from problems
        return
    if message.get("name") is not None and not _NAME.fullmatch(message["name"]):
        yield "has a name of other characters than A-Z a-z 0-9 _ -, or of more than 64"
    if role != "tool" and "tool_call_id" in message:
        yield "answers a call without being the tool's"
    if role != "assistant" and message.get("tool_calls") is not None:
        yield "calls tools without being the assistant's"
    yield from _content(role, message)
    if role == "assistant" and "tool_calls" in message:
        yield from _calls(message["tool_calls"])


def _content(role: str, message: Message) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, list):
        if not content:
            yield "has a content without parts"
        for part in content:
            yield from _part(role, part)
    elif content is None:
        if role != "assistant" or not (message.get("tool_calls") or message.get("refusal")):
            yield "has no content"
    elif not isinstance(content, str):
        yield "has a content that is neither text nor parts"
    elif role != "tool" and not said(content):
        # A tool may have nothing to say; the API takes its empty string.
        yield "has a content without text"


def _part(role: str, part: Any) -> Iterator[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _PARTS[role]:
        yield f"has a part of type {kind}, which a message of role {role} cannot have"
    elif kind in {"text", "refusal"} and not said(part.get(kind)):
        yield f"has an empty {kind} part"
    elif kind == "image_url" and not _is_image(part["image_url"].get("url")):
        yield "has an image that is neither a link nor a base64 data URL"
    elif kind == "input_audio":
        audio = part["input_audio"]
        if audio.get("format") not in {"wav", "mp3"} or not reading.is_base64(audio.get("data")):
            yield "has audio that is not base64 of wav or mp3"
    elif kind == "file" and not (part["file"].get("file_id") or _is_pdf(part["file"].get("file_data"))):
        yield "has a file without an id and without a data URL of a PDF"


def _is_image(url: Any) -> bool:
    found = reading.data_url(url)
    return found[0].lower() in IMAGES if found else reading.is_link(url)


def _is_pdf(url: Any) -> bool:
    found = reading.data_url(url)
    return found is not None and found[0].lower() == "application/pdf"


def _calls(calls: Any) -> Iterator[str]:
    if not isinstance(calls, list) or not calls:
        yield "has tool_calls that are no list of calls"
        return
    for call in calls:
        if not isinstance(call.get("id"), str) or not 1 <= len(call["id"]) <= LONGEST_CALL_ID:
            yield "has a call id that is empty or longer than 64 characters"
        if call.get("type") not in {"function", "custom"}:
            yield "has a call of a type that the API does not know"
            continue
        called = call.get(call["type"])
        if not isinstance(called, dict) or not _NAME.fullmatch(str(called.get("name"))):
            yield "calls a tool by a name of other characters than A-Z a-z 0-9 _ -, or of more than 64"
        elif not isinstance(called.get("arguments" if call["type"] == "function" else "input"), str):
            yield "has arguments that are no string"
