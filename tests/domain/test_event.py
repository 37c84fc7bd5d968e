from dataclasses import FrozenInstanceError

import pytest

from app.domain import event
from app.domain.errors import InvalidRequest
from app.domain.event import ROLES, Draft, Event, Role


def draft(role: Role | None, *, synthetic: bool = False) -> Draft:
    return Draft(
        event_id="e", type="MESSAGE", role=role, body="{}", metadata="{}", timestamp=None, token_count=1,
        synthetic=synthetic,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("role", "synthetic", "starts"),
    [
        ("user", False, True),  # a real user message
        ("user", True, False),  # the question of a summary turn
        ("assistant", False, False),  # an answer
        ("tool", False, False),  # a tool's result
        ("system", False, False),  # an instruction
        ("developer", False, False),  # its newer name
        (None, False, False),  # a custom event or a boundary
    ],
)
def test_only_a_real_user_message_starts_a_turn(role: Role | None, synthetic: bool, starts: bool) -> None:
    assert Event(seq=1, role=role, synthetic=synthetic).starts_turn is starts
    assert draft(role, synthetic=synthetic).starts_turn is starts


def test_developer_messages_are_system_messages() -> None:
    assert [role for role in ROLES if Event(seq=1, role=role).is_system] == ["system", "developer"]
    assert not Event(seq=1, type="ACME.AUDIT").is_system


def test_only_message_events_are_messages() -> None:
    assert Event(seq=1, role="user").is_message
    assert not Event(seq=1, type="ACME.AUDIT").is_message
    assert not Event(seq=1, type="COMPACTION").is_message


def test_a_draft_has_no_seq_and_a_stored_event_never_changes() -> None:
    assert "seq" not in Draft._fields
    stored = Event(seq=1, role="user")
    with pytest.raises(FrozenInstanceError):
        stored.seq = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "event_id",
    [
        "a",  # the shortest
        "x" * 255,  # the longest
        "ü" * 255,  # characters, not bytes
        "😀" * 255,  # nor UTF-16 units
        " ",  # a space is a character
        "a/b?c#d%2F",  # what a URL would escape
        "018f2c9e-7b7a-7c3e-9d7a-1f2e3d4c5b6a",  # the form that the service makes
    ],
)
def test_a_client_may_choose_an_event_id(event_id: str) -> None:
    assert event.check_id(event_id) == event_id


@pytest.mark.parametrize(
    "event_id",
    [
        "",  # nothing
        "x" * 256,  # one too many
        "a\0b",  # NUL, which no index takes
        "a\nb",  # a line end
        "\x7f",  # delete
    ],
)
def test_an_event_id_that_cannot_be_kept_is_refused(event_id: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        event.check_id(event_id)
    assert [problem.pointer for problem in caught.value.problems] == ["/id"]


@pytest.mark.parametrize(
    "name",
    [
        "MESSAGE",  # the default may be named
        "ACME.AUDIT",  # a client's own
        "A",  # the shortest
        "A" + "9" * 63,  # the longest
        "A_1.B",  # digits, underscores and dots after the first letter
        "COMPACTIONS",  # only like a reserved name
        "TURNLOG",  # the prefix ends in a dot
        "TURNLOGS.X",  # only like the reserved prefix
    ],
)
def test_a_client_may_append_events_of_a_type(name: str) -> None:
    assert event.check_type(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",  # nothing
        "A" * 65,  # one too many
        "acme",  # lower case
        "1A",  # a digit first
        ".A",  # a dot first
        "A-B",  # a hyphen
        "A B",  # a space
        "A\n",  # a line end behind a good name
        "ÄCME",  # a letter beyond ASCII
        "COMPACTION",  # written by compactions alone
        "TURNLOG.",  # reserved, all of it
        "TURNLOG.X",  # reserved, this one too
    ],
)
def test_a_type_that_is_reserved_or_misspelt_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        event.check_type(name)
    assert [problem.pointer for problem in caught.value.problems] == ["/type"]
