"""What holds for every log and every series of compactions, checked on random ones."""

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain import chat_memory, compaction, window
from app.domain import view as views
from app.domain.chat_memory import Remembered
from app.domain.compaction import Plan, Reason, Unchanged
from app.domain.event import ROLES, Event
from app.domain.ranges import Ranges
from app.domain.trigger import Always
from app.domain.window import Rule
from tests.domain.plain_rules import expected, older_kind, pairs_of, split
from tests.domain.random_logs import SAID, STEPS, Steps, shown_seqs, walk, written

many = settings(max_examples=50, deadline=None)

SEQS = st.frozensets(st.integers(1, 40), max_size=25)


@many
@given(SEQS, SEQS)
def test_ranges_are_a_set(one: frozenset[int], other: frozenset[int]) -> None:
    ranges = Ranges.of(one)
    assert list(ranges) == sorted(one)
    assert [seq for seq in range(45) if seq in ranges] == sorted(one)
    assert Ranges.of(one) | Ranges.of(other) == Ranges.of(one | other)
    assert bool(ranges) is bool(one)
    assert (ranges == Ranges.of(other)) is (one == other)


@many
@given(SEQS, st.integers(0, 42), st.integers(0, 42))
def test_a_span_meets_ranges_where_a_seq_of_it_is_in_the_set(seqs: frozenset[int], first: int, last: int) -> None:
    assert Ranges.of(seqs).meets(first, last) is bool(seqs & set(range(first, last + 1)))


@many
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), max_size=8))
def test_joined_ranges_hold_every_seq_and_never_touch(spans: list[tuple[int, int]]) -> None:
    pairs = [(first, first + length) for first, length in spans]
    ranges = Ranges.joined(pairs)
    assert set(ranges) == {seq for first, last in pairs for seq in range(first, last + 1)}
    assert all(first <= last for first, last in ranges.pairs)
    assert all(earlier[1] + 1 < later[0] for earlier, later in itertools.pairwise(ranges.pairs))


@many
@given(SEQS, SEQS)
def test_bridged_ranges_hold_all_of_the_set_nothing_of_outside_and_are_the_fewest(
    seqs: frozenset[int], others: frozenset[int]
) -> None:
    outside = others - seqs
    bridged = Ranges.of(seqs).bridged(Ranges.of(outside))
    assert seqs <= set(bridged)
    assert not outside & set(bridged)
    ascending = sorted(seqs)
    parted = sum(any(low < seq < high for seq in outside) for low, high in itertools.pairwise(ascending))
    assert len(bridged.pairs) == (parted + 1 if seqs else 0)
    assert all(first in seqs and last in seqs for first, last in bridged.pairs)


@many
@given(STEPS)
def test_a_plan_is_what_the_rules_say_word_by_word(steps: Steps) -> None:
    for done in walk(steps).done:
        told = expected(done.before, done.asked.policy)
        if isinstance(done.planned, Unchanged):
            assert done.planned.reason is told
            assert done.planned.tokens == done.before.tokens
            continue
        shown = shown_seqs(done.before)
        parts = split(done.before)
        kept_summaries = parts.summaries if done.asked.policy.summarizer is None else []
        pinned = [event.seq for event in [*parts.prompt, *parts.preamble, *kept_summaries]]
        assert [seq for seq in done.planned.preserved if seq in shown] == told
        assert list(done.planned.pinned) == pinned
        assert {seq for seq in done.planned.newly_covered if seq in shown} == set(shown) - set(told) - set(pinned)


@many
@given(STEPS)
def test_coverage_only_grows_and_reaches_no_further_than_the_view_it_was_planned_on(steps: Steps) -> None:
    for done, plan in written(steps):
        assert set(done.before.covered) < set(plan.covered)
        assert max(plan.covered) <= done.before.version == plan.version
        assert done.after.covered == plan.covered


@many
@given(STEPS)
def test_the_cut_is_a_turn_start_and_the_newest_turn_stays(steps: Steps) -> None:
    for done, plan in written(steps):
        turns = split(done.before).turns
        kept = [event for event in turns if event.seq in plan.preserved]
        assert kept[0].starts_turn
        assert turns[-len(kept) :] == kept
        newest = max(event.seq for event in turns if event.starts_turn)
        assert {event.seq for event in turns if event.seq >= newest} <= set(plan.preserved)
        assert not {event.seq for event in turns if event.seq >= newest} & set(plan.covered)


@many
@given(STEPS)
def test_no_call_is_parted_from_its_result(steps: Steps) -> None:
    for done, plan in written(steps):
        for call, result in pairs_of(split(done.before).turns):
            assert (call.seq in plan.covered) is (result.seq in plan.covered)


@many
@given(STEPS)
def test_the_view_after_a_boundary_is_prompt_preamble_summary_and_a_suffix_of_the_turns(steps: Steps) -> None:
    for done, plan in written(steps):
        parts = split(done.before)
        summarized = done.asked.policy.summarizer is not None
        boundary = done.after.boundary
        assert boundary is not None
        told = [boundary + 1, boundary + 2] if summarized else [event.seq for event in parts.summaries]
        head = [*(event.seq for event in [*parts.prompt, *parts.preamble]), *told]
        kept = [event.seq for event in parts.turns if event.seq in plan.preserved]
        if done.alone:
            assert shown_seqs(done.after) == [*head, *kept]
            continue
        # What was appended meanwhile stays as it is: its system messages behind the prompt, the rest at the end.
        meanwhile = [event for event in done.after.events if done.before.version < event.seq < boundary]
        said = [event.seq for event in done.asked.meanwhile if event.is_message]
        assert len(meanwhile) == len(said)
        system = [event.seq for event in meanwhile if event.is_system]
        rest = [event.seq for event in meanwhile if not event.is_system]
        at = len(parts.prompt)
        assert shown_seqs(done.after) == [*head[:at], *system, *head[at:], *kept, *rest]


@many
@given(STEPS)
def test_kept_figures_equal_those_counted(steps: Steps) -> None:
    walked = walk(steps)
    view = walked.log.view
    assert (walked.events, walked.turns, walked.tokens) == (len(view.events), view.turns, view.tokens)
    assert view.tokens == sum(event.token_count for event in view.events)
    assert view.turns == len([event for event in view.events if event.role == "user" and not event.synthetic])
    for done in walked.done:
        if isinstance(done.outcome, Plan) and done.alone:
            assert done.outcome.tokens == (done.before.tokens, done.after.tokens)
            assert done.outcome.covered_events == len(set(shown_seqs(done.before)) - set(shown_seqs(done.after)))
            assert done.outcome.covered_turns == done.before.turns - done.after.turns
        if isinstance(done.outcome, Unchanged):
            assert done.outcome.tokens == done.before.tokens
            budget = done.asked.policy.window.rule is Rule.TOKEN_BUDGET
            assert done.outcome.over_budget is (budget and done.before.tokens > done.asked.policy.window.size)


@many
@given(STEPS)
def test_with_a_summary_a_view_always_gets_smaller_and_without_one_never_larger(steps: Steps) -> None:
    for done, plan in written(steps):
        assert plan.tokens.saved >= (0 if done.asked.policy.summarizer is None else 1)


@many
@given(STEPS)
def test_a_boundary_has_at_most_one_range_more_than_events_that_stay(steps: Steps) -> None:
    for done, plan in written(steps):
        kept = [seq for seq in shown_seqs(done.before) if seq not in plan.covered]
        assert len(plan.covered.pairs) <= len(kept) + 1
        assert not set(plan.covered) & set(kept)
        assert not set(plan.newly_covered) & (set(kept) | set(done.before.covered))
        assert set(shown_seqs(done.before)) == set(kept) | (set(shown_seqs(done.before)) & set(plan.newly_covered))
        assert not set(plan.preserved) & (set(plan.covered) | set(plan.pinned))


@many
@given(STEPS)
def test_a_pass_that_writes_nothing_changes_nothing(steps: Steps) -> None:
    for done in walk(steps).done:
        if isinstance(done.outcome, Unchanged) and (done.alone or isinstance(done.planned, Unchanged)):
            assert done.after == done.before


@many
@given(STEPS)
def test_the_same_pass_at_once_again_writes_nothing(steps: Steps) -> None:
    for done, _plan in written(steps):
        if not done.alone:
            continue
        again = compaction.plan(done.after, replace(done.asked.policy, trigger=Always()))
        assert isinstance(again, Unchanged)
        assert again.reason in {Reason.FITS_WINDOW, Reason.NEWEST_TURN_ONLY, Reason.NO_SAFE_CUT}


@many
@given(STEPS)
def test_every_view_ever_served_can_be_replayed(steps: Steps) -> None:
    walked = walk(steps)
    for version, view in walked.served.items():
        assert views.replay(walked.log.events, version) == view
        assert views.replay(walked.log.events[:version]) == view


@many
@given(STEPS)
def test_a_view_holds_every_message_that_is_not_covered_once(steps: Steps) -> None:
    log = walk(steps).log
    for version in range(log.version + 1):
        view = views.replay(log.events, version)
        boundaries = [event for event in log.events[:version] if event.type == "COMPACTION"]
        covered = set(boundaries[-1].covered or ()) if boundaries else set()
        stored = [event.seq for event in log.events[:version] if event.type == "MESSAGE"]
        assert sorted(shown_seqs(view)) == [seq for seq in stored if seq not in covered]


@many
@given(STEPS)
def test_between_two_boundaries_a_view_only_grows_at_its_end(steps: Steps) -> None:
    walked = walk(steps)
    served = [walked.served[version] for version in sorted(walked.served)]
    for earlier, later in itertools.pairwise(served):
        if earlier.boundary == later.boundary:
            assert later.events[: len(earlier.events)] == earlier.events


@many
@given(st.lists(SAID, max_size=15), st.integers(1, 17))
def test_the_newest_events_begin_at_the_last_turn_start_before_them(said: list[Event], count: int) -> None:
    newest = views.last(said, count)
    assert tuple(said[len(said) - len(newest) :]) == newest
    assert len(newest) >= min(count, len(said))
    if newest and not newest[0].starts_turn:
        assert len(newest) == min(count, len(said))
        assert not any(event.starts_turn for event in said[: len(said) - len(newest) + 1])
    elif len(newest) > count:
        assert not any(event.starts_turn for event in newest[1 : len(newest) - count + 1])


@many
@given(st.lists(SAID, max_size=20), st.data())
def test_a_safe_cut_is_the_nearest_turn_start_that_parts_no_pair(said: list[Event], data: st.DataObject) -> None:
    turns = [replace(event, seq=seq) for seq, event in enumerate([Event(seq=1, role="user"), *said], start=1)]
    starts = [at for at, event in enumerate(turns) if event.starts_turn]
    cut = data.draw(st.sampled_from(starts))
    pairs = [(call.seq - 1, result.seq - 1) for call, result in pairs_of(turns)]
    safe = [start for start in starts if start <= cut and not any(call < start <= result for call, result in pairs)]
    assert window.safe_cut(turns, cut) == max(safe)


ADDED = st.tuples(st.sampled_from(ROLES), st.sampled_from(["a", "b", "c"]))


def remembered(events: list[Event], says: dict[int, str]) -> list[Remembered]:
    return [Remembered(event, {"role": event.role, "content": says[event.seq]}) for event in events]


@many
@given(st.lists(st.lists(ADDED, min_size=1, max_size=8), max_size=6), st.integers(1, 8))
def test_a_chat_memory_is_what_the_rule_says_message_by_message(adds: list[list[tuple[str, str]]], size: int) -> None:
    memory: list[Event] = []
    says: dict[int, str] = {}
    for add in adds:
        added = [Event(seq=len(says) + at, role=role) for at, (role, _) in enumerate(add, start=1)]  # type: ignore[arg-type]
        says |= {event.seq: text for event, (_, text) in zip(added, add, strict=True)}
        gone = chat_memory.evicted(remembered(memory, says), remembered(added, says), size)
        after = older_kind(memory, added, says, size)
        memory = [event for event in [*memory, *added] if event not in gone]
        assert memory == after
