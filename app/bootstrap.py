"""The only place where the engine, the tokenizer, the model's client and the meter are made."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec
import structlog
import uuid_utils

from app.domain.errors import InvalidRequest
from app.domain.policy import LlmSummarizer, Policy, standing
from app.metrics import Meter
from app.service import keys, policies
from app.service.appends import Appends
from app.service.context import Context, Limits, Summarizing
from app.service.health import Readiness
from app.service.keyring import Keyring
from app.service.view_cache import ViewCache
from app.settings import Settings
from app.storage import assurances, fleet, schema
from app.storage.database import Database
from app.summarizer.llm import Llm
from app.tokens import TokenCounter

_BASE_URLS: Final = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
_CONNECT_SECONDS: Final = 10.0
_FOLLOW_AT_ONCE: Final = 1000
# How long a stop waits for summaries that outlived their requests; requests have had their time before.
_FINISH_SECONDS: Final = 5.0


log = structlog.get_logger("turnlog")


class BadSetting(Exception):
    """A setting cannot be used; the message names it."""


def new_id() -> str:
    """Return a UUIDv7: unique, and growing with time, which suits an index."""
    return str(uuid_utils.uuid7())


@asynccontextmanager
async def running(settings: Settings, url: str, meter: Meter, *, serves: bool = False) -> AsyncIterator[Context]:
    """Build the service's context on a database that is then at the newest schema; close everything at the end.

    Only a service says that there is no default policy: a command may just not have been told of it.

    Raises:
        BadSetting, Unavailable (UnknownPooler among them), SchemaTooNew.
    """
    unfinished: set[asyncio.Task[Any]] = set()
    default_policy = _policy(settings)
    async with AsyncExitStack() as closing:
        database = Database(libpq_url(url), pool_size=settings.database_pool_size, pooled=settings.database_pooled)
        closing.push_async_callback(database.close)
        revision = await schema.bring_up(database)
        missing = await assurances.missing(database)
        if serves:
            _warn(revision, missing)
        if settings.bootstrap_key is not None:
            await _let_in(database, settings.bootstrap_key.get_secret_value())
        if serves or default_policy is not None:
            await _stand(database, default_policy, settings.default_policy)
        summarizing = await _summarizing(settings, closing)
        closing.push_async_callback(_finish, unfinished)
        yield Context(
            database=database,
            readiness=Readiness(database),
            keys=Keyring(database, unfinished),
            appends=Appends(database, unfinished),
            view_cache=ViewCache(settings.view_cache_bytes),
            tokens=TokenCounter(settings.encoding),
            limits=limits(settings),
            default_ttl_seconds=settings.default_ttl_seconds,
            default_policy=default_policy,
            summarizing=summarizing,
            slots=asyncio.Semaphore(settings.compact_concurrency),
            unfinished=unfinished,
            new_id=new_id,
            meter=meter,
        )


async def _let_in(database: Database, key: str) -> None:
    """Store the first key. What is wrong with it is said without a character of it."""
    try:
        await keys.bootstrap(database, key)
    except InvalidRequest as error:
        raise BadSetting(f"TURNLOG_BOOTSTRAP_KEY cannot be used: {error.problems[0].detail}") from None
    except keys.PrefixTaken:
        raise BadSetting(
            "TURNLOG_BOOTSTRAP_KEY cannot be used: another key that begins with the same 11 characters is stored"
        ) from None


def _warn(revision: str, missing: Mapping[str, str]) -> None:
    """Say what may surprise whoever runs the service."""
    if revision != schema.head():
        log.warning("schema.newer", revision=revision, known=schema.head())
    for setting, value in missing.items():
        log.warning("database.not_as_expected", setting=setting, value=value, see="docs/reliability.md")


async def _stand(database: Database, policy: Policy | None, text: str | None) -> None:
    """Let the server's default policy stand for the sessions that have none."""
    async with database.one_statement() as tx:
        await fleet.set_default(tx, standing(policy), text)
    while True:
        async with database.one_statement() as tx:
            if await fleet.follow(tx, _FOLLOW_AT_ONCE) < _FOLLOW_AT_ONCE:
                return


async def _finish(unfinished: set[asyncio.Task[Any]]) -> None:
    """Let compactions end that outlived the request which began them, for a while, and stop the rest."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_FINISH_SECONDS):
            # What ends may have begun something else.
            while unfinished:
                await asyncio.wait(set(unfinished))
    while late := set(unfinished):
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


async def _summarizing(settings: Settings, closing: AsyncExitStack) -> Summarizing | None:
    """Return the configured model with a client of its own, None without one."""
    wanted = settings.summarizer
    if wanted.provider is None or wanted.model is None:
        return None
    # The whole call is timed elsewhere; a server that cannot even be reached is given up earlier. Nothing is followed
    # to another place, for the request holds a key and a conversation.
    client = httpx.AsyncClient(follow_redirects=False, timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS))
    await closing.enter_async_context(client)
    return Summarizing(
        model=Llm(
            client,
            provider=wanted.provider,
            base_url=wanted.base_url or _BASE_URLS[wanted.provider],
            model=wanted.model,
            api_key=wanted.api_key.get_secret_value() if wanted.api_key else None,
        ),
        max_input_tokens=wanted.max_input_tokens,
        max_tokens=wanted.max_tokens,
        seconds=wanted.timeout,
    )


def limits(settings: Settings) -> Limits:
    """Return the limits that the settings name."""
    return Limits(
        body_bytes=settings.max.body_bytes,
        event_bytes=settings.max.event_bytes,
        batch_events=settings.max.batch_events,
        json_depth=settings.max.json_depth,
        metadata_bytes=settings.max.metadata_bytes,
        page=settings.max.page,
        open_requests=settings.max.open_requests,
        open_bytes=settings.max.open_bytes,
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
        policy = policies.parse(settings.default_policy)
        policies.check_standing(policy)
    except msgspec.ValidationError as error:
        raise BadSetting(f"TURNLOG_DEFAULT_POLICY is not a policy: {error}") from error
    except InvalidRequest as error:
        raise BadSetting(f"TURNLOG_DEFAULT_POLICY cannot stand: {error}") from error
    if isinstance(policy.summarizer, LlmSummarizer) and settings.summarizer.provider is None:
        raise BadSetting("TURNLOG_DEFAULT_POLICY asks for summaries, but TURNLOG_SUMMARIZER_PROVIDER is not set")
    return policy
