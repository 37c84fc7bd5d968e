"""The only place where the engine, the tokenizer and the meter are made."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec
import uuid_utils

from app.domain.policy import Policy
from app.metrics import Meter
from app.service import policies
from app.service.context import Context, Limits
from app.settings import Settings
from app.storage import schema
from app.storage.database import Database
from app.tokens import TokenCounter


class BadSetting(Exception):
    """A setting cannot be used; the message names it."""


def new_id() -> str:
    """Return a UUIDv7: unique, and growing with time, which suits an index."""
    return str(uuid_utils.uuid7())


@asynccontextmanager
async def running(settings: Settings, url: str, meter: Meter) -> AsyncIterator[Context]:
    """Build the service's context on a database that is then at the newest schema; close everything at the end.

    Raises:
        BadSetting, Unavailable, SchemaTooNew.
    """
    database = Database(libpq_url(url), pool_size=settings.database_pool_size)
    try:
        await schema.migrate(database)
        yield Context(
            database=database,
            tokens=TokenCounter(settings.encoding),
            limits=limits(settings),
            default_ttl_seconds=settings.default_ttl_seconds,
            default_policy=_policy(settings),
            new_id=new_id,
            meter=meter,
        )
    finally:
        await database.close()


def limits(settings: Settings) -> Limits:
    """Return the limits that the settings name."""
    return Limits(
        body_bytes=settings.max_body_bytes,
        event_bytes=settings.max_event_bytes,
        batch_events=settings.max_batch_events,
        json_depth=settings.max_json_depth,
        metadata_bytes=settings.max_metadata_bytes,
    )


def libpq_url(url: str) -> str:
    """Return a PostgreSQL URL in libpq's form; one with SQLAlchemy's name for the driver will do too.

    Raises:
        BadSetting: it is none.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in {"postgres", "postgresql", "postgresql+asyncpg"}:
        raise BadSetting("TURNLOG_DATABASE_URL is not a PostgreSQL URL: it begins with postgresql://")
    try:
        urlsplit(url).port  # noqa: B018 - a port that is no number is found by asking for it
    except ValueError as error:
        # Without the error's own words, which quote the URL and the password in it.
        raise BadSetting("TURNLOG_DATABASE_URL is not a URL: see its host and port") from error
    return f"postgresql://{rest}"


def _policy(settings: Settings) -> Policy | None:
    if settings.default_policy is None:
        return None
    try:
        return policies.parse(settings.default_policy)
    except msgspec.ValidationError as error:
        raise BadSetting(f"TURNLOG_DEFAULT_POLICY is not a policy: {error}") from error
