"""Clients that go away in the middle of an append: at every byte of it, and before they have read the answer."""

import json
import socket
import struct

import pytest

from tests.conftest import Service, wait_until
from tests.talk import Talk

ENDS = {
    "close": None,  # the client says that it is done
    "reset": struct.pack("ii", 1, 0),  # and as a client's machine does that lost its network
}


def request(path: str, name: str) -> bytes:
    """Return an append of two events whose ids begin with the name, which is always as long."""
    events = [{"id": f"{name}-{at}", "message": {"role": "user", "content": "é" * 20}} for at in (1, 2)]
    body = json.dumps({"events": events}, ensure_ascii=False).encode()
    head = f"POST {path}/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("end", ENDS)
def test_a_client_that_goes_away_at_any_byte_leaves_its_batch_whole_or_not_at_all(service: Service, end: str) -> None:
    with service.client() as http:
        talk = Talk(http, f"cut-{end}")
        assert http.put(talk.path).status_code == 201
        length = len(request(talk.path, "0000"))
        port = int(service.url.rpartition(":")[2])
        for cut in range(1, length + 1):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                if (linger := ENDS[end]) is not None:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.sendall(request(talk.path, f"{cut:04}")[:cut])

        database = service.app.state.context.database
        wait_until(lambda: not any(database.pool_use().values()))
        # The last one was sent whole, so it may be stored; a repeat tells, and makes it so.
        last = request(talk.path, f"{length:04}").partition(b"\r\n\r\n")[2]
        answer = http.post(f"{talk.path}/events", content=last, headers={"Content-Type": "application/json"})
        assert answer.status_code in {200, 201}
        assert [one["id"] for one in talk.log()] == [f"{length:04}-1", f"{length:04}-2"]
        assert talk.session()["version"] == 2


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("POST", "/v1/sessions/s/events", "/v1/sessions/{session_id}/events"),
        ("POST", "/v1/chat-memory/c/messages", "/v1/chat-memory/{conversation_id}/messages"),
        ("PUT", "/v1/sessions/s", "/v1/sessions/{session_id}"),
    ],
)
def test_a_client_that_goes_away_before_its_body_is_whole_is_no_fault_of_the_service(
    own_service: Service, method: str, path: str, route: str
) -> None:
    port = int(own_service.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    with own_service.client() as http:
        noted = f'turnlog_request_seconds_count{{method="{method}",route="{route}",status="499"}} 1.0'
        wait_until(lambda: noted in http.get("/metrics").text)
        assert 'status="500"' not in http.get("/metrics").text
