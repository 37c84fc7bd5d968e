"""One attempt at a time: whoever calls the model for a session holds a lease on it, and keeps it while alive."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar
from uuid import UUID

from app.domain.compaction import Reason
from app.domain.errors import SummarizerFailed, SummarizerTimeout, Unavailable
from app.service.context import Context
from app.storage import attempts as store
from app.storage.views import Found
from app.summarizer import prompt

T = TypeVar("T")
# How often somebody who waits for another one's attempt looks whether it is over.
_LOOK_SECONDS: Final = 0.25


class Busy(Exception):
    """Somebody else's attempt on the session is running."""


class Moved(Exception):
    """The session has changed since the plan was made."""


async def begin(ctx: Context, key: UUID, found: Found[Any], model: str) -> int:
    """Begin an attempt on the session as it was found, and return its id.

    Raises:
        Busy.
    """
    new = {
        "created_at": found.created_at,
        "version": found.version,
        "boundary": found.figures.boundary,
        "model": model,
        "prompt": prompt.VERSION,
    }
    async with ctx.database.writing() as tx:
        attempt = await store.begin(tx, key, new)
    if attempt is None:
        raise Busy
    return attempt


async def kept(ctx: Context, attempt: int, work: Coroutine[Any, Any, T]) -> T | None:
    """Do the work of an attempt, and keep its lease meanwhile.

    None when the lease was lost, for the session was deleted, or the database was away for so long that somebody else
    has it now. The work is then stopped.
    """
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=store.RENEWAL_SECONDS)
            if done:
                return await task
            if not await _renewed(ctx, attempt):
                return None
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def _renewed(ctx: Context, attempt: int) -> bool:
    try:
        async with ctx.database.one_statement() as tx:
            return await store.renew(tx, attempt)
    except Unavailable:
        # What is being paid for goes on. Whether the lease still holds shows when the database is back.
        return True


async def joined(ctx: Context, key: UUID) -> Reason | None:
    """Wait until the attempt of somebody else, which was running a moment ago, is over, and share what came of it.

    Returns why it wrote nothing, which holds for everybody who waited for it: nobody pays again. None when it wrote, or
    never ended: then the session is looked at anew.

    Raises:
        SummarizerFailed, SummarizerTimeout: it failed.
    """
    async with ctx.database.reading() as reader:
        awaited = await store.newest(reader, key)
    found = awaited
    while found is not None and awaited is not None and found.attempt_id == awaited.attempt_id and found.alive:
        await asyncio.sleep(_LOOK_SECONDS)
        async with ctx.database.reading() as reader:
            found = await store.newest(reader, key)
    if found is None or awaited is None or found.attempt_id != awaited.attempt_id:
        return None
    if found.status == "failed":
        told = "another caller's attempt, which this one waited for, has failed"
        raise SummarizerTimeout(told) if found.error == "timeout" else SummarizerFailed(found.error or "failed", told)
    if found.status != "unchanged" or found.reason in {None, Reason.LOST_RACE}:
        return None
    return Reason(str(found.reason))
