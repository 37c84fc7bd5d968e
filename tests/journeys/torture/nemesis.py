"""Who kills and stops everything, by a plan that a seed gives."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from tests.journeys.torture.world import World

Action: TypeAlias = Callable[[World, random.Random], None]
# Every one of them once in each round; those that take a service away come twice.
DECK: Final[tuple[Action, ...]] = (
    World.kill_replica,
    World.kill_postgres,
    World.end_connections,
    World.pause_replica,
    World.kill_replica,
    World.stop_postgres,
    World.pause_backend,
    World.kill_worker,
)
# So many requests have to succeed between two blows, or so many seconds to pass.
_PROGRESS: Final = 20
_PATIENCE: Final = 5.0


def plan(seed: int) -> Iterator[tuple[float, Action]]:
    """Yield seconds to wait and what to do then, for ever."""
    rng = random.Random(f"{seed}/nemesis")  # noqa: S311 - choices, not secrets
    while True:
        for action in rng.sample(DECK, len(DECK)):
            yield rng.uniform(0.2, 1.2), action


def rage(world: World, seed: int, seconds: float, progress: Callable[[], int], given_up: threading.Event) -> None:
    """Follow the plan until time is over or a client has given up, which is never right.

    After each blow it waits until some things have succeeded again, for ``progress`` counts them: a service that is
    never up has nothing to lose.
    """
    rng = random.Random(f"{seed}/moments")  # noqa: S311 - choices, not secrets
    end = time.monotonic() + seconds
    for pause, action in plan(seed):
        before, patience = progress(), time.monotonic() + _PATIENCE
        while progress() < before + _PROGRESS and time.monotonic() < min(end, patience) and not given_up.is_set():
            time.sleep(0.02)
        if given_up.wait(min(pause, max(0.0, end - time.monotonic()))) or time.monotonic() >= end:
            return
        action(world, rng)
        world.done[action.__name__] += 1
