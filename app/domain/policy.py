"""What a compaction is asked to do, by hand or by a policy that stands on a session."""

from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain.trigger import Always, Trigger
from app.domain.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSummarizer:
    """The caller brings the summary of the covered turns along (rule 32)."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSummarizer:
    """The server's configured model writes the summary.

    ``max_tokens`` bounds its answer, and comes off a token budget so that the whole new view fits (rule 17).
    """

    instructions: str | None = None
    max_tokens: int | None = None


Summarizer: TypeAlias = TextSummarizer | LlmSummarizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Trigger, window and summarizer; None for the last is a plain window."""

    window: Window
    trigger: Trigger = field(default_factory=Always)
    summarizer: Summarizer | None = None

    @property
    def summary_reserve(self) -> int:
        """Tokens that a budget keeps free for the summary to come (rule 17)."""
        if isinstance(self.summarizer, LlmSummarizer):
            return self.summarizer.max_tokens or 0
        return 0
