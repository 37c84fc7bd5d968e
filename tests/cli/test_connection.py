"""What a client may do to a connection, and how long."""

import json
import socket
from collections.abc import Iterator

import httpx
import psutil
import pytest

from app.settings import Max
from tests.conftest import Service, settings_for, wait_until
from tests.talk import Talk, user


@pytest.fixture
def strict(database_url: str) -> Iterator[Service]:
    """A service with little patience and room for two kibibytes."""
    limits = Max(body_bytes=2048, open_bytes=4096)
    with Service(settings_for(database_url, max=limits, request_seconds=0.5)) as service:
        yield service


def said(service: Service, sent: bytes) -> bytes:
    """Send bytes, and return all that comes back until the service ends the connection."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


POST = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
BAD = [
    (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 66_000, 431, "request-header-fields-too-large"),
    (b"GET /healthz HTTP/1.1\r\nHost:", 408, "request-timeout"),
    (POST + b"Content-Length: 100\r\n\r\n{", 408, "request-timeout"),
    (POST + b"Content-Length: 2049\r\n\r\n", 413, "payload-too-large"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n801\r\n" + b"a" * 2049 + b"\r\n", 413, "payload-too-large"),
    (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "malformed-request"),
    (POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "malformed-request"),
]


@pytest.mark.parametrize(("sent", "status", "code"), BAD, ids=range(len(BAD)))
def test_what_is_too_large_too_slow_or_no_request_gets_a_problem_and_the_end_of_the_connection(
    strict: Service, sent: bytes, status: int, code: str
) -> None:
    head, _, body = said(strict, sent).partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert json.loads(body)["code"] == code


def test_a_client_that_says_nothing_is_let_go(strict: Service) -> None:
    assert said(strict, b"") == b""


def test_the_head_of_an_answer_and_its_body_come_in_one_piece(service: Service) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for _ in range(20):
            connection.sendall(b"GET /v1/capabilities HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert json.loads(body)["version"]


def test_an_answer_without_a_body_comes_as_well(service: Service) -> None:
    answer = said(service, b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("split", [0, 30, 120])
def test_an_upgrade_is_ignored_and_the_body_of_its_request_is_no_request(service: Service, split: int) -> None:
    smuggled = b'{"id": "smuggled"}'
    head = (
        b"PUT /v1/sessions/upgraded HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: Upgrade, close\r\nUpgrade: h2c\r\nContent-Length: 18\r\n\r\n"
    )
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head[:split])
        connection.sendall(head[split:])
        connection.sendall(smuggled)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 ") == 1
    # The id stands in the path, so a body that is read is refused for naming another.
    assert answer.startswith((b"HTTP/1.1 422 ", b"HTTP/1.1 400 "))


def test_a_client_that_does_not_take_its_answer_is_let_go(database_url: str) -> None:
    with Service(settings_for(database_url, request_seconds=0.5)) as service, service.client() as http:
        talk = Talk(http, "s")
        for _ in range(4):
            talk.append(user("a" * 3_000_000))
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            connection.settimeout(60)
            url = httpx.URL(service.url)
            connection.connect((url.host, url.port or 0))
            connection.sendall(f"GET {talk.path}/view HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            # It is answered, and then nothing more is read.
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
            wait_until(lambda: not serves(connection.getsockname()))
            assert len(b"".join(iter(lambda: connection.recv(65_536), b""))) < 12_000_000
        assert len(talk.view()["events"]) == 4


def serves(client: tuple[str, int]) -> bool:
    """Say whether this process, which is the service, has a connection to a client."""
    return any(tuple(one.raddr) == client for one in psutil.Process().net_connections("tcp"))
