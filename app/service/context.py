"""What every journey needs. Built once, by ``app.bootstrap``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, ParamSpec, Protocol, TypeVar

from anyio import to_thread

from app.domain.policy import Policy
from app.storage.database import Database
from app.tokens import TokenCounter

P = ParamSpec("P")
T = TypeVar("T")

# The one tenant there is until keys bring others.
DEFAULT_TENANT: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest things that are taken; bytes are of UTF-8."""

    body_bytes: int
    event_bytes: int
    batch_events: int
    json_depth: int
    metadata_bytes: int


class Meter(Protocol):
    """What counts the work done."""

    def appended(self, events: int) -> None:
        """Take note of stored events."""

    def read(self, output: str) -> None:
        """Take note of a view that was read, by format."""

    def compacted(self, status: str, reason: str | None) -> None:
        """Take note of how a compaction ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The tools of the service: the database, the token counter, the limits, and a maker of new ids."""

    database: Database
    tokens: TokenCounter
    limits: Limits
    default_ttl_seconds: int | None
    default_policy: Policy | None
    new_id: Callable[[], str]
    meter: Meter


async def offloaded(heavy: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: FBT001
    """Call a pure function here, or in a thread when it is ``heavy``, so that no request can hold up the others."""
    if not heavy:
        return function(*args, **kwargs)
    return await to_thread.run_sync(lambda: function(*args, **kwargs))
