import pytest

from app.domain.policy import LlmSummarizer, Policy, Summarizer, TextSummarizer
from app.domain.trigger import Always
from app.domain.window import Rule, Window


def test_a_policy_without_a_trigger_always_fires_and_without_a_summarizer_is_a_plain_window() -> None:
    policy = Policy(window=Window(Rule.LAST_TURNS, 2))
    assert policy.trigger == Always()
    assert policy.summarizer is None


@pytest.mark.parametrize(
    ("summarizer", "reserve"),
    [
        (None, 0),  # a plain window
        (TextSummarizer(text="so far"), 0),  # no bound is named
        (LlmSummarizer(), 0),  # nor here
        (LlmSummarizer(max_tokens=800), 800),  # the bound it has
    ],
)
def test_a_budget_keeps_free_what_the_summarizer_may_write(summarizer: Summarizer | None, reserve: int) -> None:
    assert Policy(window=Window(Rule.TOKEN_BUDGET, 1000), summarizer=summarizer).summary_reserve == reserve
