"""Two tables: sessions with the figures of their current view, and events, the append-only logs."""

from alembic import op

revision = "0001"
down_revision = None

SESSIONS = """
CREATE TABLE sessions (
    -- A UUIDv5 of tenant and id: every statement is addressed by this one value, tenants cannot meet, and both
    -- tables can be distributed by it.
    session_key uuid        NOT NULL,
    tenant      text        NOT NULL,
    session_id  text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz,
    -- json, not jsonb: what a client sent comes back with its key order, numbers and NUL characters.
    metadata    json        NOT NULL,
    -- The part of metadata that lists are filtered by.
    labels      jsonb       NOT NULL,
    policy      json,
    -- The seq of the newest event and of the newest boundary, and what the view amounts to. Kept by the statement that
    -- appends, so that no trigger has to read an event. None of them is indexed, so appends update the row in place.
    version     bigint      NOT NULL DEFAULT 0,
    boundary    bigint,
    view_events bigint      NOT NULL DEFAULT 0,
    view_turns  bigint      NOT NULL DEFAULT 0,
    view_tokens bigint      NOT NULL DEFAULT 0,
    CONSTRAINT pk_sessions PRIMARY KEY (session_key),
    CONSTRAINT ck_sessions_figures CHECK (version >= 0 AND view_events >= 0 AND view_turns >= 0 AND view_tokens >= 0)
) WITH (fillfactor = 80)
"""

EVENTS = """
CREATE TABLE events (
    session_key uuid        NOT NULL,
    seq         bigint      NOT NULL,
    event_id    text        NOT NULL,
    type        text        NOT NULL,
    role        text,
    synthetic   boolean     NOT NULL DEFAULT false,
    starts_turn boolean     NOT NULL GENERATED ALWAYS AS (role IS NOT DISTINCT FROM 'user' AND NOT synthetic) STORED,
    token_count integer     NOT NULL DEFAULT 0,
    -- The tool calls that an assistant message makes or that a tool message answers, as a list of ids. Here so
    -- that a compaction can find its cut without reading a single body.
    call_ids    json,
    "timestamp" timestamptz,
    stored_at   timestamptz NOT NULL DEFAULT now(),
    body        json        NOT NULL,
    metadata    json        NOT NULL,
    -- A boundary's coverage, cumulative: the newest one alone says what the view leaves out.
    covered     int8multirange,
    CONSTRAINT pk_events PRIMARY KEY (session_key, seq),
    CONSTRAINT uq_events_session_key_event_id UNIQUE (session_key, event_id),
    CONSTRAINT fk_events_session_key_sessions
        FOREIGN KEY (session_key) REFERENCES sessions (session_key) ON DELETE CASCADE,
    CONSTRAINT ck_events_seq CHECK (seq > 0),
    CONSTRAINT ck_events_boundary_covers CHECK ((type = 'COMPACTION') = (covered IS NOT NULL)),
    CONSTRAINT ck_events_message_has_role CHECK ((type = 'MESSAGE') = (role IS NOT NULL))
)
"""

INDEXES = (
    # Lists of sessions are read oldest first.
    "CREATE INDEX ix_sessions_tenant_created_at ON sessions (tenant, created_at, session_key)",
    "CREATE INDEX ix_sessions_labels ON sessions USING gin (labels jsonb_path_ops)",
    "CREATE INDEX ix_sessions_expires_at ON sessions (expires_at) WHERE expires_at IS NOT NULL",
    # The boundary that an earlier view stood on, and the list of compactions, without a walk over the log.
    "CREATE INDEX ix_events_boundaries ON events (session_key, seq) WHERE type = 'COMPACTION'",
)


def upgrade() -> None:
    op.execute(SESSIONS)
    op.execute(EVENTS)
    for index in INDEXES:
        op.execute(index)


def downgrade() -> None:
    op.execute("DROP TABLE events")
    op.execute("DROP TABLE sessions")
