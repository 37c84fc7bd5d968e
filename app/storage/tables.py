"""The tables of sessions and events, for queries that are put together from filters. The migrations make them."""

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Integer, MetaData, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY, INT8MULTIRANGE, JSON, JSONB

_metadata: Final = MetaData()

sessions: Final = Table(
    "sessions",
    _metadata,
    Column("session_key", Uuid, primary_key=True),
    Column("tenant", Text),
    Column("session_id", Text),
    Column("created_at", DateTime(timezone=True)),
    Column("expires_at", DateTime(timezone=True)),
    Column("metadata", JSON),
    Column("labels", JSONB),
    Column("policy", JSON),
    Column("version", BigInteger),
    Column("boundary", BigInteger),
    Column("view_events", BigInteger),
    Column("view_turns", BigInteger),
    Column("view_tokens", BigInteger),
    Column("marks", ARRAY(BigInteger)),
    Column("summarizes", Boolean),
    Column("settled_turns", BigInteger),
    Column("settled_events", BigInteger),
    Column("failures", Integer),
    Column("retry_at", DateTime(timezone=True)),
    Column("claimed_until", DateTime(timezone=True)),
    Column("due", Boolean),
)

events: Final = Table(
    "events",
    _metadata,
    Column("session_key", Uuid, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("event_id", Text),
    Column("type", Text),
    Column("role", Text),
    Column("synthetic", Boolean),
    Column("starts_turn", Boolean),
    Column("token_count", Integer),
    Column("call_ids", JSON),
    Column("timestamp", DateTime(timezone=True)),
    Column("stored_at", DateTime(timezone=True)),
    Column("body", JSON),
    Column("metadata", JSON),
    Column("covered", INT8MULTIRANGE),
)
