"""A web page of somebody else's: what its browser sends to the service of whoever opened it, without asking first."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.cli.serving import described
from app.main import create_app
from tests.api.asking import problem, url_of
from tests.conftest import Service, cloned, rows, settings_for
from tests.talk import Talk, turns

WRITES = [
    (method.upper(), path.replace("{session_id}", "s1").replace("{conversation_id}", "c1"))
    for path, item in described()["paths"].items()
    for method in item
    if method != "get"
]
POSTS = [path for method, path in WRITES if method == "POST"]
# A body that each route would take, where it takes one.
BODIES = {
    "/v1/sessions/s1/events": '{"events": [{"message": {"role": "user", "content": "x"}}]}',
    "/v1/chat-memory/c1/messages": '{"messages": [{"role": "user", "content": "x"}]}',
}
# Whatever a browser sends to another origin without a preflight: bodies of these types, or of none.
SIMPLE = [
    {},
    {"Content-Type": "text/plain"},
    {"Content-Type": "text/plain;charset=UTF-8"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Content-Type": "multipart/form-data; boundary=x"},
]
ORIGINS = ["https://evil.example", "http://192.0.2.7:8080", "http://127.0.0.1.evil.example", "null"]


@pytest.fixture(scope="module")
def keyless(postgres: str, template: str) -> Iterator[Service]:
    """A service without keys, on a database with something to spoil: a session to compact, and one to purge."""
    with cloned(postgres, template) as url, Service(settings_for(url)) as service:
        with service.client() as http:
            Talk(http, "s1").append(*turns(4))
            http.patch("/v1/sessions/s1", json={"policy": {"window": {"rule": "last_turns", "size": 1}}})
            Talk(http, "gone").append(*turns(1))
        rows(url, "UPDATE sessions SET expires_at = now() - interval '1 day' WHERE session_id = 'gone' RETURNING 1")
        yield service


def stored(service: Service) -> list[list[dict[str, Any]]]:
    """Return all that a write would change."""
    tables = ("sessions", "events")
    return [rows(url_of(service), f"SELECT * FROM {table} ORDER BY 1, 2, 3") for table in tables]  # noqa: S608


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("origin", ORIGINS)
def test_a_page_from_elsewhere_writes_nothing_before_there_is_a_key(keyless: Service, path: str, origin: str) -> None:
    before = stored(keyless)
    with keyless.client() as http:
        for headers in SIMPLE:
            for body in ("", BODIES.get(path, "{}")):
                answer = http.post(path, content=body, headers={**headers, "Origin": origin})
                problem(answer, 401, "unauthenticated")
    assert stored(keyless) == before


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("headers", SIMPLE[1:], ids=lambda headers: headers["Content-Type"])
def test_a_form_or_plain_text_is_no_body_whoever_sends_it(keyless: Service, path: str, headers: dict[str, str]) -> None:
    before = stored(keyless)
    with keyless.client() as http:
        for body in ("", BODIES.get(path, "{}")):
            assert http.post(path, content=body, headers=headers).status_code == 415
    assert stored(keyless) == before


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_a_browser_that_asks_first_is_allowed_nothing(keyless: Service, method: str, path: str) -> None:
    asks = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": "authorization, content-type"}
    with keyless.client() as http:
        for origin in (*ORIGINS, keyless.url, "http://localhost:3000"):
            answer = http.options(path, headers={**asks, "Origin": origin})
            assert answer.is_client_error
            assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_where_everybody_is_served_a_page_from_elsewhere_is_not(keyless: Service) -> None:
    before = stored(keyless)

    async def ask(**headers: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://turnlog.lan:8080") as http:
            return await http.post("/v1/sessions/s1/compact", headers=headers)

    async def run() -> None:
        async with app.router.lifespan_context(app):
            for origin in (
                *ORIGINS,
                "http://turnlog.lan",
                "http://turnlog.lan:8081",
                "http://turnlog.lan:8080.evil.example",
            ):
                problem(await ask(Origin=origin), 401, "unauthenticated")
                problem(await ask(**{"Origin": origin, "Sec-Fetch-Site": "same-site"}), 401, "unauthenticated")
            assert await asyncio.to_thread(stored, keyless) == before
            # Our own page, also behind a proxy that gives us another Host; and a program, which has no origin.
            assert (await ask(Origin="http://turnlog.lan:8080")).status_code == 200
            assert (await ask(**{"Origin": "https://t.example", "Sec-Fetch-Site": "same-origin"})).status_code == 200
            assert (await ask()).status_code == 200

    app = create_app(keyless.settings, keyless="everybody")
    transport = httpx.ASGITransport(app, client=("192.0.2.7", 5))
    asyncio.run(run())
