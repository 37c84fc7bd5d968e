"""Keys: what can be one, what it is called, what it opens and until when."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.domain import key as rules
from app.domain.errors import InvalidRequest
from app.domain.key import Caller, Key

NOW = datetime(2026, 11, 30, tzinfo=UTC)
KEY = Key(
    prefix="tl_abcdefgh",
    digest=bytes(32),
    tenant="t",
    name=None,
    scopes=("read",),
    created_at=NOW,
    expires_at=None,
    last_used_at=None,
    revoked_at=None,
)


def test_a_key_opens_until_it_is_revoked_or_its_end_has_come() -> None:
    assert KEY.opens(NOW)
    ending = replace(KEY, expires_at=NOW + timedelta(seconds=1))
    assert ending.opens(NOW)
    assert not ending.opens(NOW + timedelta(seconds=1))
    assert not replace(KEY, revoked_at=NOW).opens(NOW)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("x" * 32, True),
        ("x" * 31, False),  # too short to be a secret
        ("x" * 512, True),
        ("x" * 513, False),  # so that nobody hashes for long
        ("~!" * 16, True),
        ("x" * 32 + " ", False),  # a blank
        ("x" * 32 + "\n", False),
        ("é" * 32, False),  # not ASCII
    ],
)
def test_what_can_be_a_key(text: str, is_one: bool) -> None:
    assert rules.is_key(text) is is_one


def test_a_key_is_called_by_its_first_characters_and_stored_as_a_hash() -> None:
    key = rules.composed("abcdefgh", "s" * 43)
    assert rules.is_key(key)
    assert rules.prefix_of(key) == "tl_abcdefgh"
    assert len(rules.digest_of(key)) == 32
    assert rules.digest_of(key) != rules.digest_of(key + "x")


def test_scopes_are_a_closed_set() -> None:
    assert rules.scopes_of(["write", " read", "write"]) == ("read", "write")
    for names in ([], [""], ["read", "everything"], ["READ"]):
        with pytest.raises(InvalidRequest, match="read, write, compact, admin"):
            rules.scopes_of(names)


def test_an_admin_may_do_everything_and_others_what_they_were_given() -> None:
    reader = Caller(prefix=None, tenant="t", scopes=frozenset({"read"}))
    admin = Caller(prefix=None, tenant="t", scopes=frozenset({"admin"}))
    assert [scope for scope in rules.SCOPES if reader.may(scope)] == ["read"]
    assert all(admin.may(scope) for scope in rules.SCOPES)


def test_a_tenants_name_is_made_like_a_sessions() -> None:
    assert rules.checked_tenant("acme:eu") == "acme:eu"
    for name in ("", "*", "..", "a b", "x" * 256):
        with pytest.raises(InvalidRequest, match="tenant"):
            rules.checked_tenant(name)
