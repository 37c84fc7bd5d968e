"""Load over HTTP: keep-alive connections with one request in flight each.

The generator shares two cores with what it measures, so it has to be cheap. It is a bare asyncio protocol on uvloop
around httptools' parser, some 50 to 90 µs of one core for a request, where httpx takes 500 µs. It is one process, for
several would compete with the server. `Sample.own_cpu` says what it took, so that nobody has to believe this.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import httptools


class LoadFailed(Exception):
    """The server answered with a status that the operation does not have."""


@dataclass(slots=True)
class Sample:
    """What a run measured. Latencies are in seconds; ``own_cpu`` is what the generator took for each request."""

    requests: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    own_cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Requests answered in a second."""
        return self.requests / self.seconds if self.seconds else 0.0


def request(method: str, path: str, body: bytes = b"", headers: str = "") -> bytes:
    """Write a whole request."""
    about = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}{about}\r\n".encode() + body


class _Connection(asyncio.Protocol):
    """One client: sends the next request when the answer to the last is complete."""

    def __init__(self, requests: Iterator[bytes], statuses: frozenset[int]) -> None:
        self.requests = requests
        self.statuses = statuses
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.finished: list[float] = []
        self.started: list[float] = []
        self.body = b""
        self.keep = False
        self._stop = 0.0
        self._parser = httptools.HttpResponseParser(self)

    def begin(self, stop: float) -> None:
        self._stop = stop
        self._send()

    def _send(self) -> None:
        self.started.append(time.perf_counter())
        self._transport.write(next(self.requests))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        if self.keep:
            self.body += body

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        self.finished.append(now)
        status = self._parser.get_status_code()
        if status not in self.statuses:
            self._end(LoadFailed(f"status {status}: {self.body[:300]!r}"))
        elif now >= self._stop:
            self._end(None)
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(LoadFailed(f"the server hung up: {exc}"))

    def _end(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error:
            self.done.set_exception(error)
        else:
            self.done.set_result(None)
        self._transport.close()


async def run(
    port: int,
    clients: Sequence[Iterator[bytes]],
    seconds: float,
    *,
    statuses: frozenset[int] = frozenset({200, 201}),
    warm: float = 0.2,
) -> Sample:
    """Let each client send its requests one after the other; what is answered while ``warm`` lasts is not counted."""
    loop = asyncio.get_running_loop()

    async def connect(requests: Iterator[bytes]) -> _Connection:
        def make() -> _Connection:
            return _Connection(requests, statuses)

        return (await loop.create_connection(make, "127.0.0.1", port))[1]

    connections = [await connect(requests) for requests in clients]
    began, cpu = time.perf_counter() + warm, time.process_time()
    for connection in connections:
        connection.begin(began + seconds)
    await asyncio.gather(*(connection.done for connection in connections))
    cpu = time.process_time() - cpu
    everything = sum(len(connection.finished) for connection in connections)
    return _counted(connections, began, seconds, cpu / everything)


def _counted(connections: Sequence[_Connection], began: float, seconds: float, own_cpu: float) -> Sample:
    sample = Sample(seconds=seconds, own_cpu=own_cpu)
    for connection in connections:
        for start, end in zip(connection.started, connection.finished, strict=True):
            if began <= end <= began + seconds:
                sample.latencies.append(end - start)
    sample.requests = len(sample.latencies)
    if not sample.requests:  # one operation takes longer than the whole window
        latencies = [e - s for c in connections for s, e in zip(c.started, c.finished, strict=True)]
        return Sample(requests=len(latencies), seconds=sum(latencies) / len(connections), latencies=latencies)
    return sample


async def once(port: int, what: bytes, statuses: frozenset[int] = frozenset({200, 201})) -> tuple[bytes, float]:
    """Send one request on a connection of its own; returns the body of the answer, and how long it took."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: _Connection(iter([what]), statuses), "127.0.0.1", port)
    connection.keep = True
    connection.begin(0.0)
    await connection.done
    return connection.body, connection.finished[0] - connection.started[0]
