"""What turnlog relies on a server for, beyond its schema."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import text

from app.storage.database import Database, Reader

# A setting and the values under which what was acknowledged may be lost, or a read may write.
_BAD: Final = {
    "fsync": {"off"},
    "full_page_writes": {"off"},
    "synchronous_commit": {"off"},
    "transaction_read_only": {"off"},
}


async def missing(database: Database) -> Mapping[str, str]:
    """Return the settings that are not as they should be, with their values.

    A pooler that hides how a reading connection was asked for shows as one that is not read-only.

    Raises:
        UnknownPooler: it does not even let the connection in.
    """
    async with database.reading() as reader:
        found = await reader.one(_SETTINGS)
    return {name: found[name] for name, bad in _BAD.items() if found[name] in bad}


_SETTINGS: Final = text("SELECT " + ", ".join(f"current_setting('{name}') AS {name}" for name in _BAD))


async def is_standby(reader: Reader) -> bool:
    """Say whether the server follows another one, and so takes no writes."""
    return bool((await reader.one(_STANDBY)).standby)


_STANDBY: Final = text("SELECT pg_is_in_recovery() AS standby")
