"""What the API's tests share."""

import httpx
import pytest

from tests.talk import Talk


@pytest.fixture
def talk(http: httpx.Client, session_id: str) -> Talk:
    """A session that is there once something is appended."""
    return Talk(http, session_id)
