"""Who is let in: by key, by scope, and before there is a key by where the request comes from."""

import asyncio
import os
import socket
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import asyncpg
import httpx
import pytest
from fastapi import APIRouter, Request

from app.api import access
from app.api.documentation import operation
from app.api.explorer import FILES
from app.domain.key import SCOPES, Scope
from app.main import create_app
from app.settings import Settings
from tests.api.asking import HELLO, problem
from tests.api.keyed import ALL, bearer, clients, make_key, revoke_now, url_of
from tests.conftest import Service, cloned, rows, settings_for, wait_until

OPERATIONS = [
    (method.upper(), path, of.get("security"))
    for path, item in create_app(Settings()).openapi()["paths"].items()
    for method, of in item.items()
]
GUARDED = [(method, path, of) for method, path, of in OPERATIONS if path.startswith("/v1/")]


def filled(path: str) -> str:
    return path.replace("{session_id}", "s").replace("{event_id}", "e").replace("{conversation_id}", "c")


# A key for each set of scopes, made before the service starts.
KEYS: dict[frozenset[Scope], str] = {}


@pytest.fixture(scope="module")
def keyed(postgres: str, template: str) -> Iterator[Service]:
    """A service with keys, on a database of its own."""
    with cloned(postgres, template) as url:
        for count in range(1, len(ALL) + 1):
            for scopes in combinations(ALL, count):
                KEYS[frozenset(scopes)] = make_key(url, scopes=scopes)
        KEYS[frozenset({"admin"})] = make_key(url, scopes=("admin",))
        with Service(settings_for(url)) as running:
            yield running


def key_with(*scopes: Scope) -> str:
    return KEYS[frozenset(scopes)]


def test_every_route_under_v1_says_what_it_needs() -> None:
    assert len(GUARDED) >= 19
    for method, path, security in GUARDED:
        [declared] = security or [None]
        assert declared is not None, f"{method} {path}"
        assert set(declared) == {"key"}
        assert set(declared["key"]) <= set(SCOPES), f"{method} {path}"
        assert declared["key"] or path == "/v1/capabilities"


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in OPERATIONS])
def test_a_route_without_a_key_answers_401(keyed: Service, method: str, path: str) -> None:
    with keyed.client() as http:
        answer = http.request(method, filled(path))
    if path in {"/healthz", "/readyz", "/metrics"}:
        assert answer.status_code == 200
        return
    problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path", "security"), GUARDED)
def test_a_key_of_another_scope_is_refused_and_told_which_it_needs(
    keyed: Service, method: str, path: str, security: list[dict[str, list[str]]]
) -> None:
    needed = security[0]["key"]
    for missing in needed:
        others = [scope for scope in ALL if scope != missing]
        with clients(keyed, key_with(*others)) as [http]:
            answer = problem(http.request(method, filled(path)), 403, "forbidden")
        assert missing in answer["detail"]
        assert answer["scope"] == missing


@pytest.mark.parametrize(("method", "path", "security"), GUARDED)
def test_a_key_with_the_scope_and_an_admin_are_let_in(
    keyed: Service, method: str, path: str, security: list[dict[str, list[str]]]
) -> None:
    for scopes in (security[0]["key"] or ["read"], ["admin"]):
        with clients(keyed, key_with(*scopes)) as [http]:  # type: ignore[arg-type]
            assert http.request(method, filled(path)).status_code not in {401, 403}


def ready(http: httpx.Client) -> None:
    """Wait until a key that was just made is known to the service."""
    wait_until(lambda: http.get("/v1/capabilities").status_code == 200)


def test_a_route_that_says_nothing_cannot_be_added() -> None:
    router = APIRouter()

    @router.get("/v1/open-by-accident")
    async def route(request: Request) -> None: ...

    with pytest.raises(TypeError, match="open-by-accident"):
        access.check(router.routes)

    described = APIRouter()
    described.get("/v1/fine", openapi_extra=operation(needs=["read"]))(route)
    access.check(described.routes)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v2/sessions", "/favicon.ico", "//v1/sessions", "/V1/sessions"])
def test_what_is_no_route_is_told_to_holders_of_a_key_alone(keyed: Service, path: str) -> None:
    with keyed.client() as http:
        problem(http.get(path), 401, "unauthenticated")
    with clients(keyed, key_with(*ALL)) as [http]:
        problem(http.get(path), 404, "not-found")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PATCH"])
def test_no_method_is_a_way_around(keyed: Service, method: str) -> None:
    with keyed.client() as http:
        assert http.request(method, "/v1/sessions").status_code == 401


BAD = [
    "",
    "Bearer",
    "Basic {key}",
    "{key}",
    "Bearer {key}x",
    "Bearer {short}",
    "Bearer x{key}",
    "Bearer tl_unknown0_" + "x" * 43,
    "Bearer " + "x" * 5000,
    "Bearer {prefix}" + "_" + "x" * 43,  # the prefix of one that is good
    "Bearer \xe9" + "x" * 40,
    "Bearer {key} {key}",
]


@pytest.mark.parametrize("header", BAD)
def test_a_bad_key_is_refused_and_never_repeated(
    keyed: Service, header: str, capfd: pytest.CaptureFixture[str]
) -> None:
    key = key_with(*ALL)
    with clients(keyed, key) as [good]:
        assert good.get("/v1/sessions").status_code == 200
        with keyed.client() as http:
            said = header.format(key=key, short=key[:-1], prefix=key[:11])
            answer = http.get("/v1/sessions", headers=[(b"authorization", said.encode("latin-1"))])
            problem(answer, 401, "unauthenticated")
            assert key[11:] not in answer.text
    assert key[11:] not in "".join(capfd.readouterr())


def test_the_scheme_is_read_in_any_case_and_two_headers_are_none(keyed: Service) -> None:
    key = key_with(*ALL)
    with keyed.client() as http:
        assert http.get("/v1/sessions", headers={"Authorization": f"bEARER   {key}"}).status_code == 200
        twice = [(b"authorization", f"Bearer {key}".encode())] * 2
        problem(http.get("/v1/sessions", headers=twice), 401, "unauthenticated")


def test_a_body_is_not_read_before_it_is_known_who_sent_it(keyed: Service) -> None:
    host, port = keyed.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as raw:
        raw.sendall(
            b"POST /v1/sessions/s/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 8000000\r\n\r\n"
        )
        told = raw.recv(65536)
    assert told.startswith(b"HTTP/1.1 401")


def test_an_expired_and_a_revoked_key_open_nothing_within_seconds(own_service: Service) -> None:
    url = url_of(own_service)
    short, long, admin = make_key(url, days=4 / 86400), make_key(url), make_key(url, scopes=("admin",))
    with clients(own_service, short, long, admin) as [expiring, revoked, good]:
        ready(good)
        ready(revoked)
        assert expiring.get("/v1/sessions").status_code in {200, 401}
        revoke_now(url, long)
        wait_until(lambda: revoked.get("/v1/sessions").status_code == 401, 6)
        wait_until(lambda: expiring.get("/v1/sessions").status_code == 401, 10)
        assert good.get("/v1/sessions").status_code == 200


def test_revoking_the_last_key_does_not_open_the_door(own_service: Service) -> None:
    url = url_of(own_service)
    with own_service.client() as http:
        assert http.get("/v1/sessions").status_code == 200
        key = make_key(url)
        wait_until(lambda: http.get("/v1/sessions").status_code == 401, 6)
        revoke_now(url, key)
        with clients(own_service, key) as [mine]:
            wait_until(lambda: mine.get("/v1/sessions").status_code == 401, 6)
        problem(http.get("/v1/sessions"), 401, "unauthenticated")


def test_bad_keys_cost_no_query(own_service: Service) -> None:
    """A million of them are looked up in the memory of a process, and none of the good ones has to make room."""
    url = url_of(own_service)
    key = make_key(url)
    with clients(own_service, key) as [http]:
        ready(http)
        keyring = own_service.app.state.context.keys
        looks = 0
        looked = keyring._look_again

        async def counted() -> None:
            nonlocal looks
            looks += 1
            await looked()

        keyring._look_again = counted
        for number in range(300):
            assert http.get("/v1/sessions", headers=bearer(f"tl_{number:08}_{'x' * 43}")).status_code == 401
        assert looks <= 30
        assert http.get("/v1/sessions").status_code == 200


def test_the_last_use_of_a_key_is_written_down(own_service: Service) -> None:
    url = url_of(own_service)
    key, other = make_key(url), make_key(url)
    with clients(own_service, key) as [http]:
        ready(http)
        found = "SELECT last_used_at FROM api_keys WHERE prefix = $1"
        wait_until(lambda: rows(url, found, key[:11])[0]["last_used_at"] is not None)
        assert rows(url, found, other[:11])[0]["last_used_at"] is None


def test_while_the_database_is_away_nobody_is_told_that_his_key_is_bad(database_url: str, postgres: str) -> None:
    """What was known of keys for longer than some seconds is relied on by nobody: 503, and then as before."""
    key = make_key(database_url)
    name = database_url.partition("?")[0].rpartition("/")[2]
    with Service(settings_for(database_url)) as service, clients(service, key) as [http]:
        ready(http)
        wait_until(lambda: renamed(postgres, name, f"{name}_away"))
        try:
            wait_until(lambda: http.get("/v1/capabilities").status_code == 503, 20)
            problem(http.get("/v1/sessions"), 503, "unavailable")
            problem(http.get("/v1/sessions", headers=bearer("x" * 40)), 503, "unavailable")
            assert http.get("/healthz").status_code == 200
        finally:
            assert renamed(postgres, f"{name}_away", name)
        wait_until(lambda: http.get("/v1/sessions").status_code == 200, 10)


def renamed(postgres: str, old: str, new: str) -> bool:
    """Rename a database; False when somebody has connected meanwhile."""
    try:
        asyncio.run(_rename(postgres, old, new))
    except asyncpg.ObjectInUseError:
        return False
    return True


async def _rename(postgres: str, old: str, new: str) -> None:
    """Take a database away, or give it back: nobody can be connected meanwhile."""
    connection = await asyncpg.connect(postgres)
    try:
        await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", old)
        await connection.execute(f"ALTER DATABASE {old} RENAME TO {new}")
    finally:
        await connection.close()


# Before there is a key.


def ask(service: Service, client: tuple[str, int] | None, keyless: str = "local", **headers: str) -> httpx.Response:
    """Ask as a client with this address would, of a service in this very process."""

    async def run() -> httpx.Response:
        app = create_app(service.settings, keyless=keyless)  # type: ignore[arg-type]
        transport = httpx.ASGITransport(app, client=client)  # type: ignore[arg-type]
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as http,
        ):
            return await http.get("/v1/sessions", headers=headers)

    return asyncio.run(run())


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_without_a_key_this_machine_is_served(service: Service, client: str) -> None:
    assert ask(service, (client, 5)).status_code == 200


@pytest.mark.parametrize("client", ["192.0.2.7", "::ffff:192.0.2.7", "fe80::1", "0.0.0.0", "::", "testclient", ""])  # noqa: S104
def test_without_a_key_no_other_machine_is_served(service: Service, client: str) -> None:
    answer = problem(ask(service, (client, 5)), 401, "unauthenticated")
    assert "turnlog keys create" in answer["detail"]


def test_a_client_without_an_address_is_no_client_of_this_machine(service: Service) -> None:
    assert ask(service, None).status_code == 401


@pytest.mark.parametrize("name", ["localhost", "localhost:8080", "LocalHost", "a.localhost", "[::1]:80", "127.1.2.3:1"])
def test_the_names_of_this_machine_are_known(service: Service, name: str) -> None:
    assert ask(service, ("127.0.0.1", 5), Host=name, Origin=f"http://{name}").status_code == 200


FOREIGN = [
    {"Host": "evil.example"},  # a name that was made to point at this machine
    {"Host": "127.0.0.1.evil.example:8080"},
    {"Host": "localhost.evil.example"},
    {"Host": "192.0.2.7"},
    {"Host": "[::1"},
    {"Host": "evil.example@localhost.evil"},
    {"Origin": "https://evil.example"},  # a page of somebody else's
    {"Origin": "null"},
    {"X-Forwarded-For": "127.0.0.1"},  # through a proxy, whoever it speaks for
    {"X-Forwarded-For": "192.0.2.7"},
    {"X-Real-IP": "127.0.0.1"},
    {"Forwarded": "for=127.0.0.1"},
    {"Via": "1.1 proxy"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_request_that_speaks_for_somebody_else_is_not_local(service: Service, headers: dict[str, str]) -> None:
    problem(ask(service, ("127.0.0.1", 5), **headers), 401, "unauthenticated")


def test_everybody_is_served_where_that_was_asked_for_and_nobody_once_there_is_a_key(own_service: Service) -> None:
    assert ask(own_service, ("192.0.2.7", 5), "everybody").status_code == 200
    make_key(url_of(own_service))
    assert ask(own_service, ("192.0.2.7", 5), "everybody").status_code == 401
    assert ask(own_service, ("127.0.0.1", 5), "everybody").status_code == 401


# Documentation and metrics.


@pytest.mark.parametrize(("setting", "paths"), [("docs", ("/openapi.json", *FILES)), ("metrics", ("/metrics",))])
def test_what_is_shown_can_be_kept_for_holders_of_a_key_or_not_be_there(
    database_url: str, setting: str, paths: tuple[str, ...]
) -> None:
    key = make_key(database_url, scopes=("compact",))
    for shown, strangers, holders in (("open", 200, 200), ("key", 401, 200), ("off", 404, 404)):
        with Service(settings_for(database_url, show={setting: shown})) as service, clients(service, key) as [http]:
            for path in paths:
                assert httpx.get(service.url + path).status_code == strangers
                assert http.get(path).status_code == holders
            assert httpx.get(service.url + "/healthz").status_code == 200


def test_the_suite_itself_serves_without_a_key(http: httpx.Client) -> None:
    assert http.get("/v1/sessions", params={"limit": 1}).status_code == 200
    assert os.environ.get("TURNLOG_BOOTSTRAP_KEY") is None


# What answers with content.


def test_an_append_that_returns_the_view_and_a_memory_that_is_added_to_need_to_read(keyed: Service) -> None:
    body: dict[str, Any] = {"events": [HELLO]}
    said = {"messages": [HELLO["message"]]}
    with clients(keyed, key_with("write"), key_with("read", "write")) as [writer, both]:
        path = "/v1/sessions/shown/events?create=true"
        assert writer.post(path, json=body).status_code == 201
        assert problem(writer.post(path + "&return=view", json=body), 403, "forbidden")["scope"] == "read"
        assert problem(writer.post("/v1/chat-memory/m/messages", json=said), 403, "forbidden")["scope"] == "read"
        assert both.post(path + "&return=view", json=body).status_code == 201
        assert both.get("/v1/sessions/shown").json()["version"] == 2, "one that was refused was stored"
        assert both.post("/v1/chat-memory/m/messages", json=said).status_code == 200
