"""What a server process takes in at once, and what it says when there is too much."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app.settings import Max
from tests.conftest import Service, cloned, settings_for, wait_until

QUIET = ["/healthz", "/readyz", "/metrics"]
SESSION = b'{"metadata":{"a":"' + b"a" * 1500 + b'"}}'


@contextmanager
def service_with(url: str, **limits: Any) -> Iterator[tuple[Service, httpx.Client]]:
    """Run a service with limits of its own."""
    with Service(settings_for(url, max=Max(**limits))) as service, service.client() as http:
        yield service, http


def begun(service: Service, sent: bytes, announced: int) -> socket.socket:
    """Begin a request, and leave its body unfinished."""
    url = httpx.URL(service.url)
    connection = socket.create_connection((url.host, url.port or 0), timeout=60)
    head = f"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {announced}\r\n\r\n"
    connection.sendall(head.encode() + sent)
    return connection


def is_busy(response: httpx.Response) -> bool:
    """Say whether a request was turned away, and check that it was told when to come again."""
    if response.status_code != 503:
        assert response.is_success, response.text
        return False
    assert response.json()["code"] == "unavailable"
    assert int(response.headers["retry-after"]) >= 1
    return True


def test_one_request_too_many_is_turned_away_until_another_has_ended(database_url: str) -> None:
    with service_with(database_url, open_requests=2) as (service, http):
        with begun(service, b"{", 100), begun(service, b"{", 100) as second:
            wait_until(lambda: is_busy(http.get("/v1/capabilities")))
            assert is_busy(http.post("/v1/sessions", json={}))
            assert is_busy(http.get("/v1/sessions"))
            assert [http.get(path).status_code for path in QUIET] == [200, 200, 200]
            second.close()
            wait_until(lambda: not is_busy(http.get("/v1/capabilities")))
        wait_until(lambda: not is_busy(http.post("/v1/sessions", json={})))


def test_a_request_that_was_turned_away_is_not_counted(database_url: str) -> None:
    with service_with(database_url, open_requests=1) as (service, http):
        with begun(service, b"{", 100):
            wait_until(lambda: is_busy(http.get("/v1/capabilities")))
            for _ in range(10):
                assert is_busy(http.get("/v1/capabilities"))
        for _ in range(10):
            wait_until(lambda: not is_busy(http.get("/v1/capabilities")))


def test_bodies_that_are_too_large_together_are_turned_away_until_one_has_gone(database_url: str) -> None:
    with service_with(database_url, body_bytes=2048, open_bytes=3000) as (service, http):

        def post() -> httpx.Response:
            return http.post("/v1/sessions", content=SESSION, headers={"content-type": "application/json"})

        with begun(service, SESSION, 2048):
            # Once this is answered, the body that came before it is counted.
            assert not is_busy(http.get("/v1/sessions"))
            assert is_busy(post())
            # Whoever brings little is served, and a body that alone is too large is told so.
            assert not is_busy(http.post("/v1/sessions", json={}))
            assert not is_busy(http.get("/v1/sessions"))
            assert http.post("/v1/sessions", content=b" " * 2049).status_code == 413
        # A request is counted for a moment longer than its client waits for the answer.
        for _ in range(5):
            wait_until(lambda: not is_busy(post()))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/sessions", "limit"),
        ("/v1/sessions/s/events", "limit"),
        ("/v1/sessions/s/events", "last_n"),
        ("/v1/sessions/s/events?active=true", "limit"),
        ("/v1/sessions/s/compactions", "limit"),
    ],
)
def test_a_page_is_as_long_as_it_may_be_and_no_longer(small_pages: httpx.Client, path: str, name: str) -> None:
    url = httpx.URL(path)
    page = small_pages.get(url.copy_merge_params({name: "100"}))
    assert page.status_code == 200
    refused = small_pages.get(url.copy_merge_params({name: "101"}))
    assert refused.status_code == 422
    assert refused.json()["errors"] == [{"pointer": name, "detail": "is at most 100"}]


@pytest.fixture(scope="module")
def small_pages(postgres: str, template: str) -> Iterator[httpx.Client]:
    """A service with pages of 100, and a session of 101 events."""
    with cloned(postgres, template) as url, service_with(url, page=100) as (_, http):
        said = [{"message": {"role": "user", "content": str(at)}} for at in range(101)]
        http.post("/v1/sessions/s/events?create=true", content=json.dumps({"events": said})).raise_for_status()
        yield http


def test_a_page_is_100_unless_asked_for(small_pages: httpx.Client) -> None:
    page = small_pages.get("/v1/sessions/s/events").json()
    assert len(page["data"]) == 100
    assert page["has_more"]
    assert small_pages.get("/v1/capabilities").json()["limits"]["page"] == 100
