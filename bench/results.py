"""What a run found: figures by operation, conditions and contender, one for each round; medians are what is shown."""

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

Unit = Literal["/s", "ms", "events/s", "s", "µs", "bytes", "MB", "", "buffers"]
TURNLOG: Final = "turnlog"
PGBENCH: Final = "pgbench"
BARE: Final = "bare ASGI"
# Of these, more is better; of all others, less.
RATES: Final = {"/s", "events/s"}


@dataclass(slots=True, kw_only=True)
class Line:
    """One operation under one set of conditions: what each contender reached in each round."""

    part: str
    operation: str
    clients: int
    unit: Unit
    figures: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def median(self, who: str) -> float | None:
        """Return a contender's median, None when it did not run."""
        found = self.figures.get(who)
        return statistics.median(found) if found else None

    def ratio(self, who: str, to: str) -> float | None:
        """Return how many times better a contender is than another."""
        one, other = self.median(who), self.median(to)
        if not one or not other:
            return None
        return one / other if self.unit in RATES else other / one


@dataclass(slots=True)
class Results:
    """Everything that a run found, in the order found, with what was left out and why."""

    about: dict[str, Any]
    lines: list[Line] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def line(self, part: str, operation: str, *, clients: int = 1, unit: Unit = "/s") -> Line:
        """Return the line of an operation, a new one the first time."""
        for line in self.lines:
            if (line.part, line.operation, line.clients) == (part, operation, clients):
                return line
        line = Line(part=part, operation=operation, clients=clients, unit=unit)
        self.lines.append(line)
        return line

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {
            "about": self.about,
            "skipped": self.skipped,
            "lines": [
                {**asdict(line), "medians": {who: line.median(who) for who in line.figures}} for line in self.lines
            ],
        }
        path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> Results:
    """Read what ``write`` wrote."""
    whole = json.loads(path.read_text())
    lines = [Line(**{name: value for name, value in line.items() if name != "medians"}) for line in whole["lines"]]
    return Results(about=whole["about"], lines=lines, skipped=whole["skipped"])
