"""Sessions for the field cases: each case, and each variant "on a copy", has one of its own."""

import itertools
import os
from collections.abc import Callable, Iterable

import httpx
import pytest

from tests.talk import Message, Talk

Copies = Callable[[Iterable[Message]], Talk]
_numbers = itertools.count(1)


def fresh_id() -> str:
    """Return a session id that nothing else uses."""
    return f"field-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def talk(http: httpx.Client) -> Talk:
    """A session of the test's own, made by its first append."""
    return Talk(http, fresh_id())


@pytest.fixture
def copy_of(http: httpx.Client) -> Copies:
    """Build a session of its own that says the same."""

    def build(said: Iterable[Message]) -> Talk:
        copy = Talk(http, fresh_id())
        copy.append(*said)
        return copy

    return build
