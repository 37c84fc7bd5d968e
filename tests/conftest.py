"""A real PostgreSQL for the suite, and the service on it over real HTTP.

Each test process starts one server from the same wheel that `turnlog serve` uses (or takes the one that
TURNLOG_TEST_DATABASE_URL names, whose user must be allowed to create databases) and migrates one template
database, of which the rest are clones.
"""

import asyncio
import itertools
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import uvicorn

from app import bootstrap, embedded
from app.cli.serving import connections
from app.main import create_app
from app.metrics import Meter
from app.settings import Settings

# What a server may lose when the machine loses power; no test pulls that plug.
FAST = {"fsync": "off", "full_page_writes": "off"}
_numbers = itertools.count(1)

SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared(path: str) -> Path:
    """Return a file of the shared cases and data; the test is skipped where they are not beside the project."""
    found = SHARED / path
    if not found.exists():
        pytest.skip(f"shared/{path} is not here: this test needs it beside the project", allow_module_level=True)
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let a worker that has nothing left take tests from another, so that none ends minutes before the rest.

    An option of ours would do, too, but pytest refuses it where nobody asked for workers.
    """
    from xdist.scheduler import WorkStealingScheduling  # noqa: PLC0415 - a run without workers does without xdist

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server's maintenance database, as libpq and asyncpg take it."""
    given = os.environ.get("TURNLOG_TEST_DATABASE_URL")
    if given:
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="turnlog-test-"))
    try:
        with embedded.start(folder, settings=FAST) as server:
            yield server.url.replace("postgresql+asyncpg://", "postgresql://")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def with_database(url: str, name: str) -> str:
    """Return the URL of another database on the same server."""
    head, _, rest = url.partition("://")
    authority, _, tail = rest.partition("/")
    _, question, query = tail.partition("?")
    return f"{head}://{authority}/{name}{question}{query}"


def execute(url: str, *statements: str) -> None:
    """Run statements on a connection of their own."""

    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def rows(url: str, query: str, *parameters: Any) -> list[dict[str, Any]]:
    """Return what a query finds, straight from the database."""

    async def run() -> list[dict[str, Any]]:
        connection = await asyncpg.connect(url)
        try:
            return [dict(row) for row in await connection.fetch(query, *parameters)]
        finally:
            await connection.close()

    return asyncio.run(run())


@pytest.fixture(scope="session")
def template(postgres: str) -> str:
    """The name of a migrated database that nobody is connected to, to clone others from."""
    name = f"template_{os.getpid()}"
    execute(postgres, f"CREATE DATABASE {name}")

    async def migrate() -> None:
        async with bootstrap.running(Settings(), with_database(postgres, name), Meter()):
            pass

    asyncio.run(migrate())
    return name


@pytest.fixture
def database_url(postgres: str, template: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    with cloned(postgres, template) as url:
        yield url


@contextmanager
def cloned(postgres: str, template: str) -> Iterator[str]:
    """Clone the template for as long as the block lasts."""
    name = f"clone_{os.getpid()}_{next(_numbers)}"
    execute(postgres, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield with_database(postgres, name)
    finally:
        execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_database_url(postgres: str) -> Iterator[str]:
    """A database without any schema."""
    name = f"empty_{os.getpid()}_{next(_numbers)}"
    execute(postgres, f"CREATE DATABASE {name}")
    yield with_database(postgres, name)
    execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")


class Service:
    """The service in a thread of the test process, behind a real socket."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = create_app(settings)
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(self.app, log_config=None, timeout_graceful_shutdown=5, **connections(settings))
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def __enter__(self) -> "Service":
        self._thread.start()
        wait_until(lambda: self._server.started or not self._thread.is_alive())
        assert self._server.started, "the service did not start"
        # FastAPI builds its routes at the first request, and catches warnings meanwhile, which no two threads may do at
        # once: so the first request comes before any other thread.
        httpx.get(f"{self.url}/healthz", timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=20)
        self._socket.close()

    def client(self) -> httpx.Client:
        """Return a new client with connections of its own."""
        return httpx.Client(base_url=self.url, timeout=60)


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something to become true; fail when it does not."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def settings_for(url: str, **changes: Any) -> Settings:
    """Return settings for a service on a database."""
    return Settings(database_url=url, log_level="error", **changes)


@pytest.fixture(scope="session")
def service(postgres: str, template: str) -> Iterator[Service]:
    """One service for all tests that keep to sessions of their own."""
    with cloned(postgres, template) as url, Service(settings_for(url)) as running:
        yield running


@pytest.fixture
def own_service(database_url: str) -> Iterator[Service]:
    """A service on a database of the test's own."""
    with Service(settings_for(database_url)) as running:
        yield running


@pytest.fixture(scope="session")
def http(service: Service) -> Iterator[httpx.Client]:
    """A client of the service that all tests share."""
    with service.client() as client:
        yield client


@pytest.fixture
def session_id(request: pytest.FixtureRequest) -> str:
    """An id that no other test uses."""
    return f"s{os.getpid()}-{next(_numbers)}"
