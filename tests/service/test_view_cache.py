"""The cache of views by itself: what it keeps, what leaves, and whose view wins."""

import gc
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.domain.event import StoredEvent
from app.domain.ranges import NOTHING
from app.domain.session import ViewFigures
from app.domain.view import View
from app.service.view_cache import ANSWER_BYTES, ENTRY_BYTES, Entry, ViewCache
from app.storage.views import Found

BORN = datetime(2026, 1, 1, tzinfo=UTC)
KEY = uuid4()


def event(seq: int, body: str = "{}") -> StoredEvent:
    """Return an event with texts and moments of its own, as one from the database has them."""
    stored_at = BORN + timedelta(seconds=seq)
    return StoredEvent(
        seq=seq,
        role="user",
        token_count=1000 + seq,
        event_id=str(uuid4()),
        body=body,
        metadata="".join("{}"),
        timestamp=stored_at - timedelta(hours=1),
        stored_at=stored_at,
    )


def found(events: tuple[StoredEvent, ...], *, born: datetime = BORN, is_held: bool = False, **changes: Any) -> Found:
    """Return what a read finds when the log has these events."""
    version = len(events)
    fields = {
        "expired": False,
        "created_at": born,
        "stamp": events[-1].stored_at if events else None,
        "version": version,
        "read": version,
        "figures": ViewFigures(events=version, turns=version, tokens=0, boundary=None),
        "policy": None,
        "retry_at": None,
        "due": False,
        "failures": 0,
        "is_held": is_held,
        "view": View(version=version, boundary=None, covered=NOTHING, events=events),
        **changes,
    }
    return Found(**fields)


def log(count: int, size: int = 2) -> tuple[StoredEvent, ...]:
    return tuple(event(seq, "x" * size) for seq in range(1, count + 1))


def versions(cache: ViewCache, *keys: UUID) -> list[int | None]:
    entries = [cache.of(key) for key in keys]
    return [entry and entry.held.view.version for entry in entries]


def taken(cache: ViewCache, key: UUID, events: tuple[StoredEvent, ...]) -> Entry:
    entry = cache.take(key, found(events), cache.of(key))
    assert entry
    return entry


def test_what_was_read_is_held_and_grows_with_the_view() -> None:
    cache, events = ViewCache(10**6), log(3)
    first = taken(cache, KEY, events[:2])
    assert cache.of(KEY) is first
    assert cache.take(KEY, found(events[:2], is_held=True, view=first.held.view), first) is first
    second = cache.take(KEY, found(events, is_held=True), first)
    assert second
    assert cache.of(KEY) is second
    anew = ViewCache(10**6)
    assert second.size == taken(anew, KEY, events).size
    assert cache.bytes == second.size


def test_answers_go_with_the_version_that_they_were_made_of() -> None:
    cache, events = ViewCache(10**6), log(3)
    first = taken(cache, KEY, events[:2])
    cache.keep(first, "openai", b"two")
    assert cache.take(KEY, found(events[:2], is_held=True, view=first.held.view), first) is first
    assert first.answers == {"openai": b"two"}
    second = cache.take(KEY, found(events, is_held=True), first)
    assert second
    assert second.answers == {}
    cache.keep(first, "text", b"late")
    assert (first.answers, cache.bytes) == ({"openai": b"two"}, second.size)


def test_a_read_that_saw_less_does_not_win_over_one_that_saw_more() -> None:
    cache, events = ViewCache(10**6), log(5)
    sent = taken(cache, KEY, events[:1])
    newer = cache.take(KEY, found(events, is_held=True), sent)
    assert cache.take(KEY, found(events[:3], is_held=True), sent) is None
    assert cache.take(KEY, found(events[:3]), None) is None
    assert cache.of(KEY) is newer


def test_two_reads_of_one_view_share_an_entry_and_its_answers() -> None:
    cache, events = ViewCache(10**6), log(2)
    first = cache.take(KEY, found(events), None)
    assert first
    cache.keep(first, "openai", b"two")
    assert cache.take(KEY, found(events), None) is first


def test_the_view_of_an_earlier_session_does_not_win_over_that_of_a_later_one_with_its_id() -> None:
    cache = ViewCache(10**6)
    later = cache.take(KEY, found(log(1), born=BORN + timedelta(days=1)), None)
    assert cache.take(KEY, found(log(5)), None) is None
    assert cache.of(KEY) is later


def test_a_view_that_the_database_refused_is_replaced_even_by_a_lower_version() -> None:
    """A standby took over that had not got the newest transactions, or a backup was restored."""
    cache = ViewCache(10**6)
    sent = taken(cache, KEY, log(5))
    rewound = cache.take(KEY, found(log(3)), sent)
    assert rewound
    assert cache.of(KEY) is rewound


def test_another_log_with_the_same_version_does_not_share_the_entry() -> None:
    cache = ViewCache(10**6)
    taken(cache, KEY, log(2))
    other = (event(1), event(2, "other"))
    assert cache.take(KEY, found(other, stamp=BORN), None) is None


def test_what_was_used_longest_ago_leaves_when_the_bound_is_reached() -> None:
    keys = [uuid4() for _ in range(6)]
    each = taken(ViewCache(10**6), KEY, log(4, size=1000)).size
    cache = ViewCache(each * 5)
    for key in keys[:5]:
        taken(cache, key, log(4, size=1000))
    assert cache.bytes == each * 5
    assert cache.of(keys[0])
    taken(cache, keys[5], log(4, size=1000))
    assert len(cache) == 5
    assert versions(cache, *keys) == [4, None, 4, 4, 4, 4]
    kept = cache.of(keys[2])
    assert kept
    cache.keep(kept, "openai", b"x" * 100)
    assert cache.bytes == each * 4 + ANSWER_BYTES + 100
    assert kept.size == each + ANSWER_BYTES + 100
    assert versions(cache, *keys) == [None, None, 4, 4, 4, 4]


def test_a_session_that_would_take_more_than_a_quarter_is_not_kept() -> None:
    events = log(4, size=1000)
    each = taken(ViewCache(10**6), KEY, events).size
    assert ViewCache(each * 4 - 1).take(KEY, found(events), None) is None
    cache = ViewCache(each * 4)
    entry = taken(cache, KEY, events)
    cache.keep(entry, "openai", b"")
    assert entry.answers == {}
    assert cache.take(KEY, found((*events, event(5)), is_held=True), entry) is None
    assert (cache.bytes, len(cache), cache.of(KEY)) == (0, 0, None)


def test_nothing_is_kept_of_an_empty_log_or_when_the_caller_knew_the_view() -> None:
    cache = ViewCache(10**6)
    assert cache.take(KEY, found(()), None) is None
    assert cache.take(KEY, found(log(2), view=None), None) is None
    assert (cache.bytes, len(cache)) == (0, 0)


def test_a_bound_of_nothing_keeps_nothing() -> None:
    cache = ViewCache(0)
    assert cache.take(KEY, found(log(2)), None) is None
    assert cache.of(KEY) is None


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1000,
        "é" * 1000,  # a byte a character
        "😀" * 1000,  # four
        "",
    ],
)
def test_the_sizes_are_those_that_python_takes(text: str) -> None:
    cache, sessions, of_each = ViewCache(10**9), 50, 20
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(sessions):
            events = tuple(event(seq, "".join((text, str(seq)))) for seq in range(1000, 1000 + of_each))
            entry = cache.take(uuid4(), found(events), None)
            assert entry
            cache.keep(entry, "openai", bytes(bytearray(5000)))
            del events, entry
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.7 * cache.bytes <= after - before <= cache.bytes
    assert cache.bytes > sessions * (ENTRY_BYTES + ANSWER_BYTES)


def test_what_is_held_of_a_session_that_is_gone_is_forgotten() -> None:
    cache = ViewCache(10**6)
    entry = taken(cache, KEY, log(2))
    cache.keep(entry, "openai", b"x")
    cache.forget(KEY)
    cache.forget(KEY)
    assert (cache.bytes, len(cache), cache.of(KEY)) == (0, 0, None)


def test_what_nobody_asks_for_leaves_after_a_while() -> None:
    now = 0.0
    cache = ViewCache(10**6, clock=lambda: now)
    other = uuid4()
    taken(cache, KEY, log(2))
    taken(cache, other, log(2))
    now = 500.0
    assert cache.of(other) is not None
    now = 700.0
    assert cache.of(other) is not None
    assert len(cache) == 1
    assert cache.of(KEY) is None
