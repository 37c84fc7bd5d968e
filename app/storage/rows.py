"""Event rows as the domain's values, and ranges as Postgres writes them."""

import json
import re
from typing import Any, Final

from app.domain.event import Event, StoredEvent
from app.domain.ranges import Ranges
from app.storage.database import Row

# What the rules look at. Reading these alone never touches a body.
SKELETON: Final = "seq, type, role, synthetic, token_count, call_ids::text AS call_ids"
# The client's JSON stays the text it is: no parsing on the way in or out of a reader.
WHOLE: Final = SKELETON + ", event_id, body::text AS body, metadata::text AS metadata, timestamp, stored_at"

_CLOSED_OPEN: Final = re.compile(r"\[(\d+),(\d+)\)")


def skeleton(row: Row) -> Event:
    """Return a row of ``SKELETON`` columns."""
    return Event(**_skeleton(row))


def whole(row: Row) -> StoredEvent:
    """Return a row of ``WHOLE`` columns."""
    return StoredEvent(
        **_skeleton(row),
        event_id=row.event_id,
        body=row.body,
        metadata=row.metadata,
        timestamp=row.timestamp,
        stored_at=row.stored_at,
    )


def _skeleton(row: Row) -> dict[str, Any]:
    call_ids = json.loads(row.call_ids) if row.call_ids else []
    answers = row.role == "tool"
    return {
        "seq": row.seq,
        "type": row.type,
        "role": row.role,
        "synthetic": row.synthetic,
        "token_count": row.token_count,
        "calls": () if answers else tuple(call_ids),
        "answers": call_ids[0] if answers and call_ids else None,
    }


def ranges_of(multirange: str | None) -> Ranges:
    """Read an int8multirange in Postgres's canonical form, ``{[1,4),[6,7)}``; null is the empty set."""
    return Ranges(tuple((int(first), int(end) - 1) for first, end in _CLOSED_OPEN.findall(multirange or "")))


def multirange_of(ranges: Ranges) -> str:
    """Write ranges as an int8multirange."""
    return "{" + ",".join(f"[{first},{last}]" for first, last in ranges.pairs) + "}"
