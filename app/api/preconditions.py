"""What guards an append: the version that it insists on, and the key that makes it repeatable."""

import re
from typing import Final

from app.domain.errors import InvalidRequest, MalformedRequest

LONGEST_KEY: Final = 255
_VERSION_TAG: Final = re.compile(r'"?(?P<version>\d{1,18})"?')


def version(in_body: int | None, if_match: str | None) -> int | None:
    """Return the version that the append insists on, wherever it was said."""
    if if_match is None or if_match.strip() == "*":
        return in_body
    tag = _VERSION_TAG.fullmatch(if_match.strip())
    if tag is None:
        raise MalformedRequest('If-Match is a version in quotes, such as "12"')
    found = int(tag["version"])
    if in_body not in {None, found}:
        raise InvalidRequest.at("/expected_version", "is not the version that If-Match names")
    return found


def key(given: str | None) -> str | None:
    """Return an Idempotency-Key.

    Raises:
        InvalidRequest: it has no characters, or too many.
    """
    if given is not None and not 1 <= len(given) <= LONGEST_KEY:
        raise InvalidRequest.at("Idempotency-Key", f"has 1 to {LONGEST_KEY} characters")
    return given
