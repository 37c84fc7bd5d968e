"""Which tool calls a list of messages makes and answers, whatever the library that returned it."""

from collections.abc import Sequence
from typing import Literal

Role = tuple[Literal["call", "result", "other"], str]


def orphans(said: Sequence[Role]) -> int:
    """Count the tool results whose call is not before them in the list: providers refuse such a list."""
    called: set[str] = set()
    lost = 0
    for kind, name in said:
        if kind == "call":
            called.add(name)
        elif kind == "result" and name not in called:
            lost += 1
    return lost
