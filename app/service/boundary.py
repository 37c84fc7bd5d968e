"""What a boundary says of itself: the payload of a COMPACTION event."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.domain import compaction as rules
from app.domain.compaction import Plan
from app.domain.policy import LlmSummarizer, Policy, TextSummarizer
from app.service import policies
from app.service.context import Context
from app.service.policies import Trigger
from app.storage import boundaries
from app.storage.boundaries import Boundary
from app.storage.database import Writer

Pairs = tuple[tuple[int, int], ...]


class Counts(Struct, frozen=True):
    """How many message events a boundary covered and how many the kept turns hold."""

    covered: int
    preserved: int


class TokenFigures(Struct, frozen=True):
    """The view's tokens before and after a compaction."""

    before: int
    after: int
    saved: int


class AnyWindow(Struct, frozen=True):
    """The window a boundary was made with; `max_messages` is a chat memory's."""

    rule: Literal["last_events", "last_turns", "token_budget", "max_messages"]
    size: int


class Body(Struct, frozen=True):
    """The payload of a boundary: closed ranges of seq, and what made them.

    `covered` is cumulative, `newly_covered` what this boundary added to it; custom events inside a range are not
    covered by it. `summary` are the seqs of the two messages of the summary turn.
    """

    covered: Pairs
    newly_covered: Pairs
    pinned: tuple[int, ...]
    preserved: Pairs
    summary: tuple[int, ...]
    trigger: Trigger | None
    window: AnyWindow
    summarizer: dict[str, Any] | None
    tokens: TokenFigures
    events: Counts
    over_budget: bool = False


def describe(plan: Plan, policy: Policy, *, summary: tuple[int, ...]) -> Body:
    """Describe a plan made by a policy; ``summary`` are the seqs that the summary turn is about to get."""
    return replace(
        outline(plan, AnyWindow(rule=policy.window.rule.value, size=policy.window.size)),
        summary=summary,
        trigger=policies.trigger_of(policy.trigger),
        summarizer=_described(policy),
        over_budget=rules.over_budget(policy.window, plan.tokens.after),
    )


def outline(plan: Plan, window: AnyWindow) -> Body:
    """Describe a plan that no policy made: no trigger, no summarizer, no budget."""
    return Body(
        covered=plan.covered.pairs,
        newly_covered=plan.newly_covered.pairs,
        pinned=plan.pinned,
        preserved=plan.preserved.pairs,
        summary=(),
        trigger=None,
        window=window,
        summarizer=None,
        tokens=TokenFigures(*plan.tokens, plan.tokens.saved),
        events=Counts(plan.covered_events, plan.preserved_events),
    )


def of(ctx: Context, key: UUID, created_at: datetime, plan: Plan, body: Body) -> Boundary:
    """Return a plan as the boundary that is written for it, on the session that was created at ``created_at``."""
    return Boundary(
        key=key,
        created_at=created_at,
        stands_on=plan.boundary,
        event_id=ctx.new_id(),
        body=msgspec.json.encode(body).decode(),
        covered=plan.covered,
        events=plan.covered_events,
        turns=plan.covered_turns,
        tokens=plan.covered_tokens,
    )


async def write(tx: Writer, boundary: Boundary) -> None:
    """Append a boundary to a log whose row lock the caller holds, having looked at its newest boundary."""
    written = await boundaries.write(tx, [boundary])
    assert written  # noqa: S101 - nothing can have come between


def _described(policy: Policy) -> dict[str, Any] | None:
    match policy.summarizer:
        case TextSummarizer():
            return {"type": "text"}
        case LlmSummarizer(instructions=instructions, max_tokens=max_tokens, ledger=ledger):
            return {"type": "llm", "instructions": instructions, "max_tokens": max_tokens, "ledger": ledger}
        case _:
            return None
