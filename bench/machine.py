"""What a run ran on: ratios travel from one machine to another, figures do not."""

import os
import platform
import resource
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import psutil

from bench import pgbench
from bench.postgres import DURABLE

_PACKAGES: Final = (
    "fastapi",
    "starlette",
    "uvicorn",
    "uvloop",
    "sqlalchemy",
    "asyncpg",
    "msgspec",
    "tiktoken",
    "toktok-rs",
)


async def about(connection: Any) -> dict[str, Any]:
    """Describe the machine, the versions and the settings."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 2**30),
            "system": platform.platform(),
            "load_before": [round(one, 2) for one in os.getloadavg()],
        },
        "versions": {
            "python": platform.python_version(),
            "postgres": await connection.fetchval("SHOW server_version"),
            "pgbench": pgbench.program(),
            **{name: _version(name) for name in _PACKAGES},
        },
        "settings": {
            **DURABLE,
            **{
                name: await connection.fetchval("SELECT current_setting($1)", name)
                for name in ("shared_buffers", "max_wal_size", "wal_sync_method", "jit")
            },
        },
    }


class Watch:
    """Tells how much of the machine others took while a run lasted: on a busy one even ratios are worth little."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._busy = _busy()
        self._own = _own()

    def others(self) -> float:
        """Return the share of all cores that others had, from 0 to 1; ask when every process of the run has ended."""
        theirs = (_busy() - self._busy) - (_own() - self._own)
        return max(0.0, theirs / (time.perf_counter() - self._began) / (os.cpu_count() or 1))


def _busy() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _own() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
