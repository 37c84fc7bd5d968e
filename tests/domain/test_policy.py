import pytest

from app.domain.policy import NO_POLICY, LlmSummarizer, Policy, Standing, Summarizer, TextSummarizer, standing
from app.domain.trigger import Always, Mark, TokenCount, Trigger, TurnCount
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


@pytest.mark.parametrize(
    ("window", "trigger", "again"),
    [
        (Window(Rule.LAST_TURNS, 4), TurnCount(3), True),  # it keeps more turns than the trigger lets pass
        (Window(Rule.LAST_TURNS, 3), TurnCount(3), False),  # it keeps as many
        (Window(Rule.LAST_TURNS, 9), TokenCount(1), False),  # how large the turns are is not known
        (Window(Rule.TOKEN_BUDGET, 100), TokenCount(100), True),  # a view that just fits fires at once
        (Window(Rule.TOKEN_BUDGET, 99), TokenCount(100), False),  # one token below it does not
        (Window(Rule.TOKEN_BUDGET, 100), TurnCount(1), False),  # how many turns fit is not known
        (Window(Rule.LAST_EVENTS, 9), TurnCount(1), False),  # nor here
    ],
)
def test_a_window_must_lie_below_its_own_trigger(window: Window, trigger: Trigger, again: bool) -> None:
    assert Policy(window=window, trigger=trigger).fires_on_its_own_window is again


def test_what_stands_for_a_session_is_when_its_policy_fires_and_whether_it_calls_a_model() -> None:
    window = Window(Rule.LAST_TURNS, 2)
    assert standing(None) == NO_POLICY
    assert standing(Policy(window=window, trigger=TurnCount(5))) == Standing((Mark(6, 0),), summarizes=False)
    assert standing(Policy(window=window, summarizer=LlmSummarizer())) == Standing((Mark(0, 0),), summarizes=True)
    assert standing(Policy(window=window, summarizer=TextSummarizer(text="x"))).summarizes is False


def test_only_a_budget_that_keeps_room_for_a_summary_holds_the_whole_summary_to_it() -> None:
    room = LlmSummarizer(max_tokens=100)
    assert Policy(window=Window(Rule.TOKEN_BUDGET, 1000), summarizer=room).fits_summary
    assert not Policy(window=Window(Rule.TOKEN_BUDGET, 1000), summarizer=LlmSummarizer()).fits_summary
    assert not Policy(window=Window(Rule.LAST_TURNS, 3), summarizer=room).fits_summary
