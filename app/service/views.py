"""The view: read it, and put it into a provider's shape."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from app.domain import view as rules
from app.domain.errors import InvalidRequest, SessionExpired, SessionNotFound
from app.domain.event import StoredEvent
from app.domain.view import View
from app.formats import anyone, reading
from app.formats.rendered import Rendered
from app.service.context import Context, offloaded
from app.storage import sessions as session_store
from app.storage import views as store

ProviderFormat: TypeAlias = reading.Format
Format: TypeAlias = Literal["events", "openai", "openai-responses", "anthropic", "gemini", "text"]
PROVIDER_FORMATS: tuple[ProviderFormat, ...] = reading.FORMATS
FORMATS: tuple[Format, ...] = ("events", "openai", "openai-responses", "anthropic", "gemini", "text")

# Rendering takes about 30 ms for a view of this many characters, which is as long as other requests should wait.
LONG_VIEW: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which view: as it was at a version (None: now), its newest part only, and a version that the caller has."""

    at_version: int | None = None
    last_n: int | None = None
    known_version: int | None = None


async def read(ctx: Context, tenant: str, session_id: str, asked: Asked) -> View[StoredEvent] | None:
    """Return a view in one round trip; None when the caller has this very version.

    Raises:
        SessionNotFound, SessionExpired, InvalidRequest (a version that the log has not reached).
    """
    async with ctx.database.reading() as reader:
        found = await store.whole(
            reader,
            session_store.key_of(tenant, session_id),
            at_version=asked.at_version,
            known_version=asked.known_version,
        )
    if found is None:
        raise SessionNotFound
    if found.expired:
        raise SessionExpired
    if asked.at_version is not None and asked.at_version > found.version:
        raise InvalidRequest.at("at_version", f"the log is at version {found.version}")
    if found.view is None or asked.last_n is None:
        return found.view
    return View(
        version=found.view.version,
        boundary=found.view.boundary,
        covered=found.view.covered,
        events=rules.last(found.view.events, asked.last_n),
    )


async def rendered(view: View[StoredEvent], output: ProviderFormat | Literal["text"]) -> Rendered:
    """Render a view for a provider, off the event loop when it is long. The same view gives the same bytes."""
    heavy = sum(len(event.body) for event in view.events) > LONG_VIEW
    return await offloaded(heavy, anyone.render, view, output)
