"""Compactions as JSON."""

from msgspec import Struct

from app.api.wire import Moment, Pair, Version
from app.domain.attempt import Status as AttemptStatus
from app.domain.compaction import Reason
from app.service.boundary import TokenFigures
from app.service.outcomes import Status
from app.service.policies import Summarizer, Trigger, Window


class CompactionRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A compaction to run; without a `window` the session's policy runs, else the server's."""

    window: Window | None = None
    trigger: Trigger | None = None
    summarizer: Summarizer | None = None
    dry_run: bool = False
    expected_version: Version | None = None


class RangesOut(Struct, kw_only=True):
    """Closed ranges of seq, and how many message events they stand for."""

    ranges: list[Pair]
    events: int


class Compaction(Struct, kw_only=True):
    """How a compaction ended, or what it would do."""

    status: Status
    reason: Reason | None
    detail: str | None
    version: int
    boundary: int | None
    covered: RangesOut
    pinned: list[int]
    preserved: RangesOut
    summary: str | None
    tokens: TokenFigures
    over_budget: bool


class CompactionList(Struct, kw_only=True):
    """A page of a session's compactions, newest first."""

    data: list[Compaction]
    has_more: bool
    next_cursor: str | None


class AttemptTokens(Struct, kw_only=True):
    """What the summarizer read and wrote, in its provider's tokens; 0 where the provider does not say."""

    input: int
    output: int


class Attempt(Struct, kw_only=True):
    """An attempt at a compaction that called the summarizer: how it ended and what it cost, without a word it read.

    `version` and `boundary` are the session's when it began, `tokens` those that the provider counted.
    """

    id: int
    status: AttemptStatus
    reason: str | None
    error: str | None
    version: int
    boundary: int | None
    model: str
    prompt: str
    calls: int
    tokens: AttemptTokens
    started_at: Moment
    ended_at: Moment | None
    duration_ms: int | None


class AttemptList(Struct, kw_only=True):
    """A page of a session's attempts, newest first."""

    data: list[Attempt]
    has_more: bool
    next_cursor: str | None
