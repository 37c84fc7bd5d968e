"""Field cases J: more than one process on a database, and restarts."""

import asyncio
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from app.storage import schema
from tests.conftest import Service, cloned, execute, rows, settings_for, wait_until
from tests.field.modelled import attempts, condense, long_turns, modelled, state, told, variables
from tests.journeys import clusters
from tests.journeys.poolers import Pooler, pooler
from tests.journeys.processes import Serving, environment, refusal, run
from tests.journeys.replayed import check_session
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


# Session state that a pooler's next client would find: locks, settings, prepared statements.
LEFT_BEHIND = """
    SELECT 'lock' AS kind, locktype AS name FROM pg_locks
     WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
     UNION ALL SELECT 'transaction', query FROM pg_stat_activity
     WHERE datname = current_database() AND state LIKE 'idle in transaction%'
"""
# The driver turns `jit` off while it looks at a type, and on again, perhaps on another connection. No answer changes.
OF_ONE_CONNECTION = """
    SELECT 'setting' AS kind, name FROM pg_settings
     WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'jit')
     UNION ALL SELECT 'statement', name FROM pg_prepared_statements
     UNION ALL SELECT 'listens', pg_listening_channels()
"""


@contextmanager
def pooled(postgres: str, template: str, *settings: str) -> Iterator[tuple[str, Pooler, str]]:
    """A database behind a transaction-mode pooler with two connections: its own address, the pooler, the pooled one."""
    with cloned(postgres, template) as url:
        name = url.partition("://")[2].partition("/")[2].partition("?")[0]
        with pooler(url.partition("host=")[2], *settings) as one:
            yield url, one, one.url(name)


def smoke(http: httpx.Client, name: str) -> None:
    """One client's round through everything that touches the database."""
    talk = Talk(http, name)
    talk.append(system("Be brief."), *turns(3), user("find"), assistant(None, c="find"), tool("c", "x"), custom(n=1))
    talk.append({"id": "again", "message": user("again")})
    talk.append({"id": "again", "message": user("again")}, status=200)
    talk.append(user("late"), status=412, expected_version=1)
    assert talk.compact(last_turns=2)["status"] == "applied"
    talk.append(*turns(3, first=10))
    assert talk.compact(last_turns=1, summary="They talked.")["status"] in {"applied", "unchanged"}
    for read in READS:
        assert http.get(f"{talk.path}{read}").status_code == 200
    assert http.patch(talk.path, json={"metadata": {"principal": name}}).status_code == 200
    assert len(http.get("/v1/sessions", params={"metadata.principal": name}).json()["data"]) == 1
    assert http.post(f"/v1/chat-memory/{name}-m/messages", json={"messages": turns(2)}).status_code == 200
    assert http.put(f"/v1/sessions/{name}-gone", json={"ttl_seconds": 1}).status_code in {200, 201, 410}
    assert http.post("/v1/purge", json={}).status_code == 200
    assert http.delete(f"/v1/chat-memory/{name}-m").status_code == 204
    assert http.get("/readyz").status_code == 200


def test_c79_everything_works_through_a_pooler_that_lends_connections_by_transaction(
    postgres: str, template: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The case has eight clients for two minutes; here for a few rounds each."""
    with pooled(postgres, template) as (url, one, through):
        given = settings_for(through, database_pooled=True, database_pool_size=4)
        with Service(given) as service, ThreadPoolExecutor(8) as threads:

            def client(number: int) -> None:
                with service.client() as http:
                    for round_ in range(4):
                        smoke(http, f"c79-{number}-{round_}")

            [*threads.map(client, range(8))]
            with service.client() as http:
                for number in range(8):
                    check_session(Talk(http, f"c79-{number}-0"))
                # C23: eight clients compact one session, and append to it meanwhile.
                talk = Talk(http, "c23")
                talk.append(*turns(12))

                def contend(number: int) -> str:
                    with service.client() as own:
                        Talk(own, "c23").append(*turns(1, first=100 + number))
                        return str(Talk(own, "c23").compact(last_turns=3)["status"])

                assert "applied" in {*threads.map(contend, range(8))}
                log = check_session(talk)
                assert sum(event["type"] == "MESSAGE" for event in log) == 24 + 16
            use = service.app.state.context.database.pool_use()
            assert set(use.values()) == {0}
            # Both of the pooler's connections, while it has no other.
            assert rows(url, LEFT_BEHIND) == []
            assert asyncio.run(_on_each(through, OF_ONE_CONNECTION)) == []
        assert "prepared statement" not in one.log.read_text()
    said = capfd.readouterr().err
    assert "[error" not in said, said
    assert "prepared statement" not in said, said


async def _on_each(url: str, query: str) -> list[dict[str, Any]]:
    """Ask on both connections of a pooler at once."""
    clients = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(2)]
    try:
        transactions = [client.transaction() for client in clients]
        for transaction in transactions:
            await transaction.start()
        pids = [await client.fetchval("SELECT pg_backend_pid()") for client in clients]
        assert len(set(pids)) == 2
        found = [dict(row) for client in clients for row in await client.fetch(query)]
        for transaction in transactions:
            await transaction.rollback()
    finally:
        for client in clients:
            await client.close()
    return found


def test_c79_leases_and_claims_hold_through_a_pooler(postgres: str, template: str) -> None:
    """Two replicas have the fleet summarized at once, by real processes; each session is paid for once."""
    with pooled(postgres, template) as (url, _, through), ModelServer() as server:
        server.answer = "They talked about it at length."
        given = {**variables(server, timeout="60"), "TURNLOG_DATABASE_POOLED": "true"}
        with (
            Serving(database_url=through, **given) as first,
            Serving(database_url=through, **given) as second,
            first.client() as http,
            second.client() as other,
            ThreadPoolExecutor(4) as threads,
        ):
            policy = {
                "trigger": {"type": "turn_count", "threshold": 3},
                "window": {"rule": "last_turns", "size": 1},
                "summarizer": {"type": "llm"},
            }
            for number in range(6):
                talk = Talk(http, f"s{number}")
                assert http.put(talk.path, json={"policy": policy}).status_code == 201
                talk.append(*long_turns(5))
            runs = [threads.submit(own.post, "/v1/compact", json={}) for own in (http, other, http, other)]
            assert {run.result().status_code for run in runs} == {200}
            wait_until(lambda: other.get("/v1/compact/due").json()["due"] == 0)
            wait_until(lambda: other.post("/v1/compact", json={}).json()["deferred"] == 0)
            for number in range(6):
                assert len(Talk(other, f"s{number}").get("/compactions")["data"]) == 1
            assert len(server.requests) == 6
        assert rows(url, LEFT_BEHIND) == []


def test_c79_a_pooler_that_turnlog_was_not_told_of_is_named_at_the_start(postgres: str, template: str) -> None:
    with pooled(postgres, template) as (_, _, through):
        line = refusal(run("serve", "--port", "0", TURNLOG_DATABASE_URL=through))
        assert "TURNLOG_DATABASE_POOLED=true" in line


def test_c79_a_pooler_that_hides_what_it_does_not_know_is_named_where_it_shows(postgres: str, template: str) -> None:
    hidden = "default_transaction_read_only, idle_in_transaction_session_timeout, tcp_keepalives_idle"
    hidden += ", tcp_keepalives_interval, tcp_keepalives_count"
    with pooled(postgres, template, f"ignore_startup_parameters = {hidden}") as (_, _, through):
        process = Serving(database_url=through)
        try:
            process.begin()
            wait_until(lambda: "database.not_as_expected" in process.output or process.process.poll() is not None, 60)
            if process.process.poll() is None:
                assert "transaction_read_only" in process.output
                process.ready()
                with process.client() as http, ThreadPoolExecutor(8) as threads:
                    asked = [threads.submit(http.put, f"/v1/sessions/s{number}", json={}) for number in range(64)]
                    answers = [one.result() for one in asked]
                    assert {answer.status_code for answer in answers} <= {200, 201, 503}
                    refused = [answer.json()["detail"] for answer in answers if answer.status_code == 503]
                    assert all("TURNLOG_DATABASE_POOLED" in one or "database" in one for one in refused)
            else:
                assert "TURNLOG_DATABASE_POOLED=true" in process.output
        finally:
            process.forget()


def test_c79_replicas_migrate_through_a_pooler(postgres: str, empty_database_url: str) -> None:
    name = empty_database_url.partition("://")[2].partition("/")[2].partition("?")[0]
    with pooler(empty_database_url.partition("host=")[2]) as one, ExitStack() as stack:
        replicas = [Serving(database_url=one.url(name), TURNLOG_DATABASE_POOLED="true") for _ in range(3)]
        for replica in replicas:
            stack.callback(replica.forget)
            replica.begin()
        for replica in replicas:
            replica.ready()
        assert rows(empty_database_url, "SELECT version_num FROM alembic_version") == [{"version_num": schema.head()}]
        assert rows(empty_database_url, LEFT_BEHIND) == []


# C78


def test_c78_replicas_that_start_together_all_end_healthy_and_the_schema_is_migrated_once(
    empty_database_url: str,
) -> None:
    """On an empty database, and again with a migration pending."""
    for version in (None, "0001"):
        if version is not None:
            downgraded(empty_database_url, version)
        with ExitStack() as stack:
            replicas = [Serving(database_url=empty_database_url) for _ in range(3)]
            for replica in replicas:
                stack.callback(replica.forget)
                replica.begin()
            for number, replica in enumerate(replicas):
                replica.ready()
                with replica.client() as http:
                    Talk(http, f"s{version}-{number}").append(*turns(1))
                    assert http.get("/readyz").json() == {"status": "ok", "schema": "current"}
        assert version_of(empty_database_url) == [schema.head()]


@pytest.mark.parametrize("killed", ["replica", "postgres"])
def test_c78_after_a_kill_during_the_migration_the_next_start_finishes(killed: str) -> None:
    with clusters.running() as cluster:
        url = cluster.url
        with Serving(database_url=url) as service, service.client() as http:
            Talk(http, "s").append(*turns(2))
        downgraded(url, "0001")
        replica = Serving(database_url=url)
        try:
            asyncio.run(_kill_in_the_middle(url, replica, cluster if killed == "postgres" else None))
            replica.process.kill()
            replica.wait()
            if killed == "postgres":
                cluster.start()
            assert version_of(url) == ["0001"], "half a migration was left"
            replica.restart()
            assert version_of(url) == [schema.head()]
            with replica.client() as http:
                Talk(http, "s").append(*turns(1, first=3))
                assert len(check_session(Talk(http, "s"))) == 6
        finally:
            replica.forget()


async def _kill_in_the_middle(url: str, replica: Serving, cluster: clusters.Cluster | None) -> None:
    """Somebody reads the table that the migration alters: so it stands still after its beginning."""
    reader = await asyncpg.connect(url)
    await reader.execute("BEGIN; LOCK TABLE sessions IN ACCESS SHARE MODE")
    replica.begin()
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ALTER TABLE sessions%'"
    await asyncio.to_thread(wait_until, lambda: bool(rows(url, waits)), 60)
    if cluster is not None:
        await asyncio.to_thread(cluster.stop, signal.SIGKILL)
        reader.terminate()
        return
    replica.process.kill()
    replica.wait()
    await reader.close()
    left = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'turnlog'"
    await asyncio.to_thread(wait_until, lambda: not rows(url, left), 60)


def test_c78_an_older_release_on_a_newer_schema_says_so_and_serves(database_url: str) -> None:
    """Old and new on one database: the one that runs goes on, and one that starts says clearly what it found."""
    with Serving(database_url=database_url) as running:
        # As a newer release does, which only adds.
        execute(
            database_url,
            "ALTER TABLE sessions ADD COLUMN of_a_newer_release int NOT NULL DEFAULT 7",
            "UPDATE alembic_version SET version_num = '9999'",
        )
        with Serving(database_url=database_url) as started:
            for one in (running, started):
                with one.client() as http:
                    assert http.get("/readyz").json() == {"status": "ok", "schema": "newer"}
                    smoke(http, f"c78-{one.pid}")
                    check_session(Talk(http, f"c78-{one.pid}"))
                wait_until(lambda one=one: "schema.newer" in one.output)  # type: ignore[misc]
                assert "9999" in one.output
        assert running.output.count("schema.newer") == 1, "it said so more than once"
    assert version_of(database_url) == ["9999"]
    line = refusal(run("migrate", TURNLOG_DATABASE_URL=database_url))
    assert "newer" in line
    assert "9999" in line


def version_of(url: str) -> list[str]:
    return [row["version_num"] for row in rows(url, "SELECT version_num FROM alembic_version")]


def downgraded(url: str, version: str) -> None:
    ended = subprocess.run(
        [Path(sys.executable).with_name("alembic"), "downgrade", version],
        cwd=Path(__file__).resolve().parents[2],
        env=environment(TURNLOG_DATABASE_URL=url),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
