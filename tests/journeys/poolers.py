"""PgBouncer in transaction mode, as Debian ships it: the oldest that turnlog is made to work through."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.embedded import cluster
from tests.conftest import wait_until
from tests.journeys.clusters import answers, folder

LONG = 60.0


@dataclass
class Pooler:
    """A PgBouncer on a loopback port, with few connections to the server."""

    port: int
    log: Path

    def url(self, database: str) -> str:
        return f"postgresql://turnlog@127.0.0.1:{self.port}/{database}"


@contextmanager
def pooler(server_socket_folder: str, *settings: str, connections: int = 2) -> Iterator[Pooler]:
    """Run PgBouncer in front of the server whose socket is in a folder."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("NOT TESTED: there is no PgBouncer on this machine")
    with folder("pool") as place, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        account = cluster.choose_account(place / "none")
        if account:
            shutil.chown(place, account.uid, account.gid)
        users = place / "users.txt"
        users.write_text('"turnlog" ""\n')
        config = place / "pgbouncer.ini"
        config.write_text(
            "\n".join(
                [
                    "[databases]",
                    f"* = host={server_socket_folder}",
                    "[pgbouncer]",
                    "listen_addr = 127.0.0.1",
                    f"listen_port = {port}",
                    "unix_socket_dir =",
                    "auth_type = trust",
                    f"auth_file = {users}",
                    "pool_mode = transaction",
                    f"default_pool_size = {connections}",
                    "max_client_conn = 200",
                    *settings,
                    "",
                ]
            )
        )
        with (place / "log").open("ab") as log:
            process = subprocess.Popen(
                [program, config],
                stdout=log,
                stderr=log,
                **({"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}),
            )
        try:
            found = Pooler(port, place / "log")
            wait_until(lambda: process.poll() is not None or answers(found.url("postgres")), LONG)
            assert process.poll() is None, found.log.read_text()
            yield found
        finally:
            # At once: clients that are still there are told so.
            if process.poll() is None:
                os.kill(process.pid, signal.SIGTERM)
            process.wait(LONG)
