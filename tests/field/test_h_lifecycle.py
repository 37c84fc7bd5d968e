"""Field cases H: deletion, expiry, and what compaction must leave alone."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.conftest import Service, rows, settings_for, wait_until
from tests.field.modelled import condense, modelled
from tests.field.refusals import refused
from tests.field.test_c_concurrency import at_once
from tests.model_server import Reply
from tests.talk import Talk, assistant, custom, system, tool, turns, user
from tests.validity import assert_valid

STORED = (
    "SELECT s.session_id, e.seq, e.type, e.body::text AS body"
    " FROM events e FULL JOIN sessions s USING (session_key) ORDER BY s.session_id, e.seq"
)


@pytest.fixture
def own(own_service: Service) -> Iterator[Talk]:
    """A session that is alone in its database."""
    with own_service.client() as http:
        yield Talk(http, "s")


def wordy(count: int) -> list[dict[str, Any]]:
    """Return turns whose summary is smaller than they are."""
    return [{**message, "content": message["content"] + " and so on" * 20} for message in turns(count)]


def test_c67_a_session_deleted_after_a_compaction_and_created_again_is_empty(own: Talk, database_url: str) -> None:
    own.append(*wordy(5))
    assert own.compact(last_turns=1, summary="The story so far.")["status"] == "applied"
    assert own.http.delete(own.path).status_code == 204
    for path in ("", "/view", "/events", "/compactions"):
        refused(own.http.get(own.path + path), 404, code="session-not-found")
    refused(
        own.http.post(own.path + "/compact", json={"window": {"rule": "last_turns", "size": 1}}),
        404,
        code="session-not-found",
    )
    assert rows(database_url, STORED) == []
    assert own.http.post("/v1/sessions", json={"id": own.id}).status_code == 201
    assert own.view()["events"] == own.log() == own.get("/compactions")["data"] == []
    assert own.session()["version"] == 0
    assert own.session()["view"] == {"events": 0, "turns": 0, "tokens": 0, "boundary": None}
    # The caller's summary is of the session that is gone: what it names is not there.
    response = own.http.post(
        own.path + "/compact",
        json={
            "window": {"rule": "last_turns", "size": 1},
            "summarizer": {"type": "text", "text": "The story so far."},
            "expected_version": 10,
        },
    )
    refused(response, 412, code="version-conflict")


LEFT = (
    "SELECT (SELECT count(*) FROM sessions) AS sessions, (SELECT count(*) FROM events) AS events,"
    " (SELECT count(*) FROM compaction_attempts) AS attempts"
)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made-again"])
def test_c67_a_session_deleted_while_the_model_works_is_gone_and_the_compaction_ends(
    postgres: str, template: str, again: bool
) -> None:
    with modelled(postgres, template) as model, model.service.client() as own, ThreadPoolExecutor(1) as thread:
        talk = model.talk()
        talk.append(*wordy(5))
        # The model never answers, so that whatever ends the call is the deletion.
        model.server.answer = Reply(hangs=True)
        body = {"window": {"rule": "last_turns", "size": 1}, "summarizer": {"type": "llm"}}
        compacting = thread.submit(own.post, f"{talk.path}/compact", json=body)
        model.server.wait_for(1)
        assert model.http.delete(talk.path).status_code == 204
        assert rows(model.url, LEFT) == [{"sessions": 0, "events": 0, "attempts": 0}]
        refused(model.http.get(talk.path + "/view"), 404, code="session-not-found")
        if again:
            talk.append(user("new"))
        refused(compacting.result(), 404, code="session-not-found")
        assert model.server.requests[0].status == 200
        assert rows(model.url, LEFT) == [{"sessions": int(again), "events": int(again), "attempts": 0}]
        if not again:
            refused(model.http.get(talk.path + "/view"), 404, code="session-not-found")
            assert model.http.post("/v1/sessions", json={"id": talk.id}).status_code == 201
        assert talk.texts() == ["new"] * again
        assert talk.get("/compactions")["data"] == []
        assert talk.get("/compactions", params={"attempts": "true"})["data"] == []
        assert talk.session()["version"] == int(again)
        # The new session is nobody's business but its own.
        model.server.answer = "A summary."
        talk.append(*wordy(3))
        assert condense(talk, last_turns=1)["status"] == "applied"
        assert_valid(talk)


def test_c67_a_summary_that_comes_just_after_the_deletion_is_thrown_away(postgres: str, template: str) -> None:
    with modelled(postgres, template) as model, model.service.client() as own, ThreadPoolExecutor(1) as thread:
        talk = model.talk()
        talk.append(*wordy(5))

        def delete_first(_: object) -> str:
            assert model.http.delete(talk.path).status_code == 204
            talk.append(user("new"), *wordy(5))
            return "A summary of what is gone."

        model.server.answer = delete_first
        body = {"window": {"rule": "last_turns", "size": 1}, "summarizer": {"type": "llm"}}
        refused(thread.submit(own.post, f"{talk.path}/compact", json=body).result(), 404, code="session-not-found")
        assert talk.seqs() == [*range(1, 12)]
        assert talk.session()["version"] == 11
        assert rows(model.url, LEFT) == [{"sessions": 1, "events": 11, "attempts": 0}]


def test_c71_a_session_that_expires_while_the_model_works_gets_no_summary(postgres: str, template: str) -> None:
    with modelled(postgres, template) as model, model.service.client() as own:
        talk = model.talk()
        talk.append(*wordy(5))

        def expire_first(_: object) -> str:
            rows(model.url, "UPDATE sessions SET expires_at = now() - interval '1s'")
            return "A summary."

        model.server.answer = expire_first
        body = {"window": {"rule": "last_turns", "size": 1}, "summarizer": {"type": "llm"}}
        refused(own.post(f"{talk.path}/compact", json=body), 410, code="session-expired")
        # Extended in time, it is as it was, and nothing is locked.
        assert model.http.patch(talk.path, json={"ttl_seconds": 3600}).status_code == 200
        assert talk.seqs() == [*range(1, 11)]
        assert rows(model.url, "SELECT status FROM compaction_attempts WHERE status = 'running'") == []
        model.server.answer = "A summary."
        assert condense(talk, last_turns=1)["status"] == "applied"


def test_c67_deletions_compactions_appends_and_creations_at_once_leave_no_half_session(
    own_service: Service, database_url: str
) -> None:
    allowed = {
        "append": {201, 404},
        "compact": {200, 404},
        "delete": {204, 404},
        "create": {201, 409},
        "view": {200, 404},
    }
    batch = {"events": [{"message": message} for message in wordy(3)]}
    compaction = {"window": {"rule": "last_turns", "size": 1}, "summarizer": {"type": "text", "text": "So far."}}

    def work(http: httpx.Client, number: int) -> httpx.Response:
        what = [*allowed][number % len(allowed)]
        response = httpx.Response(200)
        for _ in range(20):
            match what:
                case "append":
                    response = http.post("/v1/sessions/s/events", json=batch)
                case "compact":
                    response = http.post("/v1/sessions/s/compact", json=compaction)
                case "delete":
                    response = http.delete("/v1/sessions/s")
                case "create":
                    response = http.post("/v1/sessions", json={"id": "s"})
                case _:
                    response = http.get("/v1/sessions/s/view?format=openai")
            assert response.status_code in allowed[what], f"{what}: {response.status_code} {response.text}"
        return response

    at_once(own_service, 10, work)
    with own_service.client() as http:
        http.delete("/v1/sessions/s")
        assert rows(database_url, STORED) == []
        talk = Talk(http, "s")
        talk.append(user("new"))
        assert talk.texts() == ["new"]
        assert talk.session()["version"] == 1


def test_c68_the_same_id_created_again_has_nothing_of_the_old_session(own: Talk, database_url: str) -> None:
    path, key = own.path + "/events?create=true", {"Idempotency-Key": "k"}
    own.http.put(own.path, json={"metadata": {"principal": "old"}, "ttl_seconds": None})
    first = own.http.post(path, json={"events": [{"message": user("old question")}]}, headers=key)
    assert first.status_code == 201
    own.append({"id": "old-id", "message": assistant("old answer")}, custom(old=True), *wordy(4))
    own.compact(last_turns=1, summary="The old story.")
    assert own.http.delete(own.path).status_code == 204
    again = own.http.post(path, json={"events": [{"message": user("new")}]}, headers=key)
    assert again.status_code == 201
    assert again.json()["version"] == 1
    assert [event["replayed"] for event in again.json()["events"]] == [False]
    assert own.texts() == ["new"]
    assert [event["seq"] for event in own.log()] == [1]
    assert own.get("/compactions")["data"] == []
    assert own.session()["metadata"] == {}
    assert own.session()["expires_at"] is not None
    refused(own.http.get(own.path + "/events/old-id"), 404, code="event-not-found")
    assert [json.loads(row["body"]) for row in rows(database_url, STORED)] == [user("new")]
    # The old batch under the old key is a new one here, and the key now belongs to the new batch.
    refused(
        own.http.post(path, json={"events": [{"message": user("old question")}]}, headers=key),
        409,
        code="idempotency-key-reused",
    )
    assert own.append({"id": "old-id", "message": user("reused")})["events"][0]["replayed"] is False
    assert_valid(own)


def listing(talk: Talk) -> dict[str, bytes]:
    """Return every event that a client sent, by id, as the bytes of the listing; ``covered`` is a view's business."""
    found: dict[str, bytes] = {}
    for event in talk.log(synthetic="false"):
        if event["type"] != "COMPACTION":
            one = talk.http.get(f"{talk.path}/events/{event['id']}").content
            found[event["id"]] = one.replace(b'"covered":true', b'"covered":false')
    return found


def test_c70_compactions_leave_the_raw_log_alone(own: Talk, database_url: str) -> None:
    everything = "SELECT * FROM events WHERE seq <= 24 ORDER BY seq"
    own.append(
        system("Be brief."), *wordy(8), {"id": "mine", "timestamp": "2020-01-01T00:00:00Z", "message": user("x")},
        assistant(None, c="f"), tool("c", "1"), assistant("y"), custom(n=1), *wordy(1),
    )  # fmt: skip
    seqs, stored, listed = [event["seq"] for event in own.log()], rows(database_url, everything), listing(own)
    assert seqs == [*range(1, 25)]
    outcomes = [
        own.compact(last_turns=7),
        own.compact(last_turns=4, summary="The story so far."),
        own.compact(last_events=2),
    ]
    assert [outcome["status"] for outcome in outcomes] == ["applied"] * 3
    log = own.log()
    assert [event["seq"] for event in log] == [*range(1, own.session()["version"] + 1)]
    new = log[24:]
    assert [(event["type"], event["synthetic"]) for event in new] == [
        ("COMPACTION", False),
        ("COMPACTION", False),
        ("MESSAGE", True),
        ("MESSAGE", True),
        ("COMPACTION", False),
    ]
    assert listing(own) == listed
    assert rows(database_url, everything) == stored
    assert_valid(own)


def test_c71_an_expired_session_is_gone_before_it_is_swept(own: Talk, database_url: str) -> None:
    http = own.http
    assert http.post("/v1/sessions", json={"id": own.id, "ttl_seconds": 1}).status_code == 201
    own.post("/events", {"events": [{"message": message} for message in turns(2)]}, (201, 410))
    wait_until(lambda: http.get(own.path).status_code == 410)
    for path in ("", "/view", "/view?format=openai", "/events", "/events?active=true", "/events/x", "/compactions"):
        refused(http.get(own.path + path), 410, code="session-expired")
    refused(http.post(own.path + "/compact", json={"window": {"rule": "last_turns", "size": 1}}), 410)
    refused(http.post(own.path + "/events", json={"events": [{"message": user("new")}]}), 410)
    refused(http.patch(own.path, json={"metadata": {"a": 1}}), 410)
    refused(http.get(f"/v1/chat-memory/{own.id}"), 410)
    assert http.get("/v1/sessions").json()["data"] == []
    assert len(rows(database_url, "SELECT 1 FROM sessions")) == 1
    assert http.post("/v1/purge").json() == {"purged": 1, "remaining": 0}
    assert rows(database_url, STORED) == []
    refused(http.get(own.path), 404)


@pytest.mark.parametrize("way", ["append", "create", "put", "chat-memory"])
def test_c71_the_id_of_an_expired_session_starts_empty(own: Talk, database_url: str, way: str) -> None:
    http = own.http
    http.post("/v1/sessions", json={"id": own.id, "ttl_seconds": 1, "metadata": {"old": "1"}})
    own.post("/events", {"events": [{"message": message} for message in turns(2)]}, (201, 410))
    wait_until(lambda: http.get(own.path).status_code == 410)
    said = ["new"]
    match way:
        case "append":
            assert own.append(user("new"), expected_version=0)["version"] == 1
        case "create":
            assert http.post("/v1/sessions", json={"id": own.id}).status_code == 201
            said = []
        case "put":
            assert http.put(own.path, json={}).status_code == 201
            said = []
        case _:
            memory = http.post(f"/v1/chat-memory/{own.id}/messages", json={"messages": [user("new")]})
            assert memory.json() == {"messages": [user("new")]}
    assert own.texts() == said
    assert own.session()["metadata"] == {}
    assert [json.loads(row["body"]) for row in rows(database_url, STORED) if row["body"]] == [user("new")] * len(said)


def test_c71_an_expired_session_can_be_extended_as_long_as_it_was_not_swept(own: Talk) -> None:
    http = own.http
    http.post("/v1/sessions", json={"id": own.id, "ttl_seconds": 1})
    own.post("/events", {"events": [{"message": user("old")}]}, (201, 410))
    wait_until(lambda: http.get(own.path).status_code == 410)
    assert http.patch(own.path, json={"ttl_seconds": 3600}).status_code == 200
    assert http.post("/v1/purge").json() == {"purged": 0, "remaining": 0}
    assert own.view()["version"] in {0, 1}


def test_c71_an_expired_session_is_gone_after_a_restart_too(database_url: str) -> None:
    with Service(settings_for(database_url)) as service, service.client() as http:
        http.post("/v1/sessions", json={"id": "s", "ttl_seconds": 1})
        wait_until(lambda: http.get("/v1/sessions/s").status_code == 410)
    with Service(settings_for(database_url)) as service, service.client() as http:
        refused(http.get("/v1/sessions/s/view"), 410)
        assert http.get("/v1/sessions").json()["data"] == []
