"""The items of a Responses input or output on their way in."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Raw

from app.domain.errors import InvalidRequest
from app.formats import calls, openai_responses, parts, raw_json
from app.formats.incoming import Incoming, Sent, checked, content_of, function_call, incoming, listed, needed
from app.formats.pairing import Slot
from app.formats.parts import Other, Part, Text
from app.formats.reading import Message
from app.formats.rendered import Notes
from app.formats.responses_items import Fields, answers_call, calls_tool, is_reasoning, kind_of

_ROLES: Final = ("system", "developer", "user", "assistant")
_SHAPED: Final = frozenset({"message", "function_call", "custom_tool_call"})
# Calls by the field that says what the tool is to do.
_CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})


class _Item:
    """One item that is being read; ``text`` is its JSON."""

    def __init__(self, text: str, place: str) -> None:
        self.text = text
        self.place = place
        self.fields = checked(text, place)
        self.kind = kind_of(self.fields)
        if not self.kind:
            raise InvalidRequest.at(f"{place}/type", "an item has a type, or a role")
        if self.kind == "message":
            role = needed(self.fields, "role", place, "a message has a role")
            if role not in _ROLES:
                raise InvalidRequest.at(f"{place}/role", f"the role is one of {', '.join(_ROLES)}")
        elif not raw_json.is_nothing(self.fields.get("role")):
            raise InvalidRequest.at(f"{place}/role", "only a message has a role")
        elif self.kind in _CALLS:
            self._check_call(_CALLS[self.kind])
        elif self.kind in _OUTPUTS:
            needed(self.fields, "call_id", place, "an output names the call it answers")
            self._check_output()

    def _check_call(self, told: str) -> None:
        needed(self.fields, "call_id", self.place, "a call has an id")
        needed(self.fields, "name", self.place, "a call names its tool")
        needed(self.fields, told, self.place, "a call says what the tool is to do")
        if not raw_json.is_nothing(self.fields.get("content")):
            raise InvalidRequest.at(f"{self.place}/content", "a call has no content")

    def _check_output(self) -> None:
        if raw_json.is_string(self.fields.get("output")):
            return
        for at, part in enumerate(listed(self.fields, "output", self.place)):
            needed(part, "type", f"{self.place}/output/{at}", "a part has a type")

    @property
    def role(self) -> str:
        """Who speaks; the model, where it does something."""
        return raw_json.string(self.fields.get("role")) or "assistant"


def parse(messages: Sequence[str], place: str) -> list[Incoming]:
    """Turn items into messages of the log.

    What the model does in a row (reasoning, a message, calls) is one message of the assistant; a second message of the
    model begins another, and takes the reasoning right before it along.

    Raises:
        InvalidRequest: with pointers into the request.
    """
    made: list[Incoming] = []
    group: list[_Item] = []
    for at, text in enumerate(messages):
        item = _Item(text, f"{place}/{at}")
        if answers_call(item.fields):
            made += [*_assistant(group), _output(item)]
            group = []
        elif item.role != "assistant":
            made += [*_assistant(group), _message(item)]
            group = []
        elif item.kind == "message" and any(one.kind == "message" for one in group):
            before, group = _split(group)
            made += _assistant(before)
            group.append(item)
        else:
            group.append(item)
    return [*made, *_assistant(group)]


def _split(group: list[_Item]) -> tuple[list[_Item], list[_Item]]:
    """Part a group from the reasoning at its end."""
    end = len(group)
    while end and is_reasoning(group[end - 1].fields):
        end -= 1
    return group[:end], group[end:]


def _content(item: _Item) -> tuple[list[Part], list[str], bool]:
    """Return what a message item says, what of it only this API understands, and whether it says it as a string."""
    content = item.fields.get("content")
    if raw_json.is_string(content):
        return [Text(text=raw_json.string(content))], [], True
    if content is None or not raw_json.text_of(content).lstrip().startswith("["):
        raise InvalidRequest.at(f"{item.place}/content", "is a string or a list of parts")
    said: list[Part] = []
    for at, raw in enumerate(raw_json.items(content)):
        found = raw_json.fields(raw)
        needed(found, "type", f"{item.place}/content/{at}", "a part has a type")
        said.append(parts.read(raw))
    only = ["annotations" for raw in raw_json.items(content) if not _is_bare(raw_json.fields(raw))]
    return [part for part in said if not isinstance(part, Other)], only + _others(said), False


def _is_bare(part: Fields) -> bool:
    return raw_json.is_nothing(part.get("annotations"))


def _others(said: Sequence[Part]) -> list[str]:
    return [part.kind for part in said if isinstance(part, Other)]


def _message(item: _Item) -> Incoming:
    said, only, is_text = _content(item)
    shape = {"role": item.role, "content": content_of(said, as_text=is_text) or []}
    sent = Sent(format="openai-responses", pieces=[raw_json.raw(item.text)], only=only)
    return incoming(shape, sent, item.place, said, _write)


def _assistant(group: Sequence[_Item]) -> Iterator[Incoming]:
    if not group:
        return
    content: Any = None
    said: list[Part] = []
    only = [item.kind for item in group if item.kind not in _SHAPED and not calls_tool(item.fields)]
    for item in group:
        if item.kind == "message":
            said, more, is_text = _content(item)
            only += more
            content = content_of(said, as_text=is_text)
    shape: dict[str, Any] = {"role": "assistant", "content": content}
    made = [_call(item) for item in group if calls_tool(item.fields)]
    if made:
        shape["tool_calls"] = made
    sent = Sent(format="openai-responses", pieces=[raw_json.raw(item.text) for item in group], only=only)
    yield incoming(shape, sent, group[0].place, said, _write)


def _call(item: _Item) -> dict[str, Any]:
    """Return an OpenAI-shaped call; one of the API's own tools is a call of a function of the tool's name."""
    call_id = raw_json.string(item.fields["call_id"])
    if item.kind == "function_call":
        return function_call(call_id, raw_json.string(item.fields["name"]), raw_json.string(item.fields["arguments"]))
    if item.kind == "custom_tool_call":
        custom = {"name": raw_json.string(item.fields["name"]), "input": raw_json.string(item.fields["input"])}
        return {"id": call_id, "type": "custom", "custom": custom}
    return function_call(call_id, item.kind.removesuffix("_call"), item.fields.get("action", Raw(b"{}")))


def _output(item: _Item) -> Incoming:
    output = item.fields.get("output")
    said: list[Part] = []
    content: Any = None
    if raw_json.is_string(output):
        content = output
    elif output is not None:
        raws = raw_json.items(output) or [output]
        said = [_told(raw) for raw in raws]
        content = content_of(said)
    shape = {"role": "tool", "tool_call_id": raw_json.string(item.fields["call_id"]), "content": content}
    sent = Sent(format="openai-responses", pieces=[raw_json.raw(item.text)])
    return incoming(shape, sent, item.place, said, _writer_of(item.kind))


def _told(raw: Raw) -> Part:
    """Return a part of an output; what is neither text nor media is shown as the JSON that it is."""
    part = parts.read(raw)
    if not isinstance(part, Other):
        return part
    url = raw_json.string(raw_json.fields(raw).get("image_url"))
    media = parts.located(url, "image")
    return parts.Media(**media) if media else Text(text=raw_json.text_of(raw))


def _write(message: Message) -> list[str]:
    slots = [Slot(call=call, id=call.id, name=call.name) for call in message.calls]
    return openai_responses.write(message, Notes(), slots)


def _writer_of(kind: str) -> Any:
    call = "custom_tool_call" if kind == "custom_tool_call_output" else "function_call"

    def write(message: Message) -> list[str]:
        slot = Slot(call=calls.UNKNOWN, id=message.answers or "", name="", results=[message])
        return [openai_responses.output(slot, call, Notes())]

    return write
