"""What every part of the yardstick stands on: the database, the bare route, how long it may take, where results go."""

import statistics
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from bench.postgres import Postgres
from bench.results import Line, Results
from bench.servers import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much is measured: rounds of ``seconds`` each for every contender."""

    rounds: int
    seconds: float
    full: bool

    @property
    def clients(self) -> tuple[int, ...]:
        """How many clients there are at once."""
        return (1, 16, 64) if self.full else (1, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a part works with."""

    postgres: Postgres
    bare: Server
    budget: Budget
    results: Results
    say: Callable[[str], None]


class Part(Protocol):
    """A part of the yardstick."""

    async def __call__(self, stage: Stage) -> None:
        """Measure, and put what was found into the results."""


Contender = Callable[[], Awaitable[float]]


async def interleave(stage: Stage, line: Line, contenders: Mapping[str, Contender]) -> None:
    """Let contenders measure in turns, so that a noisy moment of the machine meets all of them."""
    for _ in range(stage.budget.rounds):
        for who, measure in contenders.items():
            line.figures.setdefault(who, []).append(await measure())
    said = ", ".join(f"{who} {statistics.median(line.figures[who]):,.0f}" for who in contenders)
    stage.say(f"{line.operation}, {line.clients} clients: {said} {line.unit}")
