"""Compactions and purges as JSON."""

from typing import Annotated

from msgspec import Meta, Struct

from app.api.wire import Instant, Pair, Version
from app.domain.compaction import Reason
from app.service.boundary import TokenFigures
from app.service.compactions import Status
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


class PurgeRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which expired sessions to remove; `expired_before` is now unless given."""

    expired_before: Instant | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class Purged(Struct, kw_only=True):
    """What a purge removed and what it left."""

    purged: int
    remaining: int
