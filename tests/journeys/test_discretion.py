"""What turnlog leaves alone: it fetches no URL, and its log is written by nobody else."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.api.asking import problem
from tests.conftest import Service, settings_for
from tests.journeys.processes import Serving
from tests.model_server import ModelServer
from tests.talk import Talk

FORMATS = ("events", "openai", "openai-responses", "anthropic", "gemini", "text")

# No URL is fetched.


@contextmanager
def untouched() -> Iterator[str]:
    """The address of a listener that nobody may connect to; who does waits in its queue, and is found there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def pointing(url: str) -> dict[str, list[dict[str, Any]]]:
    """Return messages that point to a place in all the ways that each format has."""
    tool = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"url": url})}}
    shown = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": f"![x]({url}) <img src='{url}'>"},
    ]
    linked = [{"type": "input_image", "image_url": url, "detail": "auto"}, {"type": "input_file", "file_url": url}]
    sources = [{"type": kind, "source": {"type": "url", "url": url}} for kind in ("image", "document")]
    return {
        "openai": [
            {"role": "user", "content": shown},
            {"role": "assistant", "content": None, "tool_calls": [tool]},
            {"role": "tool", "tool_call_id": "c1", "content": url},
            {"role": "assistant", "content": url},
        ],
        "openai-responses": [{"type": "message", "role": "user", "content": linked}],
        "anthropic": [{"role": "user", "content": [*sources, {"type": "text", "text": url}]}],
        "gemini": [
            {"role": "user", "parts": [{"fileData": {"mimeType": "image/png", "fileUri": url}}, {"text": url}]},
            {"role": "model", "parts": [{"text": url}]},
        ],
    }


def check_policies(talk: Talk, url: str) -> None:
    """A policy names no model of its own, nor anything that is done to a URL."""
    for field in ("base_url", "url", "webhook", "api_key", "provider", "endpoint"):
        for policy in (
            {"window": {"rule": "last_turns", "size": 1}, field: url},
            {"window": {"rule": "last_turns", "size": 1}, "summarizer": {"type": "llm", field: url}},
        ):
            problem(talk.http.patch(talk.path, json={"policy": policy}), 422, "invalid-request")
            problem(talk.http.post(talk.path + "/compact", json=policy), 422, "invalid-request")


def test_no_url_in_a_request_is_ever_fetched(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("xyzzy-the-content-of-a-file")
    model = {"provider": "openai", "model": "m", "timeout": 20}
    with untouched() as place, ModelServer() as server:
        settings = settings_for(database_url, summarizer={**model, "base_url": server.base_url("openai")})
        with Service(settings) as service, service.client() as http:
            urls = (
                f"http://{place}/a.png",
                f"https://{place}/a.png",
                f"data:text/plain;http://{place},x",
                file.as_uri(),
            )
            for number, url in enumerate(urls):
                talk = Talk(http, f"s{number}")
                talk.append({"type": "ACME.LINK", "payload": {"url": url, "$ref": url}, "metadata": {"url": url}})
                http.patch(talk.path, json={"metadata": {"url": url, "callback": url}})
                for given, messages in pointing(url).items():
                    talk.post("/events", {"format": given, "messages": messages}, (201, 422))
                http.post(f"/v1/chat-memory/m{number}/messages", json={"messages": pointing(url)["openai"]})
                check_policies(talk, url)
                for summary in (None, url, "the model's"):
                    for output in FORMATS:
                        answer = http.get(talk.path + "/view", params={"format": output})
                        assert answer.status_code == 200, answer.text
                        assert "xyzzy" not in answer.text
                    wanted = {"type": "text", "text": url} if summary == url else {"type": "llm"}
                    window = {"rule": "last_events", "size": 3 if summary is None else 1}
                    talk.post("/compact", {"window": window, "summarizer": wanted})
            assert http.post("/v1/compact").status_code == 200
        assert len(server.requests) >= len(urls), "the model was asked"
        assert "xyzzy" not in repr(server.requests)


# Nobody writes the log but us.

BREAKS = (
    b"\n",
    b"\r\n",
    b"\r",
    b"\0",
    b"\x1b[2K\x1b[31m",
    b"\x0b",
    b"\x7f",
    "\u2028".encode(),
    "\x85".encode(),
    b"\xff",
)
LINE = "2026-12-01T00:00:00.000000Z [info     ] forged"


def escaped(broken: bytes) -> bytes:
    return b"".join(b"%%%02x" % byte for byte in broken)


def attempts() -> Iterator[bytes]:
    """Requests that would begin a line of their own, wherever something of them was written as it came."""
    names = "X-Request-Id traceparent Turnlog-Tenant Authorization Origin Host Content-Type Idempotency-Key User-Agent"
    for broken, encode in product(BREAKS, (bytes, escaped)):
        bad = b"a" + encode(broken) + encode(b" ") + LINE.replace(" ", "_").encode()
        for target in (
            b"/v1/sessions/" + bad,
            b"/" + bad,
            b"/v1/sessions?" + bad + b"=1",
            b"/v1/sessions?limit=" + bad,
        ):
            yield b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % target
        for name in names.encode().split():
            host = b"" if name == b"Host" else b"Host: localhost\r\n"
            yield b"GET /v1/sessions HTTP/1.1\r\n%s%s: %s\r\nConnection: close\r\n\r\n" % (host, name, bad)
        yield b"%s /v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % bad
    said = json.dumps(
        {"events": [{"id": f"a\n{LINE}", "message": {"role": f"\n{LINE}", "content": f"\n{LINE}"}}]}
    ).encode()
    head = b"POST /v1/sessions/s/events?create=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    yield head + b"Content-Length: %d\r\n\r\n%s" % (len(said), said)


def sent(url: str, request: bytes) -> bytes:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize("output", ["json", "text"])
def test_whatever_a_request_says_is_one_line_at_most_and_none_of_its_own(database_url: str, output: str) -> None:
    settings = {"TURNLOG_LOG_FORMAT": output, "TURNLOG_LOG_LEVEL": "debug"}
    with Serving(database_url=database_url, **settings) as serving:
        answers = [sent(serving.url, request) for request in attempts()]
        assert serving.terminate() == 0
    assert all(answer.startswith(b"HTTP/1.1 ") for answer in answers)
    # Those are refused before they are a request.
    known = [answer for answer in answers if b"This is no HTTP request" not in answer]
    assert len(known) > len(answers) / 3
    finished = [line for line in serving.output.splitlines() if "request.finished" in line and "/readyz" not in line]
    assert len(finished) == len(known)
    # A request id that holds nothing but what can be printed is written as it came.
    assert "forged" not in re.sub(r"a(%[0-9a-f]{2})+2026\S+_forged", "", serving.output)
    assert not re.findall(r"[^\x20-\x7e\n]", serving.output)
    for line in serving.output.splitlines():
        if output == "json":
            assert {"event", "level", "timestamp", "logger"} <= set(json.loads(line))
        else:
            assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z \[[a-z]+ *\] \S", line), line
