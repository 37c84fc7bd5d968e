"""Log lines: nouns, verbs and ids, and never what people said."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from app import logs
from tests.api.asking import SECRET, problem
from tests.api.test_errors import secret_bodies
from tests.conftest import cloned, execute, wait_until
from tests.talk import Talk

ROOT = Path(__file__).resolve().parents[1]
JSON = {"Content-Type": "application/json"}
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@contextmanager
def served(url: str, log: Path, **settings: str) -> Iterator[httpx.Client]:
    """Run `turnlog serve` on a database, with its log in a file, and talk to it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}
    environment |= {"TURNLOG_DATABASE_URL": url, "TURNLOG_PORT": "0"}
    environment |= {f"TURNLOG_{name.upper()}": value for name, value in settings.items()}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", "from app.cli import main; main()", "serve"],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: bool(ADDRESS.search(log.read_text())) or process.poll() is not None, 60)
        found = ADDRESS.search(log.read_text())
        assert found, log.read_text()
        with httpx.Client(base_url=found[0], timeout=60) as client:
            wait_until(lambda: alive(client))
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def alive(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def say_secrets(http: httpx.Client, breaks: Sequence[Callable[[], None]]) -> None:
    """Say the secret in every place where a client can, well and badly, and let the service fail while it is said."""
    said = {"role": "user", "content": SECRET, "name": SECRET}
    talk = Talk(http, "s1")
    http.put(talk.path, json={"metadata": {"note": SECRET}})
    talk.append({"message": said, "metadata": {"note": SECRET}, "id": "e1"}, {"type": "A", "payload": {"a": SECRET}})
    talk.append({"message": said, "token_count": 900}, {"message": {"role": "user", "content": "x"}})
    http.post("/v1/chat-memory/c1/messages", json={"messages": [said]})
    http.patch(talk.path, json={"metadata": {"other": SECRET, "x": [SECRET]}})
    assert talk.compact(last_turns=1, summary=SECRET)["status"] == "applied"
    for output in ("events", "openai", "text"):
        assert SECRET in http.get(talk.path + "/view", params={"format": output}).text
    http.get("/v1/sessions", params={"metadata.note": SECRET})
    for body in secret_bodies():
        answer = http.post(talk.path + "/events", content=body, headers=JSON)
        assert answer.status_code in {400, 422}
        assert SECRET not in answer.text
    for path in (talk.path + "/compact", "/v1/chat-memory/c1/messages", "/v1/sessions", "/v1/purge"):
        for content in (f'{{"window": "{SECRET}"}}', f'"{SECRET}"', f'{{"{SECRET[:5]}": "{SECRET}"', SECRET):
            answer = http.post(path, content=content, headers=JSON)
            assert answer.is_client_error
            assert SECRET not in answer.text
    problem(http.post(talk.path + "/events", json={"events": [{"message": {**said, "content": "y"}, "id": "e1"}]}), 409,
            "event-id-conflict")  # fmt: skip
    bodies: list[tuple[str, str, Any]] = [
        ("POST", talk.path + "/events", {"events": [{"message": said}]}),
        ("POST", "/v1/chat-memory/c1/messages", {"messages": [said]}),
        ("PATCH", talk.path, {"metadata": {"note": SECRET}}),
        ("PUT", "/v1/sessions/s2", {"metadata": {"note": SECRET}}),
    ]
    for break_database in breaks:
        break_database()
        for method, path, body in bodies:
            answer = http.request(method, path, json=body)
            problem(answer, 500, "internal-error")
            assert SECRET not in answer.text


# Each makes the database refuse what the service sends: with a check, whose error shows the row, and with a
# statement that does not fit any more, whose error shows the statement.
BREAKS = [
    (
        "ALTER TABLE events ADD CONSTRAINT ck_fault CHECK (seq < 0) NOT VALID",
        "ALTER TABLE sessions ADD CONSTRAINT ck_fault CHECK (version < 0) NOT VALID",
    ),
    ("ALTER TABLE events RENAME metadata TO m", "ALTER TABLE sessions RENAME metadata TO m"),
]


@pytest.mark.parametrize("output", ["json", "text"])
def test_no_log_line_holds_what_people_said(postgres: str, template: str, tmp_path: Path, output: str) -> None:
    log = tmp_path / "log"
    with (
        cloned(postgres, template) as url,
        served(url, log, log_format=output, log_level="debug") as http,
    ):
        http.get("/healthz", headers={"X-Request-Id": "probe"})
        say_secrets(http, [partial(execute, url, *statements) for statements in BREAKS])
    text = log.read_text()
    assert "request.finished" in text
    assert text.count("request.failed") == 8, "the faults were logged"
    assert "probe" in text, "what probes ask is logged for the curious"
    # Nor does a line hold the value of a filter in a query string.
    at = text.find(SECRET)
    assert at == -1, text[max(0, at - 1000) : at + 200]


def test_json_lines_are_json_and_name_the_request(postgres: str, template: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with cloned(postgres, template) as url, served(url, log, log_format="json") as http:
        headers = {"X-Request-Id": "req-7", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        http.get("/v1/sessions/nobody", headers=headers)
        for probed in ("/healthz", "/readyz", "/metrics"):
            http.get(probed, headers={"X-Request-Id": "probe"})
        http.get("/v1/sessions/nobody")
        execute(url, "ALTER TABLE sessions RENAME metadata TO m")
        http.get("/v1/sessions/nobody", headers={"X-Request-Id": "req-8"})
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        assert {"event", "level", "timestamp", "logger"} <= set(line)
    assert not any(line.get("request_id") == "probe" for line in lines), "what probes ask would drown the rest"
    finished = [line for line in lines if line["event"] == "request.finished"]
    assert [line["status"] for line in finished] == [404, 404, 500]
    first, second, third = finished
    assert (first["request_id"], first["trace_id"], first["method"]) == ("req-7", trace, "GET")
    assert first["route"] == "/v1/sessions/{session_id}"
    assert isinstance(first["milliseconds"], float)
    assert "trace_id" not in second
    failed = [line for line in lines if line["event"] == "request.failed"]
    assert [(line["request_id"], line["level"]) for line in failed] == [("req-8", "error")]
    assert any(" at " in kind and ".py:" in kind for kind in failed[0]["fault"]), "what went wrong, and where"
    assert third["request_id"] == "req-8"


def test_text_without_a_terminal_looks_like_the_console_without_colours() -> None:
    said: list[dict[str, Any]] = [
        {"event": "request.finished", "route": "/v1/x", "status": 200, "milliseconds": 1.25},
        {"event": "an event that is longer than its column", "fault": ["a b"], "none": None, "quoted": "a=b", "z": ""},
        {"event": "bad", "exception": "Traceback:\n  x"},
    ]
    console = structlog.dev.ConsoleRenderer(colors=False)
    for one in said:
        line = {**one, "timestamp": "2026-01-01T00:00:00Z", "level": "warning", "logger": "turnlog"}
        assert logs._text(None, "warning", dict(line)) == console(None, "warning", dict(line)).rstrip()


def test_what_would_move_a_terminal_or_begin_a_line_is_written_as_its_code() -> None:
    for moves in ("\x1b[2K", "\0", "\x7f", "\x85", "\u2028", "\u202e", "\v"):
        line = {"event": "a.b", "fact": f"x{moves}y", "timestamp": "t", "level": "info", "logger": "turnlog"}
        assert logs._text(None, "info", line).isprintable()


def test_a_log_that_nobody_reads_any_more_stops_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        logs._Lines("turnlog").write("a line")
        with suppress(BrokenPipeError):
            closed.close()
    logs._Lines("turnlog").write("a line after the end")
