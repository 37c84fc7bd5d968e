"""The cluster: the folder with the data of one major version of PostgreSQL, and the user who owns it."""

import os
import pwd
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.embedded import processes
from app.embedded.binaries import Binaries
from app.embedded.errors import DataDirUnusable, StartFailed
from app.embedded.folder import Claim
from app.embedded.launch import Account, here, launch
from app.embedded.sockets import DATABASE, ROLE

_PREFIX = "postgres-"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A folder that `postgres` can be started in."""

    path: Path
    binaries: Binaries
    account: Account | None

    def is_ready(self, pid: int) -> bool:
        """Whether the server with this pid takes connections, as it says in the eighth line of `postmaster.pid`."""
        with suppress(FileNotFoundError):
            lines = (self.path / "postmaster.pid").read_text().splitlines()
            return lines[:1] == [str(pid)] and lines[7:] != [] and lines[7].strip() == "ready"
        return False

    def forget_stranger(self) -> None:
        """Remove a `postmaster.pid` whose pid now belongs to some other program.

        PostgreSQL refuses to start while that pid is alive, whoever has it; in a container, where pids are few, the
        next start often meets it. If it is a PostgreSQL, started by hand perhaps, PostgreSQL's own judgement stands.
        """
        path = self.path / "postmaster.pid"
        with suppress(FileNotFoundError):
            pid = path.read_text().partition("\n")[0]
            if pid.isdigit() and not processes.is_postgres(int(pid)):
                path.unlink()


def open_in(claim: Claim, binaries: Binaries, account: Account | None, settings: Mapping[str, str]) -> Cluster:
    """The cluster of a data folder, made if there is none. Raises `DataDirUnusable` or `StartFailed`."""
    path = path_in(claim.data_dir, binaries)
    for unfinished in claim.data_dir.glob(f"{path.name}.unfinished-*"):
        _remove(unfinished)
    cluster = Cluster(path, binaries, account)
    if path.exists():
        _check_owner(claim.data_dir, cluster)
    else:
        _check_version(claim.data_dir, binaries)
        _initialize(claim, cluster, settings)
    return cluster


def path_in(data_dir: Path, binaries: Binaries) -> Path:
    """Where the cluster for these binaries lies."""
    return data_dir / f"{_PREFIX}{binaries.major}"


def choose_account(path: Path) -> Account | None:
    """The user that PostgreSQL runs as: None for ourselves, or an unprivileged one when we are root.

    PostgreSQL refuses to run as root. Data that exists stays with its owner.
    """
    if os.geteuid() != 0:
        return None
    if path.exists() and (owner := path.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise StartFailed("PostgreSQL refuses to run as root, and there is no user named postgres or nobody to run it as")


def _remove(unfinished: Path) -> None:
    """Remove what a killed initdb left, for up to a second as it may still be writing its last.

    Nothing depends on it: if it fails, the next start tries again.
    """
    deadline = time.monotonic() + 1.0
    shutil.rmtree(unfinished, ignore_errors=True)
    while unfinished.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_owner(data_dir: Path, cluster: Cluster) -> None:
    owner = cluster.path.stat().st_uid
    if cluster.account is None and owner != os.geteuid():
        raise DataDirUnusable(data_dir, f"its data belongs to user {owner}, and this is user {os.geteuid()}")
    if cluster.account and owner == 0:
        _give(cluster.path, cluster.account)  # Copied here by root, from a backup perhaps.


def _check_version(data_dir: Path, binaries: Binaries) -> None:
    others = [
        path.name.removeprefix(_PREFIX) for path in data_dir.glob(f"{_PREFIX}*") if (path / "PG_VERSION").exists()
    ]
    versions = sorted(name for name in others if name.isdigit())
    if versions:
        reason = (
            f"it holds data of PostgreSQL {', '.join(versions)}, and this is PostgreSQL {binaries.major}: dump the data"
            f" with the version that wrote it (pg_dump), and restore it into a new data folder"
        )
        raise DataDirUnusable(data_dir, reason)


def _initialize(claim: Claim, cluster: Cluster, settings: Mapping[str, str]) -> None:
    """Make the cluster beside its place and move it there when it is whole: a kill on the way blocks no later start."""
    unfinished = cluster.path.with_name(f"{cluster.path.name}.unfinished-{secrets.token_hex(4)}")
    unfinished.mkdir(mode=0o700)
    if cluster.account:
        _give(unfinished, cluster.account)
    place = here(unfinished, cluster.account)
    # Whoever reaches the socket is let in, and only our user gets to its folder. There is no other way in.
    options = ["--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject", "--no-instructions"]
    if settings.get("fsync") == "off":
        options.append("--no-sync")
    initdb = [cluster.binaries.program("initdb"), "-D", place, f"--username={ROLE}", *options]
    _run(claim, cluster, initdb, unfinished)
    single = [cluster.binaries.program("postgres"), "--single", "-D", place]
    chosen = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    _run(claim, cluster, [*single, *chosen, "postgres"], unfinished, f"CREATE DATABASE {DATABASE}\n")
    unfinished.rename(cluster.path)
    _sync(cluster.path.parent)


def _run(claim: Claim, cluster: Cluster, command: list[str], folder: Path, text: str = "") -> None:
    with os.fdopen(claim.open_log(), "ab") as log:
        since = os.fstat(log.fileno()).st_size
        child = launch(command, folder=folder, account=cluster.account, output=log, stdin=subprocess.PIPE)
        child.communicate(text.encode())
    if child.returncode != 0:
        raise StartFailed("PostgreSQL could not set up its data folder:", claim.log_tail(since))


def _give(path: Path, account: Account) -> None:
    """Hand a folder and all in it to the user, starting with what it holds: until the end it is known as root's."""
    for inner in (*path.rglob("*"), path):
        os.chown(inner, account.uid, account.gid, follow_symlinks=False)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
