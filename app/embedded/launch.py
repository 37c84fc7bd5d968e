"""Start a PostgreSQL program as the right user, in the cluster's folder, with its life bound to ours."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

# Sent by the kernel when the thread that forked the program ends, however it ends. SIGQUIT is PostgreSQL's immediate
# shutdown: gone in milliseconds, and everything committed is recovered from the log at the next start. SIGINT would
# write a checkpoint first, and a service started again at once would find the old server still busy with it.
DEATH_SIGNAL = int(signal.SIGQUIT) if sys.platform == "linux" else 0


class Account(NamedTuple):
    """The unprivileged user that PostgreSQL runs as when the service is root."""

    uid: int
    gid: int


def launch(
    command: Sequence[str], *, folder: Path, account: Account | None, output: IO[bytes], stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a program in a folder and send all it says to `output`.

    The parent-death signal is tied to the calling thread: call this from one that lives as long as the program
    should. The program gets a session of its own, so that Ctrl-C in a terminal reaches the service alone, which then
    shuts down in the right order. It keeps the pid of the returned process, because the launcher becomes the program.
    """
    launcher = Path(__file__).with_name("launcher.py")
    who = f"{account.uid}:{account.gid}" if account else "-"
    return subprocess.Popen(  # noqa: S603  # every word of the command is ours or a setting of the caller
        [sys.executable, "-I", "-S", launcher, str(os.getpid()), str(DEATH_SIGNAL), who, *command],
        cwd=folder,
        env=_environment(),
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def here(folder: Path, account: Account | None) -> str:
    """How a program started in this folder names it with `-D`.

    Another user may be barred from a parent of the folder (`/root`, say). Root has set the working directory by then,
    and following `/proc/self/cwd` asks for no permission on the way. PostgreSQL never leaves that directory.
    """
    return "/proc/self/cwd" if account and sys.platform == "linux" else str(folder)


def _environment() -> dict[str, str]:
    """Our environment without what would steer PostgreSQL elsewhere, and with its messages in English."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return inherited | {"LC_ALL": "C", "TZ": "UTC"}
