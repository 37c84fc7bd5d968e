"""One client's connection: what uvicorn leaves open is bounded here, in time and in bytes."""

import asyncio
import re
from asyncio import TimerHandle
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app import bootstrap
from app.api import errors

# A request line with its headers. Seven times what servers usually take, so that a proxy's additions fit.
LARGEST_HEAD: Final = 64 * 1024
# What may come with a body and is none of it: the sizes of chunks, their extensions, and trailers.
LARGEST_FRAMING: Final = 1024 * 1024
# A client that is still sending when it has its answer is heard out, so that it reads the answer, but not for ever.
LINGER_SECONDS: Final = 5.0
LINGER_BYTES: Final = 64 * 1024 * 1024
# Less than this, taken of an answer in the time for a part of it, is nobody who reads.
_LEAST_TAKEN: Final = 16 * 1024


# A longer body is not worth being copied.
_LARGEST_JOINED: Final = 64 * 1024
# The parser takes what follows an upgrade for another protocol, also when it is the request's body. There is none here,
# and the header is to be ignored then (RFC 9110, 7.8): it gets a name of the same length that nobody knows.
_UPGRADE: Final = re.compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE)
_IGNORED: Final = b"\r\nignored"


class _Dropped(list[tuple[bytes, bytes]]):
    """Where trailers go: nobody asks for them, and a request's headers must not grow after its head."""

    def append(self, _header: tuple[bytes, bytes]) -> None:
        """Forget a header."""


class _Joined:
    """A transport that sends an answer's head together with what follows it: one system call, and one packet.

    uvicorn writes them one right after the other. A head that nothing follows goes by itself, a moment later.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        """Send bytes, or keep them for a moment when they are a head."""
        if self._head:
            head, self._head = self._head, b""
            if len(data) > _LARGEST_JOINED:
                self._transport.write(head)
            else:
                data = head + data
        elif data.startswith(b"HTTP/1.1 "):
            self._head = data
            self._loop.call_soon(self._send_head)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Close when everything is sent."""
        self._send_head()
        self._transport.close()

    def _send_head(self) -> None:
        if self._head:
            self.write(b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, for clients that are slow, that never end, or that do not stop.

    A request whose head and body arrive at once sets a few fields and no timer.
    """

    def __init__(self, *args: Any, seconds: float, **named: Any) -> None:
        super().__init__(*args, **named)
        self._seconds = seconds
        # Bytes since the last whole request that were no body, whether the head among them is whole, and bytes of a
        # body that came after the answer.
        self._bare = 0
        self._has_head = False
        self._dropped = 0
        self._refusal = (400, "malformed-request", "This is no HTTP request.")
        # When the client is too slow with what it should send, and a timer that looks whether it was.
        self._due: float | None = None
        self._look: TimerHandle | None = None
        # The same for what it should take, with what was left to take when the timer was set.
        self._taking: TimerHandle | None = None
        self._left = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(cast("asyncio.Transport", _Joined(transport, self.loop)))
        self._expect(self._seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, which would keep the connection in memory until they fire."""
        for timer in (self._look, self._taking):
            if timer is not None:
                timer.cancel()
        self._due = None
        super().connection_lost(exc)

    # What a client sends.

    def data_received(self, data: bytes) -> None:
        """Take bytes, as long as they come to something."""
        self._bare += len(data)
        if not self._has_head:
            head, end, rest = data.partition(b"\r\n\r\n")
            if _UPGRADE.search(head):
                data = _UPGRADE.sub(_IGNORED, head) + end + rest
        super().data_received(data)
        if self._bare > (LARGEST_FRAMING if self._has_head else LARGEST_HEAD):
            self._refuse_size()
            self.send_400_response("")
        elif self._bare > 0 and not self._has_head and self._due is None:
            self._expect(self._seconds)

    def on_headers_complete(self) -> None:
        """Let a request begin whose head is not too large."""
        if self._bare > LARGEST_HEAD and self._head_bytes() > LARGEST_HEAD:
            self._refuse_size()
            raise ValueError("the head is too large")
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            # Its name came in two pieces, or it stands in a request that was sent behind another one.
            raise ValueError("an upgrade that cannot be ignored")
        self._has_head = True
        self._bare = 0
        self._due = None
        super().on_headers_complete()
        self.headers = _Dropped()

    def on_body(self, body: bytes) -> None:
        """Pass a part of a body on, or count what nobody waits for any more."""
        self._bare -= len(body)
        if self.cycle.response_complete:
            self._dropped += len(body)
            if self._dropped > LINGER_BYTES:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request's body, or one that was answered before its end."""
        self._has_head = False
        self._bare = self._dropped = 0
        self._due = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """See to it that the client takes the answer, and then ends what it is sending."""
        if self.transport.get_write_buffer_size():
            self._watch_taking()
        if self.cycle.response_complete and self.cycle.more_body:
            self._expect(LINGER_SECONDS)
        super().on_response_complete()

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse_size(self) -> None:
        self._refusal = (
            (413, "payload-too-large", f"the body's chunks have more than {LARGEST_FRAMING} bytes beside the body")
            if self._has_head
            else (431, "request-header-fields-too-large", f"the head is larger than {LARGEST_HEAD} bytes")
        )

    def _expect(self, seconds: float) -> None:
        """Give the client so much time from now on."""
        self._due = self.loop.time() + seconds
        if self._look is not None and self._look.when() > self._due:
            self._look.cancel()
            self._look = None
        if self._look is None:
            self._look = self.loop.call_at(self._due, self._is_late)

    def _is_late(self) -> None:
        self._look = None
        if self._due is None or self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            # The next request has time until this one is answered, for nobody reads it before.
            self._expect(self._seconds)
        elif self.loop.time() < self._due:
            self._look = self.loop.call_at(self._due, self._is_late)
        elif self._bare > 0 and not self._has_head:
            self._refusal = (408, "request-timeout", f"the head did not arrive within {self._seconds:g} seconds")
            self.send_400_response("")
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, in the same form as everything else, and end the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            request_id = bootstrap.new_id()
            answer = errors.problem(request_id, *self._refusal)
            head = [(b"x-request-id", request_id.encode()), (b"connection", b"close"), *answer.raw_headers]
            lines = [b"%s: %s\r\n" % header for header in head]
            self.transport.write(b"".join([STATUS_LINE[self._refusal[0]], *lines, b"\r\n", bytes(answer.body)]))
        self.transport.close()

    # What a client takes.

    def pause_writing(self) -> None:
        """Wait for the client to take its answer."""
        super().pause_writing()
        self._watch_taking()

    def _watch_taking(self) -> None:
        if self._taking is None:
            self._left = self.transport.get_write_buffer_size()
            self._taking = self.loop.call_later(self._seconds, self._has_taken)

    def _has_taken(self) -> None:
        self._taking = None
        left = self.transport.get_write_buffer_size()
        if left == 0:
            return
        if self._left - left < min(_LEAST_TAKEN, self._left):
            self.transport.abort()
        else:
            self._watch_taking()
