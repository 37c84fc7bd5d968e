"""The sessions that all clients share, and what is said in them."""

import random
import threading
from dataclasses import dataclass, field
from typing import Any, Final

from tests.talk import assistant, custom, system, tool, user

# A kept session that has become this long is left alone and another one begun: replays take time.
LONG_LOG: Final = 1200
_FILLER: Final = " and so on" * 12


@dataclass
class Sessions:
    """The sessions that all clients work on, and how far their logs are."""

    kept: int
    gone: int
    generation: list[int] = field(default_factory=list)
    finish: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.generation = [0] * self.kept

    def kept_name(self, rng: random.Random) -> str:
        number = rng.randrange(self.kept)
        return f"kept-{number}-{self.generation[number]}"

    def gone_name(self, rng: random.Random) -> str:
        return f"gone-{rng.randrange(self.gone)}"

    def has_grown(self, name: str, version: int) -> None:
        """Begin another session in the place of one that has become long."""
        _, number, generation = name.split("-")
        if version > LONG_LOG and self.generation[int(number)] == int(generation):
            self.generation[int(number)] += 1


def batch(rng: random.Random, mark: str) -> list[dict[str, Any]]:
    """Return what a batch says: one to five events, each with its mark."""
    call = f"call-{mark}"
    said = [user(f"{mark} asks{_FILLER}"), assistant(None, **{call: "find"}), tool(call, f"{mark} was found")]
    said += [assistant(f"{mark} says{_FILLER}"), user(f"{mark} thanks")]
    said = said[: rng.randint(1, 5)]
    if rng.random() < 0.1:
        said.insert(0, system(f"Be {mark}."))
    if rng.random() < 0.1:
        said.append(custom(mark=mark))
    return [
        {**(one if "type" in one else {"message": one}), "metadata": {"mark": mark, "at": at}}
        for at, one in enumerate(said)
    ]
