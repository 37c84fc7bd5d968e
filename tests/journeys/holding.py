"""Hold a request still in the middle of what it does, by locks that a connection of the test's own keeps."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from tests.conftest import execute, rows

WAITING = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'turnlog' AND wait_event_type = 'Lock'"
)

# The gates: whoever writes such a row waits there while somebody holds the gate of its session, and nobody else does.
# The last one is passed at the very end of a transaction, when all is written and COMMIT is under way.
_GATES = {
    "boundary": "BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.type = 'COMPACTION')",
    "message": "BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.type = 'MESSAGE')",
    "lease": "BEFORE INSERT ON compaction_attempts FOR EACH ROW",
    "ending": "BEFORE UPDATE ON compaction_attempts FOR EACH ROW WHEN (NEW.status = 'applied')",
    "commit": "AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW",
}
_GATE = """
    CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(hashtext(TG_ARGV[0]), hashtext(NEW.session_key::text));
        RETURN NEW;
    END $$
"""


def build_gates(url: str) -> None:
    """Build the gates into a database of the test's own. They stand open."""
    execute(
        url,
        _GATE,
        *(
            f"CREATE {'CONSTRAINT ' if gate == 'commit' else ''}TRIGGER gate_{gate} {where}"
            f" EXECUTE FUNCTION pass_gate('{gate}')"
            for gate, where in _GATES.items()
        ),
    )


def at_gate(gate: str, session_id: str) -> str:
    """Return the statement that shuts a gate for one session."""
    assert gate in _GATES
    return (
        f"SELECT pg_advisory_xact_lock(hashtext('{gate}'), hashtext(session_key::text))"  # noqa: S608
        f" FROM sessions WHERE session_id = '{session_id}'"
    )


def at_row(session_id: str) -> str:
    """Return the statement that keeps everybody from writing to one session; it may be read and leased."""
    return f"SELECT 1 FROM sessions WHERE session_id = '{session_id}' FOR NO KEY UPDATE"  # noqa: S608


def waiting(url: str) -> list[int]:
    """Return the server's processes that wait for a lock on behalf of a service."""
    return [row["pid"] for row in rows(url, WAITING)]


@contextmanager
def held(url: str, *statements: str) -> Iterator[None]:
    """Hold what statements lock as long as the block lasts."""
    begun, done = threading.Event(), threading.Event()

    async def hold() -> None:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                for statement in statements:
                    await connection.execute(statement, timeout=20)
                begun.set()
                await asyncio.to_thread(done.wait)
        finally:
            await connection.close()

    holder = threading.Thread(target=lambda: asyncio.run(hold()))
    holder.start()
    try:
        assert begun.wait(30)
        yield
    finally:
        done.set()
        holder.join()
