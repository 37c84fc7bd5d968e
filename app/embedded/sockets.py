"""The folder of a run's unix socket: short, private, and named like nothing else.

Its name is the name of the run, too (`cluster_name`): one name finds the processes, the socket and the addresses.
"""

import os
import secrets
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from app.embedded.errors import StartFailed
from app.embedded.launch import Account
from app.embedded.modes import passable_by_all

ROLE = "turnlog"
DATABASE = "turnlog"
PORT = "5432"  # only a part of the socket's name: nothing listens on TCP

_PREFIX = "turnlog-"
_SOCKET = f".s.PGSQL.{PORT}"
_FALLBACKS = ("/tmp", "/var/tmp")  # noqa: S108  # the folder made there is random by name, private, and must be new
_LONGEST = 103  # bytes in the path of a unix socket: 107 on Linux, 103 on macOS


def choose(account: Account | None) -> Path:
    """Choose the path of a new socket folder, without making it: the name is written down before anything exists."""
    name = _PREFIX + secrets.token_hex(6)
    # A long TMPDIR is common (macOS, CI, nested sandboxes), and another user may be barred from ours.
    for parent in (tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR"), *_FALLBACKS):
        if parent is None or not os.access(parent, os.W_OK | os.X_OK):
            continue
        path = Path(parent).resolve() / name
        if len(os.fsencode(path / _SOCKET)) <= _LONGEST and (account is None or passable_by_all(path.parent)):
            return path
    raise StartFailed("no temporary folder is short and open enough for a unix socket: set TMPDIR to one, such as /tmp")


def create(path: Path, account: Account | None) -> None:
    """Make the folder. Only its owner gets in, which is all the protection that a trusting socket needs.

    The name cannot have been taken by someone else: it is random, and an existing folder is an error.
    """
    path.mkdir(mode=0o700)
    if account:
        os.chown(path, account.uid, account.gid)


def remove(path: Path) -> None:
    """Remove the folder of a run, if it is there.

    The path may come from a file that an earlier process left. So this touches nothing but names that only we use, and
    root cannot be led to remove anything else.
    """
    if not path.name.startswith(_PREFIX):
        return
    with suppress(OSError):
        for name in (_SOCKET, f"{_SOCKET}.lock"):
            (path / name).unlink(missing_ok=True)
        path.rmdir()


def answers(path: Path) -> bool:
    """Whether a server listens in this folder. PostgreSQL takes no notice of a connection that says nothing."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path / _SOCKET))
        except OSError:
            return False
    return True


def libpq_url(path: Path) -> str:
    """The address of the server as `psql` and every libpq program take it."""
    return f"postgresql://{ROLE}@/{DATABASE}?host={path}"


def sqlalchemy_url(path: Path) -> str:
    """The address of the server for SQLAlchemy over asyncpg."""
    return f"postgresql+asyncpg://{ROLE}@/{DATABASE}?host={path}"
