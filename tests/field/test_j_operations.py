"""Field cases J: more than one process on a database, and restarts."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.conftest import Service, cloned, rows, settings_for, wait_until
from tests.field.modelled import attempts, condense, long_turns, modelled, state, told, variables
from tests.journeys.processes import Serving
from tests.model_server import ModelServer, Reply
from tests.talk import Talk, assistant, custom, system, tool, turns, user
from tests.validity import assert_valid

IDLE = """
    SELECT query FROM pg_stat_activity
     WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND now() - state_change > interval '1s'
"""


def test_c77_no_database_connection_is_held_while_the_model_works(postgres: str, template: str) -> None:
    """The case has the model sleep for fifteen seconds; here until the others have done all they want to."""
    slept = threading.Event()

    def sleep(_: object) -> str:
        assert slept.wait(60)
        return "A summary."

    with modelled(postgres, template, database_pool_size=5) as model, ThreadPoolExecutor(20) as threads:
        talks = [model.talk() for _ in range(20)]
        for talk in talks:
            talk.append(*long_turns(5))
        model.server.answer = sleep
        try:

            def compact(talk: Talk) -> Any:
                with model.service.client() as own:
                    return condense(Talk(own, talk.id), last_turns=1)

            compacting = [threads.submit(compact, talk) for talk in talks]
            model.server.wait_for(20, timeout=30)
            asked = time.monotonic()
            for number in range(50):
                talk = talks[number % 20]
                talk.append(*turns(1, first=number))
                assert talk.texts()[-1] == f"answer {number}"
                assert model.http.get("/healthz").status_code == model.http.get("/readyz").status_code == 200
            # For longer than a lease is left alone, so that it is renewed on the way.
            wait_until(lambda: time.monotonic() - asked > 3)
            assert rows(model.url, IDLE) == []
            assert not any(one.done() for one in compacting)
        finally:
            slept.set()
        assert [one.result()["status"] for one in compacting] == ["applied"] * 20
        assert len(model.server.requests) == 20
        for number, talk in enumerate(talks):
            assert talk.view()["turns"] == 1 + 2 + (number < 10)
            assert told(talk) == ["A summary."]


@pytest.mark.parametrize("ends", ["SIGKILL", "SIGTERM"])
def test_c80_a_service_that_ends_while_the_model_works_leaves_the_view_as_it_was(
    postgres: str, template: str, ends: str
) -> None:
    body = {"window": {"rule": "last_turns", "size": 1}, "summarizer": {"type": "llm"}}
    with cloned(postgres, template) as url, ModelServer() as server, ThreadPoolExecutor(1) as thread:
        given = {**variables(server, timeout="60"), "TURNLOG_SHUTDOWN_SECONDS": "1"}
        with Serving(database_url=url, **given) as process:
            with process.client() as http, process.client() as own:
                talk = Talk(http, "s")
                talk.append(*long_turns(5))
                before = state(talk)
                server.answer = Reply(hangs=True)
                compacting = thread.submit(own.post, f"{talk.path}/compact", json=body)
                server.wait_for(1, timeout=30)
                process.kill() if ends == "SIGKILL" else process.terminate()
                with suppress(httpx.TransportError):
                    assert compacting.result().status_code >= 500
            process.restart()
            with process.client() as http:
                talk = Talk(http, "s")
                assert state(talk) == before
                server.answer = "Told at last."
                # A lease runs out within ten seconds of its holder's death; one that was told to stop gave it back.
                assert condense(talk, last_turns=1)["status"] == "applied"
                assert told(talk) == ["Told at last."]
                assert talk.seqs() == [12, 13, 9, 10]
                assert len(talk.get("/compactions")["data"]) == 1
                assert [one["status"] for one in attempts(talk)] == ["applied", "abandoned"]
                assert attempts(talk)[1]["error"] == ("holder-died" if ends == "SIGKILL" else "stopped")
                assert len(server.requests) == 2
                assert_valid(talk)


READS = (
    *(f"/view?format={output}" for output in ("events", "openai", "text")),
    "/view?at_version=5", "/view?last_n=3", "/events", "/events?active=true", "/events?order=desc", "/compactions", "",
)  # fmt: skip


def everything(http: httpx.Client, session: str) -> list[tuple[bytes, str | None]]:
    """Return the bytes and the tag of every read of a session."""
    answers = [http.get(f"/v1/sessions/{session}{read}") for read in READS]
    assert {answer.status_code for answer in answers} == {200}
    return [(answer.content, answer.headers.get("etag")) for answer in answers]


def talk_at_length(http: httpx.Client, session: str) -> Talk:
    """Fill a session with all that a view can hold, and compact it twice."""
    talk = Talk(http, session)
    http.put(talk.path, json={"metadata": {"zz": 1, "a": 1.50, "m": "naïve 😀"}})
    calling = assistant(None, c="find", d="book")
    calling["tool_calls"][0]["function"]["arguments"] = {"zebra": 1, "alpha": {"y": 2.0, "x": 10**25}}
    talk.append(
        system("Be brief."), assistant("Ahoy."), *turns(4), user("weather?"), calling,
        tool("d", "booked"), tool("c", "sunny\0"), assistant("Sunny."), custom(n=1), *turns(2, first=5),
    )  # fmt: skip
    long = "They asked about questions 1 to 4 and were answered. " * 3
    assert talk.compact(last_turns=4)["status"] == "applied"
    talk.append(*({**message, "content": message["content"] + " and so on" * 30} for message in turns(3, first=7)))
    assert talk.compact(summary=long, last_turns=2)["status"] == "applied"
    talk.append(user("what now?"))
    return talk


def test_c81_the_view_is_the_same_on_every_replica_and_after_a_restart(database_url: str) -> None:
    settings = settings_for(database_url)
    with Service(settings) as second, second.client() as http_second:
        with Service(settings) as first, first.client() as http_first:
            talk = talk_at_length(http_first, "s")
            on_first = everything(http_first, "s")
            assert everything(http_second, "s") == on_first
            assert_valid(talk)
        assert everything(http_second, "s") == on_first
        with Service(settings) as restarted, restarted.client() as http_restarted:
            assert everything(http_restarted, "s") == on_first
            assert everything(http_second, "s") == on_first
            # What one replica writes, the other has.
            for writer, reader in ((http_restarted, http_second), (http_second, http_restarted)):
                Talk(writer, "s").append(user("and now?"), assistant("Now this."))
                assert everything(reader, "s") == everything(writer, "s")
                Talk(writer, "s").compact(last_turns=1, summary="Much was said. " * 5)
                assert everything(reader, "s") == everything(writer, "s")


def test_c81_two_replicas_that_write_to_one_session_keep_one_log(database_url: str) -> None:
    settings = settings_for(database_url)
    with Service(settings) as one, Service(settings) as other, one.client() as http, other.client() as http_other:
        # FastAPI builds its routes at the first request, under warnings.catch_warnings, which two threads of a process
        # must not do at once (two real replicas are two processes). This path makes it look at all of them.
        assert {one.get("/nothing").status_code for one in (http, http_other)} == {404}

        def write(writer: int) -> None:
            with (one, other)[writer % 2].client() as own:
                for number in range(15):
                    Talk(own, "s").append(user(f"{writer}-{number}"), assistant("ok"))
                    Talk(own, "s").compact(last_turns=3)

        with ThreadPoolExecutor(6) as threads:
            [*threads.map(write, range(6))]
        log = Talk(http, "s").log()
        assert [event["seq"] for event in log] == [*range(1, len(log) + 1)]
        messages = [event for event in log if event["type"] == "MESSAGE"]
        assert len(messages) == 180
        assert [event["message"]["role"] for event in messages] == ["user", "assistant"] * 90
        boundaries = [event["payload"]["covered"] for event in log if event["type"] == "COMPACTION"]
        assert all(earlier[0][1] < later[0][1] for earlier, later in itertools.pairwise(boundaries))
        assert everything(http, "s") == everything(http_other, "s")
        figures = Talk(http, "s").session()["view"]
        view = Talk(http, "s").view()
        assert figures["events"] == len(view["events"])
        assert (figures["turns"], figures["tokens"]) == (view["turns"], view["token_count"])
