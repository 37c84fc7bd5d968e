"""`turnlog migrate`, `compact` and `purge`: chores, for a terminal or a scheduler."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from urllib.parse import quote

import httpx
import typer
from rich.console import Console
from rich.progress import Progress

from app import bootstrap
from app.cli.client import CallFailed, DataDir, KeyFile, Target, Tenants, Url, call, connected
from app.cli.local import database_url, override
from app.metrics import Meter
from app.settings import Settings
from app.storage import schema

_FAILED: Final = "failed"
# Sessions of one run: few, so that the bar moves on while a model writes. The run has the time for all their summaries
# one after another, so that none of them is still being written when it answers.
_RUN: Final = 20
# As long as the service lets a run be.
_LONGEST_RUN_SECONDS: Final = 3600.0
# How much longer than the work itself an answer may take.
_PATIENCE: Final = 120.0


def migrate(data_dir: DataDir = None) -> None:
    """Bring the database's schema to the newest revision. `serve` does the same when it starts."""
    settings = override(Settings(), data_dir=data_dir)

    async def run(url: str) -> None:
        async with bootstrap.running(settings, url, Meter()) as context:
            # What else runs on a newer schema is content with it; this is asked for a revision, and cannot reach it.
            await schema.migrate(context.database)

    with database_url(settings, exclusive=False) as url:
        asyncio.run(run(url))
    typer.echo(f"the schema is at revision {schema.head()}")


def compact(  # noqa: PLR0913, PLR0917 - one for each option
    sessions: Annotated[list[str] | None, typer.Argument(help="Ids of the sessions to compact.")] = None,
    everyone: Annotated[  # noqa: FBT002 - a flag of the command line
        bool, typer.Option("--all", help="Compact every session that is due; with a window, every session.")
    ] = False,
    last_turns: Annotated[int | None, typer.Option(min=1, help="Keep the newest N turns.")] = None,
    last_events: Annotated[int | None, typer.Option(min=1, help="Keep the newest N events.")] = None,
    token_budget: Annotated[int | None, typer.Option(min=1, help="Keep what fits into N tokens.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(help="With --all: only sessions whose metadata has KEY=VALUE. Repeatable.")
    ] = None,
    max_seconds: Annotated[
        int | None, typer.Option(min=1, help="With --all and no window: begin nothing new after N seconds, and end.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, write nothing.")] = False,  # noqa: FBT002
    url: Url = None,
    data_dir: DataDir = None,
    key_file: KeyFile = None,
    tenant: Tenants = None,
) -> None:
    """Compact sessions. Without a window each session's own policy runs, else the server's.

    --all without a window is for schedulers: it compacts the sessions whose policy's trigger fires, and ends when none
    is left that can be taken up now. Named sessions, and --all with a window, are compacted by hand, one by one.
    """
    windows = {"last_turns": last_turns, "last_events": last_events, "token_budget": token_budget}
    given = [{"rule": rule, "size": size} for rule, size in windows.items() if size is not None]
    if len(given) > 1:
        raise typer.BadParameter("give one of --last-turns, --last-events and --token-budget")
    if everyone == bool(sessions):
        raise typer.BadParameter("name sessions, or say --all")
    labels = _labels(metadata or [])
    if labels and not everyone:
        raise typer.BadParameter("--metadata goes with --all")
    target = Target(url=url, data_dir=data_dir, key_file=key_file, tenant=tenant)
    if everyone and not given:
        failed = asyncio.run(_fleet(labels, max_seconds, dry_run, target))
    elif max_seconds is not None:
        raise typer.BadParameter("--max-seconds goes with --all, without a window")
    else:
        body = {"dry_run": dry_run, **({"window": given[0]} if given else {})}
        failed = asyncio.run(_compact(sessions or [], labels, body, target))
    if failed:
        raise typer.Exit(1)


async def _fleet(
    labels: Mapping[str, str],
    seconds: int | None,
    dry_run: bool,  # noqa: FBT001 - a flag of the command line
    target: Target,
) -> int:
    """Compact the sessions that are due, or list them, and return how many failed."""
    if not dry_run:
        return await _compact_due(labels, seconds, target)
    if labels or seconds is not None:
        raise typer.BadParameter("with --all --dry-run all that is due is listed: no --metadata, no --max-seconds")
    await _list_due(target)
    return 0


def _labels(pairs: Sequence[str]) -> dict[str, str]:
    """Return `key=value` pairs by key."""
    if not all("=" in pair for pair in pairs):
        raise typer.BadParameter("--metadata takes KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


@dataclass(slots=True)
class _Sums:
    """What became of each session, by its id: the last that was heard of it, and the view's tokens before and after."""

    outcomes: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    def add(self, session_id: str, outcome: str, tokens: Mapping[str, int] | None = None) -> None:
        before, after = (tokens["before"], tokens["after"]) if tokens else (0, 0)
        self.outcomes[session_id] = outcome, before, after

    @property
    def failed(self) -> int:
        return sum(outcome == _FAILED for outcome, _, _ in self.outcomes.values())

    def __str__(self) -> str:
        counts = Counter(outcome for outcome, _, _ in self.outcomes.values())
        shown = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()) or "nothing to do"
        before = sum(tokens for _, tokens, _ in self.outcomes.values())
        after = sum(tokens for _, _, tokens in self.outcomes.values())
        return f"{len(self.outcomes)} sessions: {shown}; {before} tokens before, {after} after"


async def _compact_due(labels: Mapping[str, str], seconds: int | None, target: Target) -> int:
    """Have the sessions compacted that are due, run after run, and return how many failed."""
    ends = math.inf if seconds is None else time.monotonic() + seconds
    sums = _Sums()
    async with connected(target) as client:
        longest = min(_LONGEST_RUN_SECONDS, _RUN * (await _summary_seconds(client) or _PATIENCE))
        with Progress(console=Console(stderr=True)) as progress:
            bar = progress.add_task("compact", total=None)
            while True:
                left = max(0.0, min(longest, ends - time.monotonic()))
                asked = {"limit": _RUN, "max_seconds": left, "metadata": labels}
                report = await call(client, "POST", "/v1/compact", json=asked, timeout=left + _PATIENCE)
                for one in report["results"]:
                    sums.add(_name(one), _outcome(one), one["tokens"])
                    if one["status"] == _FAILED:
                        told = f"{_name(one)}: {one['reason']}, and waits for {one['retry_seconds']} s"
                        progress.console.print(told, markup=False)
                done = len(sums.outcomes)
                progress.update(bar, completed=done, total=done + report["remaining"])
                if not report["results"] or not report["remaining"] or time.monotonic() >= ends:
                    break
    deferred = f"; {report['deferred']} wait or are being worked on" if report["deferred"] else ""
    remaining = f"; {report['remaining']} remain" if report["remaining"] else ""
    typer.echo(f"{sums}{deferred}{remaining}")
    return sums.failed


def _name(one: Mapping[str, Any]) -> str:
    """Return what a session is called, after its tenant where the list goes across tenants."""
    return f"{one['tenant']}/{one['session_id']}" if "tenant" in one else str(one["session_id"])


async def _list_due(target: Target) -> None:
    """Print which sessions are due, most tokens first."""
    async with connected(target) as client:
        found = await call(client, "GET", "/v1/compact/due", params={"limit": await _largest_page(client)})
    for one in found["data"]:
        typer.echo(f"{_name(one)}: {one['view']['turns']} turns, {one['view']['tokens']} tokens")
    typer.echo(f"{found['due']} sessions are due; {found['deferred']} wait or are being worked on")


async def _compact(sessions: Sequence[str], labels: Mapping[str, str], body: Mapping[str, Any], target: Target) -> int:
    """Compact sessions by hand, one after another, and return how many failed."""
    sums = _Sums()
    async with connected(target) as client:
        names = list(sessions) or [name async for name in _all_sessions(client, labels)]
        # Another caller's attempt may have to be waited for before one's own.
        timeout = 2 * await _summary_seconds(client) + _PATIENCE
        with Progress(console=Console(stderr=True)) as progress:
            for name in progress.track(names, description="compact"):
                path = f"/v1/sessions/{quote(name, safe='')}/compact"
                try:
                    done = await call(client, "POST", path, json=body, timeout=timeout)
                except CallFailed as error:
                    sums.add(name, _FAILED)
                    progress.console.print(f"{name}: {error}", markup=False)
                    continue
                sums.add(name, _outcome(done), done["tokens"])
    typer.echo(str(sums))
    return sums.failed


def _outcome(done: Mapping[str, Any]) -> str:
    """Return the word for how a compaction ended: why it left a view as it was, or its status."""
    return str(done["reason"] if done["status"] == "unchanged" else done["status"])


async def _summary_seconds(client: httpx.AsyncClient) -> float:
    """Return how long a summary may take there; 0 without a model."""
    known = await call(client, "GET", "/v1/capabilities")
    return float(known["summarizer"].get("timeout_seconds", 0))


async def _largest_page(client: httpx.AsyncClient) -> int:
    """Return how long a page may be there; servers that do not say so take a thousand."""
    known = await call(client, "GET", "/v1/capabilities")
    return int(known["limits"].get("page", 1000))


async def _all_sessions(client: httpx.AsyncClient, labels: Mapping[str, str]) -> AsyncIterator[str]:
    filters = {f"metadata.{key}": value for key, value in labels.items()}
    limit = await _largest_page(client)
    cursor: str | None = None
    while True:
        params = {"limit": limit, **filters, **({"cursor": cursor} if cursor else {})}
        page = await call(client, "GET", "/v1/sessions", params=params)
        for session in page["data"]:
            yield session["id"]
        cursor = page["next_cursor"]
        if cursor is None:
            return


def purge(url: Url = None, data_dir: DataDir = None, key_file: KeyFile = None, tenant: Tenants = None) -> None:
    """Remove every expired session with its whole log."""
    target = Target(url=url, data_dir=data_dir, key_file=key_file, tenant=tenant)

    async def run() -> int:
        purged = 0
        async with connected(target) as client:
            while True:
                done = await call(client, "POST", "/v1/purge", json={})
                if not done["purged"]:
                    return purged
                purged += int(done["purged"])

    typer.echo(f"{asyncio.run(run())} expired sessions purged")
