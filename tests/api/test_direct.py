"""Direct routes: served past the framework's own layers, they answer as they do through them."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from app.api import direct
from tests.conftest import Service, settings_for
from tests.talk import user

JSON = {"Content-Type": "application/json", "X-Request-Id": "r"}
EVENT = {"events": [{"id": "e", "message": user("a")}]}


@pytest.fixture
def clients(own_service: Service) -> Iterator[list[httpx.Client]]:
    """Clients of two services on one database: one takes the shortcut, and one does not."""
    url = own_service.settings.database_url
    assert url is not None
    begin = direct.Shortcut.__init__
    with patch.object(direct.Shortcut, "__init__", lambda self, app, **_: begin(self, app, routes=[])):
        longer = Service(settings_for(url.get_secret_value()))
    with longer, own_service.client() as one, longer.client() as other:
        yield [one, other]


def test_the_shortcut_answers_what_the_framework_answers(clients: list[httpx.Client]) -> None:
    path = "/v1/sessions/s%2F1/events"
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", f"{path}?create=true", {"json": EVENT}),
        ("POST", path, {"json": EVENT}),  # a replay
        ("POST", path, {"json": {**EVENT, "expected_version": 7}}),
        ("POST", path, {"json": {"events": [{"id": "e", "message": user("b")}]}}),  # a conflict
        ("POST", path, {"content": b"{"}),
        ("POST", path, {"content": b"x", "headers": {**JSON, "Content-Type": "text/plain"}}),
        ("POST", f"{path}?creat=true", {"json": EVENT}),  # no such parameter
        ("POST", f"{path}?create=perhaps", {"json": EVENT}),
        ("POST", "/v1/sessions/nobody/events", {"json": EVENT}),
        ("GET", path, {}),  # not direct, though the path is
        ("DELETE", path, {}),
        ("GET", "/v1/sessions/s%2F1/view?format=openai", {}),
        ("HEAD", "/v1/sessions/s%2F1/view", {}),
        ("GET", "/v1/sessions/s%2F1/view", {"headers": {**JSON, "If-None-Match": '"1-events"'}}),
        ("GET", "/v1/sessions/s%2F1/view/", {}),
    ]
    for at, (method, where, sent) in enumerate(requests):
        # Once through one of them first, so that both answer for the same log.
        clients[0].request(method, where, **{"headers": JSON, **sent})
        one, other = (client.request(method, where, **{"headers": JSON, **sent}) for client in clients)
        assert one.content == other.content, at
        assert one.status_code == other.status_code, at
        unlike = {"date"}
        assert {k: v for k, v in one.headers.items() if k not in unlike} == {
            k: v for k, v in other.headers.items() if k not in unlike
        }, at
    for client in clients:
        assert 'route="/v1/sessions/{session_id}/events"' in client.get("/metrics").text
