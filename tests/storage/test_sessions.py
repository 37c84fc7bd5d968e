"""Session rows: how lists find them."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
from sqlalchemy import ClauseElement

from app.storage import sessions
from app.storage.database import Reader, Row, as_sent
from tests.conftest import execute


class Listening(Reader):
    """A reader that keeps the statement instead of running it."""

    def __init__(self) -> None:
        self.sent: tuple[str, Sequence[Any]] = ("", ())

    async def all(self, statement: ClauseElement, parameters: Any = None) -> Sequence[Row]:
        self.sent = as_sent(statement, parameters)
        return []


def plan(url: str, labels: dict[str, str]) -> str:
    """Return how Postgres would list the sessions that carry labels, if it may not read the whole table."""
    listening = Listening()

    async def explain() -> str:
        await sessions.page(listening, "default", labels, after=None, limit=100)
        sql, values = listening.sent
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("SET enable_seqscan = off")
            found = await connection.fetch(f"EXPLAIN {sql}", *values)
        finally:
            await connection.close()
        return "\n".join(row[0] for row in found)

    return asyncio.run(explain())


def test_a_metadata_filter_uses_its_index(database_url: str) -> None:
    execute(
        database_url,
        "INSERT INTO sessions (session_key, tenant, session_id, metadata, labels)"
        " SELECT gen_random_uuid(), 'default', 's' || n, '{}',"
        " jsonb_build_object('principal', 'p' || n % 500, 'a', 'x')"
        " FROM generate_series(1, 5000) AS n",
        "ANALYZE sessions",
    )
    assert "ix_sessions_labels" in plan(database_url, {"principal": "p7"})
    assert "ix_sessions_labels" in plan(database_url, {"principal": "p7", "a": "x"})


def test_a_list_without_filters_is_read_in_the_order_of_its_index(database_url: str) -> None:
    found = plan(database_url, {})
    assert "ix_sessions_tenant_created_at" in found


def test_the_key_of_a_session_is_of_its_tenant_and_never_changes() -> None:
    assert str(sessions.key_of("default", "s1")) == "6c774432-fcad-5e35-a6dd-9dc1ed43fb2c"
    assert sessions.key_of("default", "s1") != sessions.key_of("other", "s1")
    assert sessions.key_of("a", "bc") != sessions.key_of("ab", "c")
