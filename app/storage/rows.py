"""Event rows as the domain's values, and ranges as Postgres writes them."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from app.domain.event import Draft, Event, StoredEvent
from app.domain.ranges import Ranges
from app.storage.database import Row

# What the rules look at. Reading these alone never touches a body.
SKELETON_COLUMNS: Final = {
    "seq": "seq",
    "role": "role",
    "synthetic": "synthetic",
    "token_count": "token_count",
    "call_ids": "call_ids::text",
}
# The client's JSON stays the text it is: no parsing on the way in or out of a reader.
WHOLE_COLUMNS: Final = {
    **SKELETON_COLUMNS,
    "event_id": "event_id",
    "body": "body::text",
    "metadata": "metadata::text",
    "timestamp": "timestamp",
    "stored_at": "stored_at",
}
WHOLE: Final = ", ".join(["type", *(f"{written} AS {column}" for column, written in WHOLE_COLUMNS.items())])

_IDS: Final = msgspec.json.Decoder(list[str])
_CLOSED_OPEN: Final = re.compile(r"\[(\d+),(\d+)\)")


def whole(row: Row) -> StoredEvent:
    """Return a row of ``WHOLE`` columns."""
    calls, answers = _called(row.role, row.call_ids)
    return StoredEvent(
        seq=row.seq,
        type=row.type,
        role=row.role,
        synthetic=row.synthetic,
        token_count=row.token_count,
        calls=calls,
        answers=answers,
        event_id=row.event_id,
        body=row.body,
        metadata=row.metadata,
        timestamp=row.timestamp,
        stored_at=row.stored_at,
    )


def skeletons(row: Row) -> Iterator[Event]:
    """Return the message events whose ``SKELETON_COLUMNS`` are arrays in a row; null arrays are no events."""
    for seq, role, synthetic, token_count, call_ids in _columns(row, SKELETON_COLUMNS):
        calls, answers = _called(role, call_ids)
        yield Event(seq=seq, role=role, synthetic=synthetic, token_count=token_count, calls=calls, answers=answers)


def wholes(row: Row) -> Iterator[StoredEvent]:
    """Return the message events whose ``WHOLE_COLUMNS`` are arrays in a row; null arrays are no events."""
    for seq, role, synthetic, token_count, call_ids, event_id, body, metadata, timestamp, stored_at in _columns(
        row, WHOLE_COLUMNS
    ):
        calls, answers = _called(role, call_ids)
        yield StoredEvent(
            seq=seq,
            role=role,
            synthetic=synthetic,
            token_count=token_count,
            calls=calls,
            answers=answers,
            event_id=event_id,
            body=body,
            metadata=metadata,
            timestamp=timestamp,
            stored_at=stored_at,
        )


def _columns(row: Row, names: Iterable[str]) -> Iterable[tuple[Any, ...]]:
    return zip(*(row[name] for name in names), strict=True) if row["seq"] else ()


def _called(role: str | None, call_ids: str | None) -> tuple[tuple[str, ...], str | None]:
    """Return the calls that a message makes, and the one that it answers."""
    if call_ids is None:
        return (), None
    ids = _IDS.decode(call_ids)
    return ((), ids[0] if ids else None) if role == "tool" else (tuple(ids), None)


def ranges_of(multirange: str | None) -> Ranges:
    """Read an int8multirange in Postgres's canonical form, ``{[1,4),[6,7)}``; null is the empty set."""
    return Ranges(tuple((int(first), int(end) - 1) for first, end in _CLOSED_OPEN.findall(multirange or "")))


def multirange_of(ranges: Ranges) -> str:
    """Write ranges as an int8multirange."""
    return "{" + ",".join(f"[{first},{last}]" for first, last in ranges.pairs) + "}"


def figures_of(drafts: Sequence[Draft]) -> dict[str, int]:
    """Return what drafts add to the figures of a session."""
    messages = [draft for draft in drafts if draft.role is not None]
    return {
        "added": len(drafts),
        "messages": len(messages),
        "turns": sum(draft.starts_turn for draft in messages),
        "tokens": sum(draft.token_count for draft in messages),
    }


def columns_of(drafts: Sequence[Draft]) -> dict[str, str]:
    """Return drafts as the columns of event rows, for ``DRAFTS``.

    Times travel as text, for the driver takes the first and the last moment that Python knows for minus and plus
    infinity.
    """
    return {
        "ids": column([draft.event_id for draft in drafts]),
        "types": column([draft.type for draft in drafts]),
        "roles": column([draft.role for draft in drafts]),
        "synthetic": column(["t" if draft.synthetic else "f" for draft in drafts]),
        "token_counts": column([str(draft.token_count) for draft in drafts]),
        "call_ids": column([_call_ids(draft) for draft in drafts]),
        "timestamps": column([draft.timestamp.isoformat() if draft.timestamp else None for draft in drafts]),
        "bodies": column([draft.body for draft in drafts]),
        "metadata": column([draft.metadata for draft in drafts]),
    }


def column(values: Sequence[str | None]) -> str:
    """Join values to one text, which Postgres takes apart again (``array``); None becomes null, and so does "".

    The driver looks at each element of an array for a microsecond, which was a sixth of what a batch of ten costs.

    Raises:
        ValueError: a value holds the separator. No JSON, id or type does: they were checked.
    """
    joined = _SEPARATOR.join([value or "" for value in values])
    if joined.count(_SEPARATOR) != len(values) - 1:
        raise ValueError("a value holds the separator of columns")
    return joined


def array(name: str, kind: str) -> str:
    """Write the array of a ``column`` that a statement is given under this name."""
    split = f"string_to_array(CAST(:{name} AS text), E'\\x1f', '')"
    return split if kind == "text" else f"CAST({split} AS {kind}[])"


def _call_ids(draft: Draft) -> str | None:
    ids = draft.calls if draft.answers is None else (draft.answers,)
    return json.dumps(ids) if ids else None


_SEPARATOR: Final = "\x1f"
_DRAFT: Final = {
    "event_id": array("ids", "text"),
    "type": array("types", "text"),
    "role": array("roles", "text"),
    "synthetic": array("synthetic", "boolean"),
    "token_count": array("token_counts", "integer"),
    "call_ids": array("call_ids", "text"),
    "timestamp": array("timestamps", "text"),
    "body": array("bodies", "text"),
    "metadata": array("metadata", "text"),
}
# The arrays that ``columns_of`` makes, the columns that they are, and what is stored of them.
DRAFTS: Final = ", ".join(_DRAFT.values())
DRAFT_COLUMNS: Final = ", ".join(_DRAFT)
STORED: Final = """draft.event_id, draft.type, draft.role, draft.synthetic, draft.token_count,
               CAST(draft.call_ids AS json), CAST(draft.timestamp AS timestamptz), CAST(draft.body AS json),
               CAST(draft.metadata AS json)"""
