"""Conversations in the field cases' notation, and the service's API as tests call it."""

from collections.abc import Sequence
from typing import Any

import httpx

Message = dict[str, Any]


def system(text: str) -> Message:
    """S"…" """
    return {"role": "system", "content": text}


def developer(text: str) -> Message:
    """D"…" """
    return {"role": "developer", "content": text}


def user(text: str) -> Message:
    """U"…" """
    return {"role": "user", "content": text}


def assistant(text: str | None = None, **calls: str) -> Message:
    """A"…", or A{c1:f()}: keyword arguments are call id = function name."""
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": call, "type": "function", "function": {"name": name, "arguments": "{}"}}
            for call, name in calls.items()
        ]
    return message


def tool(call: str, text: str | None) -> Message:
    """T[c1]"…" """
    return {"role": "tool", "tool_call_id": call, "content": text}


def custom(name: str = "ACME.CLICK", **payload: Any) -> dict[str, Any]:
    """X:type{…}, as an event."""
    return {"type": name, "payload": payload}


def as_event(said: dict[str, Any]) -> dict[str, Any]:
    """Return a message or custom event in the form of an append."""
    return said if "type" in said or "message" in said else {"message": said}


def turns(count: int, first: int = 1) -> list[Message]:
    """Return short turns: user, assistant."""
    return [
        message
        for number in range(first, first + count)
        for message in (user(f"question {number}"), assistant(f"answer {number}"))
    ]


def rounds(count: int) -> list[Message]:
    """Return U, A{x_n:f()}, T[x_n], A for each round."""
    return [
        message
        for number in range(1, count + 1)
        for message in (
            user(f"question {number}"),
            assistant(None, **{f"x_{number}": "f"}),
            tool(f"x_{number}", f"result {number}"),
            assistant(f"answer {number}"),
        )
    ]


class Talk:
    """One session over HTTP. Every call checks the status it expects and returns the answer's JSON."""

    def __init__(self, http: httpx.Client, session_id: str) -> None:
        self.http = http
        self.id = session_id
        self.path = f"/v1/sessions/{session_id}"

    def post(self, path: str, body: Any, status: int | tuple[int, ...] = 200, **options: Any) -> Any:
        """POST JSON below the session's path."""
        response = self.http.post(self.path + path, json=body, **options)
        return _checked(response, status)

    def get(self, path: str, status: int = 200, **options: Any) -> Any:
        """GET JSON below the session's path."""
        return _checked(self.http.get(self.path + path, **options), status)

    def append(self, *said: dict[str, Any], status: int | tuple[int, ...] = (200, 201), **more: Any) -> Any:
        """Append messages or events; ``more`` are further fields of the body. Creates the session."""
        body = {"events": [as_event(one) for one in said], **more}
        return self.post("/events", body, status, params={"create": "true"})

    def view(self, output: str = "events", **params: Any) -> Any:
        """Return the view in a format."""
        return self.get("/view", params={"format": output, **params})

    def seqs(self, **params: Any) -> list[int]:
        """Return the seqs of the view's events, in view order."""
        return [event["seq"] for event in self.view(**params)["events"]]

    def texts(self, **params: Any) -> list[Any]:
        """Return the contents of the view's messages, in view order."""
        return [event["message"].get("content") for event in self.view(**params)["events"]]

    def log(self, **params: Any) -> list[dict[str, Any]]:
        """Return the whole log, page by page."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.get("/events", params={"limit": 1000, **params, **cursor})
            found += page["data"]
            if not page["has_more"]:
                return found
            cursor = {"cursor": page["next_cursor"]}

    def compact(self, status: int = 200, summary: str | None = None, **window: Any) -> Any:
        """Compact with a window such as ``last_turns=2``, and a summary if one is given."""
        body: dict[str, Any] = {}
        for rule in ("last_events", "last_turns", "token_budget"):
            if rule in window:
                body["window"] = {"rule": rule, "size": window.pop(rule)}
        if summary is not None:
            body["summarizer"] = {"type": "text", "text": summary}
        return self.post("/compact", {**body, **window}, status)

    def session(self) -> Any:
        """Return the session."""
        return self.get("")


def _checked(response: httpx.Response, status: int | tuple[int, ...]) -> Any:
    allowed = (status,) if isinstance(status, int) else status
    assert response.status_code in allowed, f"{response.status_code}: {response.text[:2000]}"
    return response.json() if response.content else None


def seqs_in(ranges: Sequence[Sequence[int]]) -> list[int]:
    """Return the seqs that closed ranges hold."""
    return [seq for first, last in ranges for seq in range(first, last + 1)]
