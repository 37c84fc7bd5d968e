"""What a server's memory does under load: whether it comes to rest."""

import itertools
from collections.abc import Iterator
from typing import Final

from bench import load, requests
from bench.parts import append
from bench.results import TURNLOG
from bench.stage import Stage

_CLIENTS: Final = 16
# Appends and views in turns; views of these sessions stay small, for they are many.
_SESSIONS: Final = 2_000
_SHORT: Final = 20_000
_FULL: Final = 100_000
_STEPS: Final = 5


async def run(stage: Stage) -> None:
    """Send requests, and look at the resident set after each fifth of them."""
    wanted = _FULL if stage.budget.full else _SHORT
    async with append.ready(stage) as (_, connection, server, _record):
        names = await append.sessions(connection, _SESSIONS)
        sent = 0
        for step in range(1, _STEPS + 1):
            while sent < wanted * step // _STEPS:
                clients = [_requests(names[client::_CLIENTS]) for client in range(_CLIENTS)]
                sent += (await load.run(server.port, clients, stage.budget.seconds, warm=0.0)).requests
            line = stage.results.line("memory", f"RSS after {step * 100 // _STEPS} % of {wanted:,} requests", unit="MB")
            line.figures = {TURNLOG: [server.rss() / 2**20]}
            stage.say(f"{line.operation}: {line.figures[TURNLOG][0]:.0f} MB")


def _requests(names: list[str]) -> Iterator[bytes]:
    for name in itertools.cycle(names):
        yield next(requests.append(name, 1))
        yield next(requests.view(name))
