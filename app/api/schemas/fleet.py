"""Compaction and purge of many sessions as JSON."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from app.api.schemas.sessions import ViewFigures
from app.api.wire import Instant
from app.service.batches import Status
from app.service.boundary import TokenFigures
from app.service.fleet import LARGEST_RUN


class FleetRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """How far a run goes: at most so many sessions, for so long, and only those that have all of the `metadata`."""

    limit: Annotated[int, Meta(ge=1, le=LARGEST_RUN)] = 100
    max_seconds: Annotated[float, Meta(ge=0, le=3600)] = 30
    metadata: dict[str, str] = field(default_factory=dict)


class FleetResult(Struct, kw_only=True):
    """What became of one session; one that failed has a `retry_seconds`, after which it is due again.

    It has a `tenant` when the run went across tenants.
    """

    session_id: str
    status: Status
    reason: str | None
    tokens: TokenFigures
    retry_seconds: int | UnsetType = UNSET
    tenant: str | UnsetType = UNSET


class FleetReport(Struct, kw_only=True):
    """What a run did. `due` is of its beginning, `deferred` and `remaining` are of its end.

    `deferred` sessions wait after a failure or are being worked on, `remaining` ones are due.
    """

    due: int
    applied: int
    unchanged: int
    failed: int
    deferred: int
    remaining: int
    results: list[FleetResult]


class DueSession(Struct, kw_only=True):
    """A session whose policy's trigger fires. It has a `tenant` when the list goes across tenants."""

    session_id: str
    version: int
    view: ViewFigures
    tenant: str | UnsetType = UNSET


class DueSessions(Struct, kw_only=True):
    """The sessions that a run would take now, most tokens first, and how many there are in all."""

    due: int
    deferred: int
    data: list[DueSession]


class PurgeRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which expired sessions to remove; `expired_before` is now unless given."""

    expired_before: Instant | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class Purged(Struct, kw_only=True):
    """What a purge removed and what it left."""

    purged: int
    remaining: int
