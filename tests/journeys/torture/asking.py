"""One client's connection to the replicas: sends a request, judges what is known of it afterwards, records it."""

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from tests.journeys.torture.history import Call, History, Outcome

# Longer than a database that does not answer may take, so that a 503 is heard.
PATIENCE: Final = 12.0
_KEPT_HEADERS: Final = ("etag", "retry-after")


class Asking:
    """What a client and its library do for each request."""

    def __init__(self, client: int, urls: Sequence[str], history: History, rng: random.Random) -> None:
        self.client = client
        self.rng = rng
        self._history = history
        self._https = [httpx.Client(base_url=url, timeout=PATIENCE) for url in urls]

    def close(self) -> None:
        """Close the connections."""
        for http in self._https:
            http.close()

    def once(self, op: int, kind: str, session: str, request: httpx.Request, asked: Mapping[str, Any]) -> Call:
        """Send a request to any replica, sometimes without waiting for its answer, and record what became of it."""
        http = self.rng.choice(self._https)
        impatient = self.rng.random() < 0.1
        timeout = self.rng.uniform(0.001, 0.03) if impatient else PATIENCE
        request.url = http.base_url.join(request.url.raw_path.decode())
        request.headers["Host"] = request.url.netloc.decode()
        request.extensions["timeout"] = httpx.Timeout(timeout).as_dict()
        began = time.monotonic()
        response: httpx.Response | None = None
        sent = True
        try:
            response = http.send(request)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
            sent = False
        except httpx.TransportError:
            pass
        call = self._call(op, kind, session, began, response, asked=asked, sent=sent)
        self._history.add(call)
        return call

    def _call(
        self,
        op: int,
        kind: str,
        session: str,
        began: float,
        response: httpx.Response | None,
        *,
        asked: Mapping[str, Any],
        sent: bool,
    ) -> Call:
        outcome: Outcome = "unknown" if sent else "fail"
        status, answer, raw, headers = None, None, None, {}
        if response is not None:
            status = response.status_code
            outcome = "ok" if response.is_success or status == 304 else "fail"
            if status == 503:
                # It says that the database could not be asked, or that its answer was lost.
                outcome = "unknown"
            elif kind == "delete" and status == 404:
                outcome = "ok"
            headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
            is_json = "json" in response.headers.get("content-type", "")
            answer = response.json() if is_json and response.content else response.text
            raw = self._history.same(response.text) if kind == "view" and status == 200 else None
        return Call(
            client=self.client,
            op=op,
            kind=kind,
            session=session,
            began=began,
            ended=time.monotonic(),
            outcome=outcome,
            status=status,
            asked=dict(asked),
            answer=answer,
            raw=raw,
            headers=headers,
        )
