"""What must be true of a session, whatever happened to it: its log, its view and its figures, read back over HTTP."""

from collections.abc import Iterable, Sequence
from typing import Any

from app.domain.event import Event
from app.domain.ranges import Ranges
from app.domain.view import View, replay
from tests.talk import Talk, seqs_in

Logged = dict[str, Any]


def as_event(logged: Logged) -> Event:
    """Return an event of the log as the rules look at it."""
    covered = (logged.get("payload") or {}).get("covered") if logged["type"] == "COMPACTION" else None
    return Event(
        seq=logged["seq"],
        type=logged["type"],
        role=logged["message"]["role"] if logged["type"] == "MESSAGE" else None,
        synthetic=logged["synthetic"],
        token_count=logged["token_count"],
        covered=None if covered is None else Ranges.joined((first, last) for first, last in covered),
    )


def replayed(log: Sequence[Logged], version: int | None = None) -> View[Event]:
    """Replay a log by the definition of a view."""
    return replay([as_event(logged) for logged in log], version)


def boundaries(log: Iterable[Logged]) -> list[Logged]:
    """Return the boundaries of a log."""
    return [logged for logged in log if logged["type"] == "COMPACTION"]


def check_log(log: Sequence[Logged]) -> None:
    """Hold a log to what every log is: gapless, every id once, coverage that grows, every summary whole."""
    assert [logged["seq"] for logged in log] == list(range(1, len(log) + 1)), "seq has a gap"
    ids = [logged["id"] for logged in log]
    assert len(set(ids)) == len(ids), "an event is stored twice"
    summaries: set[int] = set()
    earlier: set[int] = set()
    for boundary in boundaries(log):
        payload, seq = boundary["payload"], boundary["seq"]
        covered = set(seqs_in(payload["covered"]))
        assert earlier < covered, f"the boundary {seq} covers less than the one before"
        assert max(covered) < seq, f"the boundary {seq} covers what came later"
        assert payload["summary"] in ([], [seq + 1, seq + 2]), f"the summary of {seq} is elsewhere"
        for summary, role in zip(payload["summary"], ("user", "assistant"), strict=False):
            event = log[summary - 1]
            assert event["synthetic"], f"the boundary {seq} stands without its summary turn"
            assert event["message"]["role"] == role
            assert event["metadata"]["boundary"] == seq, f"the summary at {summary} is of another boundary than {seq}"
        summaries |= set(payload["summary"])
        earlier = covered
    assert summaries == {logged["seq"] for logged in log if logged["synthetic"]}, (
        "a summary stands without its boundary"
    )


def check_session(talk: Talk, *, versions: Iterable[int] = (), every_version: bool = False) -> list[Logged]:
    """Hold a session that nobody writes to at the moment to its own log, and return that log.

    Its view, and its view at each of ``versions``, must be the pure replay of the log; its figures those of the view.
    """
    log = talk.log()
    check_log(log)
    session = talk.session()
    expected = replayed(log)
    assert session["version"] == len(log)
    assert session["view"] == {
        "events": len(expected.events),
        "turns": expected.turns,
        "tokens": expected.tokens,
        "boundary": expected.boundary,
    }
    view = talk.view()
    assert view["events"] == [log[event.seq - 1] for event in expected.events], "the view is not the replay of its log"
    assert (view["version"], view["boundary"]) == (len(log), expected.boundary)
    assert (view["turns"], view["token_count"]) == (expected.turns, expected.tokens)
    shown = {event.seq for event in expected.events}
    for logged in log:
        assert logged["covered"] == (logged["type"] == "MESSAGE" and logged["seq"] not in shown)
    for version in range(len(log) + 1) if every_version else versions:
        assert talk.seqs(at_version=version) == [event.seq for event in replayed(log, version).events]
    return log
