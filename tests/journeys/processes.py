"""`turnlog` as its users run it: real processes, which a test may kill, each by its pid."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from app.embedded import processes as postgres_processes
from app.embedded import sockets
from tests.conftest import wait_until

COMMAND = Path(sys.executable).with_name("turnlog")
# Seconds until something that should have happened has not, on a machine with more to do than this suite.
LONG = 60.0
_LISTENING = re.compile(r"(?:service\.listening .*url=|\"url\": ?\")(http://[^\s\"]+)")
_STARTED = "Application startup complete"


def environment(**changes: str) -> dict[str, str]:
    """Return our environment with the settings in ``changes`` and no others, and a terminal that wraps no line."""
    # Hundreds of processes are started, and each would compile what it imports anew if none might keep it.
    dropped = ("TURNLOG_", "PROMETHEUS_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    # A command that a test gave no database must not find the one of whoever runs the suite.
    nowhere = {"TURNLOG_DATA_DIR": "/dev/null/turnlog"}
    return {**kept, **nowhere, "COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb", **changes}


def run(*arguments: object, cwd: Path | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `turnlog` to its end."""
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(**settings),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LONG * 2,
        check=False,
    )


class Serving:
    """`turnlog serve` on a data folder with its own PostgreSQL, or on the database that it is given."""

    def __init__(
        self, *options: object, data_dir: Path | None = None, database_url: str | None = None, **settings: str
    ) -> None:
        self.data_dir = data_dir
        self._arguments = ["serve", "--port", "0", *map(str, options)]
        self._settings = dict(settings)
        if data_dir is not None:
            self._arguments += ["--data-dir", str(data_dir)]
        if database_url is not None:
            self._settings["TURNLOG_DATABASE_URL"] = database_url
        self.url = ""
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        self.begin()
        try:
            return self.ready()
        except BaseException:
            self.forget()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.forget()

    @property
    def pid(self) -> int:
        """The process that was started: the service, or the one that started the workers."""
        return self.process.pid

    @property
    def output(self) -> str:
        """What it has said so far, since it was started last."""
        return "".join(self._lines)

    @property
    def started(self) -> int:
        """How many server processes have started so far, replacements of others included."""
        return self.output.count(_STARTED)

    @property
    def workers(self) -> list[int]:
        """The living processes that serve, of a service that was told to have several."""
        return [pid for pid in session_of(self.pid) if "spawn_main" in _command(pid)]

    @property
    def postgres_pid(self) -> int:
        """The embedded PostgreSQL, as its data folder says."""
        assert self.data_dir is not None
        [file] = self.data_dir.glob("postgres-*/postmaster.pid")
        return int(file.read_text().partition("\n")[0])

    def begin(self) -> None:
        """Start it without waiting for anything."""
        self._lines = []
        self.process = subprocess.Popen(
            [COMMAND, *self._arguments],
            env=environment(**self._settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._collect, args=(self.process, self._lines), daemon=True)
        self._reader.start()

    @staticmethod
    def _collect(process: subprocess.Popen[str], lines: list[str]) -> None:
        assert process.stdout
        with process.stdout:
            lines.extend(process.stdout)  # a list grows line by line while others read it

    def ready(self) -> Self:
        """Wait until it says where it listens, and until it is ready there."""
        wait_until(lambda: bool(_LISTENING.search(self.output)) or self._ended(), LONG)
        assert not self._ended(), f"it ended with {self.process.returncode}:\n{self.output}"
        found = _LISTENING.search(self.output)
        assert found
        self.url = found[1]
        with self.client() as client:
            wait_until(lambda: _is_ready(client) or self._ended(), LONG)
        assert not self._ended(), f"it ended with {self.process.returncode}:\n{self.output}"
        return self

    def _ended(self) -> bool:
        return self.process.poll() is not None

    def restart(self) -> Self:
        """Start it again, after it has ended in whatever way."""
        assert self._ended(), "it still runs"
        self.begin()
        return self.ready()

    def client(self) -> httpx.Client:
        """Return a new client with connections of its own."""
        return httpx.Client(base_url=self.url, timeout=LONG)

    def kill(self) -> None:
        """End it as `kill -9` does, and wait until it is gone."""
        self.process.kill()
        self.wait()

    def terminate(self) -> int:
        """Ask it to stop as a supervisor does, and return its exit code."""
        self.process.terminate()
        return self.wait()

    def interrupt(self) -> int:
        """Ask it to stop as Ctrl-C does, and return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code; below zero it is the signal that ended it."""
        code = self.process.wait(LONG)
        # Workers that outlive it for a moment hold the other end of its output.
        self._reader.join(LONG)
        return code

    def forget(self) -> None:
        """End it, and clear away what the next start would have cleared away."""
        if not self._ended():
            self.process.terminate()
            try:
                self.process.wait(LONG)
            except subprocess.TimeoutExpired:
                self.process.kill()
        for pid in session_of(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait()
        if self.data_dir is not None:
            clear_away(self.data_dir)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def clear_away(data_dir: Path) -> None:
    """Remove the traces that a killed service leaves outside its data folder, as its next start would."""
    with suppress(FileNotFoundError):
        noted = (data_dir / "lock").read_text().splitlines()[1:2]
        for socket_dir in (Path(line) for line in noted if line):
            postgres_processes.stop(socket_dir.name)
            sockets.remove(socket_dir)


def session_of(leader: int) -> list[int]:
    """Return the living processes of a session: all that a process which leads one has started, and theirs."""
    return [pid for pid in _living() if _session(pid) == leader]


def is_alive(pid: int) -> bool:
    """Say whether a process lives; one that has ended and was not waited for does not."""
    return pid in _living()


def _living() -> list[int]:
    if sys.platform != "linux":
        listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid, state in map(str.split, listed.splitlines()) if not state.startswith("Z")]
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # a process may end while we look
            if entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(int(entry.name))
    return found


def _command(pid: int) -> str:
    if sys.platform != "linux":
        shown = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return shown.stdout
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def _session(pid: int) -> int | None:
    with suppress(ProcessLookupError, PermissionError):
        return os.getsid(pid)
    return None


def refusal(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the one line with which a command refused: exit code 1, and never a traceback."""
    said = ended.stdout + ended.stderr
    assert "Traceback" not in said, said
    assert ended.returncode == 1, f"exit code {ended.returncode}: {said}"
    [line] = [line for line in ended.stderr.splitlines() if line.startswith("turnlog: ")]
    return line


def usage_error(ended: subprocess.CompletedProcess[str]) -> str:
    """Return what a command said about a command line that it does not understand: exit code 2."""
    assert "Traceback" not in ended.stderr, ended.stderr
    assert ended.returncode == 2, f"exit code {ended.returncode}: {ended.stdout}{ended.stderr}"
    assert ended.stdout == ""
    return ended.stderr
