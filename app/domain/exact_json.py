"""JSON that comes back as it was sent (rule 8).

A client's JSON is stored as its own text. What is parsed here is only looked at: to check it, to count it,
to compare it. So numbers keep their exact value, whatever their size.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias

from app.domain.errors import InvalidRequest

Json: TypeAlias = "bool | int | Decimal | str | list[Json] | dict[str, Json] | None"

# Python refuses to convert longer digit strings to int (CVE-2020-10735); Decimal takes them in linear time.
_LONGEST_INT: Final = 4000
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# A string that never ends is eaten to the end of the text: looking for its end from every quote would take for ever.
_STRING: Final = r'"(?:[^"\\]++|\\.)*+"?'
_STRING_OR_BRACKET: Final = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)
_STRING_OR_SIGN: Final = re.compile(rf"{_STRING}|[\[\]{{}},]", re.DOTALL)
_STEP: Final = {"[": 1, "{": 1, "]": -1, "}": -1, ",": 0}
# Most values in one JSON text: items of lists, fields of objects, and the lists and objects that hold them. A parser
# lets nobody else work while it makes them; so many take it some fifty milliseconds, and as many megabytes.
MOST_VALUES: Final = 100_000


class _IsRepeated(Exception):
    """A key occurs twice in an object."""


class _Repeated(dict[str, Json]):
    """An object in which a key occurs twice; ``key`` names it."""

    key: str = ""


def check_bounds(text: str, max_depth: int) -> None:
    """Refuse a JSON text that nests too deeply or has too many values, before anything is made of it.

    Raises:
        InvalidRequest: without a place, for the place would be ``max_depth`` steps long, or anywhere.
    """
    # Only a text with many brackets can nest deeply, so the usual body is not scanned a second time.
    brackets = text.count("[") + text.count("{")
    # Each value takes a character, so a short text has few.
    may_have_many = len(text) > MOST_VALUES and brackets + text.count(",") > MOST_VALUES
    if brackets <= max_depth and not may_have_many:
        return
    depth = values = 0
    # A text is left as soon as there is too much, so that it takes as long as one that is just taken.
    for found in (_STRING_OR_SIGN if may_have_many else _STRING_OR_BRACKET).finditer(text):
        step = _STEP.get(found[0])
        if step is None:
            continue
        depth += step
        if depth > max_depth:
            raise InvalidRequest.at("", f"nested deeper than {max_depth} levels")
        values += step >= 0
        if values > MOST_VALUES:
            raise InvalidRequest.at("", f"has more than {MOST_VALUES} values")


def parse(text: str) -> Json:
    """Parse one JSON value that can be kept exactly; ``check_bounds`` comes first.

    Raises:
        InvalidRequest: naming the place, for what cannot be kept or is ambiguous: lone surrogates, a key
            that occurs twice in one object, NaN and Infinity.
    """
    try:
        value, is_repeated = _decoded(text)
    except json.JSONDecodeError as error:
        raise InvalidRequest.at("", f"is not JSON: {error.msg} at character {error.pos}") from error
    if is_repeated or ("\\" in text and _SURROGATE_ESCAPE.search(text)):
        _check_places(value)
    return value


def _decoded(text: str) -> tuple[Json, bool]:
    """Return the value, and whether a key occurs twice in it: where, the decoder that finds out cannot tell."""
    try:
        return _strict(text), False
    except _IsRepeated:
        return _LENIENT.decode(text), True


def _strict(text: str) -> Json:
    value: Json
    try:
        # What comes out of a body has no white space around it, and looking for some takes a third of the time.
        value, end = _STRICT.raw_decode(text)
    except json.JSONDecodeError:
        end = -1
    if end != len(text):
        value = _STRICT.decode(text)
    return value


def _unrepeated(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _IsRepeated
    return result


def _marked(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    marked = _Repeated(result)
    marked.key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    return marked


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _LONGEST_INT else _number(digits)


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise InvalidRequest.at("", "a number has an exponent of more than 18 digits") from error


def _refuse(name: str) -> Json:
    raise InvalidRequest.at("", f"{name} is not JSON")


def _decoder(as_object: Callable[[list[tuple[str, Json]]], dict[str, Json]]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=as_object, parse_int=_integer, parse_float=_number, parse_constant=_refuse
    )


# Made once: ``json.loads`` makes one for each call, which takes as long as reading a kilobyte.
_STRICT: Final = _decoder(_unrepeated)
_LENIENT: Final = _decoder(_marked)


def _check_places(value: Json) -> None:
    for pointer, found in _walk("", value):
        if isinstance(found, _Repeated):
            raise InvalidRequest.at(pointer, f"the key {_shown(found.key)} occurs twice")
        if isinstance(found, str) and _LONE_SURROGATE.search(found):
            raise InvalidRequest.at(pointer, "holds half of a surrogate pair, which is no character")


def _walk(pointer: str, value: Json) -> Iterator[tuple[str, Json]]:
    yield pointer, value
    if isinstance(value, dict):
        for key, inner in value.items():
            place = f"{pointer}/{step(_shown(key))}"
            yield place, key
            yield from _walk(place, inner)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _walk(f"{pointer}/{at}", inner)


def step(key: str) -> str:
    """Return a key as a step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _shown(key: str) -> str:
    """Return a key so that it can stand in an error: valid UTF-8, and not longer than a name usually is."""
    return _LONE_SURROGATE.sub("\ufffd", key[:80])


def equal(one: Json, other: Json) -> bool:
    """Compare two JSON values: key order and number notation do not matter, and true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(inner, other[key]) for key, inner in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other
