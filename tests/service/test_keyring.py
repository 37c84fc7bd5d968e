"""A process's keys: known by heart, all of them, and looked at again only when that is needed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app.service import keyring as module
from app.service import keys
from app.service.keyring import Keyring
from app.service.keys import Wanted
from app.storage.database import Database
from tests.conftest import execute

READER = Wanted(tenant="t", scopes=("read",))


@asynccontextmanager
async def ring_on(url: str) -> AsyncIterator[tuple[Keyring, Database]]:
    unfinished: set[asyncio.Task[Any]] = set()
    database = Database(url, pool_size=3)
    try:
        yield Keyring(database, unfinished), database
    finally:
        while unfinished:
            await asyncio.wait(set(unfinished))
        await database.close()


def test_all_keys_are_found_however_many_pages_they_fill(database_url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)

    async def check() -> None:
        async with ring_on(database_url) as (ring, database):
            await ring.catch_up()
            assert ring.is_empty
            made = [await keys.create(database, READER) for _ in range(5)]
            ring._looked_at = float("-inf")
            await ring.catch_up()
            assert not ring.is_empty
            assert [caller.tenant for key in made if (caller := ring.caller(key))] == ["t"] * 5
            assert ring.caller(made[0] + "x") is None
            assert ring.caller(made[0][:11]) is None

    asyncio.run(check())


def test_many_who_wait_share_one_look(database_url: str) -> None:
    async def check() -> None:
        async with ring_on(database_url) as (ring, _):
            looks = 0
            look = ring._look_again

            async def counted() -> None:
                nonlocal looks
                looks += 1
                await look()

            ring._look_again = counted  # type: ignore[method-assign]
            await asyncio.gather(*[ring.catch_up() for _ in range(50)])
            assert looks == 1

    asyncio.run(check())


def test_a_change_that_was_made_by_hand_is_noticed(database_url: str) -> None:
    async def check() -> None:
        async with ring_on(database_url) as (ring, database):
            key = await keys.create(database, READER)
            await ring.catch_up()
            assert ring.caller(key)
            await asyncio.to_thread(execute, database_url, "UPDATE api_keys SET tenant = 'u', scopes = '{write}'")
            ring._looked_at = float("-inf")
            await ring.catch_up()
            caller = ring.caller(key)
            assert caller is not None
            assert (caller.tenant, caller.scopes) == ("u", {"write"})
            await asyncio.to_thread(execute, database_url, "DELETE FROM api_keys")
            ring._looked_at = float("-inf")
            await ring.catch_up()
            assert ring.caller(key) is None

    asyncio.run(check())
