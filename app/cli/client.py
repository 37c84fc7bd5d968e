"""The HTTP API as the command line calls it: a running service's, or one in this very process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import httpx
from pydantic import SecretStr

from app.cli.local import database_url, override
from app.main import create_app
from app.settings import Settings

# As long as a very large batch takes on a slow machine.
_SECONDS = 120.0


class CallFailed(Exception):
    """The service answered with an error, or could not be reached; the message is for the user."""


@asynccontextmanager
async def connected(url: str | None, data_dir: Path | None) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client for the service at ``url``; without one the service runs here, on the same database."""
    if url is not None:
        try:
            client = httpx.AsyncClient(base_url=url.rstrip("/"), timeout=_SECONDS)
        except httpx.InvalidURL as error:
            raise CallFailed(f"{url} is not a URL: {error}") from error
        async with client:
            yield client
        return
    settings = override(Settings(), data_dir=data_dir)
    with database_url(settings, exclusive=False) as address:
        here = settings.model_copy(update={"database_url": SecretStr(address), "log_level": "warning"})
        app = create_app(here, serves=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://turnlog") as client,
        ):
            yield client


async def call(client: httpx.AsyncClient, method: str, path: str, **options: Any) -> Any:
    """Call the API and return the answer's JSON.

    Raises:
        CallFailed: with the problem's own words.
    """
    try:
        response = await client.request(method, path, **options)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CallFailed(f"cannot reach {client.base_url}: {error or type(error).__name__}") from error
    try:
        answer = response.json()
        return answer if response.is_success else _failed(answer["detail"])
    except (ValueError, KeyError, TypeError) as error:
        raise CallFailed(
            f"{client.base_url} answers as no turnlog service does (HTTP {response.status_code})"
        ) from error


def _failed(detail: str) -> NoReturn:
    raise CallFailed(detail)
