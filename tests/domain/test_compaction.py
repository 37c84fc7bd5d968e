"""What the worked examples leave open; they are in test_worked_examples.py."""

import pytest

from app.domain import compaction
from app.domain.compaction import DETAILS, Left, Plan, Reason, Tokens, Unchanged
from app.domain.parts import take_apart
from app.domain.policy import LlmSummarizer, Policy, Summarizer, TextSummarizer
from app.domain.ranges import Ranges
from app.domain.trigger import Always, TokenCount, Trigger, TurnCount
from app.domain.window import Rule, Window
from tests.domain.logs import Log

TEXT = TextSummarizer(text="so far")


def turns(size: int, summarizer: Summarizer | None = None, trigger: Trigger | None = None) -> Policy:
    return Policy(window=Window(Rule.LAST_TURNS, size), summarizer=summarizer, trigger=trigger or Always())


def budget(size: int, summarizer: Summarizer | None = None) -> Policy:
    return Policy(window=Window(Rule.TOKEN_BUDGET, size), summarizer=summarizer)


def planned(log: Log, policy: Policy) -> Plan:
    plan = compaction.plan(log.view, policy)
    assert isinstance(plan, Plan)
    return plan


def reason(log: Log, policy: Policy) -> Reason:
    unchanged = compaction.plan(log.view, policy)
    assert isinstance(unchanged, Unchanged)
    return unchanged.reason


def test_a_view_is_taken_apart_in_the_words_of_the_window_rules() -> None:
    log = Log("S1 P1 U1 A1 U2 A2")
    log.compact(turns(1, TEXT), (2, 3))
    log.append("S2 U3")
    parts = take_apart(log.view)
    assert parts.prompt is not None
    assert log.names([parts.prompt.seq]) == ["S2"]
    assert log.names(event.seq for event in parts.superseded) == ["S1"]
    assert log.names(event.seq for event in parts.preamble) == ["P1"]
    assert log.names(event.seq for event in parts.summaries) == ["QU1", "QA1"]
    assert log.names(event.seq for event in parts.turns) == ["U2", "A2", "U3"]


def test_an_empty_view_has_no_parts() -> None:
    parts = take_apart(Log().view)
    assert (parts.prompt, parts.superseded, parts.preamble, parts.summaries, parts.turns) == (None, (), (), (), ())


@pytest.mark.parametrize(
    ("words", "policy", "why"),
    [
        ("U1 A1 U2 A2", turns(1, trigger=TurnCount(2)), Reason.TRIGGER_NOT_FIRED),  # two turns are not more than two
        ("", turns(1), Reason.NO_TURN),  # an empty view
        ("", turns(1, trigger=TokenCount(1)), Reason.TRIGGER_NOT_FIRED),  # the trigger is asked first
        ("S1 P1 X1", turns(1), Reason.NO_TURN),  # nobody asked anything yet
        ("P1 U1 A1", turns(1), Reason.FITS_WINDOW),  # as many turns as the window keeps
        ("P1 U1 A1", budget(10), Reason.NEWEST_TURN_ONLY),  # a single turn, though it is over the budget
        ("U1 C1 U2 R1", turns(1), Reason.NO_SAFE_CUT),  # the only cut parts a call from its result
    ],
)
def test_nothing_is_planned_for_a_reason_that_is_told(words: str, policy: Policy, why: Reason) -> None:
    log = Log(words)
    unchanged = compaction.plan(log.view, policy)
    assert isinstance(unchanged, Unchanged)
    assert unchanged.reason is why
    assert unchanged.detail == DETAILS[why]
    assert unchanged.tokens == log.view.tokens


def test_every_reason_has_a_sentence() -> None:
    assert DETAILS.keys() == set(Reason)
    assert all(detail.endswith(".") for detail in DETAILS.values())


def test_the_trigger_looks_at_the_view_and_not_at_the_log() -> None:
    log = Log("U1 A1 U2 A2 U3 A3")
    log.compact(turns(1))
    log.append("U4 A4")
    assert reason(log, turns(1, trigger=TurnCount(2))) is Reason.TRIGGER_NOT_FIRED
    assert planned(log, turns(1, trigger=TurnCount(1)))


def test_a_plan_names_what_it_was_made_from() -> None:
    log = Log("U1 A1 U2 A2")
    assert (planned(log, turns(1)).version, planned(log, turns(1)).boundary) == (4, None)
    log.compact(turns(1))
    log.append("U3")
    assert (planned(log, turns(1)).version, planned(log, turns(1)).boundary) == (6, 5)


def test_a_plan_counts_what_leaves_the_view_and_what_the_kept_turns_hold() -> None:
    log = Log("S1 P1:7 U1:1 A1:2 S2:4 U2 A2 X1 U3 A3")
    plan = planned(log, turns(1))
    assert (plan.covered_events, plan.covered_turns, plan.covered_tokens) == (5, 2, 10 + 1 + 2 + 10 + 10)
    assert plan.preserved_events == 2
    assert plan.tokens == Tokens(64, 31)
    assert plan.tokens.saved == plan.covered_tokens


def test_coverage_is_cumulative_and_bridges_what_was_never_in_a_view() -> None:
    log = Log("U1 X1 A1 U2 A2")
    assert planned(log, turns(1)).covered == Ranges(((1, 3),))
    log.compact(turns(1))
    log.append("U3 A3")
    plan = planned(log, turns(1))
    assert plan.covered == Ranges(((1, 5),))
    assert plan.newly_covered == Ranges(((4, 5),))
    assert plan.preserved == Ranges(((7, 8),))


def test_what_is_newly_covered_bridges_nothing_that_was_covered_before() -> None:
    log = Log("S1 U1 A1 U2 A2")
    log.compact(turns(1))
    log.append("S2 U3 A3")
    plan = planned(log, turns(1))
    assert plan.newly_covered == Ranges(((1, 1), (4, 5)))
    assert plan.covered == Ranges(((1, 5),))


def test_what_is_preserved_bridges_custom_events_but_no_pinned_one() -> None:
    plan = planned(Log("U1 A1 U2 X1 A2 S1 U3"), turns(2))
    assert plan.preserved == Ranges(((3, 5), (7, 7)))
    assert plan.pinned == (6,)


def test_a_summarizer_with_a_bound_comes_off_the_budget() -> None:
    log = Log("U1 A1 U2 A2 U3 A3")
    assert planned(log, budget(40, LlmSummarizer())).preserved_events == 4
    assert planned(log, budget(40, LlmSummarizer(max_tokens=1))).preserved_events == 2
    assert reason(log, budget(60, LlmSummarizer())) is Reason.FITS_WINDOW
    assert planned(log, budget(60, LlmSummarizer(max_tokens=1))).preserved_events == 4


def test_an_earlier_summary_comes_off_a_budget_only_when_it_stays() -> None:
    log = Log("U1 A1 U2 A2")
    log.compact(turns(1, TEXT), (2, 5))
    log.append("U3 A3")
    assert planned(log, budget(46)).preserved_events == 2
    assert reason(log, budget(47)) is Reason.FITS_WINDOW
    assert reason(log, budget(40, TEXT)) is Reason.FITS_WINDOW


def test_superseded_system_messages_use_no_budget() -> None:
    assert reason(Log("S1:500 U1 A1 S2 U2 A2"), budget(50)) is Reason.FITS_WINDOW


@pytest.mark.parametrize(
    ("window", "tokens", "over"),
    [
        (Window(Rule.TOKEN_BUDGET, 100), 100, False),  # exactly equal fits
        (Window(Rule.TOKEN_BUDGET, 100), 101, True),  # one more
        (Window(Rule.LAST_TURNS, 1), 10**9, False),  # there is no budget to be over
        (Window(Rule.LAST_EVENTS, 1), 10**9, False),  # nor here
    ],
)
def test_only_a_budget_can_be_exceeded(window: Window, tokens: int, over: bool) -> None:
    assert compaction.over_budget(window, tokens) is over
    lost = compaction.staying(Reason.LOST_RACE, Policy(window=window), tokens)
    assert lost == Unchanged(reason=Reason.LOST_RACE, tokens=tokens, over_budget=over)


def test_a_view_that_cannot_be_made_small_enough_is_reported() -> None:
    unchanged = compaction.plan(Log("U1:500 A1").view, budget(100))
    assert isinstance(unchanged, Unchanged)
    assert unchanged.over_budget


def test_without_a_summarizer_a_plan_stands_as_it_is() -> None:
    plan = planned(Log("U1:0 A1:0 U2"), turns(1))
    assert plan.tokens.saved == 0
    assert compaction.seal(plan, turns(1), None) is plan


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        (None, Reason.SUMMARIZER_DECLINED),  # the summarizer wrote nothing
        (20, Reason.DOES_NOT_SHRINK),  # just as large as what it replaces
        (21, Reason.DOES_NOT_SHRINK),  # larger
    ],
)
def test_a_summary_that_makes_nothing_smaller_is_not_written(summary: int | None, why: Reason) -> None:
    policy = budget(35, TEXT)
    plan = planned(Log("S1 U1 A1 U2 A2"), policy)
    assert compaction.seal(plan, policy, summary) == Unchanged(reason=why, tokens=50, over_budget=True)


@pytest.mark.parametrize(
    ("summary", "after"),
    [
        (19, 49),  # smaller by a single token is smaller
        (0, 30),  # a summary of no tokens is a summary
    ],
)
def test_a_sealed_plan_has_the_figures_with_its_summary(summary: int, after: int) -> None:
    plan = planned(Log("S1 U1 A1 U2 A2"), turns(1, TEXT))
    sealed = compaction.seal(plan, turns(1, TEXT), summary)
    assert isinstance(sealed, Plan)
    assert sealed.tokens == Tokens(50, after)
    assert sealed.covered == plan.covered


def test_events_appended_between_plan_and_write_are_part_of_the_tail() -> None:
    log = Log("S1 U1 A1 U2 A2")
    plan = planned(log, turns(1, TEXT))
    log.append("S2 U3 X1 A3")
    log.write(plan, (2, 3))
    assert log.shown() == ["S1", "S2", "QU1", "QA1", "U2", "A2", "U3", "A3"]


def test_covering_is_everything_neither_pinned_nor_preserved() -> None:
    log = Log("S1 U1 A1 S2 U2")
    by_name = {log.name_of[event.seq]: event for event in log.events}
    plan = compaction.covering(log.view, pinned=[by_name["S2"]], preserved=[by_name["U2"]])
    assert plan.covered == plan.newly_covered == Ranges(((1, 3),))
    everything = compaction.covering(log.view, pinned=[], preserved=[])
    assert (everything.covered, everything.covered_events, everything.tokens.after) == (Ranges(((1, 5),)), 5, 0)


def narrowed(said: str, shown: int, kept: int = 1) -> tuple[int, int] | None:
    """Return the plan for a summarizer that was shown no more than ``shown``, as (last covered, tokens left)."""
    log = Log(said)
    plan = compaction.narrowed(log.view, turns(kept, LlmSummarizer()), shown)
    return None if plan is None else (plan.covered.pairs[-1][1], plan.tokens.after)


@pytest.mark.parametrize(
    ("said", "shown", "covered"),
    [
        ("U1 A1 U2 A2 U3 A3", 4, 4),  # two whole turns were shown
        ("U1 A1 U2 A2 U3 A3", 3, 2),  # half of the second does not count
        ("U1 A1 U2 A2 U3 A3", 6, 4),  # the newest turn stays, whatever was shown
        ("U1 A1 U2 A2 U3 A3", 1, None),  # not one whole turn
        ("S1 P1 U1 A1 U2 A2", 4, 4),  # neither the prompt nor the preamble is covered
        ("U1 C1 U2 R1 U3 A3", 2, None),  # the only cut would part a call from its result
        ("U1 C1 U2 R1 U3 A3", 4, 4),  # one turn more has both
    ],
)
def test_no_more_is_covered_than_the_summarizer_was_shown(said: str, shown: int, covered: int | None) -> None:
    found = narrowed(said, shown)
    assert (found and found[0]) == covered


def limited(said: str, tokens: int) -> int:
    """Return up to which seq a plan covers that may cover about so many tokens."""
    log = Log(said)
    policy = turns(1, LlmSummarizer())
    return compaction.limited(log.view, policy, planned(log, policy), tokens).covered.pairs[-1][1]


@pytest.mark.parametrize(
    ("tokens", "covered"),
    [
        (1000, 6),  # all of it is less
        (60, 6),  # as much as it is
        (59, 4),  # two whole turns
        (45, 4),  # half a turn more does not count
        (20, 2),  # one turn
        (5, 6),  # not even one, so nothing is gained by covering less
    ],
)
def test_no_more_is_planned_than_a_summarizer_has_time_for(tokens: int, covered: int) -> None:
    assert limited("U1 A1 U2 A2 U3 A3 U4 A4", tokens) == covered


@pytest.mark.parametrize(
    ("policy", "found", "why", "rests"),
    [
        (budget(40), Left(turns=3, events=7), None, Left(events=7)),  # a turn that grows may push another one out
        (budget(40), Left(turns=1, events=7), None, Left(turns=1)),  # one turn always stays
        (turns(2), Left(turns=2, events=7), None, Left(turns=2)),  # its window counts turns
        (budget(40), Left(turns=3, events=7), Reason.DOES_NOT_SHRINK, Left(turns=3)),  # trying again costs money
        (budget(40), Left(turns=3, events=7), Reason.NO_SAFE_CUT, Left(events=7)),  # a result may come
    ],
)
def test_a_view_rests_until_it_has_grown_by_what_can_change_it(
    policy: Policy, found: Left, why: Reason | None, rests: Left
) -> None:
    assert compaction.resting(policy, found, why) == rests
