"""Whether the service can do its work."""

from typing import Literal

import structlog

from app.domain.errors import Unavailable
from app.service.context import Context
from app.storage import assurances, schema

log = structlog.get_logger("turnlog")
_told: set[str] = set()


async def check(ctx: Context) -> Literal["current", "newer"]:
    """Return how the database's schema compares with the one that this release was made with.

    A newer one has all that this release needs: while replicas are replaced one after another, the old ones go on.

    Raises:
        Unavailable: the database cannot be reached, takes no writes, or has an older schema or none.
    """
    async with ctx.database.reading() as reader:
        found = await schema.revision(reader)
        standby = await assurances.is_standby(reader)
    if standby or not ctx.database.takes_writes():
        raise Unavailable("the database takes no writes: it is a standby, or its disk is full")
    if found == schema.head():
        return "current"
    if found is None or not schema.is_newer(found):
        raise Unavailable("the database's schema is not at a revision that this release works with")
    if found not in _told:
        _told.add(found)
        log.warning("schema.newer", revision=found, known=schema.head())
    return "newer"
