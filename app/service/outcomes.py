"""How a compaction ended: made from a plan, or read back from the boundary that it wrote."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from app.domain import compaction as rules
from app.domain.compaction import Plan, Reason, Tokens, Unchanged
from app.domain.policy import Policy
from app.domain.ranges import NOTHING, Ranges
from app.service.boundary import Body
from app.storage.boundaries import Told
from app.summarizer import turn

Status: TypeAlias = Literal["applied", "unchanged", "planned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a compaction ended. The ranges and counts are empty when nothing was or would be covered.

    ``summary`` is the summarizer's text, without the ledger and the label that its message has in the view.
    """

    status: Status
    version: int
    tokens: Tokens
    over_budget: bool
    reason: Reason | None = None
    detail: str | None = None
    boundary: int | None = None
    covered: Ranges = NOTHING
    covered_events: int = 0
    pinned: tuple[int, ...] = ()
    preserved: Ranges = NOTHING
    preserved_events: int = 0
    summary: str | None = None


def unchanged(why: Unchanged, version: int) -> Outcome:
    """Return the outcome of a compaction that covered nothing."""
    return Outcome(
        status="unchanged",
        version=version,
        tokens=Tokens(why.tokens, why.tokens),
        over_budget=why.over_budget,
        reason=why.reason,
        detail=why.detail,
    )


def of_plan(
    status: Literal["applied", "planned"],
    plan: Plan,
    policy: Policy,
    *,
    version: int,
    seq: int | None = None,
    summary: str | None = None,
) -> Outcome:
    """Return the outcome of a plan; ``seq`` is that of its boundary, None when none was written."""
    return Outcome(
        status=status,
        version=version,
        boundary=seq,
        covered=plan.newly_covered,
        covered_events=plan.covered_events,
        pinned=plan.pinned,
        preserved=plan.preserved,
        preserved_events=plan.preserved_events,
        summary=summary,
        tokens=plan.tokens,
        over_budget=rules.over_budget(policy.window, plan.tokens.after),
    )


def read_back(seq: int, text: str, told: Told | None) -> Outcome:
    """Return the outcome that a boundary was, from its payload and the summary it wrote."""
    body = msgspec.json.decode(text, type=Body)
    return Outcome(
        status="applied",
        version=seq + len(body.summary),
        boundary=seq,
        covered=Ranges.joined(body.newly_covered),
        covered_events=body.events.covered,
        pinned=tuple(body.pinned),
        preserved=Ranges.joined(body.preserved),
        preserved_events=body.events.preserved,
        summary=turn.text_of(content_of(told.body), facts_of(told.metadata)[1]) if told is not None else None,
        tokens=Tokens(body.tokens.before, body.tokens.after),
        over_budget=body.over_budget,
    )


def content_of(message: str) -> str:
    """Return what a summary's message says, from its JSON text."""
    content: str = msgspec.json.decode(message)["content"]
    return content


def facts_of(metadata: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ledger that a summary carries on, and the newest part of it that it tells, from its event's metadata.

    Both are empty when the summary was brought along.
    """
    known: dict[str, Any] = msgspec.json.decode(metadata)
    carried = tuple(known.get("ledger", ()))
    return carried, carried[len(carried) - known["facts"]["told"] :] if carried else ()
