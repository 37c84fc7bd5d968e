"""Tool calls as every provider has them, and the names and ids that each provider accepts."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from msgspec import Raw

from app.domain import exact_json
from app.domain.errors import InvalidRequest
from app.formats import raw_json

# Arguments nest as deeply as a request may; deeper ones, and those with more values, are shown as the text they are.
_DEEPEST: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call of an OpenAI-shaped message.

    ``arguments`` is the text that the model wrote, JSON or not; for a ``custom`` tool it is free text. ``raw`` is the
    call as the message had it.
    """

    id: str
    name: str
    arguments: str
    custom: bool = False
    is_function: bool = True
    raw: Raw | None = None


# Stands for the call of a result that is looked at by itself.
UNKNOWN: Final = Call(id="", name="", arguments="")


def read(raw: Raw) -> Call:
    """Read one tool call. One of an unknown type becomes a function of that name, its fields the arguments."""
    found = raw_json.fields(raw)
    call_id = raw_json.string(found.get("id"))
    kind = raw_json.string(found.get("type")) or "function"
    named = raw_json.fields(found.get(kind))
    name = raw_json.string(named.get("name"))
    if kind == "function":
        return Call(id=call_id, name=name, arguments=_text(named.get("arguments")), raw=raw)
    if kind == "custom" and name:
        return Call(id=call_id, name=name, arguments=_text(named.get("input")), custom=True, raw=raw)
    rest = {field: value for field, value in found.items() if field not in {"id", "type"}}
    return Call(id=call_id, name=kind, arguments=raw_json.dump(rest), is_function=False, raw=raw)


def _text(arguments: Raw | None) -> str:
    """Return what the model wrote: a text, or the JSON text of anything else."""
    if arguments is None or raw_json.text_of(arguments).strip() == "null":
        return ""
    return raw_json.string(arguments) if raw_json.is_string(arguments) else raw_json.text_of(arguments)


def as_object(call: Call) -> tuple[str, bool]:
    """Return a call's arguments as the text of a JSON object, and whether they had to be wrapped to be one.

    Nothing at all is an empty object. What is no object, or cannot be kept as one, is a string inside one.
    """
    text = call.arguments
    if not call.custom:
        if not text.strip():
            return "{}", False
        if is_object(text):
            return text, False
    return raw_json.dump({"input" if call.custom else "arguments": text}), not call.custom


def is_object(text: str) -> bool:
    """Say whether a text is a JSON object that goes out as it came in."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        exact_json.check_bounds(text, _DEEPEST)
        return isinstance(exact_json.parse(text), dict)
    except InvalidRequest:
        return False


@dataclass(frozen=True, slots=True)
class Names:
    """Which names of tools a provider accepts: ``allowed`` as a whole, of ``other`` characters none."""

    allowed: re.Pattern[str]
    other: re.Pattern[str]
    longest: int = 64

    def fit(self, name: str) -> str:
        """Return the name, or one that is accepted and always the same for it, and different for every other."""
        if self.allowed.fullmatch(name):
            return name
        plain = self.other.sub("_", name)[: self.longest - 10] or "tool"
        fitted = f"{plain}_{_digest(name)}"
        return fitted if self.allowed.fullmatch(fitted) else f"_{fitted}"


class Ids:
    """Gives calls the ids that a provider accepts, each one once.

    What an id becomes depends on itself, on its place and on the ids before it, so that it is the same on every read.
    """

    def __init__(self, allowed: re.Pattern[str], other: re.Pattern[str], longest: int) -> None:
        self._allowed = allowed
        self._other = other
        self._longest = longest
        self._used: set[str] = set()

    def fit(self, call_id: str, seq: int, index: int) -> str:
        """Return an unused id for the call at ``index`` of the message at ``seq``."""
        fitted = next(found for found in self._candidates(call_id, seq, index) if found not in self._used)
        self._used.add(fitted)
        return fitted

    def _candidates(self, call_id: str, seq: int, index: int) -> Iterable[str]:
        if self._allowed.fullmatch(call_id) and len(call_id) <= self._longest:
            yield call_id
        else:
            yield self._with_digest(call_id, call_id)
        attempt = 0
        while True:
            yield self._with_digest(call_id, f"{call_id}\n{seq}\n{index}\n{attempt}")
            attempt += 1

    def _with_digest(self, call_id: str, told: str) -> str:
        plain = self._other.sub("_", call_id)[: self._longest - 13] or "call"
        return f"{plain}_{_digest(told, 12)}"

    def start_message(self) -> None:
        """Forget the ids of earlier messages, for providers that match results within one message."""
        self._used.clear()


def _digest(text: str, length: int = 8) -> str:
    return sha256(text.encode()).hexdigest()[:length]
