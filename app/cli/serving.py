"""`turnlog serve`: the service, with a database of its own when none is given."""

import asyncio
import ctypes
import ipaddress
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import structlog
import typer
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed
from uvicorn.supervisors import Multiprocess

from app import bootstrap, logs
from app.cli.local import database_url, override
from app.domain.errors import NotLetIn, Unavailable
from app.main import create_app
from app.metrics import SHARED_FOLDER, Meter
from app.settings import Settings
from app.storage.refusals import UnknownPooler

log = structlog.get_logger("turnlog")
_PR_SET_PDEATHSIG = 1
_DATABASE_PATIENCE = 30.0


def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind. (default: 127.0.0.1)")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind; 0 takes a free one. (default: 8080)")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the embedded PostgreSQL. (default: the user data folder)")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Server processes. (default: 1)")] = None,
    insecure: Annotated[  # noqa: FBT002 - a flag of the command line
        bool, typer.Option("--insecure", help="Serve other machines although anybody can read everything.")
    ] = False,
) -> None:
    """Run the service. Without TURNLOG_DATABASE_URL it starts a PostgreSQL of its own, which ends with it."""
    settings = override(Settings(), host=host, port=port, data_dir=data_dir, workers=workers)
    logs.configure(level=settings.log_level, output=settings.log_format)
    if not insecure and not _is_loopback(settings.host):
        raise bootstrap.BadSetting(
            f"there are no API keys, so anybody who reaches {settings.host} could read every session:"
            " bind to 127.0.0.1, or say --insecure when something in front of turnlog lets in who belongs"
        )
    # uvicorn finishes what is in flight, then raises the signal once more. It then unwinds this function, so that the
    # embedded PostgreSQL writes its checkpoint; a stop that was asked for is a success.
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, _leave)
    with ExitStack() as stack:
        listening = stack.enter_context(_listen(settings.host, settings.port))
        url = stack.enter_context(database_url(settings, exclusive=True))
        asyncio.run(_prepare(settings, url))
        stack.enter_context(_shared_metrics(settings.workers))
        _run(settings.model_copy(update={"database_url": SecretStr(url)}), listening)


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@retry(
    retry=retry_if_exception(
        lambda error: isinstance(error, Unavailable) and not isinstance(error, (NotLetIn, UnknownPooler))
    ),
    stop=stop_after_delay(_DATABASE_PATIENCE),
    wait=wait_fixed(0.5),
    before_sleep=lambda state: log.warning("database.awaited", attempt=state.attempt_number),
    reraise=True,
)
async def _prepare(settings: Settings, url: str) -> None:
    """Bring the schema to its newest revision before the first request, so that a failure is one line and no more.

    A database that starts at the same time, as in a compose file, is waited for.
    """
    async with bootstrap.running(settings, url, Meter()):
        pass


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


def _run(settings: Settings, listening: socket.socket) -> None:
    """Serve until a signal says stop, then finish the requests in flight."""
    config = uvicorn.Config(
        create_app(settings) if settings.workers == 1 else "app.cli.serving:worker_app",
        factory=settings.workers > 1,
        workers=settings.workers,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        # A worker that is still importing on a busy machine is no reason to start it again.
        timeout_worker_healthcheck=20,
        log_config=None,
        server_header=False,
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
    os.environ |= settings.variables()
    Multiprocess(config, sockets=[listening]).run()


def worker_app() -> FastAPI:
    """Build the application in a worker process, which must not outlive the process that started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return create_app()


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
