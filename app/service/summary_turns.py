"""The two messages of a summary turn, with what they say of their making (rule 30)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from anyio import to_thread

from app.domain.compaction import Plan
from app.domain.event import Draft
from app.domain.policy import LlmSummarizer, Policy
from app.domain.window import Rule
from app.service import drafts, summarizing
from app.service.context import Context
from app.service.summarizing import Progress
from app.summarizer import ledger, prompt, turn

log = structlog.get_logger("turnlog.summaries")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTurn:
    """The two messages of a summary turn; ``text`` is the summary alone.

    ``known`` is what the metadata of both says of its making, beside their boundary, and ``ledger`` what the second
    carries on.
    """

    text: str
    messages: tuple[Draft, ...]
    known: Mapping[str, Any]
    ledger: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """What the turn adds to the view."""
        return sum(message.token_count for message in self.messages)

    def written_at(self, seq: int) -> list[Draft]:
        """Return the messages with the metadata they have below the boundary at ``seq``."""
        both = {"boundary": seq, **self.known}
        second = {**both, "ledger": self.ledger} if self.ledger else both
        return [
            message._replace(metadata=msgspec.json.encode(known).decode())
            for message, known in zip(self.messages, (both, second), strict=True)
        ]


def tell(
    ctx: Context, text: str, content: str, *, known: Mapping[str, Any] | None = None, ledger: tuple[str, ...] = ()
) -> SummaryTurn:
    """Make the turn that tells a summary (rule 30); ``content`` is what its assistant message says."""
    messages = drafts.synthetic(ctx, "user", turn.QUESTION), drafts.synthetic(ctx, "assistant", content)
    return SummaryTurn(text=text, messages=messages, known=known or {}, ledger=ledger)


async def by_model(ctx: Context, policy: Policy, how: LlmSummarizer, plan: Plan, progress: Progress) -> SummaryTurn:
    """Make the turn for what the model wrote, with as much of the ledger as there is room for."""
    text = progress.text or ""
    known = {
        "model": summarizing.model_of(ctx).model.name,
        "prompt": prompt.VERSION,
        "usage": {
            "calls": progress.calls,
            "input_tokens": progress.input_tokens,
            "output_tokens": progress.output_tokens,
        },
        "tokens": {"covered": plan.covered_tokens, "summary": ctx.tokens.text(text)},
    }
    bare = tell(ctx, text, turn.told(text, ()), known=known)
    if not how.ledger:
        return bare
    facts = await to_thread.run_sync(progress.facts)
    cap = ledger.CAP_TOKENS
    if policy.window.rule is Rule.TOKEN_BUDGET and how.max_tokens is not None:
        # The whole new view is to fit the budget (rule 17).
        cap = min(cap, max(0, policy.window.size - plan.tokens.after - bare.tokens))
    kept = ledger.within(facts, count=ctx.tokens.text, cap=ledger.CAP_TOKENS)
    if not kept:
        return bare
    # One tight view is no reason to forget: what it has no room for is carried on, and what the ledger has none for is
    # at least counted.
    told = ledger.within(kept, count=ctx.tokens.text, cap=cap)
    known = {**known, "facts": {"told": len(told), "kept": len(kept), "dropped": len(facts) - len(kept)}}
    return tell(ctx, text, turn.told(text, told), known=known, ledger=kept)
