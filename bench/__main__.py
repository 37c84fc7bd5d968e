"""The yardstick: `make bench`, or `python -m bench --help`."""

import asyncio
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console

from bench import machine, postgres, report, results, servers
from bench.parts import append, compaction, costs, in_process, memory, peers, sweeps, views, workers
from bench.results import Results
from bench.stage import Budget, Part, Stage

PARTS: Final[dict[str, Part]] = {
    "append": append.run,
    "view": views.run,
    "inprocess": in_process.run,
    "compaction": compaction.run,
    "return": workers.with_view,
    "workers": workers.run,
    "purge": sweeps.purge,
    "fleet": sweeps.fleet,
    "cost": costs.run,
    "memory": memory.run,
    "peers": peers.run,
}
_FOLDER: Final = Path(__file__).with_name("results")
_SHORT: Final = Budget(rounds=3, seconds=1.0, full=False)
_FULL: Final = Budget(rounds=5, seconds=3.0, full=True)


def main(
    only: Annotated[str, typer.Option(help=f"Parts to run, comma-separated: {', '.join(PARTS)}.")] = "",
    full: Annotated[  # noqa: FBT002 - a flag of the command line
        bool, typer.Option("--full", help="Longer rounds, 64 clients too, logs of 1,000,000 events: about an hour.")
    ] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each contender; medians are shown.")] = None,
    json: Annotated[Path | None, typer.Option(help="Where everything goes as JSON. (default: bench/results/…)")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Document whose tables are renewed, such as docs/performance.md.")
    ] = None,
    read: Annotated[Path | None, typer.Option(help="Measure nothing; show what an earlier run wrote as JSON.")] = None,
) -> None:
    """Measure turnlog against what PostgreSQL and Python's HTTP themselves can do, in one run on this machine."""
    console = Console(width=None if Console().is_terminal else 160)
    budget = _FULL if full else _SHORT
    if rounds:
        budget = Budget(rounds=rounds, seconds=budget.seconds, full=full)
    if read:
        found = results.read(read)
    else:
        chosen = _chosen(only)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(_measure(chosen, budget, console))
        path = json or _FOLDER / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        found.write(path)
        console.print(f"everything is in {path}", markup=False)
    report.show(found, console)
    if markdown:
        markdown.write_text(report.into(markdown.read_text(), report.markdown(found)))


def _chosen(only: str) -> list[str]:
    names = [name.strip() for name in only.split(",") if name.strip()] or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        raise typer.BadParameter(f"no such part: {', '.join(unknown)}", param_hint="--only")
    return names


async def _measure(chosen: list[str], budget: Budget, console: Console) -> Results:
    def say(line: str) -> None:
        console.print(f"[{time.perf_counter() - began:4.0f} s] {line}", markup=False, highlight=False)

    # A run that is stopped ends what it started, whoever stops it and however.
    this = asyncio.current_task()
    for stop in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(stop, this.cancel if this else sys.exit)
    began, watch = time.perf_counter(), machine.Watch()
    with postgres.running() as server:
        async with servers.bare() as bare, postgres.connected(server.url) as connection:
            found = Results(about=await machine.about(connection))
            found.about |= {"rounds": budget.rounds, "seconds": budget.seconds, "parts": chosen}
            stage = Stage(postgres=server, bare=bare, budget=budget, results=found, say=say)
            for name in chosen:
                await PARTS[name](stage)
    found.about["others"] = round(watch.others(), 3)
    return found


if __name__ == "__main__":
    cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    cli.command()(main)
    cli()
