"""Google ADK's `DatabaseSessionService`."""

from collections.abc import Sequence
from typing import Any

from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from sqlalchemy import text as sql
from sqlalchemy.ext.asyncio import create_async_engine

from bench.peers.said import Role
from bench.peers.shim import TEXT

_WHO = {"app_name": "bench", "user_id": "bench"}


def _event(author: str, part: types.Part) -> Event:
    role = "user" if author == "user" else "model"
    return Event(author=author, invocation_id="i", content=types.Content(role=role, parts=[part]))


def _turn() -> list[Event]:
    call = types.FunctionCall(id="call_1", name="find_order", args={"why": TEXT[:900]})
    result = types.FunctionResponse(id="call_1", name="find_order", response={"result": TEXT})
    return [
        _event("user", types.Part(text=TEXT)),
        _event("agent", types.Part(function_call=call)),
        _event("agent", types.Part(function_response=result)),
        _event("agent", types.Part(text=TEXT)),
    ]


class Adapter:
    """One service on one engine. A session is read without its events before the first append, as a runner would."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("postgresql://", "postgresql+asyncpg://")
        self._service = DatabaseSessionService(db_url=self._url)
        self._held: dict[str, Any] = {}

    async def prepare(self) -> None:
        """Make its tables."""
        await self._service.prepare_tables()

    async def seed(self, session: str, count: int) -> None:
        """Append one turn, and have PostgreSQL repeat it: its own way takes ten milliseconds for each event."""
        made = await self._service.create_session(**_WHO, session_id=session)
        for event in _turn()[:count]:
            await self._service.append_event(made, event)
        engine = create_async_engine(self._url)
        async with engine.begin() as connection:
            await connection.execute(sql(_REPEAT), {"session": session, "count": count})
        await engine.dispose()

    async def append(self, session: str, text: str) -> None:
        """Append one message to a session that is held, as it is during an invocation."""
        if session not in self._held:
            only_itself = GetSessionConfig(num_recent_events=0)
            self._held[session] = await self._service.get_session(**_WHO, session_id=session, config=only_itself)
        await self._service.append_event(self._held[session], _event("user", types.Part(text=text)))

    async def read(self, session: str, limit: int | None) -> list[Any]:
        """Return all events, or the newest ``limit``."""
        config = GetSessionConfig(num_recent_events=limit) if limit else None
        found = await self._service.get_session(**_WHO, session_id=session, config=config)
        return list(found.events) if found else []

    def shown(self, messages: Sequence[Any]) -> list[Any]:
        """Return messages as JSON values."""
        return [event.content.model_dump(mode="json", exclude_none=True) for event in messages]

    def said(self, messages: Sequence[Any]) -> list[Role]:
        """Return which tool calls are made and answered."""
        found: list[Role] = []
        for event in messages:
            found += [("call", str(call.id)) for call in event.get_function_calls()]
            found += [("result", str(one.id)) for one in event.get_function_responses()]
        return found


_REPEAT = """
    INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data)
    SELECT gen_random_uuid()::text, app_name, user_id, session_id, invocation_id,
           first + number * interval '1 millisecond' - interval '1 hour', event_data
      FROM (SELECT e.*, row_number() OVER (ORDER BY timestamp, id) - 1 AS place, min(timestamp) OVER () AS first
              FROM events e WHERE session_id = :session) AS turn
      JOIN generate_series(0, :count - 1 - least(:count, 4)) AS number ON number % 4 = place
"""
