"""Which sessions are due for a compaction, who is at work on one, and what every call of a summarizer came to."""

from alembic import op

revision = "0002"
down_revision = "0001"

SESSIONS = """
ALTER TABLE sessions
    -- The trigger of the policy that stands for the session, its own or the server's, as pairs of turns and tokens: it
    -- fires when the view has at least as many of both as one of the pairs says. Null: no policy stands for it.
    ADD COLUMN marks         bigint[],
    -- Whether that policy calls a model, for those sessions are taken one by one and the others many at a time.
    ADD COLUMN summarizes    boolean NOT NULL DEFAULT false,
    -- What the view had when that policy could make it no smaller. Where only a further turn can change that, turns:
    -- until then the session is not picked again. Else events, for a turn that grows may push another one out.
    ADD COLUMN settled_turns  bigint NOT NULL DEFAULT 0,
    ADD COLUMN settled_events bigint NOT NULL DEFAULT 0,
    -- Compactions that failed in a row, and until when the session waits after the last one.
    ADD COLUMN failures      integer NOT NULL DEFAULT 0,
    ADD COLUMN retry_at      timestamptz,
    -- Until when a scheduler has the session to itself.
    ADD COLUMN claimed_until timestamptz,
    ADD CONSTRAINT ck_sessions_marks CHECK (cardinality(marks) IN (2, 4, 6, 8))
"""

# Policies that were stored before this revision: marks that every view passes, so that a scheduler looks at the session
# once for each new turn and judges by the policy itself.
# Looked into as text: a JSON operator would refuse the NUL character that instructions may hold.
POLICIES = """
UPDATE sessions SET marks = '{0,0}', summarizes = policy::text LIKE '%"llm"%' WHERE policy IS NOT NULL
"""

# Generated, so that whatever changes a view's figures keeps it right, releases that do not know it included. Its value
# changes only when a view passes the mark or is compacted, so other appends still update the row in place although an
# index depends on it. Subscripts beyond the end of an array are null, which an OR takes for false.
DUE = """
ALTER TABLE sessions
    ADD COLUMN due boolean NOT NULL GENERATED ALWAYS AS (
        view_turns > settled_turns AND view_events > settled_events
        AND coalesce(marks[1] <= view_turns AND marks[2] <= view_tokens
                  OR marks[3] <= view_turns AND marks[4] <= view_tokens
                  OR marks[5] <= view_turns AND marks[6] <= view_tokens
                  OR marks[7] <= view_turns AND marks[8] <= view_tokens, false)
    ) STORED
"""

DUE_INDEX = "CREATE INDEX ix_sessions_due ON sessions (tenant) WHERE due"

# The server's default policy, for the sessions that have none.
DEFAULT_POLICY = """
CREATE TABLE default_policy (
    only_row   boolean NOT NULL DEFAULT true,
    policy     text,
    marks      bigint[],
    summarizes boolean NOT NULL,
    CONSTRAINT pk_default_policy PRIMARY KEY (only_row),
    CONSTRAINT ck_default_policy_only_row CHECK (only_row)
)
"""

ATTEMPTS = """
CREATE TABLE compaction_attempts (
    attempt_id    bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    session_key   uuid        NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,
    -- The attempt that is running is the lease on its session: its holder moves this moment on while it lives, and when
    -- it has passed the holder is dead and the lease is free.
    alive_until   timestamptz NOT NULL,
    version       bigint      NOT NULL,
    boundary      bigint,
    status        text        NOT NULL DEFAULT 'running',
    reason        text,
    error         text,
    model         text        NOT NULL,
    prompt        text        NOT NULL,
    calls         integer     NOT NULL DEFAULT 0,
    input_tokens  bigint      NOT NULL DEFAULT 0,
    output_tokens bigint      NOT NULL DEFAULT 0,
    CONSTRAINT pk_compaction_attempts PRIMARY KEY (attempt_id),
    CONSTRAINT fk_compaction_attempts_session_key_sessions
        FOREIGN KEY (session_key) REFERENCES sessions (session_key) ON DELETE CASCADE,
    CONSTRAINT ck_compaction_attempts_status
        CHECK (status IN ('running', 'applied', 'unchanged', 'failed', 'abandoned')),
    CONSTRAINT ck_compaction_attempts_ended CHECK ((status = 'running') = (ended_at IS NULL))
)
"""

ATTEMPT_INDEXES = (
    # One at a time.
    "CREATE UNIQUE INDEX uq_compaction_attempts_running ON compaction_attempts (session_key) WHERE status = 'running'",
    "CREATE INDEX ix_compaction_attempts_session_key ON compaction_attempts (session_key, attempt_id)",
)


def upgrade() -> None:
    op.execute(SESSIONS)
    op.execute(POLICIES)
    op.execute(DUE)
    op.execute(DUE_INDEX)
    op.execute(DEFAULT_POLICY)
    op.execute(ATTEMPTS)
    for index in ATTEMPT_INDEXES:
        op.execute(index)


def downgrade() -> None:
    op.execute("DROP TABLE compaction_attempts")
    op.execute("DROP TABLE default_policy")
    op.execute("""
        ALTER TABLE sessions DROP COLUMN due, DROP COLUMN claimed_until, DROP COLUMN retry_at, DROP COLUMN failures,
                             DROP COLUMN settled_turns, DROP COLUMN settled_events, DROP COLUMN summarizes,
                             DROP COLUMN marks
    """)
