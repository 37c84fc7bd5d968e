"""Values on the wire: a client's own JSON as the bytes it sent, and moments in UTC."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from msgspec import UNSET, Meta, Raw, UnsetType

from app.domain.errors import InvalidRequest
from app.domain.session import LONGEST_TTL_SECONDS

TokenCount = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Version = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Ttl = Annotated[int, Meta(ge=1, le=LONGEST_TTL_SECONDS, description="seconds from now; null is never")]
Instant = Annotated[datetime, Meta(tz=True)]
Pair = tuple[int, int]
# Said of what is passed on as it is: the service checks a request's, and writes an answer's.
Object = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
StoredMessage = Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/StoredMessage"})]
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def raw(text: str) -> Raw:
    """Return JSON text as something that is encoded as it is."""
    return Raw(text.encode())


def text_of(value: Raw | UnsetType) -> str | None:
    """Return the JSON text that a client sent for a field, None when it sent none."""
    return None if value is UNSET else bytes(value).decode()


def utc(value: datetime, pointer: str) -> datetime:
    """Return a client's moment in UTC.

    Raises:
        InvalidRequest: at ``pointer``, for the hours of the years 1 and 9999 that UTC does not have.
    """
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise InvalidRequest.at(pointer, "is before the year 1 or after the year 9999 in UTC") from error


def instant(value: datetime) -> str:
    """Write a time in RFC 3339, UTC, with microseconds."""
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def microseconds(value: datetime) -> int:
    """Return a time as whole microseconds since 1970, exactly."""
    return (value - _EPOCH) // timedelta(microseconds=1)


def moment(since_1970: int) -> datetime:
    """Return the time that ``microseconds`` was made of; OverflowError when there is no such year."""
    return _EPOCH + timedelta(microseconds=since_1970)
