"""What the people who run turnlog ask it."""

from typing import Any

import httpx
import pytest

from app import __version__
from tests.api.asking import problem, url_of
from tests.conftest import Service, execute
from tests.talk import Talk, turns


def test_a_process_that_answers_is_alive(http: httpx.Client) -> None:
    answer = http.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_service_whose_schema_is_current_is_ready(http: httpx.Client) -> None:
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "schema": "current"})


def test_a_service_whose_schema_a_newer_release_has_added_to_is_ready_and_says_so(own_service: Service) -> None:
    execute(url_of(own_service), "UPDATE alembic_version SET version_num = '9999'")
    with own_service.client() as http:
        answer = http.get("/readyz")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok", "schema": "newer"})


STATES = [
    "UPDATE alembic_version SET version_num = '0000'",  # an older schema
    "UPDATE alembic_version SET version_num = 'b0001'",  # one that took something away
    "DELETE FROM alembic_version",  # none
    "DROP TABLE alembic_version",  # not even the table
]


@pytest.mark.parametrize("statement", STATES)
def test_a_service_whose_schema_is_another_is_alive_and_not_ready(own_service: Service, statement: str) -> None:
    execute(url_of(own_service), statement)
    with own_service.client() as http:
        answer = http.get("/readyz")
        assert "revision" in problem(answer, 503, "unavailable")["detail"]
        assert int(answer.headers["retry-after"]) >= 1
        assert http.get("/healthz").status_code == 200


def test_capabilities_tell_what_the_server_takes(http: httpx.Client) -> None:
    found = http.get("/v1/capabilities").json()
    assert found == {
        "version": __version__,
        "formats": {
            "in": ["openai", "openai-responses", "anthropic", "gemini"],
            "out": ["events", "openai", "openai-responses", "anthropic", "gemini", "text"],
        },
        "limits": {
            "body_bytes": 8 * 1024 * 1024,
            "event_bytes": 4 * 1024 * 1024,
            "batch_events": 1000,
            "json_depth": 100,
            "json_values": 100_000,
            "metadata_bytes": 64 * 1024,
            "page": 1000,
            "open_requests": 1000,
            "open_bytes": 128 * 1024 * 1024,
        },
        "defaults": {"ttl_seconds": 60 * 24 * 3600, "policy": False, "page": 100, "chat_memory_messages": 20},
        "tokens": {"encoding": "o200k_base"},
        "summarizer": {"configured": False},
    }


def test_every_format_that_is_said_to_be_there_is_there(http: httpx.Client, talk: Talk) -> None:
    talk.append(*turns(1))
    formats = http.get("/v1/capabilities").json()["formats"]
    for output in formats["out"]:
        assert http.get(talk.path + "/view", params={"format": output}).status_code == 200
    said: dict[str, Any] = {
        "openai": {"role": "user", "content": "hello"},
        "openai-responses": {"type": "message", "role": "user", "content": "hello"},
        "anthropic": {"role": "user", "content": "hello"},
        "gemini": {"role": "user", "parts": [{"text": "hello"}]},
    }
    for given in formats["in"]:
        body = {"format": given, "messages": [said[given]]}
        assert http.post(talk.path + "/events", json=body).status_code == 201


def test_metrics_are_in_prometheus_format(http: httpx.Client) -> None:
    http.get("/healthz")
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "# TYPE turnlog_request_seconds histogram" in answer.text


def test_no_answer_names_the_server_software(http: httpx.Client) -> None:
    assert "x-powered-by" not in http.get("/healthz").headers
