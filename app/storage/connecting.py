"""How a connection to PostgreSQL is opened, straight or through a pooler."""

import socket
from collections.abc import Mapping
from typing import Any, Final

import asyncpg

# Told to the server when the connection is its own. One whose other end vanished without a word is noticed by it
# within seconds, and so the row locks of a transaction that will never go on are not held for hours. On a unix socket
# these say nothing.
_SERVER_NOTICES: Final = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
# A transaction of ours waits for nothing but the database. Left alone so long, it belongs to a process that hangs.
_LEFT_ALONE: Final = {"idle_in_transaction_session_timeout": "15s"}
READING: Final = {"default_transaction_read_only": "on"}
WRITING: Final = _LEFT_ALONE
# The same for our end. Firewalls, too, forget a connection that is silent for long, and this keeps it from being so.
_WE_NOTICE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}


class Row(asyncpg.Record):  # type: ignore[misc]
    """A row of a result; its columns are its attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


async def connect(url: str, seconds: float, *, pooled: bool, server_settings: Mapping[str, str]) -> Any:
    """Open a connection within so many seconds.

    Through a pooler that lends out a connection for each transaction, nothing of a connection's own may be relied on:
    no startup parameters beyond those that every pooler knows, and no prepared statements with a name.
    """
    # asyncpg reads the URL itself, for it knows libpq's parameters (sslmode, passfile, …) and SQLAlchemy does not.
    connection = await asyncpg.connect(
        url,
        timeout=seconds,
        record_class=Row,
        server_settings={"application_name": "turnlog", **({} if pooled else {**_SERVER_NOTICES, **server_settings})},
        **({"statement_cache_size": 0} if pooled else {}),
    )
    _notice(connection)
    return connection


def _notice(connection: Any) -> None:
    """Have our end notice, too, that the other one is gone."""
    # asyncpg hands nobody the socket, and has no setting for this.
    ours = connection._transport.get_extra_info("socket")  # noqa: SLF001
    if ours is None or ours.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _WE_NOTICE.items():
        # Not every platform has them all.
        if (option := getattr(socket, name, None)) is not None:
            ours.setsockopt(socket.IPPROTO_TCP, option, value)
