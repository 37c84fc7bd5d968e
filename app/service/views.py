"""The view: read it, and put it into a provider's shape."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from app.domain import view as rules
from app.domain.errors import InvalidRequest, SessionExpired, SessionNotFound
from app.domain.event import StoredEvent
from app.domain.view import NOTHING_KNOWN, Known, View
from app.formats import anyone, reading
from app.formats.rendered import Rendered
from app.service.context import Context, offloaded
from app.service.view_cache import Entry
from app.storage import sessions as session_store
from app.storage import views as store

ProviderFormat: TypeAlias = reading.Format
Format: TypeAlias = Literal["events", "openai", "openai-responses", "anthropic", "gemini", "text"]
PROVIDER_FORMATS: tuple[ProviderFormat, ...] = reading.FORMATS
FORMATS: tuple[Format, ...] = ("events", "openai", "openai-responses", "anthropic", "gemini", "text")

# Rendering takes about 30 ms for a view of this many characters, which is as long as other requests should wait.
LONG_VIEW: Final = 1_000_000
# An event costs as much to render as this many characters, however little it says.
_EVENT_WEIGHT: Final = 1000
# The same for a piece of one, such as a part of its content.
_PIECE_WEIGHT: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which view: as it was at a version (None: now), its newest part only, and which versions the caller has."""

    at_version: int | None = None
    last_n: int | None = None
    known: Known = NOTHING_KNOWN


async def read(ctx: Context, tenant: str, session_id: str, asked: Asked) -> View[StoredEvent]:
    """Return a view in one round trip.

    Raises:
        SessionNotFound, SessionExpired, InvalidRequest (a version that the log has not reached).
    """
    found, _ = await _found(ctx, tenant, session_id, asked)
    return _shown(found, asked)


async def written(
    ctx: Context,
    tenant: str,
    session_id: str,
    asked: Asked,
    output: Format,
    write: Callable[[View[StoredEvent]], Awaitable[bytes]],
) -> tuple[int, bytes | None]:
    """Return the version asked for with its view as ``write`` writes it in a format, or as it did before.

    Without the view, and without touching events, when the caller has it.

    Raises:
        SessionNotFound, SessionExpired, InvalidRequest (a version that the log has not reached).
    """
    found, entry = await _found(ctx, tenant, session_id, asked)
    if found.view is None:
        return found.read, None
    if entry is None or asked.last_n is not None:
        return found.read, await write(_shown(found, asked))
    answer = entry.answers.get(output)
    if answer is None:
        answer = await write(found.view)
        ctx.view_cache.keep(entry, output, answer)
    return found.read, answer


async def _found(
    ctx: Context, tenant: str, session_id: str, asked: Asked
) -> tuple[store.Found[StoredEvent], Entry | None]:
    """Read a view, and return it with its entry in the cache, if it has one."""
    key = session_store.key_of(tenant, session_id)
    sent = ctx.view_cache.of(key) if asked.at_version is None else None
    async with ctx.database.reading() as reader:
        found = await store.whole(
            reader, key, at_version=asked.at_version, known=asked.known, held=sent.held if sent else None
        )
    if found is None or found.expired:
        ctx.view_cache.forget(key)
        raise SessionExpired if found else SessionNotFound
    if asked.at_version is not None:
        if asked.at_version > found.version:
            raise InvalidRequest.at("at_version", f"the log is at version {found.version}")
        return found, None
    return found, ctx.view_cache.take(key, found, sent)


def _shown(found: store.Found[StoredEvent], asked: Asked) -> View[StoredEvent]:
    assert found.view is not None  # noqa: S101 - only a version that the caller knows is left out
    if asked.last_n is None:
        return found.view
    return replace(found.view, events=rules.last(found.view.events, asked.last_n))


async def rendered(view: View[StoredEvent], output: ProviderFormat | Literal["text"]) -> Rendered:
    """Render a view for a provider, off the event loop when it is long. The same view gives the same bytes."""
    return await offloaded(_is_long(view), anyone.render, view, output)


def _is_long(view: View[StoredEvent]) -> bool:
    size = sum(len(event.body) + _EVENT_WEIGHT for event in view.events)
    # Only what is not long anyway is looked at more closely.
    return size > LONG_VIEW or (
        size + _PIECE_WEIGHT * sum(event.body.count("{") + event.body.count("[") for event in view.events) > LONG_VIEW
    )
