"""Sessions as JSON."""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from app.api.wire import Moment, Object, Ttl
from app.domain.session import ID_PATTERN
from app.service.policies import Policy

# Said here and checked where sessions are made, which names the rule.
SessionId = Annotated[str, Meta(extra_json_schema={"pattern": ID_PATTERN})]
StoredPolicy = Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/Policy"})]


class NewSession(Struct, forbid_unknown_fields=True, kw_only=True):
    """A session to create."""

    id: SessionId | UnsetType = UNSET
    ttl_seconds: Ttl | UnsetType | None = UNSET
    metadata: Object | UnsetType = UNSET
    policy: Policy | None = None


class FoundSession(Struct, forbid_unknown_fields=True, kw_only=True):
    """A session to find, or to create when there is none."""

    ttl_seconds: Ttl | UnsetType | None = UNSET
    metadata: Object | UnsetType = UNSET
    policy: Policy | None = None


class SessionChange(Struct, forbid_unknown_fields=True, kw_only=True):
    """What to change in a session: `metadata` is merged, a null value removes its key; `policy: null` removes it."""

    ttl_seconds: Ttl | UnsetType | None = UNSET
    metadata: Object | UnsetType = UNSET
    policy: Policy | UnsetType | None = UNSET


class ViewFigures(Struct, kw_only=True):
    """What the current view of a session amounts to; `boundary` is the seq of the newest boundary."""

    events: int
    turns: int
    tokens: int
    boundary: int | None


class Session(Struct, kw_only=True):
    """A session; `version` is the seq of its newest event.

    It has a `retry_at` while it waits after a compaction that failed: until then no scheduler takes it up again.
    """

    id: str
    created_at: Moment
    expires_at: Moment | None
    metadata: Object
    policy: StoredPolicy | None
    version: int
    view: ViewFigures
    retry_at: Moment | UnsetType = UNSET


class SessionList(Struct, kw_only=True):
    """A page of sessions."""

    data: list[Session]
    has_more: bool
    next_cursor: str | None
