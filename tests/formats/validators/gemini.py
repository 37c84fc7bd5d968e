"""Gemini generateContent: the `systemInstruction` and the `contents` of a request.

From the API reference and Google's page on thought signatures, and from the errors that users met: "Please ensure
that function call turn comes immediately after a user turn or after a function response turn", "… that the number of
function response parts is equal to the number of function call parts of the function call turn", "required oneof
field 'data' must have one initialized field", "contents.parts must not be empty", "Invalid function name. Must start
with a letter or an underscore. Must be a-z, A-Z, 0-9, or contain underscores (_), dots (.), colons (:), or dashes
(-), with a maximum length of 64".
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from tests.formats.validators import reading, sdk
from tests.formats.validators.reading import said

Content = dict[str, Any]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_DATA: Final = (
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
)  # fmt: skip
_BESIDE: Final = frozenset({"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"})
_OF: Final = {
    "user": {"text", "inlineData", "fileData", "functionResponse"},
    "model": {"text", "inlineData", "fileData", "functionCall", "executableCode", "codeExecutionResult"},
    "systemInstruction": {"text"},
}


def check(body: dict[str, Any]) -> list[str]:
    """Return the rules that the `systemInstruction` and the `contents` of a body break."""
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        return ["there is no list of contents"]
    instruction = body.get("systemInstruction")
    broken = [*reading.reserved_keys([instruction, contents])]
    if instruction is not None:
        broken += [f"systemInstruction {problem}" for problem in _parts(instruction, "systemInstruction")]
    for at, content in enumerate(contents):
        broken += [f"content {at} {problem}" for problem in _content(content)]
    if broken:
        return broken
    return [*_roles(contents), *_pairs(body, contents)]


def _content(content: Any) -> Iterator[str]:
    if not isinstance(content, dict) or content.get("role") not in {"user", "model"}:
        yield "has a role that is neither user nor model"
        return
    if unknown := content.keys() - {"role", "parts"}:
        yield f"has fields that the API does not know: {', '.join(sorted(unknown))}"
    if problems := sdk.gemini_content(content):
        yield from problems
        return
    yield from _parts(content, content["role"])


def _parts(content: Any, of: str) -> Iterator[str]:
    parts = content.get("parts") if isinstance(content, dict) else None
    if not isinstance(parts, list) or not parts:
        yield "has no parts"
        return
    for part in parts:
        yield from _part(part, of)
    kinds = {kind for part in parts for kind in _kinds(part)}
    if "functionResponse" in kinds and len(kinds) > 1:
        yield "has something beside its function responses"


def _kinds(part: Any) -> list[str]:
    return [kind for kind in _DATA if part.get(kind) is not None] if isinstance(part, dict) else []


def _part(part: Any, of: str) -> Iterator[str]:
    kinds = _kinds(part)
    if len(kinds) != 1:
        yield f"has a part with {len(kinds)} kinds of data"
        return
    (kind,) = kinds
    if unknown := part.keys() - {kind} - _BESIDE:
        yield f"has a part with fields that the API does not know: {', '.join(sorted(unknown))}"
    if kind not in _OF[of]:
        yield f"has a {kind} part, which it cannot have ({of})"
        return
    if of != "model" and ("thought" in part or "thoughtSignature" in part):
        yield "has a thought of the model"
    if "thoughtSignature" in part and not reading.is_base64(part["thoughtSignature"]):
        yield "has a thought signature that is not base64"
    rule = {
        "text": _text, "inlineData": _inline, "fileData": _file, "functionCall": _call, "functionResponse": _response,
    }.get(kind)  # fmt: skip
    if rule:
        yield from rule(part)


def _text(part: Content) -> Iterator[str]:
    # The last part of a streamed answer may carry nothing but the signature.
    if not said(part["text"]) and not (part["text"] == "" and part.get("thoughtSignature")):
        yield "has an empty text part"


def _inline(part: Content) -> Iterator[str]:
    data = part["inlineData"]
    if not reading.MEDIA_TYPE.fullmatch(str(data.get("mimeType"))) or not reading.is_base64(data.get("data")):
        yield "has inline data that is not base64 with a media type"


def _file(part: Content) -> Iterator[str]:
    if not said(part["fileData"].get("fileUri")):
        yield "has a file without its address"


def _call(part: Content) -> Iterator[str]:
    call = part["functionCall"]
    if not _NAME.fullmatch(str(call.get("name"))):
        yield "calls a function by a name that the API does not take"
    if not isinstance(call.get("args", {}), dict):
        yield "has args that are no object"


def _response(part: Content) -> Iterator[str]:
    response = part["functionResponse"]
    if not _NAME.fullmatch(str(response.get("name"))):
        yield "answers a function by a name that the API does not take"
    if not isinstance(response.get("response"), dict):
        yield "has a response that is no object"
    for inner in response.get("parts") or ():
        if inner.keys() - {"inlineData", "fileData"} or len(inner) != 1:
            yield "has a function response with a part that is no media"
        elif "inlineData" in inner:
            yield from _inline(inner)
        else:
            yield from _file(inner)


def _of(content: Content, kind: str) -> list[Content]:
    return [part[kind] for part in content["parts"] if kind in part]


def _roles(contents: list[Content]) -> Iterator[str]:
    """Roles alternate; what the user says after function responses is a content of its own, for those stand alone."""
    if contents[0]["role"] != "user":
        yield "the first content is not the user's"
    for at, (one, other) in enumerate(pairwise(contents), start=1):
        if one["role"] != other["role"]:
            continue
        if not (_of(one, "functionResponse") and not _of(other, "functionResponse")):
            yield f"content {at} has the role of the one before"


def _pairs(body: dict[str, Any], contents: list[Content]) -> Iterator[str]:
    """A content's calls are answered in the very next one, by as many responses, in order and by name."""
    waiting: list[Content] = []
    for at, content in enumerate(contents):
        responses = _of(content, "functionResponse")
        if waiting or responses:
            last = at == len(contents) - 1
            yield from (f"content {at} {problem}" for problem in _answers(waiting, responses, unfinished=last))
        answered = len(responses)
        open_calls = max(0, len(waiting) - answered) if responses else 0
        waiting = _of(content, "functionCall")
    yield from reading.still_open(body, len(waiting) or open_calls)


def _answers(calls: list[Content], responses: list[Content], *, unfinished: bool) -> Iterator[str]:
    if not calls:
        yield "has function responses without calls right before"
        return
    if not responses or len(responses) > len(calls) or (len(responses) < len(calls) and not unfinished):
        yield f"has {len(responses)} function responses to {len(calls)} calls"
        return
    left = list(calls)
    for response in responses:
        # Where some are still open, a response may pass them by; where none is, each answers the next call.
        call = next((call for call in (left if unfinished else left[:1]) if _answers_call(response, call)), None)
        if call is None:
            yield f"answers {response['name']}, which was not called, or not in this order"
            return
        del left[: left.index(call) + 1]


def _answers_call(response: Content, call: Content) -> bool:
    """An id "must be sent back in the associated FunctionResponse", which has none of its own."""
    return (response["name"], response.get("id")) == (call["name"], call.get("id"))
