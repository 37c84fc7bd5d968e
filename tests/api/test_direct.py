"""Direct routes: served past the framework's own layers, they answer as they do through them."""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any
from unittest.mock import patch

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request, Response

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


def test_a_key_that_a_proxy_has_doubled_is_still_one_key(http: httpx.Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}/events?create=true"
    body = {"events": [{"message": user("a")}]}
    assert http.post(path, json=body, headers={"Idempotency-Key": "k"}).status_code == 201
    doubled = http.post(path, json=body, headers=[("Idempotency-Key", "k"), ("Idempotency-Key", "k")])
    assert doubled.status_code == 200
    assert doubled.json()["version"] == 1


async def _with_a_header(authorization: Annotated[str | None, Header()] = None) -> str:
    return authorization or "nobody"


def _not_async(request: Request) -> str:
    return request.method


async def _nested(name: Annotated[str, Depends(_with_a_header)]) -> str:
    return name


@pytest.mark.parametrize("dependency", [_with_a_header, _not_async, _nested], ids=lambda one: one.__name__)
def test_a_route_that_would_leave_out_what_a_dependency_asks_for_cannot_be_built(dependency: Any) -> None:
    router = APIRouter(route_class=direct.Direct)

    async def serve(name: Annotated[str, Depends(dependency)]) -> Response:
        return Response(name)

    with pytest.raises(TypeError, match="asks for more"):
        router.get("/x")(serve)


def test_a_dependency_without_a_name_is_asked_too() -> None:
    async def refuse(request: Request) -> None:
        raise HTTPException(403, request.url.path)

    router = APIRouter(route_class=direct.Direct)

    @router.get("/x", dependencies=[Depends(refuse)])
    async def serve() -> Response:
        return Response("in")

    app = FastAPI()
    app.include_router(router)

    async def ask() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return (await client.get("/x")).status_code

    assert asyncio.run(ask()) == 403
