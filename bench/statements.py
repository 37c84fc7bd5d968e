"""What was sent over the wire, as text: for pgbench, which sends it again, and for EXPLAIN."""

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from bench.wire import Sent

# 36 characters for a unique id, as a UUID has; the digits are what pgbench replaces.
_DIGITS: Final = "0" * 16
_STAND_IN: Final = "pgbench-" + _DIGITS + "-{:011}"
_PARAMETER: Final = re.compile(r"\$(\d+)")
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)


def _moment(raw: bytes) -> str:
    return (_EPOCH + timedelta(microseconds=struct.unpack("!q", raw)[0])).isoformat()


# By type id: the type's name, and how its binary form is read.
_SCALARS: Final[dict[int, tuple[str, Callable[[bytes], str]]]] = {
    16: ("boolean", lambda raw: "t" if raw[0] else "f"),
    20: ("bigint", lambda raw: str(struct.unpack("!q", raw)[0])),
    21: ("smallint", lambda raw: str(struct.unpack("!h", raw)[0])),
    23: ("integer", lambda raw: str(struct.unpack("!i", raw)[0])),
    25: ("text", bytes.decode),
    114: ("json", bytes.decode),
    701: ("double precision", lambda raw: repr(struct.unpack("!d", raw)[0])),
    1043: ("text", bytes.decode),
    1184: ("timestamptz", _moment),
    2950: ("uuid", lambda raw: str(UUID(bytes=raw))),
    3802: ("jsonb", lambda raw: raw[1:].decode()),
}
_ARRAYS: Final = {1000: 16, 1005: 21, 1007: 23, 1009: 25, 1015: 1043, 1016: 20, 199: 114, 1185: 1184, 2951: 2950}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter's type and its value as Postgres writes it, None for null."""

    type: str
    text: str | None


def parameters(sent: Sent) -> list[Parameter]:
    """Read a statement's parameters."""
    formats = sent.formats if len(sent.formats) > 1 else (*(sent.formats or (0,)),) * len(sent.values)
    return [_parameter(*one) for one in zip(sent.types, formats, sent.values, strict=True)]


def _parameter(kind: int, form: int, value: bytes | None) -> Parameter:
    element = _ARRAYS.get(kind)
    name = _SCALARS[element or kind][0] + ("[]" if element else "")
    if value is None:
        return Parameter(type=name, text=None)
    if form == 0:
        return Parameter(type=name, text=value.decode())
    return Parameter(type=name, text=_array(value, element) if element else _SCALARS[kind][1](value))


def _array(raw: bytes, element: int) -> str:
    dimensions, _, _ = struct.unpack_from("!iiI", raw)
    if not dimensions:
        return "{}"
    (count,) = struct.unpack_from("!i", raw, 12)
    at = 20
    parts = []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", raw, at)
        at += 4
        if length < 0:
            parts.append("NULL")
            continue
        text = _SCALARS[element][1](raw[at : at + length])
        parts.append('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
        at += length
    return "{" + ",".join(parts) + "}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A transaction for pgbench, the values of its variables, and the settings that its connections have."""

    text: str
    variables: dict[str, str]
    settings: tuple[tuple[str, str], ...] = ()


# A client learns its session once, and makes ids that no other client or run makes.
_HEAD: Final = r"""\if :ready = 0
SELECT key FROM bench_sessions WHERE client = :client_id \gset
\set n 1000000000000000 + :client_id * 1000000000000 + :run * 1000000000
\set ready 1
\endif
\set n :n + 1
"""


def script(statements: Sequence[Sent], key: UUID, ids: Sequence[str]) -> Script:
    """Write statements as a transaction on a client's own session, each time with new event ids.

    ``key`` and ``ids`` are those of the session and the events that the statements were recorded with.
    """
    variables = {"ready": "0", "n": "0"}
    lines = [_HEAD]
    for at, sent in enumerate(statements):
        terms = [_term(one, f"s{at}p{number}", key, ids, variables) for number, one in enumerate(parameters(sent), 1)]
        lines.append(_filled(sent.sql, terms).strip() + ";\n")
    return Script(text="".join(lines), variables=variables, settings=statements[0].settings if statements else ())


def _filled(sql: str, terms: Sequence[str]) -> str:
    return _PARAMETER.sub(lambda found: terms[int(found[1]) - 1], sql)


def _term(one: Parameter, name: str, key: UUID, ids: Sequence[str], variables: dict[str, str]) -> str:
    if one.text is None:
        return f"CAST(NULL AS {one.type})"
    if not one.text:
        # pgbench has no variable that is empty.
        return f"CAST('' AS {one.type})"
    if one.text == str(key):
        return ":key"
    text = one.text
    for number, known in enumerate(ids):
        text = text.replace(known, _STAND_IN.format(number))
    variables[name] = text
    if text == one.text:
        return f":{name}"
    return f"CAST(replace(:{name}, '{_DIGITS}', :n) AS {one.type})"


def with_literals(sent: Sent) -> str:
    """Write a statement with its parameters in it."""
    return _filled(sent.sql, [_literal(one) for one in parameters(sent)])


def _literal(one: Parameter) -> str:
    if one.text is None:
        return f"CAST(NULL AS {one.type})"
    return "CAST('" + one.text.replace("'", "''") + f"' AS {one.type})"
