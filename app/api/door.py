"""The door: what happens to every request before a route sees it, and to every answer after."""

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import logs
from app.api import errors
from app.api.intake import Body, Intake
from app.domain.errors import Overloaded, PayloadTooLarge

_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
# A path in which nothing is encoded.
_PLAIN: Final = re.compile(rb"[\x21-\x24\x26-\x3e\x40-\x7e]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_QUIET: Final = {"/healthz", "/readyz", "/metrics"}
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

log = structlog.get_logger("turnlog.api")


class Door:
    """Names the request, keeps encoded slashes out of the routing, bounds what comes in, and takes the time."""

    def __init__(
        self, app: ASGIApp, *, intake: Intake, new_id: Callable[[], str], answered: Callable[..., None]
    ) -> None:
        self.app = app
        self.intake = intake
        self.new_id = new_id
        self.answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or pass on what is not HTTP."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = _Visit(scope, self.new_id, send)
        with structlog.contextvars.bound_contextvars(**visit.log_ids):
            try:
                await self._serve(visit, receive)
            except ClientDisconnect:
                log.debug("request.abandoned")
            except asyncio.CancelledError:
                # The server stops and cannot wait any longer. Whatever the request came to, this is no fault of ours.
                if visit.status is None:
                    await errors.of(Overloaded(), visit.request_id)(visit.scope, receive, visit.send)
                raise
            except Exception as error:  # noqa: BLE001 - the last resort: also a bug is answered with a problem document
                log.error("request.failed", fault=logs.without_words(error))  # noqa: TRY400 - the message may quote
                if visit.status is None:
                    await errors.internal(visit.request_id)(visit.scope, receive, visit.send)
            finally:
                self._take_note(visit)

    async def _serve(self, visit: "_Visit", receive: Receive) -> None:
        if visit.scope["path"] in _QUIET:
            # However many requests there are, a probe is told that the process lives.
            await self.app(visit.scope, receive, visit.send)
            return
        try:
            self.intake.enter()
        except Overloaded as error:
            await errors.of(error, visit.request_id)(visit.scope, receive, visit.send)
            return
        body = Body(self.intake, receive)
        try:
            announced = visit.header(b"content-length")
            if announced.isdigit() and int(announced[:20]) > self.intake.body_bytes:
                too_large = PayloadTooLarge(limit_bytes=self.intake.body_bytes)
                await errors.of(too_large, visit.request_id)(visit.scope, receive, visit.send)
                return
            await self.app(visit.scope, body.receive, visit.send)
        finally:
            self.intake.leave(body.size)

    def _take_note(self, visit: "_Visit") -> None:
        seconds = time.perf_counter() - visit.started
        route = getattr(visit.scope.get("route"), "path", "none")
        status = visit.status or errors.CLIENT_GONE
        self.answered(method=visit.method, route=route, status=status, seconds=seconds)
        # What probes and scrapers ask every few seconds would drown the rest.
        write = log.debug if route in _QUIET else log.info
        write(
            "request.finished",
            method=visit.method,
            route=route,
            status=status,
            milliseconds=round(seconds * 1000, 2),
            # The guard has left here whose request it was.
            **visit.scope["state"].get("who", {}),
        )


class _Visit:
    """One request on its way through the door."""

    def __init__(self, scope: Scope, new_id: Callable[[], str], send: Send) -> None:
        self.started = time.perf_counter()
        # Of a header that comes twice the first one counts, which is the last in this order.
        self._headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.method = scope["method"]
        given = self.header(b"x-request-id")
        self.request_id = given if _REQUEST_ID.fullmatch(given) else new_id()
        self.status: int | None = None
        self._send = send
        trace = _TRACEPARENT.fullmatch(self.header(b"traceparent"))
        self.log_ids: dict[str, str] = {
            "request_id": self.request_id,
            **({"trace_id": trace["trace"]} if trace else {}),
        }
        self.scope: dict[str, Any] = {
            **scope,
            "path": routable(scope.get("raw_path") or scope["path"].encode()),
            # HEAD is answered like GET; the server leaves the body out.
            "method": "GET" if self.method == "HEAD" else self.method,
            "state": {**scope.get("state", {}), "request_id": self.request_id},
        }

    def header(self, name: bytes) -> str:
        """Return a header of the request, empty when it has none."""
        return self._headers.get(name, b"").decode("latin-1")

    async def send(self, message: Message) -> None:
        """Send a part of the answer, with the request's id on it."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = dict(message["headers"])
            added = [(b"x-request-id", self.request_id.encode())]
            if b"x-content-type-options" not in headers:
                added.append((b"x-content-type-options", b"nosniff"))
            if b"cache-control" not in headers:
                # No proxy on the way keeps a conversation; a caller may, and asks whether it is still the same.
                added.append((b"cache-control", b"private, no-cache" if b"etag" in headers else b"no-store"))
            message["headers"] = [*message["headers"], *added]
        await self._send(message)


def routable(raw_path: bytes) -> str:
    """Decode a path so that only real slashes separate: an encoded one stays ``%2F`` (and a percent sign ``%25``).

    What is not UTF-8 stays encoded too, and so is the name of nothing.
    """
    if _PLAIN.fullmatch(raw_path):
        return raw_path.decode()
    return "/".join(_segments(raw_path.partition(b"?")[0].split(b"/")))


def _segments(parts: Iterable[bytes]) -> Iterable[str]:
    for part in parts:
        try:
            decoded = unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            decoded = "\0"
        # A control character has no place in a path, and a line's end behind it would be a second spelling of the same.
        yield part.decode("latin-1").replace("%", "%25") if _CONTROL.search(decoded) else _escaped(decoded)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def plain(segment: str) -> str:
    """Return a path parameter as the client meant it."""
    return segment.replace("%2F", "/").replace("%25", "%")
