"""Bring the database's schema to the newest revision that this release knows."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from app.domain.errors import TurnlogError
from app.storage.database import Database, Reader

_PACKAGE: Final = Path(__file__).parents[1]


class SchemaTooNew(TurnlogError):
    """The database was migrated by a newer release of turnlog."""

    def __init__(self, revision: str, known: str) -> None:
        super().__init__(
            f"the database's schema is at revision {revision}, which this release does not know (its newest is"
            f" {known}): a newer release of turnlog has migrated it; run that release"
        )


def _scripts() -> Config:
    # A wheel carries the migrations inside the package; in a checkout they stand beside it.
    packaged = _PACKAGE / "migrations"
    config = Config()
    config.set_main_option("script_location", str(packaged if packaged.exists() else _PACKAGE.parent / "migrations"))
    return config


def head() -> str:
    """Return the newest revision that this release knows."""
    return str(ScriptDirectory.from_config(_scripts()).get_current_head())


async def migrate(database: Database) -> str:
    """Run what is missing, in one transaction under an advisory lock, and return the revision reached.

    Replicas may call this at once: one of them migrates, the others wait and find nothing to do.

    Raises:
        SchemaTooNew: a newer release was here before.
    """

    def upgrade(connection: Connection) -> None:
        config = _scripts()
        scripts = ScriptDirectory.from_config(config)
        current = MigrationContext.configure(connection).get_current_revision()
        if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
            raise SchemaTooNew(current, str(scripts.get_current_head()))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    await database.run_sync(upgrade)
    return head()


async def revision(reader: Reader) -> str | None:
    """Return the revision that the database is at; None before the first migration."""
    exists = await reader.first(text("SELECT to_regclass('alembic_version') IS NOT NULL"))
    if exists is None or not exists[0]:
        return None
    row = await reader.first(text("SELECT version_num FROM alembic_version"))
    return str(row[0]) if row else None
