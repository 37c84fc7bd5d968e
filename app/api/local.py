"""Whether a request comes from this very machine, and from nobody behind it: what is served before there is a key."""

import ipaddress
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

# A proxy on this machine is local, and whoever it speaks for need not be.
_FORWARDED: Final = (
    b"forwarded", b"via", b"x-forwarded-", b"x-real-ip", b"x-client-ip", b"cf-connecting-ip", b"true-client-ip",
)  # fmt: skip
# Both name the place that a browser believes to talk to, or to be at: a page of somebody else's, whose name was made to
# point here, says its own.
_NAMED: Final = frozenset({b"host", b"origin"})


def is_local(scope: Scope) -> bool:
    """Say whether a request was sent by a program on this machine, to this machine by a name of its own.

    A client without an address, as on a unix socket, is none: what stands at the other end may be a proxy.
    """
    client = scope.get("client")
    if not client or not _is_loopback(client[0]):
        return False
    for name, value in scope["headers"]:
        if name.startswith(_FORWARDED):
            return False
        if name in _NAMED and not _names_loopback(value.decode("latin-1")):
            return False
    return True


def is_of_another_page(scope: Scope) -> bool:
    """Say whether a browser sends this for a page that is not ours: it says so with all that can write.

    Such a page may send some requests without asking first, and whoever opened it can reach what it cannot.
    """
    headers: dict[bytes, bytes] = dict(scope["headers"])
    origin = headers.get(b"origin")
    if origin is None or headers.get(b"sec-fetch-site") == b"same-origin":
        # No page can set the latter. Behind a proxy that changes the Host only this tells.
        return False
    return origin.lower().partition(b"://")[2] != headers.get(b"host", b"").lower()


@lru_cache(maxsize=256)
def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


@lru_cache(maxsize=256)
def _names_loopback(text: str) -> bool:
    """Say whether a Host or Origin names this machine: by an address of the loopback, or as ``localhost``."""
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host = parts.hostname or ""
    except ValueError:
        return False
    return host == "localhost" or host.endswith(".localhost") or _is_loopback(host)
