"""What every client asked and was answered, and when: all that the checker is given beside the logs."""

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

Outcome: TypeAlias = Literal["ok", "fail", "unknown"]
Logged: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of one client.

    ``op`` numbers what the client wanted; a request that is sent again has the same. Times are on one monotonic clock.
    ``ok``: it was done. ``fail``: it was not, and never will be. ``unknown``: nobody knows, for the answer was lost or
    says only that the service is not available; it may even be carried out after ``ended``.
    ``answer`` is parsed JSON, or a text; ``raw`` the very same as it came, where bytes are compared.
    """

    client: int
    op: int
    kind: str
    session: str
    began: float
    ended: float
    outcome: Outcome
    status: int | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    answer: Any = None
    raw: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """What the events of this append carry in their metadata, so that the log says who wrote them."""
        return f"{self.client}.{self.op}"

    def __str__(self) -> str:
        times = f"{self.began:.3f}–{self.ended:.3f}"
        return f"{self.kind} {self.mark} on {self.session} ({times}, {self.outcome}, {self.status})"


class History:
    """Calls as they end, from many threads."""

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self.calls = list(calls)
        self._texts: dict[str, str] = {}
        self.succeeded = 0
        self._lock = threading.Lock()

    def add(self, call: Call) -> None:
        """Record a call."""
        with self._lock:
            self.calls.append(call)
            self.succeeded += call.outcome == "ok"

    def same(self, text: str) -> str:
        """Return an equal text that is kept already: views are answered many times over."""
        return self._texts.setdefault(text, text)

    def counts(self) -> dict[str, dict[str, int]]:
        """Count calls by kind and outcome."""
        found: dict[str, dict[str, int]] = {}
        for call in self.calls:
            outcomes = found.setdefault(call.kind, {"ok": 0, "fail": 0, "unknown": 0})
            outcomes[call.outcome] += 1
        return dict(sorted(found.items()))

    def save(self, file: Path, logs: dict[str, list[Logged]]) -> None:
        """Write the calls and the logs, one JSON object a line."""
        with file.open("w", encoding="utf-8") as out:
            for call in self.calls:
                out.write(json.dumps(asdict(call)) + "\n")
            for session, log in logs.items():
                out.write(json.dumps({"log": session, "events": log}) + "\n")


def load(file: Path) -> tuple[History, dict[str, list[Logged]]]:
    """Read back what `History.save` wrote."""
    calls: list[Call] = []
    logs: dict[str, list[Logged]] = {}
    for line in _lines(file):
        if "log" in line:
            logs[line["log"]] = line["events"]
        else:
            calls.append(Call(**line))
    return History(calls), logs


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
