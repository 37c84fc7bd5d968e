"""The OpenAI Agents SDK's `SQLAlchemySession`."""

from collections.abc import Sequence
from typing import Any

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

from bench.peers.said import Role
from bench.peers.shim import TEXT


def _turn(number: int) -> list[dict[str, Any]]:
    name = f"call_{number}"
    return [
        {"role": "user", "content": TEXT},
        {"type": "function_call", "call_id": name, "name": "find_order", "arguments": '{"why": "' + TEXT[:900] + '"}'},
        {"type": "function_call_output", "call_id": name, "output": TEXT},
        {"role": "assistant", "content": TEXT},
    ]


class Adapter:
    """One engine for all sessions, as an application would have it; tables are made once."""

    def __init__(self, url: str) -> None:
        self._engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))

    def _session(self, session: str) -> Any:
        return SQLAlchemySession(session, engine=self._engine, create_tables=False)

    async def prepare(self) -> None:
        """Make its tables."""
        await SQLAlchemySession("first", engine=self._engine, create_tables=True).get_items()

    async def seed(self, session: str, count: int) -> None:
        """Make a session of so many messages."""
        items = [item for number in range(count // 4 + 1) for item in _turn(number)]
        await self._session(session).add_items(items[:count])

    async def append(self, session: str, text: str) -> None:
        """Append one message."""
        await self._session(session).add_items([{"role": "user", "content": text}])

    async def read(self, session: str, limit: int | None) -> list[Any]:
        """Return all items, or the newest ``limit``."""
        return list(await self._session(session).get_items(limit=limit))

    def shown(self, messages: Sequence[Any]) -> list[Any]:
        """Return messages as JSON values."""
        return list(messages)

    def said(self, messages: Sequence[Any]) -> list[Role]:
        """Return which tool calls are made and answered."""
        return [_role(item) for item in messages]


def _role(item: dict[str, Any]) -> Role:
    match item.get("type"):
        case "function_call":
            return "call", item["call_id"]
        case "function_call_output":
            return "result", item["call_id"]
        case _:
            return "other", ""
