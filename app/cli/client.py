"""The HTTP API as the command line calls it: a running service's, or one in this very process."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import httpx
import typer
from pydantic import SecretStr

from app.api.access import TENANT_HEADER
from app.cli.local import database_url, override
from app.domain.key import KEY_RULE, is_key
from app.main import create_app
from app.settings import Settings

# As long as a very large batch takes on a slow machine.
_SECONDS = 120.0
KEY_VARIABLE: Final = "TURNLOG_API_KEY"


class CallFailed(Exception):
    """The service answered with an error, or could not be reached; the message is for the user."""


Url = Annotated[str | None, typer.Option(help="Service to work through; without it straight on the database.")]
DataDir = Annotated[Path | None, typer.Option(help="Data folder of the embedded PostgreSQL.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(help=f"With --url: file with the API key in it; else {KEY_VARIABLE} has it."),
]
Tenant = Annotated[str | None, typer.Option(help="Whose sessions; with --url another tenant's need an admin's key.")]
Tenants = Annotated[
    str | None,
    typer.Option("--tenant", help="Whose sessions, * for everybody's; with --url these need an admin's key."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a command works on: the service at ``url``, or the database; as which tenant."""

    url: str | None = None
    data_dir: Path | None = None
    key_file: Path | None = None
    tenant: str | None = None

    def headers(self) -> dict[str, str]:
        """Return what every request says of who asks.

        Raises:
            CallFailed: the key cannot be read, or is none.
        """
        said = {} if self.tenant is None else {TENANT_HEADER: self.tenant}
        key = self._key() if self.url is not None else None
        return said if key is None else {**said, "Authorization": f"Bearer {key}"}

    def _key(self) -> str | None:
        if self.key_file is None:
            key, place = os.environ.get(KEY_VARIABLE, "").strip() or None, KEY_VARIABLE
        else:
            place = str(self.key_file)
            try:
                key = self.key_file.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise CallFailed(f"cannot read {self.key_file}: {getattr(error, 'strerror', 'no text')}") from error
        if key is not None and not is_key(key):
            raise CallFailed(f"{place} holds no API key: {KEY_RULE}")
        return key


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client for the service of a target; without one the service runs here, on the same database."""
    headers = target.headers()
    if target.url is not None:
        try:
            client = httpx.AsyncClient(base_url=target.url.rstrip("/"), timeout=_SECONDS, headers=headers)
        except httpx.InvalidURL as error:
            raise CallFailed(f"{target.url} is not a URL: {error}") from error
        async with client:
            yield client
        return
    settings = override(Settings(), data_dir=target.data_dir)
    with database_url(settings, exclusive=False) as address:
        here = settings.model_copy(update={"database_url": SecretStr(address), "log_level": "warning"})
        # Whoever can open the database needs no key to it.
        app = create_app(here, serves=False, keyless="always")
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://turnlog", headers=headers) as client,
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
