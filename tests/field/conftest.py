"""Sessions for the field cases: each case, and each variant "on a copy", has one of its own."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator

import httpx
import pytest

from tests.field.modelled import Modelled, modelled
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


@pytest.fixture(scope="session")
def stub(postgres: str, template: str) -> Iterator[Modelled]:
    """A service with a model, on a database of its own."""
    with modelled(postgres, template) as running:
        yield running


@pytest.fixture
def model(stub: Modelled) -> Modelled:
    """The service with a model, which has been asked nothing yet."""
    return stub.reset()
