"""What the clients do: each draws its choices from a seed of its own, so that the same seed wants the same again."""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import httpx

from app.service.views import FORMATS
from tests.journeys.torture.asking import Asking
from tests.journeys.torture.history import Call, History
from tests.journeys.torture.sessions import Sessions, batch

POLICY: Final = {
    "trigger": {"type": "turn_count", "threshold": 12},
    "window": {"rule": "last_turns", "size": 4},
}


class Client:
    """One client, in a thread of its own."""

    def __init__(self, number: int, urls: Sequence[str], history: History, sessions: Sessions, seed: int) -> None:
        self._rng = random.Random(f"{seed}/{number}")  # noqa: S311 - choices, not secrets
        self._ask = Asking(number, urls, history, self._rng)
        self._sessions = sessions
        self._op = 0
        self._made: set[str] = set()
        self._version: dict[str, int] = defaultdict(int)
        self._place: dict[str, int] = defaultdict(int)
        self._tags: dict[tuple[str, str], str] = {}
        self._brief: list[tuple[str, float]] = []
        self._choices: Mapping[Callable[[], None], int] = {
            self._append: 30,
            self._view: 22,
            self._earlier_view: 6,
            self._tail: 10,
            self._session: 4,
            self._compact: 8,
            self._fleet: 1,
            self._gone_append: 8,
            self._gone_read: 6,
            self._gone_delete: 2,
            self._brief_life: 1,
            self._brief_read: 2,
            self._purge: 1,
        }

    def run(self) -> None:
        """Do one thing after the other until it is time to finish."""
        kinds, weights = [*self._choices], [*self._choices.values()]
        try:
            while not self._sessions.finish.is_set():
                self._op += 1
                self._rng.choices(kinds, weights)[0]()
                time.sleep(self._rng.uniform(0, 0.02))
        finally:
            self._ask.close()

    def _send(self, kind: str, session: str, method: str, path: str = "", **more: Any) -> Call:
        """Send a request once. ``asked`` is what the checker has to know of it."""
        asked = more.pop("asked", {})
        path = f"/v1/sessions/{session}{path}" if session else path
        request = httpx.Request(method, f"http://replica{path}", **more)
        return self._ask.once(self._op, kind, session, request, asked)

    def _insist(self, kind: str, session: str, method: str, path: str = "", **more: Any) -> Call:
        """Send a request again, the same, until its fate is known, or until patience ends."""
        tries = 2 if self._rng.random() < 0.1 else 12
        while True:
            call = self._send(kind, session, method, path, **more)
            tries -= 1
            # A refused connection is a failure for certain, and one that passes.
            settled = call.outcome == "ok" or (call.outcome == "fail" and call.status is not None)
            if settled or not tries or self._sessions.finish.is_set():
                return call
            time.sleep(self._rng.uniform(0.01, 0.3))

    # Sessions that stay.

    def _kept(self) -> str | None:
        """Return a session that is there; None when it could not be made."""
        name = self._sessions.kept_name(self._rng)
        if name not in self._made:
            body = {"ttl_seconds": None, "policy": POLICY}
            if self._insist("put", name, "PUT", json=body).outcome != "ok":
                return None
            self._made.add(name)
        return name

    def _append(self) -> None:
        if name := self._kept():
            self._append_to(name)

    def _append_to(self, name: str, *, create: bool | None = None) -> None:
        rng, events = self._rng, batch(self._rng, f"{self._ask.client}.{self._op}")
        asked: dict[str, Any] = {"events": events}
        body: dict[str, Any] = {"events": events}
        headers, params = {}, {}
        if rng.random() < 0.4:
            headers["Idempotency-Key"] = asked["key"] = f"key-{self._ask.client}.{self._op}"
        else:
            body["events"] = [{"id": f"{self._ask.client}.{self._op}.{at}", **one} for at, one in enumerate(events)]
        if rng.random() < 0.25 and name.startswith("kept"):
            asked["expected_version"] = self._version[name]
            if rng.random() < 0.5:
                body["expected_version"] = self._version[name]
            else:
                headers["If-Match"] = f'"{self._version[name]}"'
        if rng.random() < 0.2 if create is None else create:
            params["create"] = "true"
        if rng.random() < 0.2:
            asked["format"] = params["format"] = rng.choice(FORMATS)
            params["return"] = "view"
        call = self._insist("append", name, "POST", "/events", json=body, headers=headers, params=params, asked=asked)
        if call.outcome == "ok":
            self._knows(name, call.answer["version"])
        elif call.status == 412:
            self._knows(name, call.answer["current_version"])

    def _knows(self, name: str, version: int) -> None:
        if name.startswith("kept"):
            self._version[name] = max(self._version[name], version)
            self._sessions.has_grown(name, version)

    def _view(self) -> None:
        if name := self._kept():
            self._view_of(name)

    def _view_of(self, name: str) -> None:
        output = self._rng.choice(FORMATS)
        tag = self._tags.get((name, output))
        headers = {"If-None-Match": tag} if tag and self._rng.random() < 0.5 else {}
        asked = {"format": output}
        call = self._send("view", name, "GET", "/view", params={"format": output}, headers=headers, asked=asked)
        if call.outcome == "ok" and name.startswith("kept"):
            self._tags[name, output] = call.headers["etag"]
            self._knows(name, int(call.headers["etag"].strip('"').partition("-")[0]))

    def _earlier_view(self) -> None:
        name = self._kept()
        if name and self._version[name]:
            asked = {"format": self._rng.choice(FORMATS), "at_version": self._rng.randint(0, self._version[name])}
            self._send("view", name, "GET", "/view", params=asked, asked=asked)

    def _tail(self) -> None:
        if not (name := self._kept()):
            return
        while True:
            asked = {"after": self._place[name], "limit": self._rng.choice([1, 5, 20, 100])}
            call = self._send("tail", name, "GET", "/events", params=asked, asked=asked)
            if call.outcome != "ok":
                return
            if call.answer["data"]:
                self._place[name] = call.answer["data"][-1]["seq"]
            if not call.answer["has_more"] or self._sessions.finish.is_set():
                return

    def _session(self) -> None:
        if name := self._kept():
            self._send("session", name, "GET")

    def _compact(self) -> None:
        if not (name := self._kept()):
            return
        rng = self._rng
        body: dict[str, Any] = {"window": {"rule": "last_turns", "size": rng.randint(1, 6)}}
        kind = rng.choice(["window", "text", "llm"])
        if kind == "text":
            text = f"Told by {self._ask.client} for the time number {self._op}."
            body |= {"summarizer": {"type": "text", "text": text}, "expected_version": self._version[name]}
        elif kind == "llm":
            body["summarizer"] = {"type": "llm"}
        self._send("compact", name, "POST", "/compact", json=body)

    def _fleet(self) -> None:
        self._send("fleet", "", "POST", "/v1/compact", json={"limit": 20, "max_seconds": 3})

    # Sessions that are deleted and made again, and those that expire.

    def _gone_append(self) -> None:
        self._append_to(self._sessions.gone_name(self._rng), create=self._rng.random() < 0.7)

    def _gone_read(self) -> None:
        name = self._sessions.gone_name(self._rng)
        if self._rng.random() < 0.5:
            self._view_of(name)
        else:
            asked = {"after": 0, "limit": 1000}
            self._send("tail", name, "GET", "/events", params=asked, asked=asked)

    def _gone_delete(self) -> None:
        self._insist("delete", self._sessions.gone_name(self._rng), "DELETE")

    def _brief_life(self) -> None:
        name = f"brief-{self._ask.client}-{self._op}"
        made = self._insist("put", name, "PUT", json={"ttl_seconds": 1})
        if made.outcome != "ok":
            return
        end = datetime.fromisoformat(made.answer["expires_at"]).timestamp()
        # On the clock of the calls; a little later, for the two clocks are read one after the other.
        self._brief.append((name, end - time.time() + time.monotonic() + 0.05))
        self._append_to(name, create=False)
        self._brief_read()

    def _brief_read(self) -> None:
        if self._brief:
            name, expires = self._rng.choice(self._brief[-5:])
            asked = {"format": "events", "expires": expires}
            self._send("view", name, "GET", "/view", asked=asked)

    def _purge(self) -> None:
        self._send("purge", "", "POST", "/v1/purge", json={})
