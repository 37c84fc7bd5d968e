"""How the OpenAPI document describes what is refused: every error status once, with its codes and its headers."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from app.api import errors


class _Refusal(NamedTuple):
    name: str
    description: str
    headers: tuple[str, ...] = ()


_REFUSALS: Final = {
    400: _Refusal("MalformedRequest", "The request cannot be read, or has a query parameter that is not known"),
    401: _Refusal("Unauthenticated", "No key, or none that is known here", ("WWW-Authenticate",)),
    403: _Refusal("Forbidden", "The key has not the scope for this, `scope` is the one that is missing"),
    404: _Refusal("NotFound", "There is nothing here"),
    408: _Refusal("RequestTimeout", "The body did not arrive in time"),
    409: _Refusal("Conflict", "The request contradicts what is stored"),
    410: _Refusal("Gone", "The session has expired"),
    412: _Refusal("VersionConflict", "The log is not at the expected version, `current_version` is where it is"),
    413: _Refusal("PayloadTooLarge", "The body or an event in it is too large, `limit_bytes` is the limit"),
    415: _Refusal("UnsupportedMediaType", "The body is not JSON, or is encoded"),
    422: _Refusal("InvalidRequest", "The request can be read, and `errors` names what is wrong in it"),
    429: _Refusal("RateLimited", "The key is used more often than this server allows", ("Retry-After",)),
    502: _Refusal("SummarizerFailed", "The model wrote no summary that can be used; nothing was written"),
    503: _Refusal(
        "Unavailable", "The database cannot be reached right now, or the server has enough to do", ("Retry-After",)
    ),
    504: _Refusal("SummarizerTimeout", "The model wrote no summary in time; nothing was written"),
}
# Every route refuses an unknown parameter, and what cannot be read; whoever reads a body has to be sent one that fits.
_ALWAYS: Final = (400,)
_WITH_BODY: Final = (408, 413, 415, 422)
# Where a key is asked for, its tenant may be one that nobody can have, and its limit may be reached.
GUARDED: Final = frozenset({401, 403, 422, 429, 503})

HEADERS: Final[dict[str, Any]] = {
    "X-Request-Id": {
        "description": "The request's own id when it has one, else a new one. It is in the log, too.",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    "Location": {
        "description": "Where the session is.",
        "required": True,
        "schema": {"type": "string", "pattern": "^/v1/sessions/[^/]+$"},
    },
    "ETag": {
        "description": "The view's version and format; `If-None-Match` takes it.",
        "required": True,
        "schema": {"type": "string", "pattern": '^"[0-9]+-[a-z-]+"$'},
    },
    "WWW-Authenticate": {
        "description": "How to say who asks.",
        "required": True,
        "schema": {"type": "string", "const": "Bearer"},
    },
    "Retry-After": {
        "description": "Seconds after which it is worth trying again.",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
    },
}


def of(statuses: Sequence[int], *, has_body: bool) -> list[int]:
    """Return every status with which a route refuses: its own, and those of all routes like it."""
    return sorted({*_ALWAYS, *statuses, *(_WITH_BODY if has_body else ())})


def reference(status: int) -> dict[str, Any]:
    """Return where the document describes the refusal with this status."""
    return {"$ref": f"#/components/responses/{_REFUSALS[status].name}"}


def header(name: str) -> dict[str, Any]:
    """Return where the document describes a header."""
    return {"$ref": f"#/components/headers/{name}"}


def components(problem: str) -> dict[str, Any]:
    """Describe all refusals; ``problem`` is where their body is described."""
    return {
        one.name: {
            "description": f"{one.description} ({', '.join(f'`{code}`' for code in _codes(status))})",
            "headers": {name: header(name) for name in ("X-Request-Id", *one.headers)},
            "content": {errors.CONTENT_TYPE: {"schema": {"$ref": problem}}},
        }
        for status, one in _REFUSALS.items()
    }


def _codes(status: int) -> list[str]:
    found = [code for known, code in errors.STATUS.values() if known == status]
    found += [code for known, code in errors.HTTP_CODES.items() if known == status]
    return list(dict.fromkeys(found))
