"""Clients that misbehave, and the neighbour who should not notice."""

import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx
import psutil

from tests.field.conftest import fresh_id
from tests.journeys.processes import LONG as PATIENCE
from tests.journeys.processes import Serving
from tests.talk import Talk, user


class Neighbour:
    """Another client, who asks whether the service lives, and appends a little, every 100 ms while others misbehave.

    ``worst`` is the longest that an answer about its health took, in seconds, ``grown`` by how many bytes the process
    was larger than when it began.
    """

    def __init__(self, serving: Serving) -> None:
        self.worst = 0.0
        self.grown = 0
        self.asked = 0
        self.failed: Exception | None = None
        self._serving = serving
        self._process = psutil.Process(serving.pid)
        self._stop = threading.Event()
        self._asking = threading.Thread(target=self._ask)
        self._watching = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._before = self._process.memory_info().rss
        self._asking.start()
        self._watching.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._asking.join(PATIENCE)
        self._watching.join(PATIENCE)

    def _ask(self) -> None:
        try:
            self._ask_on()
        except (httpx.HTTPError, AssertionError) as error:
            self.failed, self.asked = error, 3

    def _ask_on(self) -> None:
        with self._serving.client() as own:
            talk = Talk(own, fresh_id())
            own.get("/healthz")
            while not self._stop.wait(0.1):
                began = time.perf_counter()
                assert own.get("/healthz").status_code == 200
                self.worst = max(self.worst, time.perf_counter() - began)
                talk.append(user("hi"))
                self.asked += 1

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.grown = max(self.grown, self._process.memory_info().rss - self._before)


def at_ease(serving: Serving, abuse: Callable[[], None]) -> Neighbour:
    """Return how a neighbour fared; on a machine with more to do than this, in the best of three tries."""
    for _ in range(3):
        with Neighbour(serving) as neighbour:
            while neighbour.asked < 3:
                abuse()
        if neighbour.worst < 0.5:
            break
    assert neighbour.failed is None
    assert neighbour.worst < 0.5
    return neighbour


def exchange(
    serving: Serving, pieces: Iterable[bytes], *, answers: int = 1, hears: bool = True
) -> tuple[list[int], int]:
    """Send pieces until there is an answer, or to the last whoever ``hears`` nothing, and read so many answers.

    Returns the statuses of those that came before the connection ended, and how many bytes were sent.
    """
    url = httpx.URL(serving.url)
    sent, received, statuses = 0, b"", list[int]()
    with socket.create_connection((url.host, url.port or 0), timeout=PATIENCE) as connection:
        with suppress(ConnectionError):  # the service has hung up on us
            for piece in pieces:
                if hears and select.select([connection], [], [], 0)[0]:
                    break
                connection.sendall(piece)
                sent += len(piece)
        with suppress(ConnectionError):
            while len(statuses) < answers and (part := connection.recv(65_536)):
                received += part
                statuses = [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]
    return statuses, sent


def batched(content: bytes, size: int) -> Iterator[bytes]:
    """Yield content in pieces."""
    return (content[at : at + size] for at in range(0, len(content), size))
