import inspect

import pytest

from app.domain import errors
from app.domain.errors import EventIdConflict, InvalidRequest, PayloadTooLarge, Problem, TurnlogError, VersionConflict

CLASSES = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, TurnlogError)]


def test_every_error_is_in_the_one_tree_that_the_module_draws() -> None:
    drawn = {line.strip("│├└─ ").split()[0] for line in (errors.__doc__ or "").splitlines() if "─" in line}
    assert drawn == {one.__name__ for one in CLASSES} - {"TurnlogError"}


def test_an_errors_docstring_is_its_default_message() -> None:
    assert str(errors.SessionNotFound()) == "There is no session with this id."
    assert str(errors.SessionNotFound("nowhere")) == "nowhere"


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.__name__)
def test_every_error_says_something(one: type[TurnlogError]) -> None:
    assert (one.__doc__ or "").strip().endswith((".", "shortly."))


def test_an_error_without_any_docstring_still_stands() -> None:
    class Bare(TurnlogError):
        __doc__ = None

    assert str(Bare()) == ""


def test_an_invalid_request_names_every_wrong_place() -> None:
    error = InvalidRequest([Problem("/a/0", "is a string"), Problem("", "is an object")])
    assert str(error) == "/a/0: is a string; /: is an object"
    assert error.problems == (Problem("/a/0", "is a string"), Problem("", "is an object"))
    assert str(InvalidRequest([], "something else")) == "something else"


def test_a_single_wrong_place_can_be_seen_from_the_body_around_it() -> None:
    error = InvalidRequest.at("/role", "is missing").below("/events/3/message")
    assert error.problems == (Problem("/events/3/message/role", "is missing"),)


def test_errors_carry_their_facts() -> None:
    conflict = EventIdConflict("evt-7", 14)
    assert (conflict.event_id, conflict.seq) == ("evt-7", 14)
    assert str(conflict) == "event id 'evt-7' is stored with other content at seq 14"
    version = VersionConflict(expected=3, current=5)
    assert (version.expected, version.current) == (3, 5)
    assert str(version) == "expected version 3, but the log is at version 5"
    large = PayloadTooLarge(limit_bytes=10)
    assert (large.limit_bytes, str(large)) == (10, "the body is larger than 10 bytes")
    assert str(PayloadTooLarge(limit_bytes=10, what="an event")) == "an event is larger than 10 bytes"
