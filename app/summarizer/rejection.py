"""What a model server means when it answers with anything but success. Pure.

No message quotes the body: a provider may echo the conversation in it, or the key.
"""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec

from app.domain.errors import SummarizerFailed

_PASSING: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_ABOUT_LENGTH: Final = re.compile(
    r"context[_ -]?length|context[_ -]?window|context[_ -]?size|maximum context|prompt is too long|prompt too long"
    r"|input is too long|input too long|maximum (?:model|input|prompt) length|too many (?:input )?tokens"
    r"|input token count|reduce the length|request_too_large",
    re.IGNORECASE,
)
# Azure's code for a prompt that its filter does not let through.
_FILTERED: Final = "content_filter"
# More than any real explanation; what follows could only be an echo.
_READ: Final = 4096
_SECONDS: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


def is_passing(status: int) -> bool:
    """Say whether the same request may succeed a little later."""
    return status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def is_about_length(status: int, body: bytes) -> bool:
    """Say whether a refusal means that the request holds more than the model takes."""
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return True
    return status == HTTPStatus.BAD_REQUEST and _ABOUT_LENGTH.search(said(body)) is not None


def said(body: bytes) -> str:
    """Return what an error body explains, its message and codes alone where it is JSON; for decisions, not to show."""
    try:
        parsed: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body[:_READ].decode(errors="replace")
    found = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if isinstance(found, dict):
        told = [found.get(name) for name in ("message", "code", "type", "param", "detail")]
        return "\n".join(one[:_READ] for one in told if isinstance(one, str))
    return found[:_READ] if isinstance(found, str) else ""


def failed(status: int, body: bytes) -> SummarizerFailed:
    """Make the failure for a status, saying what to check."""
    told = f"the model server answered HTTP {status}"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return SummarizerFailed("rate-limited", f"{told}: its rate limit or quota is used up")
    if is_passing(status):
        return SummarizerFailed("overloaded", f"{told}: it is overloaded or broken")
    cause, advice = _refused(status, body)
    return SummarizerFailed(cause, f"{told}: {advice}")


def retry_after(milliseconds: str | None, after: str | None, *, now: datetime) -> float | None:
    """Return the seconds that ``retry-after-ms``, or else ``Retry-After`` (seconds or an HTTP date), asks to wait.

    None when neither is there or can be read; a date that has passed asks for no wait.
    """
    if milliseconds and _SECONDS.fullmatch(milliseconds.strip()):
        return float(milliseconds) / 1000
    if not after:
        return None
    if _SECONDS.fullmatch(after.strip()):
        return float(after)
    try:
        date = parsedate_to_datetime(after)
    except ValueError:
        return None
    # An HTTP date is in GMT, also where it forgets to say so.
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - now).total_seconds())


def _refused(status: int, body: bytes) -> tuple[str, str]:
    if is_about_length(status, body):
        return "context-length", "the request is longer than the model takes"
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return "not-authorized", "check the API key and what it is allowed to use"
    if status == HTTPStatus.BAD_REQUEST and _FILTERED in said(body):
        return "content-filter", "the provider's content filter refused the conversation"
    if status < HTTPStatus.BAD_REQUEST:
        return "refused-request", "redirects are not followed; check the base URL"
    if status == HTTPStatus.NOT_FOUND:
        return "refused-request", "check the base URL and the model's name"
    return "refused-request", "check the model's name and its limit of output tokens"
