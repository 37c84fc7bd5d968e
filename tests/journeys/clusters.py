"""A PostgreSQL of a test's own, which may be stopped, killed, started again, and followed by a standby."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg

from app.embedded import binaries, cluster
from app.embedded.launch import launch
from tests.conftest import wait_until

LONG = 60.0
# Durable, unless a test says otherwise; and quick to start.
DEFAULTS = ("listen_addresses=", "max_connections=60", "shared_buffers=16MB", "max_wal_senders=4", "wal_level=replica")


class Cluster:
    """One server on a unix socket in a folder of its own."""

    def __init__(self, folder: Path, settings: Sequence[str] = (), data: Path | None = None) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self.account = cluster.choose_account(folder / "none")
        found = binaries.installed()
        self._binaries = binaries.readable(found) if self.account else found
        self._settings = (*DEFAULTS, f"unix_socket_directories={folder}", *settings)
        self._process: subprocess.Popen[bytes] | None = None
        self.own(folder)

    @property
    def url(self) -> str:
        return f"postgresql://turnlog@/postgres?host={self.folder}"

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    def own(self, path: Path) -> None:
        """Make a folder one of the user who runs the server."""
        if self.account:
            shutil.chown(path, self.account.uid, self.account.gid)

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _launched(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            command = [str(self._binaries.program(program)), *words]
            return launch(command, folder=self.folder, account=self.account, output=log)

    def _ran(self, program: str, *words: str) -> None:
        ended = self._launched(program, *words).wait(LONG)
        assert ended == 0, f"{program}: {ended}\n{self.said()}"

    def make(self) -> None:
        words = ("--username=turnlog", "--encoding=UTF8", "--locale=C", "--auth=trust", "--no-sync")
        self._ran("initdb", "-D", str(self.data), *words)

    def copy(self, source: "Cluster") -> None:
        """Take a base backup of a running server, and follow it from then on."""
        self._ran("pg_basebackup", "-D", str(self.data), "-d", source.url, "--write-recovery-conf", "--checkpoint=fast")

    def start(self) -> None:
        words = [word for setting in self._settings for word in ("-c", setting)]
        process = self._process = self._launched("postgres", "-D", str(self.data), *words)
        wait_until(lambda: process.poll() is not None or answers(self.url), LONG)
        assert process.poll() is None, self.said()

    def stop(self, number: int = signal.SIGQUIT) -> None:
        """End it: at once (the immediate mode) unless told otherwise. SIGKILL takes the whole family."""
        if self._process is None:
            return
        if number == signal.SIGKILL:
            # The postmaster's children notice its death by themselves, each in its own time.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.send_signal(number)
        self._process.wait(LONG)
        self._process = None
        wait_until(lambda: not _anybody(self.folder), LONG)

    def promote(self) -> None:
        asyncio.run(_said(self.url, "SELECT pg_promote()"))


def _anybody(folder: Path) -> bool:
    """Say whether some process still works in the data folder."""
    for proc in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (proc / "cwd").resolve().is_relative_to(folder) and (proc / "stat").read_text().split()[2] != "Z":
                return True
    return False


async def _said(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def answers(url: str) -> bool:
    try:
        asyncio.run(_said(url, "SELECT 1"))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    return True


@contextmanager
def folder(name: str) -> Iterator[Path]:
    """A folder whose path is short, for a socket's may not be long, and which another user may enter."""
    found = Path(tempfile.mkdtemp(prefix=f"tl-{name}-"))
    found.chmod(0o755)
    try:
        yield found
    finally:
        shutil.rmtree(found, ignore_errors=True)


@contextmanager
def running(*settings: str) -> Iterator[Cluster]:
    """A new server for as long as the block lasts."""
    with folder("pg") as place:
        one = Cluster(place, settings)
        one.make()
        one.start()
        try:
            yield one
        finally:
            one.stop()
