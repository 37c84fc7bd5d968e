"""Work that may outlive the request which began it, and ends before the database is closed."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def begin(work: Coroutine[Any, Any, None], among: set[asyncio.Task[Any]]) -> asyncio.Task[None]:
    """Do work in a task of its own, so that no caller who goes away takes it with him.

    The task is ``among`` the others until it is done.
    """
    task = asyncio.create_task(work)
    among.add(task)
    task.add_done_callback(among.discard)
    return task
