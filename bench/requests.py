"""The requests that are measured, as bytes; what does not change from one to the next is written once."""

import itertools
import json
from collections.abc import Iterator
from typing import Final

from bench import load, logs

_runs = itertools.count(1)
_MESSAGE: Final = json.dumps(logs.message())


def append(session_id: str, count: int, *, with_ids: bool = False, query: str = "") -> Iterator[bytes]:
    """Yield appends of ``count`` events of 1 KB to a session, with ids of the client's own or without."""
    path = f"/v1/sessions/{session_id}/events{query}"
    run = next(_runs)
    if not with_ids:
        body = json.dumps({"events": [{"message": logs.message()} for _ in range(count)]}).encode()
        yield from itertools.repeat(load.request("POST", path, body))
    for number in itertools.count():
        # As long as a UUID is.
        ids = (f"bench-{run:06}-{number:012}-{at:010}" for at in range(count))
        events = ",".join(f'{{"id":"{one}","message":{_MESSAGE}}}' for one in ids)
        yield load.request("POST", path, f'{{"events":[{events}]}}'.encode())


def view(session_id: str, output: str = "openai", known: str | None = None) -> Iterator[bytes]:
    """Yield reads of a session's view; ``known`` is the tag of the view that the client says it has."""
    headers = f"if-none-match: {known}\r\n" if known else ""
    yield from itertools.repeat(load.request("GET", f"/v1/sessions/{session_id}/view?format={output}", headers=headers))
