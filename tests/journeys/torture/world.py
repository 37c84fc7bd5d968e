"""What is tortured: a PostgreSQL, two services on it with one worker and two, and the model that they ask."""

import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import asyncpg

from app import embedded
from app.embedded.server import Server
from tests.conftest import execute, rows, wait_until
from tests.field.modelled import variables
from tests.journeys.processes import LONG, Serving, is_alive, session_of
from tests.model_server import ModelServer

_BACKENDS: Final = "SELECT pid FROM pg_stat_activity WHERE application_name = 'turnlog'"
_END_THEM: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'turnlog'"


@dataclass
class World:
    """The processes, and what can be done to them. ``done`` counts what was.

    ``output`` is what the services of earlier lives said, ``ended`` what those said that nobody had killed.
    """

    postgres: Server
    url: str
    replicas: list[Serving]
    done: Counter[str] = field(default_factory=Counter)
    output: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    _starters: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))
    _starting: dict[int, Future[None]] = field(default_factory=dict)

    @property
    def urls(self) -> list[str]:
        """Where the replicas listen, before and after they were killed."""
        return [replica.url for replica in self.replicas]

    # What the nemesis does.

    def kill_replica(self, rng: random.Random) -> None:
        """End a service and its workers at once, and have it started again meanwhile."""
        replica = self._running(rng)
        # Both at once are away sometimes, but not most of the time, for that would torture nobody.
        if replica is not None and (all(map(self._is_up, self.replicas)) or rng.random() < 0.2):
            signal_all(replica, signal.SIGKILL)
            replica.wait()
            self.output.append(replica.output)
            self._starting[id(replica)] = self._starters.submit(self._start, replica)

    def kill_worker(self, rng: random.Random) -> None:
        """End one worker of the service that has several; the service replaces it."""
        workers = self.replicas[1].workers if self._is_up(self.replicas[1]) else []
        if workers:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(workers), signal.SIGKILL)

    def pause_replica(self, rng: random.Random) -> None:
        """Stop a service in the middle of everything, and let it go on."""
        replica = self._running(rng)
        if replica is not None:
            with stopped(session_of(replica.pid)):
                time.sleep(rng.uniform(0.1, 1.5))

    def pause_backend(self, rng: random.Random) -> None:
        """Stop a process of PostgreSQL that works for a service, and let it go on."""
        with suppress(OSError, asyncpg.PostgresError):
            backends = [row["pid"] for row in rows(self.url, _BACKENDS)]
            with stopped([rng.choice(backends)] if backends else []):
                time.sleep(rng.uniform(0.1, 1.0))

    def end_connections(self, _: random.Random) -> None:
        """Have PostgreSQL end every connection of the services."""
        with suppress(OSError, asyncpg.PostgresError):
            execute(self.url, _END_THEM)

    def kill_postgres(self, _: random.Random) -> None:
        """End PostgreSQL as the kernel does when memory is short; it is started again."""
        self._end_postgres(signal.SIGKILL)

    def stop_postgres(self, _: random.Random) -> None:
        """Stop PostgreSQL in its mode `immediate`; it is started again."""
        self._end_postgres(signal.SIGQUIT)

    def _end_postgres(self, number: signal.Signals) -> None:
        pid = self.postgres.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            # A server that is killed while it recovers from the last time is tortured well enough by chance.
            wait_until(lambda: self.postgres.pid not in {None, pid} and self._answers(), LONG)

    def _answers(self) -> bool:
        try:
            return rows(self.url, "SELECT 1 AS one") == [{"one": 1}]
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False

    # And how all is well again.

    def _is_up(self, replica: Serving) -> bool:
        starting = self._starting.get(id(replica))
        return starting is None or starting.done()

    def _running(self, rng: random.Random) -> Serving | None:
        replica = rng.choice(self.replicas)
        return replica if self._is_up(replica) else None

    def _start(self, replica: Serving) -> None:
        """Start a service as a supervisor does, once more when it has found no database in all its patience."""
        replica.begin()
        try:
            replica.ready()
        except AssertionError:
            if is_alive(replica.pid):
                raise
            self.ended.append(replica.output)
            replica.wait()
            replica.restart()

    def heal(self) -> None:
        """Wait until everything runs and is ready; a service that has ended by itself is remembered, and started."""
        for starting in self._starting.values():
            starting.result(LONG * 2)
        for replica in self.replicas:
            if not is_alive(replica.pid):
                self.ended.append(replica.output)
                replica.wait()
                replica.begin()
            replica.ready()

    def close(self) -> None:
        """Keep what the services have said, start none any more, and spare them a stop in good order."""
        self._starters.shutdown()
        self.output += [replica.output for replica in self.replicas]
        for replica in self.replicas:
            signal_all(replica, signal.SIGKILL)


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Start everything, with its data in a folder, and end it."""
    ports = [free_port(), free_port()]
    with embedded.start(folder / "postgres") as postgres, ModelServer() as server:
        url = postgres.url.replace("postgresql+asyncpg://", "postgresql://")
        server.answer = "The story so far."
        asks = variables(server, timeout="10")
        one = Serving("--port", ports[0], database_url=url, **asks)
        two = Serving("--port", ports[1], "--workers", 2, database_url=url, **asks)
        made = World(postgres=postgres, url=url, replicas=[one, two])
        with ExitStack() as ending:
            for replica in made.replicas:
                replica.begin()
                ending.callback(replica.forget)
            ending.callback(made.close)
            for replica in made.replicas:
                replica.ready()
            yield made


def free_port() -> int:
    """Return a port that nobody listens on and that no client is given by chance: a service comes back to it."""
    while True:
        port = random.randint(20_000, 30_000)  # noqa: S311 - not a secret
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def signal_all(replica: Serving, number: signal.Signals) -> None:
    """Send a signal to every process of a service."""
    for pid in session_of(replica.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Keep processes from running for as long as the block lasts, whatever happens in it."""
    try:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
