"""Field case C69: what is deleted is nowhere, neither in a table nor in a process nor in what was logged."""

from typing import Any

import httpx
import pytest

from app.service.views import FORMATS
from app.storage.sessions import key_of
from tests.conftest import Service, rows, settings_for, wait_until
from tests.field.modelled import LLM, modelled, variables
from tests.journeys.processes import Serving
from tests.model_server import ModelServer
from tests.talk import Message, Talk, assistant, custom, turns, user

SECRET = "4417"  # noqa: S105 - no password, but a thing to look for
_COLUMNS = """
SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns
 WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
"""


def found_in_tables(url: str, secret: str = SECRET) -> list[str]:
    """Return every column of the database that holds the secret, as text or as bytes."""
    found = []
    for column in rows(url, _COLUMNS):
        name, table = f'"{column["column_name"]}"', f'"{column["table_schema"]}"."{column["table_name"]}"'
        shown = f"encode({name}, 'escape')" if column["data_type"] == "bytea" else f"{name}::text"
        query = f"SELECT count(*) FROM {table} WHERE {shown} LIKE '%' || $1 || '%'"  # noqa: S608
        if rows(url, query, secret)[0]["count"]:
            found.append(f"{table}.{name}")
    return found


def secretive() -> list[Message]:
    """Return a conversation that gives the secret away, long enough for a summary to be shorter."""
    told = user(f"my locker code is {SECRET}" + " and so on" * 30)
    return [told, assistant(f"{SECRET}, noted." + " and so on" * 30), *turns(3)]


def say_everything(http: httpx.Client, name: str) -> Talk:
    """Have the secret in whatever can hold it: messages, ids, a payload, metadata, a policy, a key, summaries."""
    talk = Talk(http, name)
    policy = {"window": {"rule": "last_turns", "size": 1}, "summarizer": {**LLM, "instructions": f"Keep {SECRET}."}}
    body = {"metadata": {"principal": "ada", "code": SECRET}, "policy": policy}
    assert http.put(talk.path, json=body).status_code == 201
    talk.append(*secretive(), {"id": f"id-{SECRET}", "message": user("x"), "metadata": {"code": SECRET}})
    talk.append(custom(code=SECRET))
    events = {"events": [{"message": user(f"again: {SECRET}")}]}
    talk.post("/events", events, 201, headers={"Idempotency-Key": f"key-{SECRET}"})
    talk.post("/events", events, 200, headers={"Idempotency-Key": f"key-{SECRET}"})
    assert talk.compact(last_turns=2, summary=f"The code is {SECRET}.")["status"] == "applied"
    talk.append(*secretive())
    assert talk.post("/compact", {})["status"] == "applied"
    http.post(f"/v1/chat-memory/{name}/messages", json={"messages": [user(f"and {SECRET}")]}).raise_for_status()
    for output in FORMATS:
        assert SECRET in http.get(talk.path + "/view", params={"format": output}).text
    # What is refused must not be kept for an error either.
    assert http.post(talk.path + "/events", json={"events": [{"message": {"role": SECRET}}]}).status_code == 422
    return talk


def held_by(service: Service, name: str) -> str:
    """Return all that the process keeps of a session, and of any other."""
    cache = service.app.state.context.view_cache
    held = repr([(entry.held, entry.answers) for entry in cache._entries.values()])
    assert (key_of("default", name) in cache._entries) == (len(cache) > 0)
    return held


@pytest.mark.parametrize("way", ["delete", "expire-and-purge"])
def test_c69_what_is_deleted_is_in_no_table_and_in_no_cache(postgres: str, template: str, way: str) -> None:
    with modelled(postgres, template) as model:
        model.server.answer = f"They told me {SECRET}."
        talk = say_everything(model.http, "s")
        assert {'"events"."body"', '"sessions"."metadata"'} <= {
            one.partition(".")[2] for one in found_in_tables(model.url)
        }
        assert SECRET in held_by(model.service, "s")
        if way == "delete":
            assert model.http.delete(talk.path).status_code == 204
        else:
            rows(model.url, "UPDATE sessions SET expires_at = now() - interval '1s'")
            assert model.http.get(talk.path + "/view").status_code == 410
            assert model.http.post("/v1/purge").json() == {"purged": 1, "remaining": 0}
        assert found_in_tables(model.url) == []
        assert SECRET not in held_by(model.service, "s")
        for output in FORMATS:
            gone = model.http.get(talk.path + "/view", params={"format": output}, headers={"If-None-Match": "*"})
            assert (gone.status_code, SECRET in gone.text) == (404, False)
        assert SECRET not in model.http.get("/metrics").text
        # The one who comes next under that name and with that key meets nothing of it.
        again = {"events": [{"message": user("new")}]}
        made = talk.post("/events", again, 201, params={"create": "true"}, headers={"Idempotency-Key": f"key-{SECRET}"})
        assert (made["version"], made["events"][0]["replayed"]) == (1, False)
        assert talk.get("/compactions", params={"attempts": "true"})["data"] == []
        assert found_in_tables(model.url) == []


def test_c69_another_process_forgets_what_it_held_when_it_is_asked(database_url: str) -> None:
    with (
        Service(settings_for(database_url)) as one,
        Service(settings_for(database_url)) as other,
        one.client() as here,
        other.client() as there,
    ):
        Talk(here, "s").append(*secretive())
        assert SECRET in there.get("/v1/sessions/s/view?format=openai").text
        assert here.delete("/v1/sessions/s").status_code == 204
        assert SECRET in held_by(other, "s"), "nobody has told it"
        assert there.get("/v1/sessions/s/view?format=openai").status_code == 404
        assert SECRET not in held_by(other, "s")


def test_c69_metadata_that_was_patched_away_is_gone(own_service: Service, database_url: str) -> None:
    with own_service.client() as http:
        body: dict[str, Any] = {"metadata": {"code": SECRET, "kept": "yes"}}
        assert http.put("/v1/sessions/s", json=body).status_code == 201
        assert len(found_in_tables(database_url)) == 2
        assert http.patch("/v1/sessions/s", json={"metadata": {"code": None}}).json()["metadata"] == {"kept": "yes"}
        assert found_in_tables(database_url) == []
        assert http.get("/v1/sessions", params={"metadata.code": SECRET}).json()["data"] == []


def test_c69_clearing_a_chat_memory_keeps_the_log_and_deleting_its_session_does_not(
    own_service: Service, database_url: str
) -> None:
    with own_service.client() as http:
        http.post("/v1/chat-memory/s/messages", json={"messages": [user(f"it is {SECRET}")]}).raise_for_status()
        assert http.delete("/v1/chat-memory/s").status_code == 204
        assert http.get("/v1/chat-memory/s").json() == {"messages": []}
        assert found_in_tables(database_url) != [], "the log keeps everything"
        assert http.delete("/v1/sessions/s").status_code == 204
        assert found_in_tables(database_url) == []


def test_c69_the_log_lines_at_debug_level_never_held_it(database_url: str) -> None:
    with ModelServer() as server:
        server.answer = f"They told me {SECRET}."
        settings = {"TURNLOG_LOG_LEVEL": "debug", **variables(server)}
        with Serving(database_url=database_url, **settings) as service:
            with service.client() as http:
                talk = say_everything(http, "s")
                talk.append({"id": f"id-{SECRET}", "message": user("other content")}, status=409)
                assert http.delete(talk.path).status_code == 204
            wait_until(lambda: "DELETE" in service.output or "delete" in service.output)
            assert service.terminate() == 0
        lines = [line for line in service.output.splitlines() if SECRET in line]
    assert lines == []
