"""A service with keys, and clients that hold them."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import httpx

from app.domain.key import Scope
from app.service import keys
from app.service.keys import Wanted
from app.storage.database import Database
from tests.conftest import Service, rows

ALL: tuple[Scope, ...] = ("read", "write", "compact")


def make_key(url: str, tenant: str = "acme", scopes: Sequence[Scope] = ALL, days: float | None = None) -> str:
    """Make a key straight on a database."""

    async def make() -> str:
        database = Database(url, pool_size=1)
        try:
            return await keys.create(database, Wanted(tenant=tenant, scopes=scopes, days=days))
        finally:
            await database.close()

    return asyncio.run(make())


def url_of(service: Service) -> str:
    assert service.settings.database_url
    return service.settings.database_url.get_secret_value()


def revoke_now(url: str, key: str) -> None:
    [_] = rows(url, "UPDATE api_keys SET revoked_at = now() WHERE prefix = $1 RETURNING 1", key[:11])


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@contextmanager
def clients(service: Service, *keys_: str) -> Iterator[list[httpx.Client]]:
    """Open a client for each key."""
    with ExitStack() as stack:
        opened = []
        for key in keys_:
            client = stack.enter_context(service.client())
            client.headers.update(bearer(key))
            opened.append(client)
        yield opened
