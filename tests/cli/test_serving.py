"""`turnlog serve`, as real processes with real signals."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app import embedded
from tests.cli.command import with_user
from tests.conftest import execute, wait_until
from tests.journeys.processes import LONG, Serving, is_alive, refusal, run, session_of, usage_error
from tests.journeys.replayed import check_session
from tests.talk import Talk, turns, user


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def port_of(service: Serving) -> int:
    return httpx.URL(service.url).port or 0


# What it refuses


def test_where_others_could_come_it_says_who_is_served_before_there_is_a_key(database_url: str) -> None:
    with Serving("--host", "0.0.0.0", database_url=database_url) as service:  # noqa: S104
        assert "service.local_only" in service.output
        assert "turnlog keys create" in service.output
        with httpx.Client(base_url=f"http://127.0.0.1:{port_of(service)}") as client:
            assert client.get("/v1/sessions").status_code == 200
            assert client.get("/v1/sessions", headers={"Host": "turnlog.example"}).status_code == 401


def test_it_serves_other_machines_when_told_to(database_url: str) -> None:
    with (
        Serving("--host", "0.0.0.0", "--insecure", database_url=database_url) as service,  # noqa: S104
        httpx.Client(base_url=f"http://127.0.0.1:{port_of(service)}") as client,
    ):
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/v1/sessions", headers={"Host": "turnlog.example"}).status_code == 200
        assert "service.insecure" in service.output


def test_its_workers_serve_other_machines_when_told_to_and_only_then(database_url: str) -> None:
    foreign = {"Host": "turnlog.example"}
    for options, status in ((("--insecure",), 200), ((), 401)):
        # What a surrounding service has told its workers is none of theirs.
        told = {"TURNLOG_WORKERS_KEYLESS": "everybody"}
        with Serving("--workers", 2, *options, database_url=database_url, **told) as service:
            for _ in range(6):
                with service.client() as client:
                    assert client.get("/v1/sessions", headers=foreign).status_code == status


def test_a_second_service_on_the_same_data_folder_is_refused_in_one_line(data_dir: Path) -> None:
    with Serving(data_dir=data_dir) as first:
        line = refusal(run("serve", "--port", "0", "--data-dir", data_dir))

        assert str(data_dir) in line
        assert str(first.pid) in line
        with first.client() as client:
            assert client.get("/readyz").status_code == 200, "the first one was harmed"


def test_a_port_in_use_is_one_clear_line(data_dir: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        line = refusal(run("serve", "--port", port, "--data-dir", data_dir))

    assert str(port) in line
    assert "use" in line
    assert embedded.attach(data_dir) is None
    assert list(data_dir.glob("postgres-*/postmaster.pid")) == [], "PostgreSQL was left running"


def test_an_address_of_another_machine_cannot_be_bound(database_url: str) -> None:
    line = refusal(run("serve", "--host", "192.0.2.7", "--port", "0", "--insecure", TURNLOG_DATABASE_URL=database_url))

    assert "192.0.2.7" in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TURNLOG_PORT", "eighty"),
        ("TURNLOG_PORT", "70000"),
        ("TURNLOG_WORKERS", "0"),
        ("TURNLOG_DATABASE_POOL_SIZE", "0"),
        ("TURNLOG_LOG_LEVEL", "loud"),
        ("TURNLOG_LOG_FORMAT", "xml"),
        ("TURNLOG_DEFAULT_TTL_SECONDS", "soon"),
        ("TURNLOG_DEFAULT_TTL_SECONDS", "0"),
        ("TURNLOG_DEFAULT_POLICY", "last two turns"),
        ("TURNLOG_DEFAULT_POLICY", '{"window": {"rule": "last_turns", "size": 0}}'),
        ("TURNLOG_DEFAULT_POLICY", '{"window": {"rule": "newest", "size": 2}}'),
        ("TURNLOG_DEFAULT_POLICY", "[]"),
        ("TURNLOG_MAX_JSON_DEPTH", "1000000"),
        ("TURNLOG_BOOTSTRAP_KEY", "secret"),
        ("TURNLOG_BOOTSTRAP_KEY", "secret " * 6),
        ("TURNLOG_RATE_LIMIT", "0"),
        ("TURNLOG_RATE_BURST", "5"),
        ("TURNLOG_SHOW_DOCS", "maybe"),
        ("TURNLOG_DATABASE_URL", "mysql://u:secret@127.0.0.1/x"),
        ("TURNLOG_DATABASE_URL", "postgresql://u:secret@127.0.0.1:port/x"),
        ("TURNLOG_DATABASE_URL", "turnlog"),
    ],
)
def test_a_bad_setting_is_named(database_url: str, name: str, value: str) -> None:
    line = refusal(run("serve", "--port", "0", **{"TURNLOG_DATABASE_URL": database_url, name: value}))

    assert name in line
    assert "secret" not in line


def test_an_unknown_encoding_is_named(database_url: str) -> None:
    line = refusal(run("serve", "--port", "0", TURNLOG_DATABASE_URL=database_url, TURNLOG_ENCODING="klingon"))

    assert "klingon" in line


@pytest.mark.parametrize("options", [("--port", "70000"), ("--port", "-1"), ("--workers", "0")])
def test_a_bad_option_is_refused_like_the_setting(options: tuple[str, str]) -> None:
    assert options[0].strip("-") in refusal(run("serve", *options)).lower()


@pytest.mark.parametrize("options", [("--port", "eighty"), ("--colour",), ("now",)])
def test_a_command_line_that_makes_no_sense_is_a_usage_error(options: tuple[str, ...]) -> None:
    assert options[0] in usage_error(run("serve", *options))


def test_a_user_that_may_not_make_tables_is_one_clear_line(postgres: str, empty_database_url: str) -> None:
    role = f"reader_{os.getpid()}"
    execute(postgres, f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    try:
        url = with_user(empty_database_url, f"{role}:x")
        assert "permission denied" in refusal(run("serve", "--port", "0", TURNLOG_DATABASE_URL=url))
    finally:
        execute(postgres, f"DROP ROLE {role}")


# How it ends


@contextmanager
def held_row(url: str, session_id: str) -> Iterator[Callable[[], int]]:
    """Hold a session's row lock as long as the block lasts; what is yielded counts who waits for it."""
    release, held = threading.Event(), threading.Event()

    async def hold() -> None:
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM sessions WHERE session_id = $1 FOR UPDATE", session_id)
            held.set()
            await asyncio.to_thread(release.wait, LONG * 2)
        await connection.close()

    async def count() -> int:
        connection = await asyncpg.connect(url)
        try:
            return int(
                await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            )
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(asyncio.run, hold())
        try:
            wait_until(lambda: held.is_set() or done.done(), LONG)
            yield lambda: asyncio.run(count())
        finally:
            release.set()
            done.result(LONG)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_stop_finishes_the_request_in_flight_and_then_its_postgres(
    data_dir: Path, number: signal.Signals, workers: int
) -> None:
    with Serving("--workers", workers, data_dir=data_dir) as service:
        wait_until(lambda: service.started == workers, LONG)
        postgres_pid = service.postgres_pid
        port = port_of(service)
        url = (data_dir / "database-url").read_text().strip()
        with service.client() as client:
            talk = Talk(client, "stop")
            talk.append(*turns(1))
            with ThreadPoolExecutor(1) as pool:
                with held_row(url, "stop") as waiting:
                    answer = pool.submit(client.post, f"{talk.path}/events", json={"events": [{"message": user("?")}]})
                    wait_until(lambda: waiting() == 1, LONG)
                    signalled(service, number)
                    wait_until(lambda: service.output.count("Shutting down") == workers, LONG)
                    assert service.process.poll() is None, "it did not wait for the request"
                    assert is_alive(postgres_pid)
                assert answer.result(LONG).status_code == 201
        code = service.wait()
        said = service.output

        assert "Traceback" not in said
        assert not is_alive(postgres_pid), "PostgreSQL outlived the service"
        wait_until(lambda: session_of(service.pid) == [], LONG)
        assert is_free(port)
        assert code == 0, f"exit code {code}"
        assert not (data_dir / "database-url").exists(), "the address of a server that is gone is still published"
        service.restart()
        with service.client() as client:
            assert len(check_session(Talk(client, "stop"))) == 3


def signalled(service: Serving, number: signal.Signals) -> None:
    """Send a signal as it comes in life: SIGTERM to the service, and Ctrl-C's to all that the terminal runs."""
    if number == signal.SIGINT:
        os.killpg(service.pid, number)
    else:
        os.kill(service.pid, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_an_idle_service_stops_cleanly_although_a_client_keeps_its_connection(
    data_dir: Path, number: signal.Signals
) -> None:
    with Serving(data_dir=data_dir) as service, service.client() as client:
        client.get("/healthz")
        socket_dir = Path((data_dir / "database-url").read_text().strip().partition("host=")[2])
        postgres_pid = service.postgres_pid

        signalled(service, number)

        assert service.wait() == 0
        assert not is_alive(postgres_pid)
        assert not socket_dir.exists(), "the folder of the socket was left behind"
        assert list(data_dir.glob("postgres-*/postmaster.pid")) == []
        log = (data_dir / "postgres.log").read_text()
        assert "database system is shut down" in log, "PostgreSQL was not shut down in order"


def test_a_service_on_a_given_database_stops_with_exit_code_0(database_url: str) -> None:
    with Serving(database_url=database_url) as service:
        assert service.terminate() == 0
    with Serving(database_url=database_url) as service:
        assert service.interrupt() == 0


def test_a_killed_service_takes_its_postgres_along(data_dir: Path) -> None:
    with Serving(data_dir=data_dir) as service:
        postgres_pid = service.postgres_pid
        service.kill()
        wait_until(lambda: not is_alive(postgres_pid), LONG)
        service.restart()


# Several workers


def appended(metrics: str) -> float:
    [family] = [one for one in text_string_to_metric_families(metrics) if one.name == "turnlog_events_appended"]
    return sum(sample.value for sample in family.samples if sample.name == "turnlog_events_appended_total")


def test_workers_share_the_port_and_add_up_their_metrics(database_url: str) -> None:
    with Serving("--workers", 2, database_url=database_url) as service:
        wait_until(lambda: service.started == 2, LONG)
        assert len(service.workers) == 2
        for number in range(30):
            with service.client() as client:  # a new connection each time, so that both workers get some
                Talk(client, "shared").append(user(f"question {number}"))
        for _ in range(10):
            with service.client() as client:
                assert appended(client.get("/metrics").text) == 30, "a worker answered for itself alone"
        with service.client() as client:
            assert len(check_session(Talk(client, "shared"))) == 30
        assert service.terminate() == 0
        # Python's own helper of a process that has workers ends a moment after it.
        wait_until(lambda: session_of(service.pid) == [], LONG)


def test_a_killed_master_leaves_no_process_behind_and_the_port_free(data_dir: Path) -> None:
    with Serving("--workers", 2, data_dir=data_dir, TMPDIR=str(data_dir.parent)) as service:
        wait_until(lambda: service.started == 2, LONG)
        workers, postgres_pid, port = service.workers, service.postgres_pid, port_of(service)
        with service.client() as client:
            Talk(client, "kept").append(*turns(2))
            service.process.kill()
            wait_until(lambda: not any(map(is_alive, [*workers, postgres_pid])), LONG)
        service.wait()

        wait_until(lambda: session_of(service.pid) == [], LONG)
        assert is_free(port)
        service.restart()
        with service.client() as client:
            assert len(check_session(Talk(client, "kept"))) == 4


def test_a_worker_that_is_slow_to_start_is_waited_for(tmp_path: Path, database_url: str) -> None:
    """As on a small machine with much to do, where a process may take longer to start than a health check waits."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nif 'spawn_main' in ' '.join(sys.orig_argv):\n    time.sleep(8)\n"
    )
    with Serving("--workers", 2, database_url=database_url, PYTHONPATH=str(tmp_path)) as service:
        wait_until(lambda: service.started == 2, LONG)
        assert "died" not in service.output


def test_a_killed_worker_is_replaced(database_url: str) -> None:
    with Serving("--workers", 2, database_url=database_url) as service:
        wait_until(lambda: service.started == 2, LONG)
        first, second = service.workers
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: service.started == 3, LONG)
        assert is_alive(second)
        with service.client() as client:
            assert client.get("/readyz").status_code == 200


def test_a_worker_killed_while_the_database_is_away_is_replaced_and_the_service_stays(
    tmp_path: Path, postgres: str, database_url: str
) -> None:
    folder = parse_qs(urlsplit(postgres).query).get("host", [""])[0]
    if not folder.startswith("/"):
        pytest.skip("NOT TESTED: the database that was given is not reached through a socket's folder")
    way = tmp_path / "way"
    way.symlink_to(folder)
    with Serving("--workers", 2, database_url=database_url.replace(folder, str(way))) as service:
        wait_until(lambda: service.started == 2, LONG)
        way.unlink()
        os.kill(service.workers[0], signal.SIGKILL)
        # The one that comes in its place waits, and then makes room for another one that does.
        wait_until(lambda: "worker.waits_in_vain" in service.output, LONG)
        with service.client() as client:
            assert client.get("/healthz").status_code == 200
        way.symlink_to(folder)
        wait_until(lambda: service.started == 3, LONG)
        assert service.process.poll() is None


def test_workers_get_the_settings_of_the_command_line(database_url: str) -> None:
    policy = '{"window": {"rule": "last_turns", "size": 1}}'
    with Serving(
        "--workers",
        2,
        database_url=database_url,
        TURNLOG_DEFAULT_TTL_SECONDS="never",
        TURNLOG_DEFAULT_POLICY=policy,
        TURNLOG_MAX_BATCH_EVENTS="7",
        TURNLOG_ENCODING="cl100k_base",
    ) as service:
        for _ in range(8):
            with service.client() as client:
                told = client.get("/v1/capabilities").json()
                assert told["defaults"]["ttl_seconds"] is None
                assert told["defaults"]["policy"] is True
                assert told["limits"]["batch_events"] == 7
                assert told["tokens"] == {"encoding": "cl100k_base"}
