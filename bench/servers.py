"""The servers that are measured, each in processes of its own: turnlog as a user runs it, and the bare route."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psutil

from bench import load

_TURNLOG: Final = (sys.executable, "-c", "from app.cli import main; main()", "serve")
_ROOT: Final = Path(__file__).resolve().parents[1]
_PATIENCE: Final = 30.0


class Server:
    """A running server: its port, and what it has used."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self._process = psutil.Process(process.pid)

    def processes(self) -> list[psutil.Process]:
        """Return its processes."""
        return [self._process, *self._process.children(recursive=True)]

    def cpu(self) -> float:
        """Return the seconds of CPU it has used since it began."""
        return cpu_of(self.processes())

    def rss(self) -> int:
        """Return the resident set of its largest process now, in bytes."""
        return max(int(process.memory_info().rss) for process in self.processes())

    def peak_rss(self) -> int:
        """Return the largest resident set that one of its processes ever had, in bytes."""
        return max(_peak(process.pid) for process in self.processes())

    async def put(self, name: str, answer: bytes) -> None:
        """Tell the bare route what to answer under a name."""
        await load.once(self.port, load.request("PUT", f"/{name}", answer))


def cpu_of(processes: Sequence[psutil.Process]) -> float:
    """Return the seconds of CPU that processes have used."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return int(psutil.Process(pid).memory_info().rss)
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@asynccontextmanager
async def turnlog(url: str, *, workers: int = 1, **settings: str) -> AsyncIterator[Server]:
    """Serve a database with `turnlog serve`, with its default settings unless others are named."""
    port = free_port()
    changes = {"TURNLOG_DATABASE_URL": url, "PYTHONPATH": str(_ROOT)}
    changes |= {f"TURNLOG_{name.upper()}": value for name, value in settings.items()}
    async with served([*_TURNLOG, "--port", str(port), "--workers", str(workers)], port, "/readyz", changes) as server:
        yield server


@asynccontextmanager
async def bare() -> AsyncIterator[Server]:
    """Serve the bare route."""
    port = free_port()
    async with served([sys.executable, "-m", "bench.bare", str(port)], port, "/", {"PYTHONPATH": str(_ROOT)}) as server:
        yield server


@asynccontextmanager
async def served(command: Sequence[str], port: int, probe: str, environment: dict[str, str]) -> AsyncIterator[Server]:
    """Run a server from the moment it answers its probe to the end of the block. It may say nothing meanwhile."""
    process = subprocess.Popen(  # noqa: ASYNC220 - it takes a millisecond, and nothing is measured meanwhile
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        await _until_it_answers(process, port, probe)
        yield Server(port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, 20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _until_it_answers(process: subprocess.Popen[bytes], port: int, probe: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            await load.once(port, load.request("GET", probe))
        except (OSError, load.LoadFailed):
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            return


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
