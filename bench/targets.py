"""The targets: ratios to pgbench, as what must be and what is aimed at."""

from typing import Final, NamedTuple


class Target(NamedTuple):
    """What must be reached, and what is aimed at."""

    must: float
    aim: float


_OVER_HTTP: Final = {
    "append 1": {1: Target(0.40, 0.50), 16: Target(0.25, 0.40)},
    "append 10": {1: Target(0.48, 0.55), 16: Target(0.33, 0.50)},
    "view of 40": {1: Target(0.33, 0.60), 16: Target(0.28, 0.60)},
    "append 1 in process": {16: Target(0.60, 0.85)},
}
_ABSOLUTE: Final = {
    "compaction of 10,000, window only": "≥ 150k / 400k events/s",
    "fleet of 10,000 due, token budget": "≤ 5 s / 2 s",
}


def ratio(operation: str, clients: int) -> Target | None:
    """Return the target of an operation's ratio to pgbench; it is the same whoever chose the ids."""
    return _OVER_HTTP.get(operation.removesuffix(", client ids"), {}).get(clients)


def words(operation: str, clients: int) -> str:
    """Return the target of an operation as text, empty when it has none."""
    found = ratio(operation, clients)
    return f"{found.must:.2f} / {found.aim:.2f}" if found else _ABSOLUTE.get(operation, "")
