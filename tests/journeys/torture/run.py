"""One run: start everything, let clients and nemesis loose, heal, read the logs back, and check."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.journeys.processes import Serving
from tests.journeys.replayed import check_session
from tests.journeys.torture import nemesis
from tests.journeys.torture.checker import check
from tests.journeys.torture.history import History, Logged
from tests.journeys.torture.session import Fault
from tests.journeys.torture.sessions import Sessions
from tests.journeys.torture.workload import Client
from tests.journeys.torture.world import World, world
from tests.talk import Talk


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How hard, for how long, and which choices."""

    seed: int
    seconds: float
    clients: int = 8
    kept: int = 3
    gone: int = 2

    @property
    def command(self) -> str:
        """What makes the same choices again."""
        return f'make torture ARGS="--seed {self.seed} --seconds {self.seconds:g} --clients {self.clients}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was done, and what did not fit. ``saved`` is the folder with the history, when there is any fault."""

    options: Options
    calls: dict[str, dict[str, int]]
    done: dict[str, int]
    events: int
    faults: Sequence[Fault]
    saved: Path | None

    def __str__(self) -> str:
        lines = [f"seed {self.options.seed}: {sum(sum(one.values()) for one in self.calls.values())} requests"]
        lines += [
            f"  {kind:8} " + ", ".join(f"{n} {name}" for name, n in one.items()) for kind, one in self.calls.items()
        ]
        lines.append("nemesis: " + ", ".join(f"{name} {count}" for name, count in sorted(self.done.items())))
        lines.append(f"{self.events} events in the logs, {len(self.faults)} faults")
        lines += [f"  {fault}"[:1000] for fault in self.faults[:50]]
        if self.saved:
            lines.append(f"history and output: {self.saved}; the same choices again: {self.options.command}")
        return "\n".join(lines)


def torture(options: Options, folder: Path) -> Report:
    """Run, check, and save what was seen if it does not fit. The folder is for the database and what is saved."""
    history = History()
    with world(folder) as tortured:
        broken = _let_loose(tortured, options, history)
        logs, faults = _read_back(tortured.replicas, history)
    faults = [*broken, *faults, *check(history.calls, logs)]
    report = Report(
        options=options,
        calls=history.counts(),
        done=dict(tortured.done),
        events=sum(map(len, logs.values())),
        faults=faults,
        saved=folder if faults else None,
    )
    if faults:
        history.save(folder / "history.jsonl", logs)
        (folder / "services.log").write_text("\n— started again —\n".join(tortured.output), encoding="utf-8")
        (folder / "report.txt").write_text(str(report), encoding="utf-8")
    return report


def _let_loose(tortured: World, options: Options, history: History) -> list[Fault]:
    sessions = Sessions(options.kept, options.gone)
    clients = [Client(at, tortured.urls, history, sessions, options.seed) for at in range(options.clients)]
    given_up = threading.Event()

    def watch(done: Future[None]) -> None:
        if done.exception():
            given_up.set()

    with ThreadPoolExecutor(options.clients) as pool:
        try:
            running = [pool.submit(client.run) for client in clients]
            for one in running:
                one.add_done_callback(watch)
            nemesis.rage(tortured, options.seed, options.seconds, lambda: history.succeeded, given_up)
            tortured.heal()
            # Clients whose requests are answered again go on for a moment: what they see now counts as well.
            given_up.wait(min(1.0, options.seconds / 5))
        finally:
            sessions.finish.set()
    ended = [Fault(kind="ended", said=output[-4000:]) for output in tortured.ended]
    errors = [one.exception() for one in running]
    return ended + [Fault(kind="client", said=f"a client ended with {error!r}") for error in errors if error]


def _read_back(replicas: Sequence[Serving], history: History) -> tuple[dict[str, list[Logged]], list[Fault]]:
    """Return the logs as one replica has them, and what it or the other says that does not fit them."""
    logs: dict[str, list[Logged]] = {}
    faults: list[Fault] = []
    with replicas[0].client() as one, replicas[1].client() as other:
        for name in sorted({call.session for call in history.calls} - {""}):
            # What is left to expire may do so between two requests.
            if name.startswith("brief") or one.get(f"/v1/sessions/{name}").status_code != 200:
                logs[name] = []
                continue
            try:
                logs[name] = check_session(Talk(one, name))
                if Talk(other, name).log() != logs[name]:
                    faults.append(Fault(kind="replicas", said=f"{name}: the replicas do not agree about its log"))
            except AssertionError as error:
                logs.setdefault(name, Talk(one, name).log())
                faults.append(Fault(kind="session", said=f"{name}: {error}"))
    return logs, faults
