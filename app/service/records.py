"""What came of a session's compactions: the boundaries they wrote, and the attempts that called the model."""

from collections.abc import Sequence

from app.domain.attempt import Attempt
from app.service import outcomes, sessions
from app.service.context import Context
from app.service.outcomes import Outcome
from app.storage import attempts as attempt_store
from app.storage import boundaries as store


async def page(
    ctx: Context, tenant: str, session_id: str, *, before: int | None, limit: int
) -> tuple[Sequence[Outcome], int | None]:
    """Return a page of the boundaries, newest first, as the outcomes they were, and where the next page begins."""
    async with ctx.database.reading() as reader:
        key = (await sessions.living(reader, tenant, session_id)).key
        found = await store.page(reader, key, before=before, limit=limit + 1)
    shown = found[:limit]
    more = shown[-1][0].seq if len(found) > limit else None
    return [outcomes.read_back(event.seq, event.body, told) for event, told in shown], more


async def attempts(
    ctx: Context, tenant: str, session_id: str, *, before: int | None, limit: int
) -> tuple[Sequence[Attempt], int | None]:
    """Return a page of the attempts that called the model, newest first, and where the next page begins."""
    async with ctx.database.reading() as reader:
        key = (await sessions.living(reader, tenant, session_id)).key
        found = await attempt_store.page(reader, key, before=before, limit=limit + 1)
    shown = found[:limit]
    return shown, shown[-1].attempt_id if len(found) > limit else None
