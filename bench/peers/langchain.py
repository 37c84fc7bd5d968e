"""langchain-postgres's `PostgresChatMessageHistory`. It can be asked for all messages only."""

import uuid
from collections.abc import Sequence
from typing import Any

import psycopg
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, messages_to_dict
from langchain_postgres import PostgresChatMessageHistory

from bench.peers.said import Role
from bench.peers.shim import TEXT

_TABLE = "chat_history"


def _turn(number: int) -> list[BaseMessage]:
    name = f"call_{number}"
    return [
        HumanMessage(TEXT),
        AIMessage("", tool_calls=[{"id": name, "name": "find_order", "args": {"why": TEXT[:900]}}]),
        ToolMessage(TEXT, tool_call_id=name),
        AIMessage(TEXT),
    ]


class Adapter:
    """One connection for one caller."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _history(self, session: str) -> Any:
        # Its sessions have UUIDs for names.
        name = str(uuid.uuid5(uuid.NAMESPACE_OID, session))
        return PostgresChatMessageHistory(_TABLE, name, async_connection=self._connection)

    async def prepare(self) -> None:
        """Make its table."""
        self._connection = await psycopg.AsyncConnection.connect(self._url)
        await PostgresChatMessageHistory.acreate_tables(self._connection, _TABLE)

    async def seed(self, session: str, count: int) -> None:
        """Make a session of so many messages."""
        messages = [message for number in range(count // 4 + 1) for message in _turn(number)]
        await self._history(session).aadd_messages(messages[:count])

    async def append(self, session: str, text: str) -> None:
        """Append one message."""
        await self._history(session).aadd_messages([HumanMessage(text)])

    async def read(self, session: str, limit: int | None) -> list[Any]:
        """Return all messages."""
        return list(await self._history(session).aget_messages())

    def shown(self, messages: Sequence[Any]) -> list[Any]:
        """Return messages as JSON values."""
        return list(messages_to_dict(messages))

    def said(self, messages: Sequence[Any]) -> list[Role]:
        """Return which tool calls are made and answered."""
        found: list[Role] = []
        for message in messages:
            found += [("call", str(call["id"])) for call in getattr(message, "tool_calls", ())]
            if isinstance(message, ToolMessage):
                found.append(("result", message.tool_call_id))
        return found
