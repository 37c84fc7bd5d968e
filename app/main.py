"""The HTTP application."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from app import __version__, bootstrap, logs
from app.api import (
    access,
    chat_memory,
    compactions,
    documentation,
    errors,
    events,
    explorer,
    fleet,
    operations,
    sessions,
    views,
)
from app.api.direct import Shortcut, known_parameters_only
from app.api.door import Door
from app.api.guard import Guard, Keyless
from app.api.intake import Intake
from app.api.rates import Rates
from app.metrics import Meter
from app.settings import Settings


class _Turnlog(FastAPI):
    """The application, whose own layers stand around the framework's.

    The framework puts added middleware inside of three layers that it always has. They do for every request what the
    door does anyway, and take as long as it does.
    """

    layers: Sequence[Callable[[ASGIApp], ASGIApp]] = ()

    def build_middleware_stack(self) -> ASGIApp:
        """Return what serves a request, as Starlette asks for once."""
        stack = super().build_middleware_stack()
        for layer in self.layers:
            stack = layer(stack)
        return stack


def create_app(settings: Settings | None = None, *, serves: bool = True, keyless: Keyless = "local") -> FastAPI:
    """Build the application; without settings it reads them from the environment, as a server process does.

    ``serves`` is False for a command that calls it in its own process, and ends with it. ``keyless`` says who is served
    before there is a key.
    The database is opened, migrated and closed by the application's lifespan, so building it costs nothing.
    """
    settings = settings or Settings()
    meter = Meter()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        logs.configure(level=settings.log_level, output=settings.log_format)
        if settings.database_url is None:
            raise bootstrap.BadSetting("TURNLOG_DATABASE_URL is not set; `turnlog serve` brings its own PostgreSQL")
        url = settings.database_url.get_secret_value()
        async with bootstrap.running(settings, url, meter, serves=serves) as context:
            app.state.context = context
            yield

    app = _Turnlog(
        title="turnlog",
        version=__version__,
        summary="Session memory for LLM agents.",
        description="Append events to a session's log, read the compacted view before each model call.",
        lifespan=lifespan,
        # A generated client calls its methods by these: each is the name of the function, and does not change.
        generate_unique_id_function=lambda route: route.name,
        dependencies=[Depends(access.allowed), Depends(known_parameters_only)],
        # A path is what it says: no answer sends a client on to another one.
        redirect_slashes=False,
        # They are routes like the others, so that a misspelt parameter is an error there too.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # What an exception says can quote a conversation, and would go wherever the environment tells OpenTelemetry to.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.meter = meter
    _include_routes(app)
    errors.install(app)
    documentation.install(app)

    app.layers = _layers(settings, meter, keyless)
    return app


def _layers(settings: Settings, meter: Meter, keyless: Keyless) -> Sequence[Callable[[ASGIApp], ASGIApp]]:
    """Return our own layers, from the innermost to the outermost."""
    intake = Intake(
        body_bytes=settings.max.body_bytes,
        open_requests=settings.max.open_requests,
        open_bytes=settings.max.open_bytes,
        seconds=settings.request_seconds,
    )
    return [
        partial(Shortcut, routes=[*events.direct.routes, *views.direct.routes]),
        partial(Guard, keyless=keyless, show=settings.show.model_dump(), rates=_rates(settings)),
        partial(Door, intake=intake, new_id=bootstrap.new_id, answered=meter.answered),
    ]


def _include_routes(app: FastAPI) -> None:
    # These first: they are asked for most, and routes are tried in order.
    nouns = (sessions, events, compactions, fleet, chat_memory, operations, explorer)
    for router in (events.direct, views.direct, *(noun.router for noun in nouns)):
        access.check(router.routes)
        app.include_router(router)


def _rates(settings: Settings) -> Rates | None:
    limit = settings.rate.limit
    return None if limit is None else Rates(limit=limit, burst=settings.rate.burst)
