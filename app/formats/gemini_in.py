"""Gemini's contents on their way in."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Raw

from app.domain.errors import InvalidRequest
from app.formats import calls, gemini, parts, raw_json
from app.formats.gemini import key_of, pick
from app.formats.incoming import (
    Incoming,
    Sent,
    checked,
    content_of,
    function_call,
    incoming,
    listed,
    needed,
    needed_object,
)
from app.formats.pairing import Slot
from app.formats.parts import Media, Part, Text
from app.formats.reading import Message
from app.formats.rendered import Notes

Fields = Mapping[str, Raw]

_ROLES: Final = {"user": "user", "model": "assistant", "function": "user", "system": "system"}
_BESIDE: Final = ("thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")
_MODELS: Final = frozenset({"functionCall", "executableCode", "codeExecutionResult"})
_DATA: Final = ("text", "inlineData", "fileData", "functionResponse", *sorted(_MODELS))
# What stands beside the data of a part, under both spellings.
_ASIDE: Final = frozenset(
    {"thought", *_BESIDE, "thought_signature", "video_metadata", "media_resolution", "part_metadata"}
)
# Addresses that only Google's own services can follow.
_GOOGLES: Final = ("gs://", "https://generativelanguage.googleapis.com/")


def parse(messages: Sequence[str], place: str) -> list[Incoming]:
    """Turn contents into messages of the log; the function responses of a content come before what the user says.

    Calls without an id get one from their name and their number among the content's calls of that name, and so do
    responses, which is how Gemini itself matches them.

    Raises:
        InvalidRequest: with pointers into the request.
    """
    made: list[Incoming] = []
    answered: Counter[str] = Counter()
    for at, text in enumerate(messages):
        content = _Content(text, f"{place}/{at}")
        if content.role == "assistant":
            answered.clear()
        made += content.messages(answered)
    return made


class _Content:
    """One content that is being read."""

    def __init__(self, text: str, place: str) -> None:
        found = checked(text, place)
        role = needed(found, "role", place, f"the role is one of {', '.join(_ROLES)}") if "role" in found else "user"
        if role not in _ROLES:
            raise InvalidRequest.at(f"{place}/role", f"the role is one of {', '.join(_ROLES)}")
        self.role = _ROLES[role]
        self.place = place
        self.also = {key: value for key, value in found.items() if key not in {"role", "parts", "content"}}
        if "parts" not in found and raw_json.is_string(found.get("content")):
            found = {"parts": raw_json.raw(f'[{{"text":{raw_json.text_of(found["content"])}}}]')}
        elif "parts" not in found and self.role == "system":
            found = raw_json.fields(found.get("content"))
        if self.role == "assistant" and pick(found, "parts") is None:
            # What the API answers when the model says nothing, or was stopped before it did.
            found = {**found, "parts": raw_json.raw("[]")}
        blocks = listed(found, "parts", place)
        self.pairs = list(zip(raw_json.items(found["parts"]), blocks, strict=True))
        for number, part in enumerate(blocks):
            self._check(part, f"{place}/parts/{number}")

    def _check(self, part: Fields, place: str) -> None:
        kind = _kind(part, place)
        if self.role != "assistant" and (kind in _MODELS or gemini.is_thought(part)):
            raise InvalidRequest.at(place, "only the model thinks, calls functions and runs code")
        if self.role != "user" and kind == "functionResponse":
            raise InvalidRequest.at(place, "function responses are in contents of the user")
        if kind in _CHECKS:
            key = key_of(part, kind)
            _CHECKS[kind](part[key], f"{place}/{key}")

    def messages(self, answered: Counter[str]) -> Iterator[Incoming]:
        """Return the messages of the log that the content says."""
        answers = [(raw, answer) for raw, part in self.pairs if (answer := pick(part, "functionResponse"))]
        rest = [(raw, part) for raw, part in self.pairs if pick(part, "functionResponse") is None]
        for raw, answer in answers:
            yield self._result(raw, raw_json.fields(answer), answered)
        if rest or not answers:
            yield self._spoken(rest)

    def _result(self, raw: Raw, answer: Fields, answered: Counter[str]) -> Incoming:
        name = raw_json.string(answer["name"])
        answered[name] += 1
        call_id = raw_json.string(answer.get("id")) or f"{name}-{answered[name]}"
        told = answer.get("response", Raw(b"{}"))
        output = raw_json.fields(told)
        is_text = list(output) == ["output"] and raw_json.is_string(output["output"])
        text = raw_json.string(output["output"]) if is_text else raw_json.text_of(told)
        media = [part for inner in raw_json.items(answer.get("parts")) for part in _of_part(raw_json.fields(inner))]
        said: list[Part] = [Text(text=text), *media]
        shape = {"role": "tool", "tool_call_id": call_id, "name": name, "content": content_of(said, as_text=True)}
        return incoming(shape, Sent(format="gemini", pieces=[raw]), self.place, said, _write_result)

    def _spoken(self, pairs: Sequence[tuple[Raw, Fields]]) -> Incoming:
        said: list[Part] = []
        only: list[str] = []
        made: list[dict[str, Any]] = []
        numbers: Counter[str] = Counter()
        for _, part in pairs:
            call = pick(part, "functionCall")
            if call is not None:
                made.append(_call(raw_json.fields(call), numbers))
            found = list(_of_part(part)) if call is None else []
            said += found
            only += [] if found or call is not None else [_private(part)]
            only += [name for name in _BESIDE if pick(part, name) is not None]
        content = content_of(said, as_text=True)
        shape: dict[str, Any] = {"role": self.role, "content": content if self.role == "assistant" else content or []}
        if made:
            shape["tool_calls"] = made
        sent = Sent(format="gemini", pieces=[raw for raw, _ in pairs], only=only, also=self.also)
        return incoming(shape, sent, self.place, said, _write)


def _kind(part: Fields, place: str) -> str:
    """Return the one kind of data that a part has, the empty string for one that is not known."""
    kinds = [name for name in _DATA if pick(part, name) is not None]
    if len(kinds) > 1:
        raise InvalidRequest.at(place, f"a part has one kind of data, and not both {kinds[0]} and {kinds[1]}")
    if not kinds and all(pick(part, name) is None or name in _ASIDE for name in part):
        raise InvalidRequest.at(place, "a part has data, such as a text")
    return kinds[0] if kinds else ""


def _check_text(text: Raw, place: str) -> None:
    if not raw_json.is_string(text):
        raise InvalidRequest.at(place, "is a string")


def _check_call(call: Raw, place: str) -> None:
    found = raw_json.fields(call)
    needed(found, "name", place, "a call names its function")
    if pick(found, "args") is not None:
        needed_object(found, "args", place, "the arguments of a call are an object")


def _check_response(answer: Raw, place: str) -> None:
    found = raw_json.fields(answer)
    needed(found, "name", place, "a response names its function")
    needed_object(found, "response", place, "a function's response is an object")
    for at, inner in enumerate(listed(found, "parts", place) if pick(found, "parts") is not None else ()):
        kind = _kind(inner, f"{place}/parts/{at}")
        if kind not in {"inlineData", "fileData"}:
            raise InvalidRequest.at(f"{place}/parts/{at}", "the parts of a response are media")
        key = key_of(inner, kind)
        _CHECKS[kind](inner[key], f"{place}/parts/{at}/{key}")


def _check_inline(inline: Raw, place: str) -> None:
    found = raw_json.fields(inline)
    needed(found, key_of(found, "mimeType"), place, "inline data has a media type")
    if not parts.is_base64(needed(found, "data", place, "inline data has data")):
        raise InvalidRequest.at(f"{place}/data", "is base64")


def _check_file(file: Raw, place: str) -> None:
    found = raw_json.fields(file)
    if not needed(found, key_of(found, "fileUri"), place, "a file has its address"):
        raise InvalidRequest.at(f"{place}/{key_of(found, 'fileUri')}", "is empty")


_CHECKS: Final[Mapping[str, Callable[[Raw, str], None]]] = {
    "text": _check_text,
    "functionCall": _check_call,
    "functionResponse": _check_response,
    "inlineData": _check_inline,
    "fileData": _check_file,
}


def _call(call: Fields, numbers: Counter[str]) -> dict[str, Any]:
    name = raw_json.string(call["name"])
    numbers[name] += 1
    arguments = pick(call, "args")
    call_id = raw_json.string(call.get("id")) or f"{name}-{numbers[name]}"
    return function_call(call_id, name, "{}" if arguments is None else arguments)


def _private(part: Fields) -> str:
    if gemini.is_thought(part):
        return "thought"
    return next(iter(name for name, value in part.items() if raw_json.text_of(value) != "null"), "nothing")


def _of_part(part: Fields) -> Iterator[Part]:
    """Return what other providers can be told of a part: thoughts are not, and neither is what is Gemini's own."""
    text, inline, file = pick(part, "text"), pick(part, "inlineData"), pick(part, "fileData")
    if gemini.is_thought(part):
        return
    if text is not None:
        yield Text(text=raw_json.string(text))
    elif inline is not None:
        found = raw_json.fields(inline)
        mime, data = _string(found, "mimeType"), _string(found, "data")
        if mime and parts.is_base64(data):
            # The API and its SDK's dumps have the alphabet for URLs, too, which others refuse.
            data = data.replace("-", "+").replace("_", "/")
            yield Media(kind=parts.kind_of(mime), mime=mime, data=data, name=_string(found, "displayName"))
    elif file is not None:
        found = raw_json.fields(file)
        address, mime = _string(found, "fileUri"), _string(found, "mimeType")
        is_googles = address.startswith(_GOOGLES)
        yield Media(
            kind=parts.kind_of(mime),
            mime=mime,
            url="" if is_googles else address,
            file_id=address if is_googles else "",
            owner="gemini",
        )


def _string(found: Fields, name: str) -> str:
    return raw_json.string(pick(found, name))


def _write(message: Message) -> list[str]:
    return gemini.write(message, Notes(), [Slot(call=call, id=call.id, name=call.name) for call in message.calls])


def _write_result(message: Message) -> list[str]:
    slot = Slot(call=calls.UNKNOWN, id=message.answers or "", name=message.name, results=[message])
    return [gemini.response(slot, "")]
