"""Purging expired sessions."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from tests.api.asking import HELLO, expire, pointers, problem, url_of
from tests.conftest import Service, execute, rows
from tests.talk import Talk


@pytest.fixture
def http(own_service: Service) -> Iterator[httpx.Client]:
    """A client of a service of the test's own: a purge is everybody's."""
    with own_service.client() as client:
        yield client


def expired(service: Service, http: httpx.Client, *days: int) -> list[str]:
    """Make sessions that expired so many days ago."""
    ids = [f"d{number}" for number in days]
    for one, number in zip(ids, days, strict=True):
        Talk(http, one).append(HELLO)
        expire(service, one, ago=timedelta(days=number))
    return ids


def left(service: Service) -> set[str]:
    return {row["session_id"] for row in rows(url_of(service), "SELECT session_id FROM sessions")}


def purge(http: httpx.Client, **body: Any) -> dict[str, int]:
    answer = http.post("/v1/purge", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, int] = answer.json()
    return found


def test_a_purge_removes_expired_sessions_with_their_logs_and_nothing_else(
    own_service: Service, http: httpx.Client
) -> None:
    expired(own_service, http, 1, 2, 3)
    Talk(http, "alive").append(HELLO)
    Talk(http, "for-ever").append(HELLO)
    http.patch("/v1/sessions/for-ever", json={"ttl_seconds": None})

    assert http.post("/v1/purge").json() == {"purged": 3, "remaining": 0}

    assert left(own_service) == {"alive", "for-ever"}
    assert len(rows(url_of(own_service), "SELECT 1 FROM events")) == 2
    problem(http.get("/v1/sessions/d1"), 404, "session-not-found")
    assert purge(http) == {"purged": 0, "remaining": 0}


def test_a_purge_takes_the_longest_expired_first_up_to_its_limit(own_service: Service, http: httpx.Client) -> None:
    expired(own_service, http, 1, 4, 2, 3)
    assert purge(http, limit=3) == {"purged": 3, "remaining": 1}
    assert left(own_service) == {"d1"}


def test_a_purge_may_leave_what_expired_lately(own_service: Service, http: httpx.Client) -> None:
    expired(own_service, http, 1, 5, 9)
    before = (datetime.now(UTC) - timedelta(days=3)).isoformat()
    assert purge(http, expired_before=before) == {"purged": 2, "remaining": 0}
    assert left(own_service) == {"d1"}


def test_a_purge_of_the_future_takes_nobody_who_is_alive(own_service: Service, http: httpx.Client) -> None:
    expired(own_service, http, 1)
    Talk(http, "alive").append(HELLO)
    assert purge(http, expired_before="2999-01-01T00:00:00Z") == {"purged": 1, "remaining": 0}
    assert left(own_service) == {"alive"}


BAD_PURGES = [
    ({"limit": 0}, "/limit"),  # nothing
    ({"limit": -1}, "/limit"),  # less
    ({"limit": "all"}, "/limit"),  # no number
    ({"expired_before": "yesterday"}, "/expired_before"),  # no time
    ({"expired_before": "2026-01-01T00:00:00"}, "/expired_before"),  # without a zone
    ({"expired_before": "0001-01-01T00:00:00+10:00"}, "/expired_before"),  # before the year 1
    ({"expired_before": "9999-12-31T23:59:59-10:00"}, "/expired_before"),  # after the year 9999
    ({"everything": True}, "/everything"),  # not known
]


@pytest.mark.parametrize(("body", "pointer"), BAD_PURGES)
def test_a_bad_purge_is_refused(http: httpx.Client, body: dict[str, Any], pointer: str) -> None:
    assert pointers(http.post("/v1/purge", json=body)) == [pointer]


def test_a_session_that_is_being_extended_is_not_purged(own_service: Service, http: httpx.Client) -> None:
    """The extension has not committed when the purge runs: the purge leaves the locked row alone."""
    expired(own_service, http, 1, 2)

    async def race() -> dict[str, int]:
        extending = await asyncpg.connect(url_of(own_service))
        try:
            async with extending.transaction():
                await extending.execute(
                    "UPDATE sessions SET expires_at = now() + interval '1 hour' WHERE session_id = 'd2'"
                )
                return await asyncio.to_thread(purge, http)
        finally:
            await extending.close()

    assert asyncio.run(race())["purged"] == 1
    assert left(own_service) == {"d2"}
    assert http.get("/v1/sessions/d2").status_code == 200


def test_a_session_that_is_being_deleted_does_not_hold_up_a_purge(own_service: Service, http: httpx.Client) -> None:
    expired(own_service, http, 1, 2)

    async def race() -> dict[str, int]:
        deleting = await asyncpg.connect(url_of(own_service))
        try:
            async with deleting.transaction():
                await deleting.execute("DELETE FROM sessions WHERE session_id = 'd2'")
                return await asyncio.to_thread(purge, http)
        finally:
            await deleting.close()

    assert asyncio.run(race())["purged"] == 1
    assert left(own_service) == set()


def test_whoever_was_told_that_a_session_lives_on_finds_it_whatever_is_purged(
    own_service: Service, http: httpx.Client
) -> None:
    execute(
        url_of(own_service),
        "INSERT INTO sessions (session_key, tenant, session_id, metadata, labels)"
        " SELECT gen_random_uuid(), 'default', 'x' || n, '{}', '{}' FROM generate_series(1, 5) AS n",
    )
    ids = expired(own_service, http, *range(1, 61))

    def extend(one: str) -> tuple[str, int]:
        with own_service.client() as client:
            return one, client.patch(f"/v1/sessions/{one}", json={"ttl_seconds": 3600}).status_code

    def sweep(_: int) -> None:
        with own_service.client() as client:
            purge(client, limit=3)

    with ThreadPoolExecutor(12) as pool:
        sweeps = pool.map(sweep, range(30))
        extended = dict(pool.map(extend, ids))
        list(sweeps)

    assert set(extended.values()) <= {200, 404}
    purge(http)
    alive = {one for one, status in extended.items() if status == 200}
    assert left(own_service) >= alive
    assert left(own_service) & set(ids) == alive
    for one in alive:
        assert len(Talk(http, one).log()) == 1
