"""`turnlog serve`: the service, with a database of its own when none is given."""

import asyncio
import ctypes
import ipaddress
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import structlog
import typer
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr
from tenacity import AsyncRetrying, retry, retry_if_exception, stop_after_delay, wait_fixed
from uvicorn.supervisors import Multiprocess

from app import bootstrap, logs
from app.api.guard import Keyless
from app.cli.connection import Connection
from app.cli.local import database_url, override
from app.domain.errors import NotLetIn, Unavailable
from app.main import create_app
from app.metrics import SHARED_FOLDER, Meter
from app.service import keys
from app.settings import Settings
from app.storage.refusals import UnknownPooler

log = structlog.get_logger("turnlog")
_PR_SET_PDEATHSIG = 1
_DATABASE_PATIENCE = 30.0
# How workers are told of --insecure. It is always set for them, so what it was before means nothing.
_KEYLESS = "TURNLOG_WORKERS_KEYLESS"
# A worker that waits for the database does not hear that it should stop.
_WORKER_PATIENCE = 10.0


def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind. (default: 127.0.0.1)")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind; 0 takes a free one. (default: 8080)")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the embedded PostgreSQL. (default: the user data folder)")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Server processes. (default: 1)")] = None,
    insecure: Annotated[  # noqa: FBT002 - a flag of the command line
        bool, typer.Option("--insecure", help="Until there is an API key, serve everybody and not this machine alone.")
    ] = False,
) -> None:
    """Run the service. Without TURNLOG_DATABASE_URL it starts a PostgreSQL of its own, which ends with it."""
    settings = override(Settings(), host=host, port=port, data_dir=data_dir, workers=workers)
    logs.configure(level=settings.log_level, output=settings.log_format)
    # uvicorn finishes what is in flight, then raises the signal once more. It then unwinds this function, so that the
    # embedded PostgreSQL writes its checkpoint; a stop that was asked for is a success.
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, _leave)
    with ExitStack() as stack:
        listening = stack.enter_context(_listen(settings.host, settings.port))
        url = stack.enter_context(database_url(settings, exclusive=True))
        if not asyncio.run(_prepare(settings, url)):
            _warn(settings.host, insecure=insecure)
        stack.enter_context(_shared_metrics(settings.workers))
        keyless: Keyless = "everybody" if insecure else "local"
        _run(settings.model_copy(update={"database_url": SecretStr(url)}), listening, keyless)


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _passes(error: BaseException) -> bool:
    return isinstance(error, Unavailable) and not isinstance(error, (NotLetIn, UnknownPooler))


@retry(
    retry=retry_if_exception(_passes),
    stop=stop_after_delay(_DATABASE_PATIENCE),
    wait=wait_fixed(0.5),
    before_sleep=lambda state: log.warning("database.awaited", attempt=state.attempt_number),
    reraise=True,
)
async def _prepare(settings: Settings, url: str) -> bool:
    """Bring the schema to its newest revision before the first request, so that a failure is one line and no more.

    A database that starts at the same time, as in a compose file, is waited for. Returns whether there are API keys.
    """
    async with bootstrap.running(settings, url, Meter()) as context:
        return await keys.exist(context.database)


def _warn(host: str, *, insecure: bool) -> None:
    """Say who is served while there is no key, where that may be a surprise."""
    if insecure:
        log.warning("service.insecure", told="until there is an API key, whoever reaches the port reads every session")
    elif not _is_loopback(host):
        told = "until there is an API key, this machine alone is served: make one with `turnlog keys create`"
        log.warning("service.local_only", host=host, told=told)


def _listen(host: str, port: int) -> socket.socket:
    """Take the address before anything is started for it.

    Raises:
        BadSetting: it cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise bootstrap.BadSetting(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listening


def _run(settings: Settings, listening: socket.socket, keyless: Keyless) -> None:
    """Serve until a signal says stop, then finish the requests in flight."""
    config = uvicorn.Config(
        _patient(create_app(settings, keyless=keyless), _DATABASE_PATIENCE)
        if settings.workers == 1
        else "app.cli.serving:worker_app",
        factory=settings.workers > 1,
        workers=settings.workers,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        # A worker that is still importing on a busy machine is no reason to start it again.
        timeout_worker_healthcheck=20,
        log_config=None,
        server_header=False,
        # Who a client is, is not what a header says of him.
        proxy_headers=False,
        **connections(settings),
    )
    host, port = listening.getsockname()[:2]
    log.info("service.listening", url=f"http://{f'[{host}]' if ':' in host else host}:{port}", workers=settings.workers)
    if settings.workers == 1:
        server = uvicorn.Server(config)
        server.run(sockets=[listening])
        if not server.started:
            sys.exit(1)
        return
    # Workers are new interpreters: the environment is how they get their settings.
    os.environ |= {**settings.variables(), _KEYLESS: keyless}
    Multiprocess(config, sockets=[listening]).run()


def connections(settings: Settings) -> dict[str, Any]:
    """Return how uvicorn serves each connection."""
    return {"http": partial(Connection, seconds=settings.request_seconds), "ws": "none"}


def worker_app() -> FastAPI:
    """Build the application in a worker process, which must not outlive the process that started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    app = create_app(keyless="everybody" if os.environ.get(_KEYLESS) == "everybody" else "local")
    return _patient(app, _WORKER_PATIENCE, is_worker=True)


def _patient(app: FastAPI, seconds: float, *, is_worker: bool = False) -> FastAPI:
    """Have an application wait for a database that is away when it starts, as the service did before.

    uvicorn takes a worker that cannot start for one that never will, and ends the whole service. A worker that took the
    place of another one while the database was away must not do that: it ends in a way that uvicorn replaces it for.
    """
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def waiting(app: FastAPI) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            try:
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception(_passes),
                    stop=stop_after_delay(seconds),
                    wait=wait_fixed(0.5),
                    reraise=True,
                ):
                    with attempt:
                        state = await stack.enter_async_context(lifespan(app))
            except Unavailable as error:
                if not (is_worker and _passes(error)):
                    raise
                log.warning("worker.waits_in_vain")
                os._exit(1)
            yield state

    app.router.lifespan_context = waiting
    return app


@contextmanager
def _shared_metrics(workers: int) -> Iterator[None]:
    """Give several workers a folder in which they add up their metrics."""
    if workers == 1:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="turnlog-metrics-") as folder:
        os.environ[SHARED_FOLDER] = folder
        yield


def described() -> dict[str, Any]:
    """Return the OpenAPI document, which depends on no setting and needs no database."""
    return create_app(Settings()).openapi()
