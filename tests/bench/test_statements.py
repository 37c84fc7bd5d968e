"""What was sent over the wire, turned into pgbench's language and EXPLAIN's."""

import struct
from uuid import UUID

from bench.statements import Parameter, parameters, script, with_literals
from bench.wire import Sent

KEY = UUID("6f2a7c1e-5b0d-4f7e-9a53-7475726e6c6f")


def array(*texts: str | None) -> bytes:
    parts = [struct.pack("!i", -1) if one is None else struct.pack("!i", len(one)) + one.encode() for one in texts]
    return struct.pack("!iiIii", 1, 1, 25, len(texts), 1) + b"".join(parts)


def sent(sql: str, *values: tuple[int, bytes | None]) -> Sent:
    types, given = zip(*values, strict=True)
    return Sent(sql=sql, types=types, formats=(1,), values=given)


def test_binary_parameters_are_read_as_postgres_writes_them() -> None:
    read = parameters(
        sent("", (2950, KEY.bytes), (20, struct.pack("!q", -7)), (1009, array('a "b"', None)), (1016, None))
    )
    assert read == [
        Parameter(type="uuid", text=str(KEY)),
        Parameter(type="bigint", text="-7"),
        Parameter(type="text[]", text='{"a \\"b\\"",NULL}'),
        Parameter(type="bigint[]", text=None),
    ]


def test_pgbench_uses_its_own_session_and_makes_new_event_ids() -> None:
    made = script([sent("SELECT $1, $2::text[], $3", (2950, KEY.bytes), (1009, array("e1")), (20, None))], KEY, ["e1"])
    assert "SELECT :key, CAST(replace(:s0p2, '0000000000000000', :n) AS text[])::text[], CAST(NULL AS bigint);" in (
        made.text
    )
    assert made.variables["s0p2"] == '{"pgbench-0000000000000000-00000000000"}'


def test_explain_gets_the_parameters_as_literals() -> None:
    assert with_literals(sent("SELECT $1", (25, b"it's"))) == "SELECT CAST('it''s' AS text)"
