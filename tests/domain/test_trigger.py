import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from app.domain import trigger
from app.domain.trigger import AllOf, Always, AnyOf, Mark, TokenCount, Trigger, TurnCount

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


MARKS = [
    (Always(), (Mark(0, 0),)),  # every view
    (TurnCount(3), (Mark(4, 0),)),  # more than the threshold
    (TokenCount(100), (Mark(0, 100),)),  # at least the threshold
    (AnyOf((TurnCount(3), TokenCount(100))), (Mark(0, 100), Mark(4, 0))),  # one or the other
    (AllOf((TurnCount(3), TokenCount(100))), (Mark(4, 100),)),  # both
    (AnyOf((TokenCount(100), TokenCount(50), Always())), (Mark(0, 0),)),  # whatever always passes hides the rest
    (AllOf((Always(), TurnCount(1))), (Mark(2, 0),)),  # always adds nothing
    (AllOf((AnyOf((TurnCount(3), TokenCount(9))), TokenCount(5))), (Mark(0, 9), Mark(4, 5))),  # they nest
]


@pytest.mark.parametrize(("given", "marks"), MARKS)
def test_a_trigger_is_a_set_of_marks_of_which_a_view_passes_one(given: Trigger, marks: tuple[Mark, ...]) -> None:
    assert trigger.marks(given) == marks


def test_a_trigger_with_too_many_marks_gets_a_lower_one_for_the_last() -> None:
    stairs = AnyOf(tuple(AllOf((TurnCount(step), TokenCount(100 - step))) for step in range(1, 7)))
    found = trigger.marks(stairs)
    assert len(found) == trigger.MOST_MARKS
    assert found[:3] == (Mark(2, 99), Mark(3, 98), Mark(4, 97))
    assert found[3] == Mark(5, 94)


LEAVES = st.sampled_from([Always(), *map(TurnCount, (1, 3, 6)), *map(TokenCount, (1, 20, 50))])
TRIGGERS: st.SearchStrategy[Trigger] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=4).map(tuple).flatmap(lambda of: st.sampled_from([AnyOf(of), AllOf(of)]))
    ),
    max_leaves=9,
)


@drawn(TRIGGERS, st.integers(0, 8), st.integers(0, 60))
def test_a_view_on_which_a_trigger_fires_passes_a_mark(given: Trigger, turns: int, tokens: int) -> None:
    found = trigger.marks(given)
    assert 1 <= len(found) <= trigger.MOST_MARKS
    passed = any(turns >= mark.turns and tokens >= mark.tokens for mark in found)
    # Three thresholds of each kind make at most four steps, so these marks are never lowered.
    assert passed is trigger.fires(given, turns=turns, tokens=tokens)


@pytest.mark.parametrize(
    ("given", "again"),
    [
        (Always(), False),  # it means whenever the window does not fit
        (TurnCount(3), True),  # four turns are kept
        (TurnCount(4), False),  # and no more
        (TokenCount(100), True),  # a hundred tokens are kept
        (TokenCount(101), False),  # and no more
        (AnyOf((TurnCount(4), TokenCount(100))), True),  # one is enough
        (AnyOf((Always(), TurnCount(4))), False),  # always does not count
        (AllOf((TurnCount(3), TokenCount(101))), False),  # one does not
        (AllOf((TurnCount(3), Always())), True),  # always stands in nobody's way
        (AllOf((Always(), Always())), False),  # and is no reason on its own
    ],
)
def test_a_trigger_that_fires_on_what_a_compaction_keeps_would_never_rest(given: Trigger, again: bool) -> None:
    assert trigger.fires_again(given, turns=4, tokens=100) is again
