"""`turnlog keys`: make API keys, list them, revoke them. Straight on the database: asking a service takes a key."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app import bootstrap
from app.cli.client import DataDir
from app.cli.local import database_url, override
from app.domain.key import DEFAULT_TENANT, Key, prefix_of, scopes_of
from app.metrics import Meter
from app.service import keys
from app.service.keys import KeyNotFound, Wanted
from app.settings import Settings
from app.storage.database import Database

T = TypeVar("T")

app = typer.Typer(help="API keys: who may do what. The first one closes the door to everybody without.")


@app.command("create")
def create(
    scopes: Annotated[str, typer.Option(help="What it may do, by commas: read, write, compact, admin.")],
    tenant: Annotated[str, typer.Option(help="Whose sessions it opens.")] = DEFAULT_TENANT,
    name: Annotated[str | None, typer.Option(help="What it is for, as shown in the list.")] = None,
    expires_days: Annotated[float | None, typer.Option(help="Days until it opens nothing any more.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Make a key and print it, alone, on standard output. It is stored nowhere and cannot be shown again."""
    wanted = Wanted(tenant=tenant, scopes=scopes_of(scopes.split(",")), name=name, days=expires_days)
    key = _on_database(lambda database: keys.create(database, wanted), data_dir)
    typer.echo(
        f"this is the key {prefix_of(key)} of tenant {tenant}; it is shown this once and works within seconds", err=True
    )
    typer.echo(key)


@app.command("list")
def list_keys(data_dir: DataDir = None) -> None:
    """List the keys by what they are called, those that open nothing any more included."""
    found = _on_database(keys.every, data_dir)
    if not found:
        typer.echo("there are no keys: clients on the service's own machine are served without", err=True)
        return
    Console().print(_table(found, datetime.now(UTC)))


def _table(found: Sequence[Key], now: datetime) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("PREFIX", "TENANT", "SCOPES", "NAME", "CREATED", "EXPIRES", "LAST USED", "STATE"):
        table.add_column(title, overflow="fold")
    for key in found:
        state = "revoked" if key.revoked_at else "good" if key.opens(now) else "expired"
        scopes = ",".join(key.scopes)
        moments = map(_moment, (key.created_at, key.expires_at, key.last_used_at))
        # As text: a name may hold what the console would take for markup.
        table.add_row(*(Text(cell) for cell in (key.prefix, key.tenant, scopes, key.name or "", *moments, state)))
    return table


def _moment(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}Z"


@app.command("revoke")
def revoke(
    prefix: Annotated[str, typer.Argument(help="What the key is called: its first 11 characters.")],
    data_dir: DataDir = None,
) -> None:
    """Revoke a key for good. Running services refuse it within five seconds."""
    name = prefix_of(prefix)
    try:
        was_good = _on_database(lambda database: keys.revoke(database, name), data_dir)
    except KeyNotFound as error:
        raise KeyNotFound(f"there is no key {name}: `turnlog keys list` shows those there are") from error
    typer.echo(f"the key {name} is revoked" if was_good else f"the key {name} was revoked already")


def _on_database(work: Callable[[Database], Awaitable[T]], data_dir: Path | None) -> T:
    """Work on the database, brought to the newest schema; a running service's, or one that runs for this long."""
    settings = override(Settings(), data_dir=data_dir)

    async def run(url: str) -> T:
        async with bootstrap.running(settings, url, Meter()) as context:
            return await work(context.database)

    with database_url(settings, exclusive=False) as url:
        return asyncio.run(run(url))
