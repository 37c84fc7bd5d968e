"""Beside other libraries: append one message and read what goes to the model, one caller, in process and over HTTP.

Each peer runs in an environment of its own under `.bench/`, which `make bench-peers` makes. One that is not there is
left out, loudly.
"""

import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from app import bootstrap
from app.api import answers
from app.domain.key import DEFAULT_TENANT
from app.metrics import Meter
from app.service import events
from app.service import views as view_service
from app.service.context import Context
from app.service.drafts import NewEvent
from app.service.events import Options
from app.service.views import Asked
from app.settings import Settings
from bench import load, logs, postgres, requests, servers
from bench.logs import Log
from bench.parts import append
from bench.results import Line
from bench.stage import Contender, Stage, interleave

SIZES: Final = (10, 1_000, 10_000)
NEWEST: Final = 40
_TIMES: Final = {10: 15, 1_000: 15, 10_000: 1}  # reads in a row that one measurement is made of
_ROOT: Final = Path(__file__).resolve().parents[2]
_SERVED: Final = "turnlog HTTP"
_INSIDE: Final = "turnlog in process"
# Whether a cut falls between a call and its result depends on where it falls, so it is tried at each place of a turn.
_CUTS: Final = range(NEWEST - 3, NEWEST + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A peer: the environment it is in, and whether it can be asked for its newest messages only."""

    name: str
    module: str
    environment: str
    cuts: bool = True

    @property
    def python(self) -> Path:
        """The interpreter that has it."""
        return _ROOT / ".bench" / self.environment / "bin" / "python"


PEERS: Final = (
    Peer(name="OpenAI Agents", module="openai_agents", environment="peers"),
    Peer(name="langchain", module="langchain", environment="peers", cuts=False),
    Peer(name="ADK", module="adk", environment="adk"),
)


async def run(stage: Stage) -> None:
    """Measure every peer that is installed, and turnlog beside them."""
    async with AsyncExitStack() as stack:
        contenders = await _turnlog(stage, stack)
        for peer in PEERS:
            if not peer.python.exists():
                stage.results.skipped.append(f"{peer.name}: not in .bench/{peer.environment}; run `make bench-peers`")
                stage.say(stage.results.skipped[-1])
                continue
            server = await stack.enter_async_context(_served(stage, peer))
            await _peer(server.port, peer, contenders)
        for operation, each in contenders.items():
            line = stage.results.line("peers", operation, unit="ms")
            await interleave(stage, line, each.measures)
            line.notes |= each.notes


class _Contenders:
    def __init__(self) -> None:
        self.measures: dict[str, Contender] = {}
        self.notes: dict[str, str] = {}


def _operations() -> dict[str, _Contenders]:
    reads = [f"what goes to the model, of {size:,}" for size in SIZES]
    return {name: _Contenders() for name in ("append 1", *reads, f"the newest {NEWEST} only, of {SIZES[-1]:,}")}


async def _turnlog(stage: Stage, stack: AsyncExitStack) -> dict[str, _Contenders]:
    """Return the operations with turnlog in them: its view is the whole of 10, and 40 of the longer ones."""
    url, connection, server, _ = await stack.enter_async_context(append.ready(stage))
    context = await stack.enter_async_context(bootstrap.running(Settings(), url, Meter()))
    (session,) = await append.sessions(connection, 1)
    found = _operations()
    found["append 1"].measures = {
        _INSIDE: _inside(context, session, reading=False),
        _SERVED: _requests(server.port, requests.append(session, 1)),
    }
    for size in SIZES:
        log = Log(session_id=f"peer-{size}", events=size, boundaries=int(size > NEWEST))
        await logs.seed(connection, log)
        one = found[f"what goes to the model, of {size:,}"]
        one.measures = {
            _INSIDE: _inside(context, log.session_id, reading=True),
            _SERVED: _requests(server.port, requests.view(log.session_id)),
        }
        one.notes = {who: f" (view of {min(size, NEWEST)})" for who in one.measures}
    await postgres.settled(connection)
    return found


def _inside(context: Context, session: str, *, reading: bool) -> Contender:
    message = json.dumps(logs.message())

    async def once() -> None:
        if not reading:
            await events.append(context, DEFAULT_TENANT, session, [NewEvent(message=message)], Options())
            return
        view = await view_service.read(context, DEFAULT_TENANT, session, Asked())
        msgspec.json.encode(answers.view(session, view, await view_service.rendered(view, "openai")))

    async def measure() -> float:
        taken = []
        for _ in range(50):
            began = time.perf_counter()
            await once()
            taken.append(time.perf_counter() - began)
        return sorted(taken)[len(taken) // 2] * 1000

    return measure


def _requests(port: int, each: Any, seconds: float = 0.3) -> Contender:
    async def measure() -> float:
        latencies = (await load.run(port, [each], seconds, warm=0.05)).latencies
        return sorted(latencies)[len(latencies) // 2] * 1000

    return measure


@asynccontextmanager
async def _served(stage: Stage, peer: Peer) -> AsyncIterator[servers.Server]:
    port = servers.free_port()
    async with stage.postgres.database(empty=True) as url:
        command = [str(peer.python), "-m", "bench.peers.shim", peer.module, url, str(port)]
        async with servers.served(command, port, "/ready", {"PYTHONPATH": str(_ROOT)}) as server:
            yield server


async def _peer(port: int, peer: Peer, contenders: dict[str, _Contenders]) -> None:
    """Add a peer to the operations that it has."""
    inside, outside = f"{peer.name} in process", f"{peer.name} HTTP"
    body = json.dumps({"content": logs.message()["content"]}).encode()
    await _ask(port, "POST", "/seed/appended/4")
    one = contenders["append 1"]
    one.measures[inside] = _measured(port, "/measure/append/appended/30")
    one.measures[outside] = _requests(port, itertools.repeat(load.request("POST", "/append/appended", body)))
    for size in SIZES:
        await _ask(port, "POST", f"/seed/s{size}/{size}")
        one = contenders[f"what goes to the model, of {size:,}"]
        one.measures[inside] = _measured(port, f"/measure/read/s{size}/{_TIMES[size]}")
        one.measures[outside] = _requests(port, itertools.repeat(load.request("GET", f"/read/s{size}")))
        lost = await _ask(port, "GET", f"/orphans/s{size}")
        one.notes |= {who: f" ({lost} orphans)" for who in (inside, outside) if lost}
    if not peer.cuts:
        return
    name = f"s{SIZES[-1]}"
    one = next(reversed(contenders.values()))
    one.measures[inside] = _measured(port, f"/measure/read/{name}/15?limit={NEWEST}")
    one.measures[outside] = _requests(port, itertools.repeat(load.request("GET", f"/read/{name}?limit={NEWEST}")))
    torn = sum([await _ask(port, "GET", f"/orphans/{name}?limit={cut}") > 0 for cut in _CUTS])
    one.notes |= {who: f" ({torn} of {len(_CUTS)} cuts orphan a result)" for who in (inside, outside)}


async def _ask(port: int, method: str, path: str) -> Any:
    answer, _ = await load.once(port, load.request(method, path))
    return json.loads(answer or b"null")


def _measured(port: int, path: str) -> Contender:
    async def measure() -> float:
        taken = sorted(await _ask(port, "POST", path))
        return float(taken[len(taken) // 2])

    return measure


def ratios(lines: list[Line]) -> list[tuple[str, float, str]]:
    """Return how many times faster turnlog over HTTP is than the peers in process, with the targets."""
    by_name = {line.operation: line for line in lines if line.part == "peers"}
    longest = f"what goes to the model, of {SIZES[-1]:,}"
    wanted = [
        ("append 1", "OpenAI Agents", "1.5 / 2.5"),
        ("append 1", "ADK", "4 / 7"),
        (longest, "OpenAI Agents", "30 / 60"),
        (longest, "langchain", "100 / 200"),
        (longest, "ADK", "400 / 1000"),
    ]
    found = []
    for operation, peer, target in wanted:
        ratio = by_name[operation].ratio(_SERVED, f"{peer} in process") if operation in by_name else None
        if ratio is not None:
            found.append((f"{operation}: over HTTP against {peer} in process", ratio, target))
    return found
