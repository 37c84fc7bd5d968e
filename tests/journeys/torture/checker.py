"""The checker: from a history and the logs that were found afterwards to everything that does not fit. Pure.

A session that starts with ``kept`` was never deleted, so every answer about it has to fit its log. One that starts with
``gone`` was deleted and made again by many, one that starts with ``brief`` was left to expire.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from tests.journeys.replayed import check_log
from tests.journeys.torture import check_appends, check_gone, check_reads
from tests.journeys.torture.history import Call, Logged
from tests.journeys.torture.session import Fault, Session

# What may be answered, 503 aside: whoever is told that the service is not available sends the request again.
ALLOWED: Final[Mapping[str, frozenset[int]]] = {
    "append": frozenset({200, 201, 412}),
    "compact": frozenset({200, 412}),
    "delete": frozenset({204, 404}),
    "fleet": frozenset({200}),
    "purge": frozenset({200}),
    "put": frozenset({200, 201}),
    "session": frozenset({200}),
    "tail": frozenset({200}),
    "view": frozenset({200, 304}),
}
_MORTAL: Final[Mapping[str, frozenset[int]]] = {
    "gone": frozenset({404}),
    "brief": frozenset({404, 410}),
}
Check = Callable[[Session], Iterator[Fault]]
_ALWAYS: Final[Sequence[Check]] = (check_appends.whole, check_appends.receipts)
_KEPT: Final[Sequence[Check]] = (
    check_appends.acknowledged,
    check_appends.refused,
    check_appends.in_order,
    check_appends.expected,
    check_appends.boundaries,
    check_reads.versions,
    check_reads.views,
    check_reads.tails,
    check_reads.sessions,
)
_GONE: Final[Sequence[Check]] = (check_gone.never_seen_again, check_gone.still_there)
_BRIEF: Final[Sequence[Check]] = (check_gone.expired,)


def check(calls: Iterable[Call], logs: Mapping[str, Sequence[Logged]]) -> list[Fault]:
    """Return every fault there is. ``logs`` are those of the sessions that were there in the end."""
    by_session: dict[str, list[Call]] = defaultdict(list)
    in_order = sorted(calls, key=lambda call: call.began)
    for call in in_order:
        by_session[call.session].append(call)
    faults = [fault for found in by_session.values() for fault in _statuses(found)]
    for name in sorted({*by_session, *logs} - {""}):
        session = Session(name, logs.get(name, ()), by_session[name])
        if broken := [*_gapless(session)]:
            # All else is about the places of events.
            faults += broken
            continue
        checks = {"kept": _KEPT, "gone": _GONE, "brief": _BRIEF}[name.partition("-")[0]]
        faults += [fault for one in (*_ALWAYS, *checks) for fault in one(session)]
    return [*faults, *check_appends.all_boundaries(in_order, logs)]


def _gapless(session: Session) -> Iterator[Fault]:
    """Hold a log to what every log is: gapless from 1, every id once, coverage that grows, every summary whole."""
    try:
        check_log(session.log)
    except (AssertionError, IndexError) as error:
        yield Fault(kind="broken-log", said=f"{session.name}: {error}")


def _statuses(calls: Iterable[Call]) -> Iterator[Fault]:
    for call in calls:
        if call.status is None or call.status in ALLOWED[call.kind]:
            continue
        if call.status == 503:
            if "retry-after" not in call.headers:
                yield Fault(kind="no-retry-after", said=f"{call}: {call.answer}")
        elif call.status not in _MORTAL.get(call.session.partition("-")[0], ()):
            yield Fault(kind="status", said=f"{call}: {call.answer}")
