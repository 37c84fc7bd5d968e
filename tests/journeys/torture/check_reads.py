"""Checks of what was read: no view that was never, none that is old already, and no event that was passed over."""

from collections.abc import Iterator
from typing import Any

from tests.journeys.torture.history import Call
from tests.journeys.torture.session import Fault, Session, seen_by


def versions(session: Session) -> Iterator[Fault]:
    """Who asks after an answer has told a version sees at least that version, from any replica; and none to come.

    That is more than reading one's own writes and never going back, which are this for a single client.
    """
    for call in session.calls:
        version = seen_by(call)
        if version is None:
            continue
        if version > len(session.log):
            yield Fault(kind="lost", said=f"{call} saw version {version}, the log ends at {len(session.log)}")
        elif session.possible_since(version) > call.ended:
            yield Fault(kind="future", said=f"{call} saw version {version} before its events were sent")
        known = session.known_before(call.began)
        is_whole = call.kind != "tail" or not call.answer["has_more"]
        if version < known and is_whole:
            yield Fault(kind="stale", said=f"{call} saw version {version}, {known} was known")


def views(session: Session) -> Iterator[Fault]:
    """Every view that was ever answered is the replay of the log at its version, and the same bytes each time."""
    first: dict[tuple[int, str], Call] = {}
    compared: set[tuple[int, str, str]] = set()
    for call, output, version, shown in _answered(session):
        if version > len(session.log):
            continue  # told already
        if call.raw is not None:
            before = first.setdefault((version, output), call)
            if before.raw != call.raw:
                yield Fault(kind="view", said=f"{call} of {version} in {output} has other bytes than {before}")
            if (version, output, call.raw) in compared:
                continue
            compared.add((version, output, call.raw))
        if shown != session.shown(version, output):
            yield Fault(kind="view", said=f"{call} is not the replay of version {version} in {output}: {shown}")


def _answered(session: Session) -> Iterator[tuple[Call, str, int, Any]]:
    for call in session.calls:
        if call.outcome != "ok":
            continue
        if call.kind == "append" and "view" in call.answer:
            view = call.answer["view"]
            output = call.asked["format"]
            yield call, output, view["version"], view["text"] if output == "text" else view
        elif call.kind == "view":
            version = int(call.headers["etag"].strip('"').partition("-")[0])
            if version != call.asked.get("at_version", version):
                yield call, call.asked["format"], version, "the version of its ETag is not the one asked for"
            elif call.status == 200:
                yield call, call.asked["format"], version, call.answer


def tails(session: Session) -> Iterator[Fault]:
    """A page after a seq has what follows it in the log, without a hole, as far as was known when it was asked for."""
    for call in session.calls:
        if call.kind != "tail" or call.outcome != "ok":
            continue
        after, limit, data = call.asked["after"], call.asked["limit"], call.answer["data"]
        real = session.log[after : after + len(data)]
        if [_steady(one) for one in data] != [_steady(one) for one in real]:
            yield Fault(kind="tail", said=f"{call} after {after} has {[one['seq'] for one in data]}, or other content")
        missing = min(session.known_before(call.began) - after, limit) - len(data)
        if missing > 0 or (call.answer["has_more"] and len(data) < limit):
            yield Fault(kind="stale", said=f"{call} after {after} lacks {missing} events")


def _steady(logged: dict[str, Any]) -> dict[str, Any]:
    """Return an event without what the next compaction may change."""
    return {name: value for name, value in logged.items() if name != "covered"}


def sessions(session: Session) -> Iterator[Fault]:
    """The figures of a session are those of its view at that version."""
    for call in session.calls:
        if call.kind != "session" or call.outcome != "ok" or call.answer["version"] > len(session.log):
            continue
        view = session.view(call.answer["version"])
        real = {
            "events": len(view.events),
            "turns": view.turns,
            "tokens": view.tokens,
            "boundary": view.boundary,
        }
        if call.answer["view"] != real:
            yield Fault(kind="figures", said=f"{call} says {call.answer['view']}, the log {real}")
