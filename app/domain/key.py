"""An API key: whose sessions it opens, what may be done with it, and until when."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias, get_args

from app.domain.errors import InvalidRequest
from app.domain.session import is_id

Scope: TypeAlias = Literal["read", "write", "compact", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

# Whose sessions they are when nobody said: of every client before the first key, and of the bootstrap key.
DEFAULT_TENANT: Final = "default"
# So much of a key is its name: it is shown in lists and log lines, and the rest never is.
PREFIX_CHARACTERS: Final = 11
SHORTEST: Final = 32
KEY_RULE: Final = f"a key has {SHORTEST} to 512 printable ASCII characters and no blanks"
TENANT_RULE: Final = "a tenant has 1 to 255 characters out of A-Z a-z 0-9 . _ ~ : @ + = , - and is not . or .."
LONGEST_NAME: Final = 255

_KEY: Final = re.compile(rf"[\x21-\x7e]{{{SHORTEST},512}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: with which key (None: without one), for which tenant (None: for all), and what they may do."""

    prefix: str | None
    tenant: str | None
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Say whether the caller may do this."""
        return scope in self.scopes or "admin" in self.scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A stored key. ``digest`` is the hash of the whole key, which is itself stored nowhere."""

    prefix: str
    digest: bytes
    tenant: str
    name: str | None
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None

    def opens(self, now: datetime) -> bool:
        """Say whether the key is good for anything at this moment."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def is_key(text: str) -> bool:
    """Say whether this can be a key at all."""
    return bool(_KEY.fullmatch(text))


def prefix_of(text: str) -> str:
    """Return what a key is called by."""
    return text[:PREFIX_CHARACTERS]


def digest_of(text: str) -> bytes:
    """Return what is stored of a key. Its randomness makes it as good as a slow hash would be."""
    return hashlib.sha256(text.encode()).digest()


def composed(name: str, secret: str) -> str:
    """Return a key of ours: eight characters to call it by, then the secret."""
    return f"tl_{name}_{secret}"


def scopes_of(names: Iterable[str]) -> tuple[Scope, ...]:
    """Return scopes by their names, each once and in the order that they are listed in everywhere.

    Raises:
        InvalidRequest: there is none, or one that nobody knows.
    """
    wanted = {name.strip() for name in names}
    if not wanted or not wanted <= set(SCOPES):
        raise InvalidRequest.at("scopes", f"are one or more of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in wanted)


def checked_tenant(name: str) -> str:
    """Return a tenant's name.

    Raises:
        InvalidRequest: no tenant can have it.
    """
    if not is_id(name):
        raise InvalidRequest.at("tenant", TENANT_RULE)
    return name
