"""What a view costs to render, by format and by length: `python -m bench.rendering`.

Formats are interleaved in every round and compared by their medians. The view is made of turns with a tool call each.
A format is O(view) when its cost for each event stays the same while the view grows; the last column shows it.
"""

import json
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import typer
from rich.console import Console
from rich.table import Table

from app.domain import exact_json, message
from app.domain.event import StoredEvent
from app.domain.ranges import NOTHING
from app.domain.view import View
from app.formats import anyone

Output = Literal["openai", "openai-responses", "anthropic", "gemini", "text"]
OUTPUTS: Final[Sequence[Output]] = ("openai", "openai-responses", "anthropic", "gemini", "text")
LENGTHS: Final = (40, 400, 4000)


def main(rounds: int = 7) -> None:
    """Print the median cost of an event in microseconds, by format and length of the view."""
    views = {length: view_of(length) for length in LENGTHS}
    taken: dict[tuple[Output, int], list[float]] = {(output, length): [] for output in OUTPUTS for length in LENGTHS}
    for _ in range(rounds):
        for (output, length), seconds in taken.items():
            began = time.perf_counter()
            anyone.render(views[length], output)
            seconds.append(time.perf_counter() - began)
    table = Table("format", *(f"{length} events" for length in LENGTHS), f"{LENGTHS[-1]} : {LENGTHS[0]}")
    for output in OUTPUTS:
        costs = [statistics.median(taken[output, length]) / length * 1e6 for length in LENGTHS]
        table.add_row(output, *(f"{cost:.1f} µs" for cost in costs), f"{costs[-1] / costs[0]:.2f}×")
    Console().print(table)


def view_of(length: int) -> View[StoredEvent]:
    """Return a view of ``length`` events: turns of a question, a call, its result and an answer."""
    events = tuple(stored(seq, said(seq)) for seq in range(1, length + 1))
    return View(version=length, boundary=None, covered=NOTHING, events=events)


def said(seq: int) -> dict[str, Any]:
    """Return the message at ``seq``."""
    turn, part = divmod(seq - 1, 4)
    call = {"id": f"call_{turn}", "type": "function", "function": {"name": "look_up", "arguments": '{"number": 7}'}}
    return (
        {"role": "user", "content": "Where is it? " * 20},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{turn}", "content": "On its way. " * 40},
        {"role": "assistant", "content": "It will be there on Thursday. " * 10},
    )[part]


def stored(seq: int, value: dict[str, Any]) -> StoredEvent:
    """Return a message as the log would hold it."""
    body = json.dumps(value)
    shape = message.check(exact_json.parse(body))
    return StoredEvent(
        seq=seq,
        role=shape.role,
        calls=shape.calls,
        answers=shape.answers,
        event_id=f"e{seq}",
        body=body,
        metadata="{}",
        timestamp=None,
        stored_at=datetime.now(UTC),
    )


if __name__ == "__main__":
    typer.run(main)
