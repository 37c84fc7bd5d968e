"""Who may read a path, told from its modes alone. Nothing here changes any."""

import stat
from pathlib import Path


def passable_by_all(path: Path) -> bool:
    """Whether every user may walk down to this folder and through it."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def readable_by_all(path: Path) -> bool:
    """Whether every user may read this file."""
    return bool(path.stat().st_mode & stat.S_IROTH) and passable_by_all(path.parent)


def only_root_writes(path: Path) -> bool:
    """Whether what lies at this path is root's, and nobody else may change it."""
    status = path.stat()
    return status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
