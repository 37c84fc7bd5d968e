import pytest

from app.domain import view
from app.domain.event import Event
from app.domain.ranges import NOTHING, Ranges
from tests.domain.logs import Log, boundary, synthetic


def covering(log: Log, *names: str) -> Ranges:
    """Return the seqs of named events as ranges."""
    return Ranges.of(seq for seq, name in log.name_of.items() if name in names)


def compacted(log: Log, covered: str, *, summary: bool = False) -> Log:
    """Write a boundary that covers the named events, with or without a summary turn of 2 and 10 tokens."""
    log.add(boundary(log.version + 1, covering(log, *covered.split())), f"B{log.version + 1}")
    if summary:
        number = 1 + sum(name.startswith("QU") for name in log.name_of.values())
        log.add(synthetic(log.version + 1, "user", 2), f"QU{number}")
        log.add(synthetic(log.version + 1, "assistant", 10), f"QA{number}")
    return log


def test_the_view_of_an_empty_log_is_empty() -> None:
    assert view.replay([]) == view.View(version=0, boundary=None, covered=NOTHING, events=())


def test_without_a_boundary_every_message_event_is_in_the_view_in_log_order() -> None:
    log = Log("P1 S1 U1 X1 A1 S2 U2")
    assert log.shown() == ["P1", "S1", "U1", "A1", "S2", "U2"]
    assert (log.view.version, log.view.boundary) == (7, None)


def test_a_boundary_hides_what_it_covers() -> None:
    log = compacted(Log("U1 A1 U2 A2"), "U1 A1")
    assert log.shown() == ["U2", "A2"]
    assert (log.view.version, log.view.boundary, log.view.covered) == (5, 5, Ranges(((1, 2),)))


def test_only_the_newest_boundary_counts() -> None:
    log = compacted(Log("U1 A1 U2 A2"), "U1 A1").append("U3 A3")
    assert compacted(log, "U1 A1 U2 A2").shown() == ["U3", "A3"]


def test_the_prompt_comes_first_then_preamble_summary_turns_and_what_came_after() -> None:
    log = Log("P1 U1 A1 U2 S1 A2")
    compacted(log, "U1 A1", summary=True).append("A3 S2 U3")
    assert log.shown() == ["S1", "P1", "QU1", "QA1", "U2", "A2", "A3", "S2", "U3"]


def test_summaries_stand_oldest_first() -> None:
    log = compacted(Log("U1 A1 U2 A2"), "U1 A1", summary=True).append("U3")
    assert compacted(log, "U1 A1 U2 A2", summary=True).shown() == ["QU1", "QA1", "QU2", "QA2", "U3"]


def test_a_summary_that_is_covered_leaves_the_view() -> None:
    log = compacted(Log("U1 A1 U2 A2"), "U1 A1", summary=True).append("U3")
    assert compacted(log, "U1 A1 U2 A2 QU1 QA1", summary=True).shown() == ["QU2", "QA2", "U3"]


def test_what_was_appended_while_the_boundary_was_made_is_part_of_the_view() -> None:
    log = Log("S1 U1 A1 U2 A2")
    plan = covering(log, "U1", "A1")
    log.append("A3 S2 U3")
    log.add(boundary(log.version + 1, plan))
    assert log.shown() == ["S1", "S2", "U2", "A2", "A3", "U3"]


def test_without_a_turn_before_the_boundary_everything_there_is_preamble() -> None:
    log = Log("S1 S2 P1 P2")
    assert compacted(log, "S1", summary=True).append("U1").shown() == ["S2", "P1", "P2", "QU1", "QA1", "U1"]


def test_a_boundary_may_cover_everything() -> None:
    log = compacted(Log("S1 U1 A1"), "S1 U1 A1")
    assert log.shown() == []
    assert log.append("U2").shown() == ["U2"]


def test_an_earlier_view_is_the_replay_of_the_log_up_to_there() -> None:
    log = compacted(Log("U1 A1 U2 A2"), "U1 A1", summary=True)
    log.append("U3")
    assert [log.names(event.seq for event in view.replay(log.events, version).events) for version in range(9)] == [
        [],
        ["U1"],
        ["U1", "A1"],
        ["U1", "A1", "U2"],
        ["U1", "A1", "U2", "A2"],
        ["U2", "A2"],  # the boundary alone
        ["QU1", "U2", "A2"],  # and half of its summary
        ["QU1", "QA1", "U2", "A2"],
        ["QU1", "QA1", "U2", "A2", "U3"],
    ]
    assert view.replay(log.events, 4).boundary is None
    assert view.replay(log.events, 4).version == 4
    assert view.replay(log.events) == view.replay(log.events, log.version)


def test_a_summary_counts_as_tokens_and_not_as_a_turn() -> None:
    log = compacted(Log("S1 U1 A1 U2:7 A2 X1"), "U1 A1", summary=True)
    assert (log.view.turns, log.view.tokens) == (1, 10 + 7 + 10 + 2 + 10)


@pytest.mark.parametrize(
    ("words", "count", "newest"),
    [
        ("", 3, ""),  # nothing there
        ("U1 A1 U2 A2", 9, "U1 A1 U2 A2"),  # fewer than asked for
        ("U1 A1 U2 A2", 4, "U1 A1 U2 A2"),  # exactly as many
        ("U1 A1 U2 A2", 2, "U2 A2"),  # lands on a turn start
        ("U1 A1 U2 A2", 1, "U2 A2"),  # back to the start of the turn
        ("U1 A1 U2 A2", 3, "U1 A1 U2 A2"),  # back to the start of an earlier one
        ("P1 P2 A1 U1 A2", 3, "A1 U1 A2"),  # no turn starts at or before the place: just the newest
        ("P1 P2 P3", 2, "P2 P3"),  # no turn at all
        ("S1 U1 A1 A2", 1, "U1 A1 A2"),  # prompt and preamble are not added back
    ],
)
def test_the_newest_events_are_extended_back_to_the_start_of_their_turn(words: str, count: int, newest: str) -> None:
    log = Log(words)
    assert log.names(event.seq for event in view.last(log.events, count)) == newest.split()


def test_a_summary_is_no_start_to_extend_back_to() -> None:
    summary = [Event(seq=6, role="user", synthetic=True), Event(seq=7, role="assistant", synthetic=True)]
    assert view.last(summary, 1) == (summary[1],)
