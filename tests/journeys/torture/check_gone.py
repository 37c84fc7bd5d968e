"""Checks of sessions that were deleted and made again, or left to expire."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from tests.journeys.torture.history import Call, Logged
from tests.journeys.torture.session import Fault, Session, is_of_client, mark_of


def never_seen_again(session: Session) -> Iterator[Fault]:
    """What was in a session when its deletion began is never seen by who asks after the deletion was acknowledged.

    Appends with a request of unknown fate are left out: a stopped server may carry it out in the session made anew.
    """
    dead = _dead_since(session)
    for call in session.calls:
        for mark in _seen(call):
            if dead.get(mark, call.began) < call.began:
                yield Fault(kind="risen", said=f"{call} shows {mark}, deleted before")
    for logged in session.log:
        if is_of_client(logged) and mark_of(logged) in dead:
            yield Fault(kind="risen", said=f"{session.name}: {mark_of(logged)} is at {logged['seq']}, deleted before")


def _dead_since(session: Session) -> dict[str, float]:
    """Return since when a mark must not be seen: the end of the first deletion that began after its acknowledgement."""
    deletions = sorted((call.began, call.ended) for call in session.calls if _is_deleted(call))
    began = [one for one, _ in deletions]
    # The earliest end of all deletions from one on.
    ends = [*accumulate((end for _, end in reversed(deletions)), min)][::-1]
    dead: dict[str, float] = {}
    for mark, calls in session.appends.items():
        if calls[-1].outcome != "ok" or any(call.outcome == "unknown" for call in calls):
            continue
        at = bisect_left(began, calls[-1].ended)
        if at < len(ends):
            dead[mark] = ends[at]
    return dead


def _is_deleted(call: Call) -> bool:
    """A deletion that found nothing says as well that there is nothing."""
    return call.kind == "delete" and call.status in {204, 404}


def _seen(call: Call) -> set[str]:
    if call.outcome != "ok":
        return set()
    shown: list[Logged] = []
    if call.kind == "tail":
        shown = call.answer["data"]
    elif call.kind == "view" and call.status == 200 and call.asked["format"] == "events":
        shown = call.answer["events"]
    elif call.kind == "append" and call.asked.get("format") == "events" and "view" in call.answer:
        shown = call.answer["view"]["events"]
    return {mark_of(logged) for logged in shown if is_of_client(logged)}


def still_there(session: Session) -> Iterator[Fault]:
    """What was acknowledged after the last deletion is there in the end."""
    deletions = [call for call in session.calls if call.kind == "delete" and call.outcome != "fail"]
    if any(call.outcome == "unknown" for call in deletions):
        return  # it may have been carried out at any time
    last = max((call.ended for call in deletions), default=0.0)
    for mark, calls in session.appends.items():
        if calls[-1].outcome == "ok" and calls[0].began > last and mark not in session.stored:
            yield Fault(kind="lost", said=f"{calls[-1]} was acknowledged after the last deletion")


def expired(session: Session) -> Iterator[Fault]:
    """Who asks for a session after its end is answered that it is gone."""
    if any(call.kind == "put" and call.outcome == "unknown" for call in session.calls):
        return  # a stopped server may make it anew
    ends = [call.asked["expires"] for call in session.calls if call.asked.get("expires") is not None]
    for call in session.calls:
        if ends and call.kind in {"view", "session", "tail"} and call.outcome == "ok" and call.began > max(ends):
            yield Fault(kind="risen", said=f"{call} was answered after the session's end at {max(ends):.3f}")
