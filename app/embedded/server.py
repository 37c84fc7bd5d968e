"""The server as a child of the service: started with it, started again when it dies, gone when the service is gone."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from app.embedded import binaries, cluster, folder, processes, sockets, tuning
from app.embedded.errors import EmbeddedError, StartFailed
from app.embedded.launch import here, launch

log = structlog.get_logger(__name__)

_READY_PATIENCE = 120.0  # seconds; replaying the most log that the settings allow takes a tenth of it on a slow disk
_READY_INTERVAL = 0.005  # seconds; a start takes some thirty milliseconds
_FIRST_PAUSE = 0.05  # seconds before a server that died is started again, doubled each time that fails
_LONGEST_PAUSE = 5.0


class Server:
    """A running PostgreSQL, which a thread watches: when it dies, that thread starts it again under the same address.

    All starts are made by that one thread, because the kernel ends a child when the *thread* that forked it ends.
    """

    def __init__(self, claim: folder.Claim, of: cluster.Cluster, socket_dir: Path, settings: Mapping[str, str]) -> None:
        self._claim = claim
        self._cluster = of
        self._socket_dir = socket_dir
        self._settings = settings
        self._child: subprocess.Popen[bytes] | None = None
        self._launching = threading.Lock()  # No server may be started behind the back of `stop`.
        self._stopping = threading.Event()
        self._settled = threading.Event()
        self._failure: EmbeddedError | None = StartFailed("PostgreSQL did not start")  # until it has
        self._stopped = False
        self._watch = threading.Thread(target=self._run, name="embedded-postgres", daemon=True)

    @property
    def url(self) -> str:
        """The address for SQLAlchemy over asyncpg. It stays the same when the server is started again."""
        return sockets.sqlalchemy_url(self._socket_dir)

    @property
    def pid(self) -> int | None:
        """The process of the server, or None while there is none. Another one after it was started again."""
        return self._child.pid if self._child and self._child.returncode is None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def begin(self) -> None:
        """Start watching, and return when the server takes connections. Raises `StartFailed`."""
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._watch.start()
            self._settled.wait()
            if self._failure:
                raise self._failure
            self._claim.publish(sockets.libpq_url(self._socket_dir))
            undo.pop_all()

    def stop(self, timeout: float = 10.0) -> None:
        """End the server and give back its data folder; the second time does nothing.

        It gets `timeout` seconds to write its checkpoint. After that it is ended at once, which loses nothing either:
        the next start replays the log.
        """
        with self._launching:
            already, self._stopped = self._stopped, True
            self._stopping.set()
        if already:
            return
        self._claim.withdraw()
        for number, patience in ((signal.SIGINT, timeout), (signal.SIGQUIT, 2.0), (signal.SIGKILL, 2.0)):
            if not self._watch.is_alive():
                break
            if self._child:
                self._child.send_signal(number)
            self._watch.join(patience)
        if self._watch.is_alive() or self._child is None or self._child.returncode != 0:
            processes.stop(self._socket_dir.name)  # A postmaster that was killed leaves its children.
        sockets.remove(self._socket_dir)
        self._claim.release()

    def _run(self) -> None:
        """The life of the watching thread: start once, then start again whenever the server dies by itself."""
        try:
            child = self._launch()
            self._failure = None
        except EmbeddedError as error:
            self._failure = error
            return
        except OSError as error:
            self._failure = StartFailed(f"PostgreSQL did not start: {error}")
            return
        finally:
            self._settled.set()
        while child is not None:
            status = child.wait()
            if self._stopping.is_set():
                return
            log.warning("postgres.died", pid=child.pid, status=status)
            child = self._recover()

    def _recover(self) -> subprocess.Popen[bytes] | None:
        pause = _FIRST_PAUSE
        while not self._stopping.wait(pause):
            began = time.monotonic()
            try:
                processes.stop(self._socket_dir.name)
                child = self._launch()
            except (EmbeddedError, OSError) as error:
                # A full disk or a lack of memory passes; the service says that it is not ready until it has.
                log.error("postgres.start_failed", error=str(error))  # noqa: TRY400  # the message is for people
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                if child:
                    log.info("postgres.recovered", pid=child.pid, seconds=round(time.monotonic() - began, 3))
                return child
        return None

    def _launch(self) -> subprocess.Popen[bytes] | None:
        """Start the server and wait until it is ready; None when it is to stop instead."""
        of = self._cluster
        of.forget_stranger()
        command = [of.binaries.program("postgres"), "-D", here(of.path, of.account)]
        command += tuning.arguments(self._settings, self._socket_dir)
        with os.fdopen(self._claim.open_log(), "ab") as output:
            since = os.fstat(output.fileno()).st_size
            with self._launching:
                if self._stopping.is_set():
                    return None
                child = launch(command, folder=of.path, account=of.account, output=output)
                self._child = child
        deadline = time.monotonic() + _READY_PATIENCE
        while child.poll() is None and time.monotonic() < deadline:
            if of.is_ready(child.pid):
                return child
            time.sleep(_READY_INTERVAL)
        if child.poll() is None:
            child.send_signal(signal.SIGQUIT)
            child.wait()
            raise StartFailed(
                f"PostgreSQL was not ready within {_READY_PATIENCE:.0f} seconds:", self._claim.log_tail(since)
            )
        raise StartFailed("PostgreSQL did not start:", self._claim.log_tail(since))


def start(data_dir: Path, *, settings: Mapping[str, str] | None = None) -> Server:
    """Start the server of a data folder, which is set up the first time, and return when it takes connections.

    `settings` are PostgreSQL's own, above the defaults in `tuning`. Raises an `EmbeddedError`.
    """
    claim = folder.claim(data_dir.expanduser().absolute())
    with ExitStack() as undo:
        undo.callback(claim.abandon)
        try:
            server = _prepare(claim, settings or {})
        except OSError as error:
            raise StartFailed(f"PostgreSQL did not start: {error}") from error
        undo.pop_all()
    server.begin()
    return server


def _prepare(claim: folder.Claim, settings: Mapping[str, str]) -> Server:
    if claim.before.socket_dir:
        _clear_away(claim.before.socket_dir)
    found = binaries.installed()
    account = cluster.choose_account(cluster.path_in(claim.data_dir, found))
    if account:
        found = binaries.readable(found)
    of = cluster.open_in(claim, found, account, settings)
    socket_dir = sockets.choose(account)
    claim.note(socket_dir)
    sockets.create(socket_dir, account)
    return Server(claim, of, socket_dir, settings)


def _clear_away(socket_dir: Path) -> None:
    """End and remove what a killed service left: we hold its data folder, so whatever still runs is an orphan."""
    if orphans := processes.stop(socket_dir.name):
        log.info("postgres.orphans_stopped", pids=orphans)
    sockets.remove(socket_dir)
