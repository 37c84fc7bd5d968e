"""Everything that can go wrong, as one tree.

    TurnlogError
    ├── Unauthenticated             nobody knows who asks
    ├── Forbidden                   who asks may not do this
    ├── RateLimited                 who asks does so too often
    ├── MalformedRequest            the request cannot be read at all
    ├── InvalidRequest              it can be read, and a named place in it is wrong
    ├── NotFound
    │   ├── SessionNotFound
    │   └── EventNotFound
    ├── SessionExpired
    ├── Conflict
    │   ├── SessionExists
    │   ├── EventIdConflict
    │   └── IdempotencyKeyReused
    ├── VersionConflict
    ├── PayloadTooLarge
    ├── TooSlow
    ├── SummarizerFailed            the model wrote no summary that can be used
    │   └── SummarizerTimeout       or none in time
    └── Unavailable                 the database is away or overloaded
        ├── NotLetIn                it knows no such user or database, or does not allow what has to be done
        └── Overloaded              or it is this process that has more to do than it takes

A class's docstring is its default message; its attributes are the facts. HTTP status codes are not known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class TurnlogError(Exception):
    """Something went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class Unauthenticated(TurnlogError):
    """The request needs an API key that is known here: Authorization: Bearer KEY."""


class Forbidden(TurnlogError):
    """The key does not allow this."""

    def __init__(self, scope: str, message: str | None = None) -> None:
        super().__init__(message or f"this needs a key with the scope {scope}")
        self.scope = scope


class RateLimited(TurnlogError):
    """The key is used more often than this server allows."""

    def __init__(self, *, retry_seconds: int) -> None:
        super().__init__(f"the key is used more often than this server allows: try again in {retry_seconds} s")
        self.retry_seconds = retry_seconds


class MalformedRequest(TurnlogError):
    """The request cannot be read."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong place in a request: a JSON pointer into the body (or a parameter's name) and what is wrong there."""

    pointer: str
    detail: str


class InvalidRequest(TurnlogError):
    """The request is not valid."""

    def __init__(self, problems: Sequence[Problem], message: str | None = None) -> None:
        super().__init__(message or "; ".join(f"{p.pointer or '/'}: {p.detail}" for p in problems))
        self.problems = tuple(problems)

    @classmethod
    def at(cls, pointer: str, detail: str) -> "InvalidRequest":
        """Name a single wrong place."""
        return cls([Problem(pointer, detail)])

    def below(self, prefix: str) -> "InvalidRequest":
        """Return the same problems, seen from a body in which they sit under ``prefix``."""
        return InvalidRequest([Problem(prefix + p.pointer, p.detail) for p in self.problems])


class NotFound(TurnlogError):
    """There is nothing here."""


class SessionNotFound(NotFound):
    """There is no session with this id."""


class EventNotFound(NotFound):
    """The session has no event with this id."""


class SessionExpired(TurnlogError):
    """The session has expired."""


class Conflict(TurnlogError):
    """The request contradicts what is stored."""


class SessionExists(Conflict):
    """A session with this id exists."""


class EventIdConflict(Conflict):
    """The event id is stored with other content."""

    def __init__(self, event_id: str, seq: int) -> None:
        super().__init__(f"event id {event_id!r} is stored with other content at seq {seq}")
        self.event_id = event_id
        self.seq = seq


class IdempotencyKeyReused(Conflict):
    """This Idempotency-Key was used with another body."""


class VersionConflict(TurnlogError):
    """The log is not at the expected version."""

    def __init__(self, *, expected: int, current: int) -> None:
        super().__init__(f"expected version {expected}, but the log is at version {current}")
        self.expected = expected
        self.current = current


class PayloadTooLarge(TurnlogError):
    """The body is larger than this server takes."""

    def __init__(self, *, limit_bytes: int, what: str = "the body") -> None:
        super().__init__(f"{what} is larger than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class TooSlow(TurnlogError):
    """The request did not arrive in time."""


class SummarizerFailed(TurnlogError):
    """The summarizer wrote no summary that can be used; nothing was written."""

    def __init__(self, cause: str, message: str | None = None) -> None:
        """``cause`` is a stable word in kebab-case, such as ``cut-off``; the message never quotes an answer.

        ``tokens`` are those that the provider read and wrote all the same, and is paid for.
        """
        super().__init__(message)
        self.cause = cause
        self.tokens = (0, 0)


class SummarizerTimeout(SummarizerFailed):
    """The summarizer wrote no summary in time; nothing was written."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__("timeout", message)


class Unavailable(TurnlogError):
    """The database cannot be reached right now; try again shortly."""


class NotLetIn(Unavailable):
    """The database does not let turnlog in, or not do its work; waiting will not change that."""


class Overloaded(Unavailable):
    """The server has more open requests than it takes; try again shortly."""
