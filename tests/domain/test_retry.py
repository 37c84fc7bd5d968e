from itertools import pairwise

from app.domain import retry


def test_each_pause_is_twice_the_one_before_up_to_an_hour() -> None:
    pauses = [retry.pause_seconds(failures) for failures in range(1, 12)]
    assert pauses[0] == retry.FIRST_PAUSE_SECONDS
    assert all(later == min(2 * earlier, retry.LONGEST_PAUSE_SECONDS) for earlier, later in pairwise(pauses))
    assert pauses[-1] == retry.LONGEST_PAUSE_SECONDS


def test_no_number_of_failures_is_too_many() -> None:
    assert retry.pause_seconds(10**9) == retry.LONGEST_PAUSE_SECONDS
