"""Record what turnlog sends for one request: through a proxy, from a server whose connections are set up."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.domain.key import DEFAULT_TENANT
from app.storage.sessions import key_of
from bench import load, servers, wire
from bench.statements import Script, script

_WARM_UP = 12  # more than a pool has connections, so that the recorded request meets one that is set up


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A request's answer, the statements it took and the round trips."""

    answer: bytes
    sent: tuple[wire.Sent, ...]
    round_trips: int

    def script(self, session_id: str) -> Script:
        """Write the statements for pgbench. New ids are made for the events that the answer names as appended."""
        answer = json.loads(self.answer) if self.answer.startswith(b"{") else {}
        ids = [event["id"] for event in answer.get("events", ()) if "replayed" in event]
        return script(self.sent, key_of(DEFAULT_TENANT, session_id), ids)


Record = Callable[..., Awaitable[Recorded]]


@asynccontextmanager
async def recording(url: str) -> AsyncIterator[Record]:
    """Serve a database through a proxy; yields a function that sends a request and returns what it took.

    ``warm`` is a request like it on another session, sent before.
    """
    async with wire.taped(url) as (through, tape), servers.turnlog(through) as server:

        async def record(
            request: bytes, warm: bytes | None = None, statuses: frozenset[int] = frozenset({200, 201, 304})
        ) -> Recorded:
            for _ in range(_WARM_UP if warm else 0):
                await load.once(server.port, warm or b"", statuses)
            tape.wipe()
            answer, _ = await load.once(server.port, request, statuses)
            return Recorded(answer=answer, sent=tuple(tape.sent), round_trips=tape.round_trips)

        yield record
