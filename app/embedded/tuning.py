"""The settings of the embedded server, each with its reason. Durability is not among them: a commit is kept."""

from collections.abc import Mapping
from pathlib import Path

from app.embedded.sockets import PORT

_DEFAULTS = {
    # Enough for the pools of a few workers and for `turnlog import` beside them; a connection costs memory when it is
    # used.
    "max_connections": "100",
    # A database on a laptop. The pages of the log are read once and appended to, and the system caches them as well.
    "shared_buffers": "128MB",
    # Bounds the disk that the write-ahead log takes and, above all, what has to be replayed after a kill.
    "max_wal_size": "512MB",
    # Statements here take a millisecond: compiling one, or sharing it among processes, takes longer than running it.
    # Sharing also needs /dev/shm, which containers keep small.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    # Otherwise times in the log are in whatever zone the machine had when the data folder was made.
    "timezone": "UTC",
    "log_timezone": "UTC",
    # The log is one file and is put aside only at a start, so it has to stay quiet: what the server itself has to
    # say, and no errors of statements, which reach the service anyway. Nor may it hold what people wrote: no
    # statements, no details.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_checkpoints": "off",
}


def arguments(chosen: Mapping[str, str], socket_dir: Path) -> list[str]:
    """The command line of a server: our settings, the caller's above them, and above all what keeps it private."""
    confinement = {
        "listen_addresses": "",
        "unix_socket_directories": str(socket_dir),
        "port": PORT,
        # Names this run in the title of each of its processes; `processes` finds them by it.
        "cluster_name": socket_dir.name,
        # The log goes to the file that we opened.
        "logging_collector": "off",
        "log_destination": "stderr",
    }
    settings = {**_DEFAULTS, **chosen, **confinement}
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
