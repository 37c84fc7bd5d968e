"""One session's log and calls, put in order for the checks: which append wrote what, and who knew what when."""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from typing import Any

from app.api import answers
from app.domain.event import StoredEvent
from app.domain.ranges import Ranges
from app.domain.view import View, replay
from app.formats import anyone
from tests.journeys.torture.history import Call, Logged


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that must never be: ``kind`` in one word, ``said`` with the place."""

    kind: str
    said: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.said}"


@dataclass(eq=False)
class Session:
    """A session as it was found in the end, with all calls that were about it, in the order in which they began."""

    name: str
    log: Sequence[Logged]
    calls: Sequence[Call]
    _views: dict[int, View[StoredEvent]] = field(default_factory=dict)

    @cached_property
    def appends(self) -> dict[str, list[Call]]:
        """The requests of each append by its mark, in the order sent."""
        found: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.kind == "append":
                found[call.mark].append(call)
        return found

    @cached_property
    def stored(self) -> dict[str, list[Logged]]:
        """The events in the log by the mark of the append that wrote them, in log order."""
        found: dict[str, list[Logged]] = defaultdict(list)
        for logged in self.log:
            if is_of_client(logged):
                found[mark_of(logged)].append(logged)
        return found

    @cached_property
    def _known(self) -> tuple[list[float], list[int]]:
        """When it was known to somebody that the log had reached which version, ascending in both."""
        told = sorted((call.ended, version) for call in self.calls for version in _told(call))
        return [ended for ended, _ in told], [*accumulate((version for _, version in told), max)]

    def known_before(self, moment: float) -> int:
        """Return the highest version that any answer had told before a moment."""
        ended, versions = self._known
        at = bisect_left(ended, moment)
        return versions[at - 1] if at else 0

    @cached_property
    def _possible(self) -> list[float]:
        """For each version, the moment before which the log cannot have had it: its events were not sent yet."""
        sent = {mark: calls[0].began for mark, calls in self.appends.items()}
        moments = (sent.get(mark_of(logged), 0.0) if is_of_client(logged) else 0.0 for logged in self.log)
        return [0.0, *accumulate(moments, max)]

    def possible_since(self, version: int) -> float:
        """Return the moment from which on the log can have had a version."""
        return self._possible[version]

    def view(self, version: int) -> View[StoredEvent]:
        """Return the view at a version by its definition: the pure replay of the log."""
        if version not in self._views:
            self._views[version] = replay(self._events, version)
        return self._views[version]

    @cached_property
    def _events(self) -> list[StoredEvent]:
        return [stored_event(logged) for logged in self.log]

    def shown(self, version: int, output: str) -> Any:
        """Return what a view at a version has to be answered as: parsed JSON, or the transcript."""
        view = self.view(version)
        if output == "text":
            return anyone.render(view, "text").text
        rendered = None if output == "events" else anyone.render(view, output)  # type: ignore[arg-type]
        return json.loads(answers.json_of(answers.view(self.name, view, rendered)))


def is_of_client(logged: Logged) -> bool:
    """Say whether a client appended it; all else was written by a compaction."""
    return logged["type"] != "COMPACTION" and not logged["synthetic"]


def mark_of(logged: Logged) -> str:
    """Return the mark of the append that wrote an event, an empty one when it carries none."""
    return str(logged["metadata"].get("mark", ""))


def _told(call: Call) -> Iterator[int]:
    """Yield the versions that the log has reached for certain, by a call's answer."""
    if call.kind == "append" and call.outcome == "ok":
        yield call.answer["version"]
    if (seen := seen_by(call)) is not None:
        yield seen


def seen_by(call: Call) -> int | None:
    """Return the version that the log had at a moment of this call; None when the answer does not say."""
    if call.kind == "append" and call.status == 412:
        return int(call.answer["current_version"])
    if call.outcome != "ok":
        return None
    version: int | None = None
    match call.kind:
        case "append" if "view" in call.answer:
            version = call.answer["view"]["version"]
        case "view" if "at_version" not in call.asked:
            version = int(call.headers["etag"].strip('"').partition("-")[0])
        case "session":
            version = call.answer["version"]
        case "tail" if call.answer["data"]:
            version = call.answer["data"][-1]["seq"]
        case "compact" if call.answer["status"] == "applied":
            version = call.answer["version"]
    return version


def stored_event(logged: Logged) -> StoredEvent:
    """Return an event of the log as the rules and the renderers look at it."""
    is_message = logged["type"] == "MESSAGE"
    body = logged["message"] if is_message else logged["payload"]
    covered = body.get("covered") if logged["type"] == "COMPACTION" else None
    return StoredEvent(
        seq=logged["seq"],
        type=logged["type"],
        role=body["role"] if is_message else None,
        synthetic=logged["synthetic"],
        token_count=logged["token_count"],
        calls=tuple(call["id"] for call in body.get("tool_calls") or ()) if is_message else (),
        answers=body.get("tool_call_id") if is_message else None,
        covered=None if covered is None else Ranges.joined((first, last) for first, last in covered),
        event_id=logged["id"],
        body=json.dumps(body, ensure_ascii=False),
        metadata=json.dumps(logged["metadata"], ensure_ascii=False),
        timestamp=datetime.fromisoformat(logged["timestamp"]) if logged["timestamp"] else None,
        stored_at=datetime.fromisoformat(logged["stored_at"]),
    )
