import pytest

from app.domain.event import Event
from app.domain.log import Filters, Page

USER = Event(seq=1, role="user")
SUMMARY = Event(seq=2, role="user", synthetic=True)
ANSWER = Event(seq=3, role="assistant")
CUSTOM = Event(seq=4, type="ACME.AUDIT")
BOUNDARY = Event(seq=5, type="COMPACTION")
EVERYTHING = [USER, SUMMARY, ANSWER, CUSTOM, BOUNDARY]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (Filters(), EVERYTHING),  # no filter at all
        (Filters(types=("MESSAGE",)), [USER, SUMMARY, ANSWER]),  # by type
        (Filters(types=("ACME.AUDIT", "COMPACTION")), [CUSTOM, BOUNDARY]),  # any of a list
        (Filters(types=()), []),  # none of an empty one
        (Filters(roles=("user",)), [USER, SUMMARY]),  # what has no role is out
        (Filters(roles=("assistant", "tool")), [ANSWER]),  # any of a list
        (Filters(synthetic=True), [SUMMARY]),  # what a compaction wrote
        (Filters(synthetic=False), [USER, ANSWER, CUSTOM, BOUNDARY]),  # what it did not
        (Filters(types=("MESSAGE",), roles=("user",), synthetic=False), [USER]),  # every filter must match
        (Filters(types=("COMPACTION",), roles=("user",)), []),  # filters that no event passes together
    ],
)
def test_an_event_is_found_when_it_passes_every_filter(filters: Filters, found: list[Event]) -> None:
    assert [event for event in EVERYTHING if filters.match(event)] == found


def test_a_page_is_the_first_hundred_in_log_order_unless_asked_otherwise() -> None:
    assert Page() == Page(after=None, before=None, order="asc", limit=100)


@pytest.mark.parametrize(
    ("filters", "can"),
    [
        (Filters(), True),  # everything
        (Filters(types=("MESSAGE",), roles=("user",), synthetic=False), True),  # real user messages alone
        (Filters(types=("ACME.AUDIT",)), False),  # no messages
        (Filters(roles=("assistant", "tool")), False),  # no user
        (Filters(synthetic=True), False),  # what compactions wrote starts no turn
    ],
)
def test_a_turn_can_only_start_among_matches_that_hold_real_user_messages(filters: Filters, can: bool) -> None:
    assert filters.can_start_turn is can
