"""A client that chooses the worker which serves it, and stops in the middle of a request."""

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.journeys.processes import LONG, Serving

_ESTABLISHED = "01"


class Caller:
    """One connection to one worker of a service, of which it reads nothing."""

    def __init__(self, service: Serving, worker: int) -> None:
        self._host = urlsplit(service.url)
        end = time.monotonic() + LONG
        while True:
            # Whichever worker is first takes a connection; one that another took is given up.
            self._socket = socket.create_connection((self._host.hostname, self._host.port), LONG)
            if self._is_taken_by(service, worker):
                return
            self._socket.close()
            assert time.monotonic() < end, "the worker takes no connection"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, path: str, body: Any, headers: Mapping[str, str], *, half: bool = False) -> None:
        """POST JSON; ``half`` sends the first half of the body and leaves the service waiting for the other."""
        content = json.dumps(body).encode()
        told = {
            "Host": self._host.netloc,
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        content = content[: len(content) // 2] if half else content
        self._socket.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content)

    def is_read(self) -> bool:
        """Say whether the worker has taken in all that was sent."""
        found = self._other_end()
        return found is not None and found[1] == 0

    def _is_taken_by(self, service: Serving, worker: int) -> bool:
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            found = self._other_end()
            if found is not None:
                owners = [pid for pid in service.workers if found[0] in _sockets_of(pid)]
                if owners:
                    return owners == [worker]
            time.sleep(0.005)
        raise AssertionError("nobody takes the connection")

    def _other_end(self) -> tuple[str, int] | None:
        """Return the worker's socket and the count of bytes that it has not read; None while nobody has accepted it."""
        ours, theirs = self._socket.getsockname()[1], self._socket.getpeername()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, queues, *_rest = line.split()
            ports = (int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16))
            inode = _rest[4]
            if ports == (theirs, ours) and state == _ESTABLISHED and inode != "0":
                return inode, int(queues.partition(":")[2], 16)
        return None


def _sockets_of(pid: int) -> set[str]:
    """Return the inodes of a process's sockets."""
    found = set()
    with suppress(OSError):  # it may end while we look
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found
