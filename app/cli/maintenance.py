"""`turnlog migrate`, `compact` and `purge`: chores, for a terminal or a scheduler."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer
from rich.console import Console
from rich.progress import Progress

from app import bootstrap
from app.cli.client import CallFailed, call, connected
from app.cli.local import database_url, override
from app.metrics import Meter
from app.settings import Settings
from app.storage import schema

Url = Annotated[str | None, typer.Option(help="Service to work through; without it straight on the database.")]
DataDir = Annotated[Path | None, typer.Option(help="Data folder of the embedded PostgreSQL.")]


def migrate(data_dir: DataDir = None) -> None:
    """Bring the database's schema to the newest revision. `serve` does the same when it starts."""
    settings = override(Settings(), data_dir=data_dir)

    async def run(url: str) -> None:
        async with bootstrap.running(settings, url, Meter()):
            pass

    with database_url(settings, exclusive=False) as url:
        asyncio.run(run(url))
    typer.echo(f"the schema is at revision {schema.head()}")


def compact(  # noqa: PLR0913, PLR0917 - one for each option
    sessions: Annotated[list[str] | None, typer.Argument(help="Ids of the sessions to compact.")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Compact every session.")] = False,  # noqa: FBT002
    last_turns: Annotated[int | None, typer.Option(min=1, help="Keep the newest N turns.")] = None,
    last_events: Annotated[int | None, typer.Option(min=1, help="Keep the newest N events.")] = None,
    token_budget: Annotated[int | None, typer.Option(min=1, help="Keep what fits into N tokens.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, write nothing.")] = False,  # noqa: FBT002
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """Compact sessions by hand. Without a window each session's own policy runs, else the server's."""
    windows = {"last_turns": last_turns, "last_events": last_events, "token_budget": token_budget}
    given = [{"rule": rule, "size": size} for rule, size in windows.items() if size is not None]
    if len(given) > 1:
        raise typer.BadParameter("give one of --last-turns, --last-events and --token-budget")
    if everyone == bool(sessions):
        raise typer.BadParameter("name sessions, or say --all")
    body = {"dry_run": dry_run, **({"window": given[0]} if given else {})}
    failed = asyncio.run(_compact(sessions or [], body, url, data_dir))
    if failed:
        raise typer.Exit(1)


async def _compact(sessions: Sequence[str], body: dict[str, Any], url: str | None, data_dir: Path | None) -> int:
    outcomes: Counter[str] = Counter()
    before, after = 0, 0
    async with connected(url, data_dir) as client:
        names = list(sessions) or [name async for name in _all_sessions(client)]
        with Progress(console=Console(stderr=True)) as progress:
            for name in progress.track(names, description="compact"):
                try:
                    done = await call(client, "POST", f"/v1/sessions/{quote(name, safe='')}/compact", json=body)
                except CallFailed as error:
                    outcomes["failed"] += 1
                    progress.console.print(f"{name}: {error}", markup=False)
                    continue
                outcomes[done["reason"] or done["status"]] += 1
                before += done["tokens"]["before"]
                after += done["tokens"]["after"]
    shown = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    typer.echo(f"{len(names)} sessions: {shown or 'nothing to do'}; {before} tokens before, {after} after")
    return outcomes["failed"]


async def _all_sessions(client: httpx.AsyncClient) -> AsyncIterator[str]:
    cursor: str | None = None
    while True:
        params = {"limit": 1000, **({"cursor": cursor} if cursor else {})}
        page = await call(client, "GET", "/v1/sessions", params=params)
        for session in page["data"]:
            yield session["id"]
        cursor = page["next_cursor"]
        if cursor is None:
            return


def purge(url: Url = None, data_dir: DataDir = None) -> None:
    """Remove every expired session with its whole log."""

    async def run() -> int:
        purged = 0
        async with connected(url, data_dir) as client:
            while True:
                done = await call(client, "POST", "/v1/purge", json={})
                if not done["purged"]:
                    return purged
                purged += int(done["purged"])

    typer.echo(f"{asyncio.run(run())} expired sessions purged")
