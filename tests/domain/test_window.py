import pytest

from app.domain import window
from app.domain.event import Event
from app.domain.window import Rule, Window
from tests.domain.logs import events


@pytest.mark.parametrize(
    ("rule", "size", "reserved", "words", "cut"),
    [
        (Rule.LAST_EVENTS, 4, 0, "U1 A1 U2 A2", 0),  # exactly as many
        (Rule.LAST_EVENTS, 3, 0, "U1 A1 U2 A2", 1),  # the raw cut can lie inside a turn
        (Rule.LAST_EVENTS, 100, 0, "U1 A1", 0),  # more than there are
        (Rule.LAST_EVENTS, 1, 10**9, "U1 A1", 1),  # reserved tokens are a budget's business
        (Rule.LAST_TURNS, 2, 0, "U1 A1 U2 A2", 0),  # exactly as many
        (Rule.LAST_TURNS, 1, 0, "U1 A1 U2 A2", 2),  # a turn start already
        (Rule.LAST_TURNS, 1, 0, "U1 U2 U3", 2),  # turns of one event
        (Rule.LAST_TURNS, 10**30, 0, "U1 A1", 0),  # a size beyond any machine word
        (Rule.LAST_TURNS, 1, 10**9, "U1 A1", 0),  # and so they are here
        (Rule.TOKEN_BUDGET, 40, 0, "U1 A1 U2 A2", 0),  # exactly equal fits
        (Rule.TOKEN_BUDGET, 39, 0, "U1 A1 U2 A2", 1),  # one less
        (Rule.TOKEN_BUDGET, 40, 1, "U1 A1 U2 A2", 1),  # what is reserved comes off first
        (Rule.TOKEN_BUDGET, 40, 40, "U1 A1 U2 A2", 4),  # nothing left
        (Rule.TOKEN_BUDGET, 40, 99, "U1 A1 U2:0 A2:0", 4),  # less than nothing left: not even events of no tokens
        (Rule.TOKEN_BUDGET, 40, 40, "U1 A1 U2:0 A2:0", 2),  # but of nothing, nothing is enough
        (Rule.TOKEN_BUDGET, 100, 0, "U1 A1 U2:300 A2 U3 A3", 3),  # stops at the first that does not fit
        (Rule.TOKEN_BUDGET, 5, 0, "U1 A1", 2),  # the newest event alone is too large
    ],
)
def test_the_raw_cut_is_where_the_window_begins(rule: Rule, size: int, reserved: int, words: str, cut: int) -> None:
    assert window.raw_cut(Window(rule, size), events(words), reserved) == cut


@pytest.mark.parametrize(
    ("words", "raw", "cut"),
    [
        ("U1 A1 U2 A2 U3 A3", 2, 2),  # on a turn start already
        ("U1 A1 U2 A2 U3 A3", 3, 4),  # forward to the next
        ("U1 A1 U2 A2 U3 A3", 5, 4),  # none ahead: back to the newest turn
        ("U1 A1 U2 A2 U3 A3", 6, 4),  # even from behind the last event
        ("U1 A1 A2 A3", 2, 0),  # a single turn
        ("U1 U2", 1, 1),  # turns of one event
    ],
)
def test_a_cut_moves_to_a_turn_start(words: str, raw: int, cut: int) -> None:
    assert window.turn_cut(events(words), raw) == cut


@pytest.mark.parametrize(
    ("words", "cut", "safe"),
    [
        ("U1 A1 U2 A2", 2, 2),  # no calls
        ("U1 C1 R1 U2 A2", 3, 3),  # call and result on the same side
        ("U1 C1 U2 R1", 2, 0),  # parted, and no earlier turn to go to
        ("U1 A1 U2 C2 U3 R2 U4", 4, 2),  # back to the turn of the call
        ("U1 A1 U2 C2 U3 A3 U4 R2", 6, 2),  # over a whole turn in between
        ("U1 A1 U2 C2 U3 C3 R2 U4 R3", 7, 2),  # one pair leads back to the next
        ("U1 C1 U2 C2 U3 R2 U4 R1", 6, 0),  # one inside the other
        ("U1 C1 U2 A2", 2, 2),  # a call that never got its result holds nothing back
        ("U1 A1 U2 R9 A2", 2, 2),  # neither does a result whose call never was
        ("U1 C1 R1 U2 R1", 3, 0),  # a second result of the same call
        ("U1 C1 U2 C1 R1 U3", 5, 5),  # the id again: the result belongs to the newest open call
        ("U1 C1 U2 C1 R1 U3 R1", 2, 0),  # and the next result to the older one
        ("U1 A1 U2 A2 U3", 0, 0),  # a cut at the very first turn stays there
    ],
)
def test_a_cut_moves_back_while_it_parts_a_call_from_its_result(words: str, cut: int, safe: int) -> None:
    assert window.safe_cut(events(words), cut) == safe


def test_the_first_event_of_the_turns_is_never_cut_off_by_a_result_from_before() -> None:
    turns = [Event(seq=2, role="user"), Event(seq=3, role="tool", answers="elsewhere"), Event(seq=4, role="user")]
    assert window.safe_cut(turns, 2) == 2
