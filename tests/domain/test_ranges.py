import pytest

from app.domain.ranges import NOTHING, Ranges

Pairs = tuple[tuple[int, int], ...]


@pytest.mark.parametrize(
    ("seqs", "pairs"),
    [
        ([], ()),  # nothing
        ([4], ((4, 4),)),  # one seq is a range of its own
        ([1, 2, 3], ((1, 3),)),  # neighbours join
        ([3, 1, 2], ((1, 3),)),  # in any order
        ([1, 1, 2, 2], ((1, 2),)),  # repeats are nothing new
        ([1, 3, 4, 7], ((1, 1), (3, 4), (7, 7))),  # gaps part
    ],
)
def test_seqs_are_written_as_the_fewest_ranges(seqs: list[int], pairs: Pairs) -> None:
    assert Ranges.of(seqs) == Ranges(pairs)


@pytest.mark.parametrize(
    ("given", "pairs"),
    [
        ([(1, 2), (4, 5)], ((1, 2), (4, 5))),  # apart
        ([(1, 2), (3, 5)], ((1, 5),)),  # touching
        ([(1, 4), (3, 5)], ((1, 5),)),  # overlapping
        ([(1, 9), (3, 5)], ((1, 9),)),  # one inside the other
        ([(7, 8), (1, 2)], ((1, 2), (7, 8))),  # out of order
        ([(1, 2), (1, 6), (4, 5), (8, 8)], ((1, 6), (8, 8))),  # all at once
    ],
)
def test_ranges_that_touch_or_overlap_are_joined(given: list[tuple[int, int]], pairs: Pairs) -> None:
    assert Ranges.joined(given) == Ranges(pairs)


def test_equal_sets_are_equal_values() -> None:
    assert Ranges.of([1, 2, 3, 7]) == Ranges.joined([(7, 7), (2, 3), (1, 1)])
    assert hash(Ranges.of([2, 1])) == hash(Ranges.of([1, 2]))


def test_a_union_holds_what_either_holds() -> None:
    assert Ranges.of([1, 2, 9]) | Ranges.of([3, 9, 11]) == Ranges(((1, 3), (9, 9), (11, 11)))
    assert NOTHING | NOTHING == NOTHING


@pytest.mark.parametrize(
    ("seq", "held"),
    [
        (1, False),  # before the first range
        (2, True),  # its first seq
        (3, True),  # inside
        (4, True),  # its last seq
        (5, False),  # between two ranges
        (7, True),  # the second range
        (8, False),  # behind the last
    ],
)
def test_a_seq_is_held_from_the_first_to_the_last_of_a_range(seq: int, held: bool) -> None:
    assert (seq in Ranges(((2, 4), (7, 7)))) is held


@pytest.mark.parametrize(
    ("first", "last", "meets"),
    [
        (5, 6, False),  # just the gap
        (4, 6, True),  # the end of the first range
        (5, 7, True),  # the beginning of the second
        (1, 9, True),  # all of it
        (1, 1, False),  # before everything
        (8, 99, False),  # behind everything
        (3, 2, False),  # an empty span meets nothing, even inside a range
    ],
)
def test_a_span_meets_the_set_when_one_of_its_seqs_is_held(first: int, last: int, meets: bool) -> None:
    assert Ranges(((2, 4), (7, 7))).meets(first, last) is meets


def test_the_seqs_come_back_in_ascending_order() -> None:
    assert list(Ranges(((2, 4), (7, 7)))) == [2, 3, 4, 7]


def test_only_the_empty_set_is_false() -> None:
    assert not NOTHING
    assert Ranges.of([1])


@pytest.mark.parametrize(
    ("outside", "pairs"),
    [
        ([], ((1, 9),)),  # nothing stays between: one range
        ([2], ((1, 1), (4, 9))),  # what stays parts the ranges beside it, and bridges reach no further
        ([6], ((1, 4), (9, 9))),  # the other gap
        ([2, 5], ((1, 1), (4, 4), (9, 9))),  # both gaps
        ([10, 99], ((1, 9),)),  # what stays behind the set parts nothing
    ],
)
def test_bridges_close_the_gaps_in_which_nothing_stays(outside: list[int], pairs: Pairs) -> None:
    assert Ranges.of([1, 4, 9]).bridged(Ranges.of(outside)) == Ranges(pairs)


def test_nothing_has_no_gaps_to_bridge() -> None:
    assert NOTHING.bridged(Ranges.of([3])) == NOTHING
