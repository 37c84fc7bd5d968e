"""What a body says, in the same words for every provider: texts, calls, results and media, in the order sent.

Written from the providers' references and not from the renderers, so that a test can ask one question of four bodies.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

Body = dict[str, Any]

FORMATS: Final = ("openai", "openai-responses", "anthropic", "gemini")
# The fields of a body that make up the request; the others tell about the view.
REQUEST: Final = {
    "openai": ("messages",),
    "openai-responses": ("instructions", "input"),
    "anthropic": ("system", "messages"),
    "gemini": ("systemInstruction", "contents"),
}


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that a body says. ``text`` are words, arguments or a tool's answer; of media, the data or address."""

    kind: Literal["system", "text", "thought", "call", "result", "media", "other"]
    by: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    call: str = ""
    name: str = ""
    media: tuple[str, ...] = ()


def said(output: str, body: Body) -> list[Said]:
    """Return what a body says in a format."""
    return list(_READERS[output](body))


def request(output: str, body: Body) -> Body:
    """Return the part of a body that goes to the provider."""
    return {field: body[field] for field in REQUEST[output] if body.get(field) is not None}


def strings(value: Any) -> Iterator[str]:
    """Return every string of a JSON value, keys and what is inside JSON strings left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def arguments(text: str) -> Any:
    """Return call arguments as a JSON value, so that two notations of one object are equal; other text stays text."""
    try:
        return json.loads(text) if text else {}
    except json.JSONDecodeError:
        return text


def pairs(things: list[Said]) -> list[tuple[Said, Said]]:
    """Return each result with the call that a provider takes it for: by id where it has one, else by name in order."""
    waiting: list[Said] = []
    found: list[tuple[Said, Said]] = []
    for one in things:
        if one.kind == "call":
            waiting.append(one)
        elif one.kind == "result":
            made = next(
                (call for call in waiting if (call.call == one.call if one.call else call.name == one.name)), None
            )
            assert made, f"{one} answers nothing"
            waiting.remove(made)
            found.append((made, replace(one, name=one.name or made.name)))
    return found


def speakers(output: str, body: Body) -> list[str]:
    """Return the role of each message, content or item, consecutive items of one role told once for Responses."""
    if output == "openai-responses":
        return [item.get("role", item.get("type", "")) for item in body["input"]]
    return [message["role"] for message in body["contents" if output == "gemini" else "messages"]]


def _openai(body: Body) -> Iterator[Said]:
    for message in body["messages"]:
        role = message["role"]
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        if role == "tool":
            text = "".join(part.get("text", "") for part in parts)
            yield Said("result", "tool", text, call=message["tool_call_id"])
            continue
        by = "system" if role == "developer" else role
        for part in parts:
            yield _part(part, by)
        if message.get("refusal"):
            yield Said("text", by, message["refusal"])
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {**call["custom"], "arguments": call["custom"]["input"]}
            yield Said("call", "assistant", function["arguments"], call=call["id"], name=function["name"])


def _part(part: Body, by: Any) -> Said:
    kind = part["type"]
    if kind in {"text", "refusal"}:
        return Said("system" if by == "system" else "text", by, part[kind])
    if kind == "image_url":
        return Said("media", by, bare(part["image_url"]["url"]))
    if kind == "input_audio":
        return Said("media", by, part["input_audio"]["data"])
    file = part["file"]
    return Said("media", by, bare(file.get("file_data") or file["file_id"]))


def _responses(body: Body) -> Iterator[Said]:
    if body.get("instructions"):
        yield Said("system", "system", body["instructions"])
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "message":
            content = item["content"]
            for part in [{"type": "input_text", "text": content}] if isinstance(content, str) else content:
                yield _responses_part(part, item["role"])
        elif kind in {"function_call", "custom_tool_call"}:
            text = item["arguments" if kind == "function_call" else "input"]
            yield Said("call", "assistant", text, call=item["call_id"], name=item["name"])
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            output = item["output"]
            parts = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
            told = [_responses_part(part, "tool") for part in parts]
            media = tuple(one.text for one in told if one.kind == "media")
            text = "".join(one.text for one in told if one.kind == "text")
            yield Said("result", "tool", text, call=item["call_id"], media=media)
        elif kind == "reasoning":
            yield Said("thought", "assistant", "".join(strings(item.get("summary"))))


def _responses_part(part: Body, by: Any) -> Said:
    kind = part["type"]
    if kind in {"input_text", "output_text", "refusal"}:
        return Said("text", by, part["refusal" if kind == "refusal" else "text"])
    if kind == "input_image":
        return Said("media", by, bare(part.get("image_url") or part["file_id"]))
    return Said("media", by, bare(part.get("file_data") or part.get("file_url") or part["file_id"]))


def _anthropic(body: Body) -> Iterator[Said]:
    for block in _blocks(body.get("system") or []):
        yield Said("system", "system", block["text"])
    for message in body["messages"]:
        for block in _blocks(message["content"]):
            yield _block(block, message["role"])


def _blocks(content: Any) -> list[Body]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _block(block: Body, by: Any) -> Said:
    kind = block["type"]
    if kind == "text":
        return Said("text", by, block["text"])
    if kind in {"thinking", "redacted_thinking"}:
        return Said("thought", by, block.get("thinking", ""))
    if kind == "tool_use":
        return Said("call", by, json.dumps(block["input"], ensure_ascii=False), call=block["id"], name=block["name"])
    if kind == "tool_result":
        told = [_block(inner, by) for inner in _blocks(block.get("content") or [])]
        media = tuple(one.text for one in told if one.kind == "media")
        text = "".join(one.text for one in told if one.kind == "text")
        return Said("result", "tool", text, call=block["tool_use_id"], media=media)
    if kind not in {"image", "document"}:
        return Said("other", by, name=kind)
    source = block["source"]
    data = source.get("data") or source.get("url") or source["file_id"]
    return Said("text" if source["type"] == "text" else "media", by, data)


def _gemini(body: Body) -> Iterator[Said]:
    for part in (body.get("systemInstruction") or {"parts": []})["parts"]:
        yield Said("system", "system", part["text"])
    for content in body["contents"]:
        for part in content["parts"]:
            yield _gemini_part(part, "assistant" if content["role"] == "model" else "user")


def _gemini_part(part: Body, by: Any) -> Said:
    if "text" in part:
        return Said("thought" if part.get("thought") else "text", by, part["text"])
    if "functionCall" in part:
        call = part["functionCall"]
        text = json.dumps(call.get("args", {}), ensure_ascii=False)
        return Said("call", by, text, call=call.get("id") or "", name=call["name"])
    if "functionResponse" in part:
        answer = part["functionResponse"]
        media = tuple(_gemini_part(inner, by).text for inner in answer.get("parts") or ())
        text = " ".join(strings(answer["response"]))
        return Said("result", "tool", text, call=answer.get("id") or "", name=answer["name"], media=media)
    if "inlineData" in part or "fileData" in part:
        return Said("media", by, part["inlineData"]["data"] if "inlineData" in part else part["fileData"]["fileUri"])
    return Said("other", by, name=next(iter(part)))


def bare(url: str) -> str:
    """Return the data of a data URL, and every other address or id as it is."""
    return url.partition(",")[2] if url.startswith("data:") else url


_READERS: Final[Mapping[str, Callable[[Body], Iterator[Said]]]] = {
    "openai": _openai,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
