"""Whether the service can do its work."""

import asyncio
from typing import Literal, TypeAlias

import structlog

from app.domain.errors import Unavailable
from app.storage import assurances, schema
from app.storage.database import Database

log = structlog.get_logger("turnlog")
Schema: TypeAlias = Literal["current", "newer"]


class Readiness:
    """Whether a database is ready for this release: looked at once for all who ask at the same moment."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._look: asyncio.Task[Schema] | None = None
        self._told = False

    async def check(self) -> Schema:
        """Return how the database's schema compares with the one that this release was made with.

        A newer one has all that this release needs: while replicas are replaced one after another, the old ones go on.

        Raises:
            Unavailable: the database cannot be reached, takes no writes, or has an older schema or none.
        """
        if self._look is None:
            self._look = asyncio.create_task(self._check())
            self._look.add_done_callback(self._looked)
        try:
            return await asyncio.shield(self._look)
        except Unavailable as error:
            # Each caller gets an error of its own.
            raise type(error)(*error.args) from error.__cause__

    def _looked(self, look: "asyncio.Task[Schema]") -> None:
        self._look = None
        if not look.cancelled():
            # Whoever asked may have gone away.
            look.exception()

    async def _check(self) -> Schema:
        async with self._database.aside() as reader:
            found = await schema.revision(reader)
            standby = await assurances.is_standby(reader)
        if standby or not self._database.takes_writes():
            raise Unavailable("the database takes no writes: it is a standby, or its disk is full")
        if found == schema.head():
            return "current"
        if found is None or not schema.is_newer(found):
            raise Unavailable("the database's schema is not at a revision that this release works with")
        if not self._told:
            self._told = True
            log.warning("schema.newer", revision=found, known=schema.head())
        return "newer"
