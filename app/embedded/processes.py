"""Find and stop the processes that a killed server, or a killed service, left behind.

Every run of a server has a name that nobody else has, its `cluster_name`. It stands in the command line of the
postmaster and in the title of each of its children, which is how they are told from every other PostgreSQL on the
machine: a pid from a file may long belong to somebody else.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PATIENCE = 5.0  # seconds for an immediate shutdown; it takes milliseconds unless the disk hangs


def stop(run: str) -> list[int]:
    """End every process of the run with this name, and return the pids that were found."""
    found = _of(run)
    for number in (signal.SIGQUIT, signal.SIGKILL):
        deadline = time.monotonic() + _PATIENCE
        remaining = _of(run)
        _send(remaining, number)
        while remaining and time.monotonic() < deadline:
            time.sleep(0.01)
            remaining = _of(run)
    return found


def is_postgres(pid: int) -> bool:
    """Whether a process with this pid runs and is a PostgreSQL server, or one of its children."""
    return any(_is_server(words) for other, words in _command_lines() if other == pid)


def _of(run: str) -> list[int]:
    return [pid for pid, words in _command_lines() if _is_server(words) and _names(words, run)]


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_server(words: list[str]) -> bool:
    return words[0].startswith("postgres:") or any(word.endswith("/postgres") for word in words)


def _names(words: list[str], run: str) -> bool:
    return f"cluster_name={run}" in words or f"postgres: {run}: " in " ".join(words)


def _command_lines() -> Iterator[tuple[int, list[str]]]:
    """Every process that we can see, with the words of its command line."""
    if sys.platform == "linux":
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):  # A process may end while we look.
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                if command:
                    yield int(entry.name), command.rstrip("\0").split("\0")
    else:
        ps = ["ps", "-A", "-ww", "-o", "pid=,command="]
        listing = subprocess.run(ps, capture_output=True, text=True, check=True)  # noqa: S603  # a constant command
        for line in listing.stdout.splitlines():
            pid, _, command = line.strip().partition(" ")
            yield int(pid), command.split() or [""]
