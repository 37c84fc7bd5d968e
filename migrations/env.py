"""Run migrations on the connection that turnlog hands over, one replica at a time.

Plain `alembic upgrade head` works too: it takes the database from TURNLOG_DATABASE_URL.
"""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

# Any constant will do, as long as every release uses the same one: "turnlog" as a number.
ADVISORY_LOCK = 0x7475726E6C6F67


def run(connection: Connection) -> None:
    context.configure(connection=connection, transaction_per_migration=False)
    with context.begin_transaction():
        # Replicas that start together queue here; the lock goes with the transaction, also through a pooler.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        # From here on a migration gives up rather than queue behind a long query and hold up all traffic.
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        context.run_migrations()


async def run_alone() -> None:
    _, _, address = os.environ["TURNLOG_DATABASE_URL"].partition("://")
    engine = create_async_engine(f"postgresql+asyncpg://{address}")
    async with engine.connect() as connection:
        await connection.run_sync(run)
        await connection.commit()
    await engine.dispose()


given = context.config.attributes.get("connection")
if given is None:
    asyncio.run(run_alone())
else:
    run(given)
