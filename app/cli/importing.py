"""`turnlog import`: conversations from a file into logs."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import anyio
import httpx
import msgspec
import typer
from msgspec import Raw, Struct
from rich.console import Console
from rich.progress import Progress

from app.cli.client import CallFailed, DataDir, KeyFile, Target, Tenant, Url, call, connected

_PARALLEL = 8
# Well below the service's default limits, so that any conversation goes through in pieces.
_BATCH_EVENTS = 500
_BATCH_BYTES = 2 * 1024 * 1024


class Conversation(Struct):
    """One line of a file: a conversation in OpenAI's chat format."""

    id: str
    messages: list[Raw]


@dataclass(slots=True)
class Tally:
    """What an import did so far."""

    conversations: int = 0
    stored: int = 0
    replayed: int = 0
    failed: int = 0


def import_conversations(
    file: Annotated[Path, typer.Argument(help='JSON Lines, {"id": …, "messages": [OpenAI chat messages]} each.')],
    url: Url = None,
    prefix: Annotated[str, typer.Option(help="Put before every conversation's id.")] = "",
    data_dir: DataDir = None,
    key_file: KeyFile = None,
    tenant: Tenant = None,
) -> None:
    """Store the conversations of a file, each as a session. Importing a file again stores nothing twice."""
    target = Target(url=url, data_dir=data_dir, key_file=key_file, tenant=tenant)
    tally = asyncio.run(_import(file, prefix, target))
    typer.echo(
        f"{tally.conversations} conversations: {tally.stored} events stored, {tally.replayed} were there already"
        + (f", {tally.failed} conversations failed" if tally.failed else "")
    )
    if tally.failed:
        raise typer.Exit(1)


async def _import(file: Path, prefix: str, target: Target) -> Tally:
    conversations = list(_read(file))
    tally = Tally()
    turnstile = anyio.Semaphore(_PARALLEL)
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task(file.name, total=len(conversations))

        async def store(client: httpx.AsyncClient, conversation: Conversation) -> None:
            async with turnstile:
                try:
                    await _store(client, prefix + conversation.id, conversation.messages, tally)
                except CallFailed as error:
                    tally.failed += 1
                    progress.console.print(f"{prefix}{conversation.id}: {error}", markup=False)
                progress.advance(task)

        async with connected(target) as client, anyio.create_task_group() as group:
            for conversation in conversations:
                group.start_soon(store, client, conversation)
    return tally


def _read(file: Path) -> Iterator[Conversation]:
    """Return the conversations of a file, all of it checked before anything is stored."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise CallFailed(f"cannot read {file}: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line, type=Conversation)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CallFailed(f"{file}, line {number}: {error}") from error


async def _store(client: httpx.AsyncClient, session_id: str, messages: Sequence[Raw], tally: Tally) -> None:
    """Append a conversation. Its events' ids are their places in it, so a second time is a replay."""
    for batch in _batches(messages):
        receipt = await call(
            client,
            "POST",
            f"/v1/sessions/{quote(session_id, safe='')}/events",
            params={"create": "true"},
            content=msgspec.json.encode({"events": batch}),
            headers={"Content-Type": "application/json"},
        )
        replayed = sum(event["replayed"] for event in receipt["events"])
        tally.replayed += replayed
        tally.stored += len(batch) - replayed
    tally.conversations += 1


def _batches(messages: Sequence[Raw]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = 0
    for number, message in enumerate(messages, start=1):
        size += len(bytes(message))
        if batch and (len(batch) == _BATCH_EVENTS or size > _BATCH_BYTES):
            yield batch
            batch, size = [], len(bytes(message))
        batch.append({"id": f"import-{number}", "message": message})
    if batch:
        yield batch
