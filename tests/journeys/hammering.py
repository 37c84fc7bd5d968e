"""Clients that append without a pause whatever happens, and remember what they were told."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.conftest import wait_until
from tests.talk import Talk, assistant, user

LONG = 60.0


@dataclass
class Told:
    """What the clients of one run were told: by status how often, how long the longest took, and of which batches."""

    prefix: str
    statuses: Counter[int] = field(default_factory=Counter)
    longest: float = 0.0
    acknowledged: dict[str, dict[str, int]] = field(default_factory=dict)
    dropped: dict[str, list[list[str]]] = field(default_factory=dict)
    health: Counter[int] = field(default_factory=Counter)
    failed: bool = False

    def more(self, count: int = 20) -> None:
        """Wait until so many more batches have been acknowledged."""
        before = self.successes()
        wait_until(lambda: self.successes() >= before + count, LONG)

    def successes(self) -> int:
        return self.statuses[200] + self.statuses[201]

    def check(self, http: httpx.Client, seconds: float) -> None:
        """Nobody waited too long, got another answer than he should, or lost anything; and nothing is half."""
        assert set(self.statuses) <= {200, 201, 503}, self.statuses
        assert self.longest <= seconds, f"somebody waited for {self.longest:.1f} seconds"
        assert set(self.health) == {200}, self.health
        for name, acknowledged in self.acknowledged.items():
            log = Talk(http, name).log()
            stored = {event["id"]: event["seq"] for event in log}
            assert [event["seq"] for event in log] == [*range(1, len(log) + 1)]
            assert len(stored) == len(log)
            assert acknowledged.items() <= stored.items(), "an acknowledged event is gone, or elsewhere"
            given_up = self.dropped.get(name, [])
            for ids in given_up:
                places = [stored[one] for one in ids if one in stored]
                assert places in ([], [*range(places[0], places[0] + len(ids))] if places else []), "half a batch"
            known = acknowledged.keys() | {one for ids in given_up for one in ids}
            assert stored.keys() <= known


class _Client:
    """One who appends to a session, and sends a batch ``again`` until it is acknowledged, or never."""

    def __init__(self, told: Told, lock: threading.Lock, name: str, number: int) -> None:
        self._told = told
        self._lock = lock
        self._name = name
        self._number = number
        self._again = number % 3 != 2

    def work(self, url: str, over: threading.Event) -> None:
        batch = 0
        with httpx.Client(base_url=url, timeout=LONG) as http:
            while not over.is_set():
                batch += 1
                ids = [f"{self._number}-{batch}-{at}" for at in range(2)]
                said = zip(ids, (user(f"question {batch}"), assistant(f"answer {batch}")), strict=True)
                body = {"events": [{"id": one, "message": message} for one, message in said]}
                while self._is_refused(http, ids, body) and not self._told.failed:
                    time.sleep(0.05)
                time.sleep(0.02)

    def _is_refused(self, http: httpx.Client, ids: list[str], body: Any) -> bool:
        """Send a batch, and say whether to send it again."""
        began = time.monotonic()
        answer = http.post(f"/v1/sessions/{self._name}/events?create=true", json=body)
        took = time.monotonic() - began
        told = self._told
        with self._lock:
            told.statuses[answer.status_code] += 1
            told.longest = max(told.longest, took)
            if answer.status_code in {200, 201}:
                told.acknowledged[self._name] |= {one["id"]: one["seq"] for one in answer.json()["events"]}
                return False
            if not self._again or answer.status_code != 503:
                told.dropped[self._name].append(ids)
                return False
        assert int(answer.headers["retry-after"]) >= 1
        return True


@contextmanager
def hammering(url: str, clients: int, prefix: str, sessions: int = 5) -> Iterator[Told]:
    """Let clients append for as long as the block lasts, and finish what they have begun.

    Two of three send a batch again, as it is, until it is acknowledged; the third never does, and goes on.
    """
    told = Told(prefix)
    names = [f"{prefix}-{number}" for number in range(sessions)]
    told.acknowledged = {name: {} for name in names}
    told.dropped = {name: [] for name in names}
    over, lock = threading.Event(), threading.Lock()

    def live() -> None:
        with httpx.Client(base_url=url, timeout=LONG) as http:
            while not over.is_set():
                told.health[http.get("/healthz").status_code] += 1
                time.sleep(0.05)

    with ThreadPoolExecutor(clients + 1) as pool:
        workers = [_Client(told, lock, names[number % sessions], number) for number in range(clients)]
        futures: list[Future[None]] = [pool.submit(one.work, url, over) for one in workers]
        futures.append(pool.submit(live))
        try:
            told.more()
            yield told
        except BaseException:
            # Nobody has to see to a database that may be away for good.
            told.failed = True
            raise
        finally:
            over.set()
        for future in futures:
            future.result(LONG)


def quickly(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for something that is promised within a time. What raises has not become true yet."""

    def met() -> bool:
        with suppress(httpx.HTTPError, AssertionError):
            return condition()
        return False

    wait_until(met, seconds)
