"""What every journey needs. Built once, by ``app.bootstrap``."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from app.domain.policy import Policy
from app.service.appends import Appends
from app.service.health import Readiness
from app.service.keyring import Keyring
from app.service.view_cache import ViewCache
from app.storage.database import Database
from app.summarizer.model import Model
from app.tokens import TokenCounter

P = ParamSpec("P")
T = TypeVar("T")
# Threads take turns with the event loop, each for as long as one piece of its work takes: the fewer there are, the
# sooner it is the loop's turn. More of them would get no more done.
_MOST_HEAVY: Final = 4
_HEAVY: Final[RunVar[CapacityLimiter]] = RunVar("heavy threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest things that are taken; bytes are of UTF-8. What is open is counted for each server process."""

    body_bytes: int
    event_bytes: int
    batch_events: int
    json_depth: int
    metadata_bytes: int
    page: int
    open_requests: int
    open_bytes: int


class Meter(Protocol):
    """What counts the work done."""

    def appended(self, events: int) -> None:
        """Take note of stored events."""

    def read(self, output: str) -> None:
        """Take note of a view that was read, by format."""

    def compacted(self, status: str, reason: str | None) -> None:
        """Take note of how a compaction ended."""

    def summarized(self, *, status: str, seconds: float, input_tokens: int, output_tokens: int) -> None:
        """Take note of how an attempt that called the model ended, and what it cost."""

    def fleet(self, *, due: int, deferred: int) -> None:
        """Take note of how many sessions are due, and how many more wait or are being worked on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarizing:
    """The model that writes summaries, and what a summary may cost.

    ``max_input_tokens`` bounds one whole request, ``max_tokens`` an answer, ``seconds`` all requests for one summary.
    """

    model: Model
    max_input_tokens: int
    max_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The tools of the service: the database, the token counter, the limits, and a maker of new ids.

    ``keys`` say who asks. ``appends`` are on their way to the database, ``view_cache`` holds views that were read
    before. ``slots`` bound how many sessions of the fleet wait for the model at once. ``unfinished`` is the work that
    may outlive the request which began it; it ends before the database is closed.
    """

    database: Database
    readiness: Readiness
    keys: Keyring
    appends: Appends
    view_cache: ViewCache
    tokens: TokenCounter
    limits: Limits
    default_ttl_seconds: int | None
    default_policy: Policy | None
    summarizing: Summarizing | None
    slots: asyncio.Semaphore
    unfinished: set[asyncio.Task[Any]]
    new_id: Callable[[], str]
    meter: Meter


async def offloaded(heavy: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:  # noqa: FBT001
    """Call a pure function here, or in a thread when it is ``heavy``, so that no request can hold up the others."""
    if not heavy:
        return function(*args, **kwargs)
    return await to_thread.run_sync(lambda: function(*args, **kwargs), limiter=_heavy_threads())


def _heavy_threads() -> CapacityLimiter:
    """Return what bounds the heavy work of this event loop."""
    try:
        return _HEAVY.get()
    except LookupError:
        limiter = CapacityLimiter(_MOST_HEAVY)
        _HEAVY.set(limiter)
        return limiter
