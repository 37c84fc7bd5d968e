"""What PostgreSQL and its driver refuse, in our words."""

from types import TracebackType
from typing import Final

import asyncpg
from sqlalchemy.exc import DBAPIError

from app.domain.errors import NotLetIn, TurnlogError, Unavailable

# Postgres's own words for "not now": connection trouble, out of resources, being shut down, standby, lock or
# serialization failures, a transaction that was left alone too long, a database that takes no connections, a table that
# a restore has not made yet; and for "not you": no such user or database, no
# privilege. Everything else that it refuses is a fault of ours and must be seen as one.
_UNAVAILABLE_CLASSES: Final = ("08", "53", "57", "58")
_NOT_LET_IN: Final = ("28", "3D", "42501")
_UNAVAILABLE_STATES: Final = {"25006", "25P03", "40001", "40P01", "42P01", "55000", "55P03"}
# A prepared statement that is not there, or is there already: another connection of the server answered.
_OTHER_CONNECTION: Final = {"26000", "42P05"}
# A disk that is full, a server that only reads.
_NO_WRITES: Final = {"53100", "25006"}
# The driver's words for a connection that cannot be used; the second one's, when a server is killed at an odd moment.
LOST: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError)
_THEIRS: Final = (DBAPIError, OSError, TimeoutError, asyncpg.PostgresError, *LOST)


class UniqueViolation(Exception):
    """A unique constraint refused a row; ``constraint`` is its name."""

    def __init__(self, constraint: str) -> None:
        super().__init__(constraint)
        self.constraint = constraint


class BadUrl(TurnlogError):
    """The database's URL cannot be used."""


class UnknownPooler(Unavailable):
    """A pooler stands in front of the database, and turnlog was not told of it: set TURNLOG_DATABASE_POOLED=true."""


class translated:  # noqa: N801 - read as a function, like those of contextlib
    """Turn the driver's errors into ours, by SQLSTATE and constraint name, while a block lasts."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raise our error for the driver's."""
        if isinstance(error, _THEIRS) and (ours := _ours(error)) is not None:
            raise ours from error


def _ours(error: Exception) -> Exception | None:
    """Return our error for the driver's; None for a fault of ours, which must be seen as one."""
    cause = getattr(error.orig, "__cause__", None) if isinstance(error, DBAPIError) else error
    if isinstance(cause, asyncpg.exceptions.ClientConfigurationError):
        return BadUrl(f"the database's URL cannot be used: {cause}")
    if isinstance(cause, asyncpg.PostgresError):
        return _of_postgres(cause)
    # asyncpg's word for a value that does not fit its type is both an interface error and a ValueError.
    return None if cause is None or isinstance(cause, ValueError) else Unavailable()


def _of_postgres(error: asyncpg.PostgresError) -> Exception | None:
    state = error.sqlstate or ""
    if state == "23505":
        return UniqueViolation(error.constraint_name or "")
    if state.startswith(_NOT_LET_IN):
        return NotLetIn()
    if state in _OTHER_CONNECTION or (state == "08P01" and "startup parameter" in str(error)):
        return UnknownPooler()
    return Unavailable() if state.startswith(_UNAVAILABLE_CLASSES) or state in _UNAVAILABLE_STATES else None


def is_of_writing(error: Unavailable) -> bool:
    """Say whether the server reads, and does not write."""
    return getattr(error.__cause__, "sqlstate", None) in _NO_WRITES
