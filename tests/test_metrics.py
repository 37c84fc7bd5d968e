"""What turnlog counts, for Prometheus."""

import asyncio
import re
import threading
from collections.abc import Iterator
from typing import Any

import asyncpg
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.metrics import Meter
from tests.api.asking import HELLO, url_of
from tests.conftest import Service, rows, wait_until
from tests.talk import Talk, system, turns, user


class Counted:
    """How much was counted since this was made."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.before = self.now()

    def now(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.http.get("/metrics").text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return self.now().get(key, 0) - self.before.get(key, 0)


@pytest.fixture
def http(own_service: Service) -> Iterator[httpx.Client]:
    with own_service.client() as client:
        yield client


@pytest.fixture
def counted(http: httpx.Client) -> Counted:
    return Counted(http)


@pytest.fixture
def talk(http: httpx.Client) -> Talk:
    return Talk(http, "s1")


def test_stored_events_are_counted_and_replays_are_not(counted: Counted, talk: Talk) -> None:
    talk.append(*turns(2), {**HELLO, "id": "e1"})
    talk.append({**HELLO, "id": "e1"}, HELLO)
    talk.post("/events", {"events": [{}]}, 422)
    assert counted("turnlog_events_appended_total") == 6


def test_messages_that_come_by_the_chat_memory_are_counted_too(counted: Counted, http: httpx.Client) -> None:
    assert http.post("/v1/chat-memory/c/messages", json={"messages": turns(2)}).status_code == 200
    assert counted("turnlog_events_appended_total") == 4


def test_views_are_counted_by_format(counted: Counted, talk: Talk) -> None:
    talk.append(HELLO)
    talk.view()
    talk.view("openai")
    talk.view("openai")
    talk.http.get(talk.path + "/view", params={"format": "text"})
    talk.post("/events", {"events": [HELLO]}, 201, params={"return": "view", "format": "text"})
    assert counted("turnlog_views_read_total", format="events") == 1
    assert counted("turnlog_views_read_total", format="openai") == 2
    assert counted("turnlog_views_read_total", format="text") == 2


def test_compactions_are_counted_by_status_and_reason(counted: Counted, talk: Talk) -> None:
    talk.append(system("p"), *({"message": message, "token_count": 10} for message in turns(4)))
    talk.compact(last_turns=9)
    talk.compact(last_turns=1, dry_run=True)
    talk.compact(last_turns=1, summary=" ")
    talk.compact(last_turns=3)
    talk.compact(last_turns=1, expected_version=9)
    talk.compact(last_turns=1, trigger={"type": "turn_count", "threshold": 100})
    talk.compact(422)
    assert counted("turnlog_compactions_total", status="applied", reason="") == 1
    assert counted("turnlog_compactions_total", status="planned", reason="") == 1
    for reason in ("fits-window", "summarizer-declined", "lost-race", "trigger-not-fired"):
        assert counted("turnlog_compactions_total", status="unchanged", reason=reason) == 1


def test_requests_are_counted_by_route_and_never_by_id(counted: Counted, talk: Talk) -> None:
    talk.append(HELLO, {**HELLO, "id": "event-of-mine"})
    talk.get("/events/event-of-mine")
    talk.get("/events/nothing", 404)
    talk.http.get("/nowhere-at-all")
    talk.http.head(talk.path + "/view")
    name, route = "turnlog_request_seconds_count", "/v1/sessions/{session_id}/events/{event_id}"
    assert counted(name, method="GET", route=route, status="200") == 1
    assert counted(name, method="GET", route=route, status="404") == 1
    assert counted(name, method="GET", route="none", status="404") == 1
    assert counted(name, method="HEAD", route="/v1/sessions/{session_id}/view", status="200") == 1
    text = talk.http.get("/metrics").text
    assert not re.search("s1|event-of-mine|nowhere-at-all", text)


def test_the_pools_are_shown_as_they_are_right_now(own_service: Service, counted: Counted, talk: Talk) -> None:
    talk.append(HELLO)
    blocked = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    async def hold() -> dict[Any, float]:
        holder = await asyncpg.connect(url_of(own_service))

        def append() -> None:
            with own_service.client() as client:
                Talk(client, "s1").append(user("late"))

        waiting = threading.Thread(target=append)
        try:
            async with holder.transaction():
                await holder.execute("SELECT 1 FROM sessions FOR UPDATE")
                waiting.start()
                await asyncio.to_thread(wait_until, lambda: bool(rows(url_of(own_service), blocked)))
                return await asyncio.to_thread(counted.now)
        finally:
            await holder.close()
            await asyncio.to_thread(waiting.join)

    during = asyncio.run(hold())
    pools = ("turnlog_pool_connections", (("pool", "writing"),)), ("turnlog_pool_connections", (("pool", "reading"),))
    assert [during[pool] for pool in pools] == [1, 0]
    assert [counted.now()[pool] for pool in pools] == [0, 0]


def test_a_new_meter_counts_nothing() -> None:
    meter = Meter()
    assert b"turnlog_events_appended_total 0.0" in meter.exposition()
    meter.appended(3)
    assert b"turnlog_events_appended_total 3.0" in meter.exposition()
    assert b"turnlog_events_appended_total 0.0" in Meter().exposition()
