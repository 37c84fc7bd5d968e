"""Whether the service can do its work."""

from app.service.context import Context
from app.storage import schema


async def schema_is_current(ctx: Context) -> bool:
    """Say whether the database is at the schema revision that this release works with.

    Raises:
        Unavailable: the database cannot be reached.
    """
    async with ctx.database.reading() as reader:
        return await schema.revision(reader) == schema.head()
