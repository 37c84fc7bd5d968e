"""What a compaction is asked to do, by hand or by a policy that stands on a session."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from app.domain import trigger as triggers
from app.domain.trigger import Always, Mark, Trigger
from app.domain.window import Rule, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSummarizer:
    """The caller brings the summary of the covered turns along (rule 32)."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSummarizer:
    """The server's configured model writes the summary.

    ``max_tokens`` bounds its answer, and comes off a token budget so that the whole new view fits (rule 17).
    ``ledger`` has the ids, numbers, dates, addresses and paths of what is covered listed after the summary, word for
    word.
    """

    instructions: str | None = None
    max_tokens: int | None = None
    ledger: bool = True


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

    @property
    def fits_summary(self) -> bool:
        """The summary's size was taken off a token budget, so the whole summary turn has to keep to it (rule 17)."""
        return self.window.rule is Rule.TOKEN_BUDGET and self.summary_reserve > 0

    @property
    def fires_on_its_own_window(self) -> bool:
        """The trigger fires again on a view that just fills the window, so that compacting would never end."""
        size, rule = self.window.size, self.window.rule
        return triggers.fires_again(
            self.trigger,
            turns=size if rule is Rule.LAST_TURNS else 0,
            tokens=size if rule is Rule.TOKEN_BUDGET else 0,
        )


class Standing(NamedTuple):
    """What has to be known of a policy to find the sessions it stands for: when it fires, and if it calls a model."""

    marks: tuple[Mark, ...] | None
    summarizes: bool


NO_POLICY: Final = Standing(marks=None, summarizes=False)


def standing(policy: Policy | None) -> Standing:
    """Return what stands for a session by this policy; None is no policy, which never fires."""
    if policy is None:
        return NO_POLICY
    return Standing(triggers.marks(policy.trigger), isinstance(policy.summarizer, LlmSummarizer))
