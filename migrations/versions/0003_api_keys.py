"""API keys: who may do what, for which tenant. Of a key itself only a hash is stored."""

from alembic import op

revision = "0003"
down_revision = "0002"

API_KEYS = """
CREATE TABLE api_keys (
    -- The first characters of the key: what people call it by. The rest is random and is nowhere in the database.
    prefix       text        NOT NULL,
    -- SHA-256 of the whole key. A key is random and long, so there is nothing that a slow hash would protect.
    key_hash     bytea       NOT NULL,
    tenant       text        NOT NULL,
    name         text,
    scopes       text[]      NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    -- Written about once a minute, and not at all while the database is busy with something else.
    last_used_at timestamptz,
    -- A revoked key stays: that there was one is why nobody gets in without.
    revoked_at   timestamptz,
    CONSTRAINT pk_api_keys PRIMARY KEY (prefix),
    CONSTRAINT ck_api_keys_hash CHECK (octet_length(key_hash) = 32),
    CONSTRAINT ck_api_keys_scopes
        CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'compact', 'admin'])
) WITH (fillfactor = 80)
"""


def upgrade() -> None:
    op.execute(API_KEYS)


def downgrade() -> None:
    op.execute("DROP TABLE api_keys")
