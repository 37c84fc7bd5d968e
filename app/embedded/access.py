"""Use the server of a data folder beside a running service, or without one."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from app.embedded import folder, sockets
from app.embedded.errors import DataDirInUse
from app.embedded.server import start

_PATIENCE = 60.0  # seconds that a service which is just starting, or whose server is just coming back, is waited for


def attach(data_dir: Path) -> str | None:
    """The address of the server that a running service has on this data folder; None when no service runs there.

    While that service starts, this waits for it. Raises `DataDirInUse` when it holds the folder but its server never
    comes.
    """
    data_dir = data_dir.expanduser().absolute()
    deadline = time.monotonic() + _PATIENCE
    while holder := folder.holder(data_dir):
        # The address is believed when it is of the run in the lock and somebody answers: both may be of a killed
        # service.
        socket_dir = holder.socket_dir
        if socket_dir and folder.published(data_dir) == sockets.libpq_url(socket_dir) and sockets.answers(socket_dir):
            return sockets.sqlalchemy_url(socket_dir)
        if time.monotonic() > deadline:
            raise DataDirInUse(data_dir, holder.pid)
        time.sleep(0.02)
    return None


@contextmanager
def use(data_dir: Path, *, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of a server on this data folder: the running service's, or one that runs while this is open."""
    if url := attach(data_dir):
        yield url
        return
    try:
        server = start(data_dir, settings=settings)
    except DataDirInUse:
        # A service took the folder in the meantime.
        url = attach(data_dir)
        if url is None:
            raise
        yield url
        return
    with server:
        yield server.url
