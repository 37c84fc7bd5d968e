import pytest

from app.domain import trigger
from app.domain.trigger import AllOf, Always, AnyOf, TokenCount, Trigger, TurnCount

YES, NO = Always(), TurnCount(1_000_000)


@pytest.mark.parametrize(
    ("given", "turns", "tokens", "fires"),
    [
        (Always(), 0, 0, True),  # even on an empty view
        (TurnCount(3), 3, 0, False),  # as many turns as the threshold are not more
        (TurnCount(3), 4, 0, True),  # one more does
        (TokenCount(100), 0, 99, False),  # one less
        (TokenCount(100), 0, 100, True),  # at least, unlike the turns
        (AnyOf((NO, YES)), 1, 1, True),  # one fires
        (AnyOf((NO, NO)), 1, 1, False),  # none fires
        (AllOf((YES, YES)), 1, 1, True),  # all fire
        (AllOf((YES, NO)), 1, 1, False),  # one does not
        (AnyOf((TurnCount(5), TokenCount(10))), 1, 10, True),  # one is enough
        (AllOf((TurnCount(5), TokenCount(10))), 1, 10, False),  # one is not enough
        (AllOf((AnyOf((NO, TokenCount(10))), TurnCount(0))), 1, 10, True),  # they nest
        (AnyOf((AllOf((YES, NO)), NO)), 9, 9, False),  # nested, and neither fires
    ],
)
def test_a_trigger_fires_on_the_views_turns_and_tokens(given: Trigger, turns: int, tokens: int, fires: bool) -> None:
    assert trigger.fires(given, turns=turns, tokens=tokens) is fires
