"""The data folder: one service holds it at a time, and notes in its lock what the next one would have to clear away.

lock            who holds the folder (its first line is the pid), and the folder of the socket
database-url    the address of the server, for `psql`, while one runs
postgres.log    what the server says; the file before it is `postgres.log.1`
postgres-18/    the data, named by the major version
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import platformdirs

from app.embedded.errors import DataDirInUse, DataDirUnusable

_LOCK = "lock"
_URL = "database-url"
_LOG = "postgres.log"
_LOG_LIMIT = 1_000_000  # bytes, beyond which a start begins a new file and drops the one before the last
_LOCK_PATIENCE = 0.2  # seconds; `holder` takes the lock for a moment to see whether it is free


class Holder(NamedTuple):
    """What the lock says about the service that wrote it last."""

    pid: int | None
    socket_dir: Path | None


def default_data_dir() -> Path:
    """The platform's folder for a user's data, such as `~/.local/share/turnlog`."""
    return platformdirs.user_data_path("turnlog")


@dataclass(frozen=True, slots=True)
class Claim:
    """A data folder that this process holds, until it releases it or dies in whatever way."""

    data_dir: Path
    lock: int
    before: Holder

    def note(self, socket_dir: Path | None) -> None:
        """Write down the run that is about to begin, before it leaves any trace."""
        self._write(f"{os.getpid()}\n{socket_dir or ''}\n")

    def publish(self, url: str) -> None:
        """Tell people the address of the server, once it is ready."""
        opened = self._open(_URL, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(opened, "w") as file:
            file.write(f"{url}\n")

    def withdraw(self) -> None:
        """Take the address back."""
        (self.data_dir / _URL).unlink(missing_ok=True)

    def open_log(self) -> int:
        """Open the server's log for appending; a long one is put aside first, so that the two stay bounded."""
        path = self.data_dir / _LOG
        with suppress(FileNotFoundError):
            if path.stat().st_size > _LOG_LIMIT:
                path.replace(path.with_name(f"{_LOG}.1"))
        return self._open(_LOG, os.O_WRONLY | os.O_APPEND)

    def log_tail(self, since: int, lines: int = 15) -> str:
        """The last lines that were logged behind a position in bytes."""
        with (self.data_dir / _LOG).open("rb") as file:
            file.seek(since)
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])

    def release(self) -> None:
        """Let the next service in, and leave it nothing to clear away. The lock's file stays: removing it is a race."""
        self._write("")
        os.close(self.lock)

    def abandon(self) -> None:
        """Let the next service in, but leave the note of what was not cleared away."""
        os.close(self.lock)

    def _write(self, text: str) -> None:
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, text.encode(), 0)

    def _open(self, name: str, flags: int) -> int:
        return _open_owned(self.data_dir, name, flags)


def claim(data_dir: Path) -> Claim:
    """Hold the data folder, which is made if need be. Raises `DataDirInUse` or `DataDirUnusable`."""
    with _explained(data_dir):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _open_owned(data_dir, _LOCK, os.O_RDWR)
    deadline = time.monotonic() + _LOCK_PATIENCE
    while not _try_lock(lock, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            pid = _read(lock).pid
            os.close(lock)
            raise DataDirInUse(data_dir, pid)
        time.sleep(0.01)
    claimed = Claim(data_dir=data_dir, lock=lock, before=_read(lock))
    claimed.withdraw()
    claimed.note(claimed.before.socket_dir)
    return claimed


def holder(data_dir: Path) -> Holder | None:
    """The service that holds the data folder, or None when nobody does."""
    with _explained(data_dir):
        try:
            lock = os.open(data_dir / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            return None
    try:
        return None if _try_lock(lock, fcntl.LOCK_SH) else _read(lock)
    finally:
        os.close(lock)


def published(data_dir: Path) -> str | None:
    """The address in `database-url`, or None while there is none."""
    with suppress(FileNotFoundError):
        return (data_dir / _URL).read_text().strip()
    return None


def _try_lock(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(lock: int) -> Holder:
    pid, _, rest = os.pread(lock, 4096, 0).decode(errors="replace").partition("\n")
    socket_dir = rest.partition("\n")[0]
    return Holder(int(pid) if pid.isdigit() else None, Path(socket_dir) if socket_dir else None)


def _open_owned(data_dir: Path, name: str, flags: int) -> int:
    """Open a file of ours for its owner alone. What root makes in a user's data folder belongs to that user.

    A link is not followed: the user could point it at a file of root's. Python closes the file in every program it
    starts, so the lock does not outlive us in PostgreSQL.
    """
    opened = os.open(data_dir / name, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if os.geteuid() == 0:
        owner = data_dir.stat()
        os.fchown(opened, owner.st_uid, owner.st_gid)
    return opened


@contextmanager
def _explained(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataDirUnusable(data_dir, error.strerror or str(error)) from error
