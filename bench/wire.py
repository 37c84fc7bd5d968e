"""A proxy in front of PostgreSQL that writes down what passes: the statements, their parameters, the round trips.

What pgbench runs as the reference, what EXPLAIN is asked about and what is counted are so the very statements that
turnlog sends, whatever library sends them. Only the extended and the simple protocol's client messages are read.
"""

import asyncio
import struct
import tempfile
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

_SOCKET: Final = ".s.PGSQL.5432"
_CATALOG: Final = "pg_catalog"
_WHO: Final = {"user", "database", "application_name", "client_encoding"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One execution of a statement: its text, its parameters' type ids and their values as sent.

    ``settings`` are those that its connection was opened with.
    """

    sql: str
    types: tuple[int, ...] = ()
    formats: tuple[int, ...] = ()
    values: tuple[bytes | None, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Tape:
    """What passed since it was last wiped. A round trip is a Sync or a simple query: the client waits for each."""

    sent: list[Sent] = field(default_factory=list)
    round_trips: int = 0

    def wipe(self) -> None:
        """Begin anew."""
        self.sent.clear()
        self.round_trips = 0


@dataclass(slots=True)
class _Prepared:
    sql: str
    types: tuple[int, ...] = ()


class _Client:
    """Reads what a client sends on one connection."""

    def __init__(self, tape: Tape, settings: tuple[tuple[str, str], ...]) -> None:
        self._tape = tape
        self._settings = settings
        self._prepared: dict[bytes, _Prepared] = {}
        self._portals: dict[bytes, Sent] = {}
        self._described: deque[bytes] = deque()

    def from_client(self, kind: bytes, content: bytes) -> None:
        match kind:
            case b"P":
                name, sql, _ = content.split(b"\0", 2)
                self._prepared[name] = _Prepared(sql.decode())
            case b"D" if content[:1] == b"S":
                self._described.append(content[1:-1])
            case b"B":
                self._bind(content)
            case b"E":
                self._took(self._portals[content.split(b"\0", 1)[0]])
            case b"Q":
                self._tape.round_trips += 1
                self._took(Sent(sql=content[:-1].decode()))
            case b"S":
                self._tape.round_trips += 1

    def from_server(self, kind: bytes, content: bytes) -> None:
        if kind == b"t" and self._described:
            count = struct.unpack_from("!H", content)[0]
            self._prepared[self._described.popleft()].types = struct.unpack_from(f"!{count}I", content, 2)

    def _took(self, sent: Sent) -> None:
        # A driver asks the catalog about types once for a connection; that is no part of an operation.
        if _CATALOG not in sent.sql:
            self._tape.sent.append(sent)

    def _bind(self, content: bytes) -> None:
        portal, name, rest = content.split(b"\0", 2)
        count = struct.unpack_from("!H", rest)[0]
        formats = struct.unpack_from(f"!{count}H", rest, 2)
        at = 2 + 2 * count
        values: list[bytes | None] = []
        (count,) = struct.unpack_from("!H", rest, at)
        at += 2
        for _ in range(count):
            (length,) = struct.unpack_from("!i", rest, at)
            at += 4
            values.append(None if length < 0 else rest[at : at + length])
            at += max(length, 0)
        known = self._prepared[name]
        self._portals[portal] = Sent(
            sql=known.sql,
            types=known.types,
            formats=formats,
            values=tuple(values),
            settings=self._settings,
        )


@asynccontextmanager
async def taped(url: str) -> AsyncIterator[tuple[str, Tape]]:
    """Stand between a client and the server of a URL; yields the URL to use instead, and the tape."""
    target = f"{parse_qs(urlsplit(url).query)['host'][0]}/{_SOCKET}"
    tape = Tape()
    open_tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(target)
        head = await reader.readexactly(4)
        start = await reader.readexactly(struct.unpack("!I", head)[0] - 4)
        up_writer.write(head + start)
        client = _Client(tape, _settings(start))
        for task in (
            asyncio.create_task(_pump(reader, up_writer, client.from_client)),
            asyncio.create_task(_pump(up_reader, writer, client.from_server)),
        ):
            open_tasks.add(task)
            task.add_done_callback(open_tasks.discard)

    with tempfile.TemporaryDirectory(prefix="tap-") as folder:
        server = await asyncio.start_unix_server(serve, str(Path(folder) / _SOCKET))
        try:
            yield url.partition("?")[0] + f"?host={folder}", tape
        finally:
            server.close()
            for task in list(open_tasks):
                task.cancel()


def _settings(start: bytes) -> tuple[tuple[str, str], ...]:
    """Return the settings of a connection's first message, without those that say who connects to what."""
    words = [word.decode() for word in start[4:].rstrip(b"\0").split(b"\0")]
    return tuple((name, value) for name, value in zip(words[::2], words[1::2], strict=False) if name not in _WHO)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: object) -> None:
    assert callable(note)  # noqa: S101 - for the type checker
    try:
        while True:
            head = await reader.readexactly(5)
            content = await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
            note(head[:1], content)
            writer.write(head + content)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()
