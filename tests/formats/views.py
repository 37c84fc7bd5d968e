"""Views of messages that were never stored, for tests of pure renderers."""

import json
from datetime import UTC, datetime
from typing import Any

from app.domain import exact_json, message
from app.domain.event import StoredEvent
from app.domain.ranges import NOTHING
from app.domain.view import View
from app.formats import anyone
from app.formats.reading import Format
from app.formats.rendered import Rendered


def view_of(*messages: Any) -> View[StoredEvent]:
    """Return a view of OpenAI-shaped messages, as values or as their JSON text."""
    texts = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in messages]
    events = tuple(_event(seq, text) for seq, text in enumerate(texts, start=1))
    return View(version=len(events), boundary=None, covered=NOTHING, events=events)


def _event(seq: int, text: str) -> StoredEvent:
    value = exact_json.parse(text)
    assert isinstance(value, dict)
    shape = message.check({key: inner for key, inner in value.items() if key != message.RESERVED})
    return StoredEvent(
        seq=seq, role=shape.role, calls=shape.calls, answers=shape.answers, event_id=f"e{seq}", body=text,
        metadata="{}", timestamp=None, stored_at=datetime(2026, 11, 30, tzinfo=UTC),
    )  # fmt: skip


def taken(sent_as: Format, *messages: Any) -> list[str]:
    """Return what the log stores of a provider's messages."""
    texts = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in messages]
    return [
        one.message if one.native is None else f'{one.message[:-1]},"{message.RESERVED}":{one.native}}}'
        for one in anyone.parse(texts, sent_as, "/messages")
    ]


def body_of(rendered: Rendered) -> dict[str, Any]:
    """Return the request body that a rendering stands for."""
    return {
        name: json.loads(value) if isinstance(value, str) else [json.loads(text) for text in value]
        for name, value in rendered.fields.items()
    }
