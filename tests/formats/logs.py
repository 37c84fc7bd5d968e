"""A log of whole events without a database, compacted in the pure domain, and its view rendered in a format."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

from app.domain import compaction, message
from app.domain.compaction import Plan, Unchanged
from app.domain.event import COMPACTION, StoredEvent
from app.domain.policy import Policy, TextSummarizer
from app.domain.view import View, replay
from app.domain.window import Window
from app.formats import anyone
from app.formats.incoming import Incoming
from app.formats.reading import Format
from app.formats.rendered import Rendered
from app.summarizer import turn
from tests.talk import Message

Body = dict[str, Any]
_THEN = datetime(2026, 11, 30, 10, tzinfo=UTC)


class Log:
    """Events as the service would have stored them, each given the seq that follows."""

    def __init__(self, said: Iterable[Body] = ()) -> None:
        self.events: list[StoredEvent] = []
        for one in said:
            self.append(one)

    def append(self, said: Body) -> StoredEvent:
        """Append a message, or a custom event in the form of an append."""
        if "payload" in said:
            return self._store(type=said["type"], body=json.dumps(said["payload"]))
        return self._message(said)

    def _message(self, said: Message, *, synthetic: bool = False) -> StoredEvent:
        shape = message.check(json.loads(json.dumps(said)))
        body = json.dumps(said, ensure_ascii=False)
        return self._store(
            body=body,
            role=shape.role,
            calls=shape.calls,
            answers=shape.answers,
            synthetic=synthetic,
            token_count=len(body) // 4 + 1,
        )

    def tell(self, source: str, messages: Iterable[Body]) -> list[StoredEvent]:
        """Append messages in a provider's own form: all of them or, where the door refuses one, none."""
        texts = [json.dumps(one, ensure_ascii=False) for one in messages]
        made = anyone.parse(texts, cast("Format", source), "/messages")
        shapes = [message.check(json.loads(one.message)) for one in made]
        return [self._told(one, shape) for one, shape in zip(made, shapes, strict=True)]

    def _told(self, one: Incoming, shape: message.Shape) -> StoredEvent:
        kept = "" if one.native is None else f',"{message.RESERVED}":{one.native}'
        body = f"{one.message[:-1]}{kept}}}"
        cost = len(body) // 4 + 1
        return self._store(body=body, role=shape.role, calls=shape.calls, answers=shape.answers, token_count=cost)

    def _store(self, **fields: Any) -> StoredEvent:
        seq = len(self.events) + 1
        event = StoredEvent(seq=seq, event_id=f"event-{seq}", metadata="{}", timestamp=None, stored_at=_THEN, **fields)
        self.events.append(event)
        return event

    def compact(self, window: Window, summary: str | None = None) -> bool:
        """Run a whole compaction; say whether a boundary was written."""
        policy = Policy(window=window, summarizer=TextSummarizer(text=summary) if summary else None)
        planned = compaction.plan(self.view(), policy)
        if isinstance(planned, Unchanged):
            return False
        cost = (len(turn.QUESTION) + len(summary)) // 4 + 2 if summary else None
        sealed = compaction.seal(planned, policy, cost)
        if not isinstance(sealed, Plan):
            return False
        self._store(type=COMPACTION, body="{}", covered=sealed.covered)
        if summary:
            self._message({"role": "user", "content": turn.QUESTION}, synthetic=True)
            self._message({"role": "assistant", "content": summary}, synthetic=True)
        return True

    @property
    def version(self) -> int:
        return len(self.events)

    def view(self, version: int | None = None) -> View[StoredEvent]:
        """Return the view, as it was at a version."""
        return replay(self.events, version)


def render(output: str, view: View[StoredEvent]) -> Rendered:
    """Render a view in a format."""
    return anyone.render(view, cast("Format", output))


def text_of(rendered: Rendered) -> str:
    """Return everything that was rendered as one text, to be compared byte for byte."""
    return repr((sorted(rendered.fields.items()), rendered.warnings, rendered.open_calls))


def body_of(rendered: Rendered) -> Body:
    """Return what was rendered as the body of a read of the view."""
    fields = {
        name: json.loads(value) if isinstance(value, str) else [json.loads(one) for one in value]
        for name, value in rendered.fields.items()
    }
    warnings = [{"code": one.code, "seq": one.seq, "detail": one.detail} for one in rendered.warnings]
    open_calls = [{"id": one.call_id, "seq": one.seq, "name": one.name} for one in rendered.open_calls]
    return {**fields, "warnings": warnings, "open_tool_calls": open_calls}
