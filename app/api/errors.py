"""Errors as RFC 9457 problems. The one table of status codes."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from app.domain import errors, exact_json
from app.domain.errors import InvalidRequest, MalformedRequest, Problem, TurnlogError

CONTENT_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
# No status of HTTP's own: what servers write down when nobody waits for the answer any more.
CLIENT_GONE: Final = 499

# Looked up along a class's ancestors, so a new error has a status before it has a line here.
STATUS: Final[Mapping[type[TurnlogError], tuple[int, str]]] = {
    errors.Unauthenticated: (401, "unauthenticated"),
    errors.Forbidden: (403, "forbidden"),
    errors.RateLimited: (429, "rate-limited"),
    errors.MalformedRequest: (400, "malformed-request"),
    errors.InvalidRequest: (422, "invalid-request"),
    errors.SessionNotFound: (404, "session-not-found"),
    errors.EventNotFound: (404, "event-not-found"),
    errors.NotFound: (404, "not-found"),
    errors.SessionExpired: (410, "session-expired"),
    errors.SessionExists: (409, "session-exists"),
    errors.EventIdConflict: (409, "event-id-conflict"),
    errors.IdempotencyKeyReused: (409, "idempotency-key-reused"),
    errors.VersionConflict: (412, "version-conflict"),
    errors.PayloadTooLarge: (413, "payload-too-large"),
    errors.TooSlow: (408, "request-timeout"),
    errors.SummarizerFailed: (502, "summarizer-failed"),
    errors.SummarizerTimeout: (504, "summarizer-timeout"),
    errors.Unavailable: (503, "unavailable"),
    errors.TurnlogError: (500, "internal-error"),
}
# Errors with one fact, and what it is called.
_FACTS: Final[Mapping[type[TurnlogError], str]] = {
    errors.Forbidden: "scope",
    errors.PayloadTooLarge: "limit_bytes",
    errors.SummarizerFailed: "cause",
}
# What the framework itself refuses.
HTTP_CODES: Final[Mapping[int, str]] = {
    404: "not-found",
    405: "method-not-allowed",
    415: "unsupported-media-type",
    500: "internal-error",
}

_METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

log = structlog.get_logger("turnlog.api")


def install(app: FastAPI) -> None:
    """Answer every error of the app with a problem."""
    app.add_exception_handler(TurnlogError, _ours)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _fault)


def problem(
    request_id: str,
    status: int,
    code: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    **facts: Any,
) -> Response:
    """Build a problem answer; ``facts`` are members of its own, such as ``current_version``."""
    body = {
        "type": f"urn:turnlog:problem:{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "request_id": request_id,
        **facts,
    }
    return Response(msgspec.json.encode(body), status, media_type=CONTENT_TYPE, headers=dict(headers or {}))


def of(error: TurnlogError, request_id: str) -> Response:
    """Build the problem answer for one of our errors."""
    status, code = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return problem(request_id, status, code, str(error), headers=_headers(error), **_facts(error))


def _headers(error: TurnlogError) -> dict[str, str]:
    match error:
        case errors.Unavailable():
            return {"Retry-After": str(RETRY_AFTER_SECONDS)}
        case errors.RateLimited():
            return {"Retry-After": str(error.retry_seconds)}
        case errors.Unauthenticated():
            return {"WWW-Authenticate": "Bearer"}
        case _:
            return {}


def _facts(error: TurnlogError) -> dict[str, Any]:
    match error:
        case InvalidRequest():
            return {"errors": [{"pointer": one.pointer, "detail": one.detail} for one in error.problems]}
        case errors.EventIdConflict():
            return {"event_id": error.event_id, "seq": error.seq}
        case errors.VersionConflict():
            return {"expected_version": error.expected, "current_version": error.current}
        case _:
            return {name: getattr(error, name) for kind, name in _FACTS.items() if isinstance(error, kind)}


def request_id_of(request: Request) -> str:
    """Return the id that the door gave this request."""
    return str(request.scope.get("state", {}).get("request_id", ""))


async def answer(request: Request, error: TurnlogError | HTTPException) -> Response:
    """Answer what a route refuses."""
    return await (_ours(request, error) if isinstance(error, TurnlogError) else _http(request, error))


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, TurnlogError)  # noqa: S101 - what the handler is registered for
    if isinstance(error, errors.Unavailable) and not isinstance(error, errors.Overloaded):
        log.warning("database.unavailable", cause=type(error.__cause__).__name__, detail=str(error))
    return of(error, request_id_of(request))


async def _gone(_request: Request, _error: Exception) -> Response:
    """Answer a client who went away before his request was whole: for the log and the metrics, he does not hear it."""
    return Response(status_code=CLIENT_GONE)


async def _fault(request: Request, _error: Exception) -> Response:
    """Answer a fault of ours. The framework raises it again, for the door to log."""
    return internal(request_id_of(request))


async def _parameters(request: Request, error: Exception) -> Response:
    """Answer a query parameter of the wrong type or range."""
    assert isinstance(error, RequestValidationError)  # noqa: S101
    problems = [Problem(str(one["loc"][-1]), str(one["msg"])) for one in error.errors()]
    return of(InvalidRequest(problems), request_id_of(request))


async def _http(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses: no such path, no such method."""
    assert isinstance(error, HTTPException)  # noqa: S101
    code = HTTP_CODES.get(error.status_code, "malformed-request")
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "There is nothing at this path."
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names the methods of the first route that has the path, and several can.
        headers["Allow"] = ", ".join(_methods(request))
        detail = f"This path takes {headers['Allow']}."
    return problem(request_id_of(request), error.status_code, code, detail, headers=headers)


def _methods(request: Request) -> list[str]:
    """Return the methods of all routes that have the request's path."""

    def taken(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    # HEAD is answered like GET, see the door.
    return [method for method in _METHODS if taken("GET" if method == "HEAD" else method)]


_AT: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_STEP: Final = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<at>\d+)\]|\[\.\.\.\]")
_ECHO: Final = re.compile(r"^Invalid (enum )?value .*$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"^Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_MISSING: Final = re.compile(r"^Object missing required field `(?P<name>.*)`$", re.DOTALL)


def from_decoder(error: msgspec.DecodeError) -> TurnlogError:
    """Translate what msgspec says of a body: its place becomes a JSON pointer, and no value of the client is echoed."""
    if not isinstance(error, msgspec.ValidationError):
        return MalformedRequest(f"the body cannot be read: {error}")
    found = _AT.match(str(error))
    what, path = (found["what"], found["path"] or "$") if found else (str(error), "$")
    pointer = "".join(f"/{step['name'] or step['at']}" for step in _STEP.finditer(path) if step["name"] or step["at"])
    if _ECHO.match(what):
        return InvalidRequest.at(pointer, "is not one of the values that are allowed here")
    if unknown := _UNKNOWN.match(what):
        return InvalidRequest.at(
            f"{pointer}/{exact_json.step(unknown['name'][:80])}", "is not a field that is known here"
        )
    if missing := _MISSING.match(what):
        return InvalidRequest.at(f"{pointer}/{missing['name']}", "is missing")
    return InvalidRequest.at(pointer, what[:1].lower() + what[1:200])


def internal(request_id: str) -> Response:
    """Answer a fault of ours, without a word about it."""
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return problem(request_id, status, "internal-error", "Something went wrong here; the log has the details.")
