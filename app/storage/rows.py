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


def columns_of(drafts: Sequence[Draft]) -> dict[str, list[Any]]:
    """Return drafts as the columns of event rows.

    Times travel as text, for the driver takes the first and the last moment that Python knows for minus and plus
    infinity.
    """
    return {
        "ids": [draft.event_id for draft in drafts],
        "types": [draft.type for draft in drafts],
        "roles": [draft.role for draft in drafts],
        "synthetic": [draft.synthetic for draft in drafts],
        "token_counts": [draft.token_count for draft in drafts],
        "call_ids": [_call_ids(draft) for draft in drafts],
        "timestamps": [draft.timestamp and draft.timestamp.isoformat() for draft in drafts],
        "bodies": [draft.body for draft in drafts],
        "metadata": [draft.metadata for draft in drafts],
    }


def _call_ids(draft: Draft) -> str | None:
    ids = draft.calls if draft.answers is None else (draft.answers,)
    return json.dumps(ids) if ids else None
