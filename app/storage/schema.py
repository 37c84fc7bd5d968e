"""Bring the database's schema to the newest revision that this release knows."""

import re
from functools import cache
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from app.domain.errors import TurnlogError
from app.storage.database import Database, Reader

# That of migrations/env.py.
_ADVISORY_LOCK: Final = 0x7475726E6C6F67
_PACKAGE: Final = Path(__file__).parents[1]


# What the next revisions will be called as long as they only add to the schema; see docs/decisions/0016.
_ADDITIVE: Final = re.compile(r"\d{4}")


class SchemaTooNew(TurnlogError):
    """The database was migrated by a release of turnlog that this one cannot share it with."""

    def __init__(self, revision: str, known: str) -> None:
        super().__init__(
            f"the database's schema is at revision {revision}, which is newer than what this release knows (its newest"
            f" is {known}): a newer release of turnlog has migrated it; run that release"
        )


def _scripts() -> Config:
    # A wheel carries the migrations inside the package; in a checkout they stand beside it.
    packaged = _PACKAGE / "migrations"
    config = Config()
    config.set_main_option("script_location", str(packaged if packaged.exists() else _PACKAGE.parent / "migrations"))
    return config


@cache
def head() -> str:
    """Return the newest revision that this release knows."""
    return str(ScriptDirectory.from_config(_scripts()).get_current_head())


def is_newer(found: str | None) -> bool:
    """Say whether a revision is of a newer release, and has all that this one needs: revisions add, and no more.

    A revision that took something away would have a name of another form, and then no older release works with it.
    """
    return found is not None and bool(_ADDITIVE.fullmatch(found)) and found > head()


async def bring_up(database: Database) -> str:
    """Run what is missing, in one transaction under an advisory lock, and return the revision that the schema is at.

    Replicas may call this at once: one of them migrates, the others wait and find nothing to do. A schema that a newer
    release has added to is left as it is. Where nothing is missing, as at nearly every start, that costs one look.

    Raises:
        SchemaTooNew: a newer release was here before, and has changed more than that.
    """
    async with database.reading() as reader:
        found = await revision(reader)
    if found == head():
        return found

    def upgrade(connection: Connection) -> str:
        config = _scripts()
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        # Before the look, so that no newer release migrates between that and our own migration.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        current = MigrationContext.configure(connection).get_current_revision()
        if current is not None and current not in known:
            if is_newer(current):
                return current
            raise SchemaTooNew(current, head())
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        return head()

    return str(await database.run_sync(upgrade))


async def migrate(database: Database) -> str:
    """Bring the schema to the newest revision that this release knows, and return it.

    Raises:
        SchemaTooNew: it is at a newer one.
    """
    reached = await bring_up(database)
    if reached != head():
        raise SchemaTooNew(reached, head())
    return reached


async def revision(reader: Reader) -> str | None:
    """Return the revision that the database is at; None before the first migration."""
    exists = await reader.first(text("SELECT to_regclass('alembic_version') IS NOT NULL"))
    if exists is None or not exists[0]:
        return None
    row = await reader.first(text("SELECT version_num FROM alembic_version"))
    return str(row[0]) if row else None
