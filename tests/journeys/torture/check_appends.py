"""Checks of what was appended: each event once, each batch whole, in the order in which clients knew of each other."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.journeys.torture.history import Call, Logged
from tests.journeys.torture.session import Fault, Session, is_of_client, mark_of


def whole(session: Session) -> Iterator[Fault]:
    """Every batch is in the log whole and contiguous or not at all, as it was sent, and nothing else of a client's."""
    for logged in session.log:
        if is_of_client(logged) and mark_of(logged) not in session.appends:
            yield Fault(kind="stranger", said=f"{session.name}: nobody sent the event at {logged['seq']}")
    for mark in session.stored.keys() & session.appends.keys():
        yield from _whole(session.appends[mark][0], session.stored[mark])


def _whole(call: Call, stored: Sequence[Logged]) -> Iterator[Fault]:
    sent = call.asked["events"]
    places = [logged["seq"] for logged in stored]
    if len(stored) > len(sent):
        yield Fault(kind="duplicate", said=f"{call} is stored at {places}")
    elif len(stored) < len(sent):
        yield Fault(kind="torn", said=f"of {len(sent)} events of {call} only {places} are stored")
    elif places != [*range(places[0], places[0] + len(places))]:
        yield Fault(kind="scattered", said=f"{call} is stored at {places}")
    elif [_content(logged) for logged in stored] != [_content(event) for event in sent]:
        yield Fault(kind="altered", said=f"{call} is stored at {places} with other content")


def _content(event: Logged) -> tuple[object, ...]:
    return event.get("type", "MESSAGE"), event.get("message"), event.get("payload"), event["metadata"]


def receipts(session: Session) -> Iterator[Fault]:
    """An answer fits in itself: contiguous places, and the version right after what is new."""
    for call in session.calls:
        if call.kind != "append" or call.outcome != "ok":
            continue
        given = call.answer["events"]
        seqs = [one["seq"] for one in given]
        replayed = {one["replayed"] for one in given}
        fits = seqs == [*range(seqs[0], seqs[0] + len(call.asked["events"]))] and len(replayed) == 1
        version = call.answer["version"]
        exact = replayed == {False} or "key" in call.asked
        if not fits or (version != seqs[-1] if exact else version < seqs[-1]):
            yield Fault(kind="receipt", said=f"{call} says version {version} and {given}")
        if (call.status == 200) != (replayed == {True}):
            yield Fault(kind="receipt", said=f"{call} says {given}")
        if replayed == {True} and session.appends[call.mark][0] is call:
            yield Fault(kind="receipt", said=f"{call} was the first of its kind and is said to be a replay")


def acknowledged(session: Session) -> Iterator[Fault]:
    """Every acknowledged event is in the log where its receipts say."""
    for mark, calls in session.appends.items():
        for call in calls:
            if call.outcome != "ok":
                continue
            stored = session.stored.get(mark, [])
            said = [(one["id"], one["seq"], one["token_count"]) for one in call.answer["events"]]
            if not stored:
                yield Fault(kind="lost", said=f"{call} was acknowledged as {said}")
            elif [(one["id"], one["seq"], one["token_count"]) for one in stored] != said:
                yield Fault(kind="moved", said=f"{call} was acknowledged as {said}, stored otherwise")
        if sum(_is_new(call) for call in calls) > 1:
            yield Fault(kind="receipt", said=f"{calls[0]} was new more than once")


def _is_new(call: Call) -> bool:
    return call.outcome == "ok" and not call.answer["events"][0]["replayed"]


def refused(session: Session) -> Iterator[Fault]:
    """What was refused for its version is not in the log: the refusal is made after the look for replays."""
    for mark, calls in session.appends.items():
        is_out = any(call.status == 412 for call in calls) or all(call.outcome == "fail" for call in calls)
        if is_out and mark in session.stored:
            yield Fault(kind="refused-yet-stored", said=f"{calls[-1]} is at {session.stored[mark][0]['seq']}")


def in_order(session: Session) -> Iterator[Fault]:
    """An append that began after another one was acknowledged stands behind it; so each client's own order holds."""
    earliest_end, whose = math.inf, ""
    for mark, stored in sorted(session.stored.items(), key=lambda item: -item[1][0]["seq"]):
        calls = session.appends.get(mark, [])
        if not calls:
            continue
        if calls[0].began > earliest_end:
            yield Fault(
                kind="order", said=f"{calls[0]} is at {stored[0]['seq']}, before {whose}, which was done earlier"
            )
        for call in calls:
            if call.outcome == "ok" and call.ended < earliest_end:
                earliest_end, whose = call.ended, str(call)


def expected(session: Session) -> Iterator[Fault]:
    """An append that insists on a version is stored right after it, and refused only when the log is elsewhere."""
    for mark, calls in session.appends.items():
        wanted = calls[0].asked.get("expected_version")
        stored = session.stored.get(mark)
        if wanted is not None and stored and stored[0]["seq"] != wanted + 1:
            yield Fault(kind="expected-version", said=f"{calls[0]} wanted {wanted} and is at {stored[0]['seq']}")
        for call in calls:
            if call.status == 412 and call.answer["current_version"] == wanted:
                yield Fault(kind="expected-version", said=f"{call} was refused at the version that it wanted")


def boundaries(session: Session) -> Iterator[Fault]:
    """Every compaction that was answered as applied is in the log as answered."""
    found = {logged["seq"]: logged for logged in session.log if logged["type"] == "COMPACTION"}
    applied = [call for call in session.calls if call.kind == "compact" and _is_applied(call)]
    for call in applied:
        said, logged = call.answer, found.get(call.answer["boundary"])
        if logged is None:
            yield Fault(kind="lost", said=f"the boundary of {call}: {said}")
            continue
        payload = logged["payload"]
        end = payload["summary"][-1] if payload["summary"] else logged["seq"]
        same = said["covered"]["ranges"] == payload["newly_covered"] and said["tokens"] == payload["tokens"]
        if not same or said["version"] != end or said["preserved"]["ranges"] != payload["preserved"]:
            yield Fault(kind="boundary", said=f"{call} says {said}, the log {logged}")
        if logged["seq"] <= session.known_before(call.began):
            yield Fault(kind="order", said=f"the boundary of {call} is at {logged['seq']}, before what was there")
    for seq, often in Counter(call.answer["boundary"] for call in applied).items():
        if often > 1:
            yield Fault(kind="boundary", said=f"{session.name}: {often} compactions say that they wrote {seq}")


def _is_applied(call: Call) -> bool:
    return call.outcome == "ok" and call.answer["status"] == "applied"


def all_boundaries(calls: Sequence[Call], logs: Mapping[str, Sequence[Logged]]) -> Iterator[Fault]:
    """A log has as many boundaries as were answered, by compactions of it and of the fleet, and none unasked."""
    fleet: Counter[str] = Counter()
    for call in calls:
        if call.kind == "fleet" and call.outcome == "ok":
            fleet.update(one["session_id"] for one in call.answer["results"] if one["status"] == "applied")
    hand = Counter(call.session for call in calls if call.kind == "compact" and _is_applied(call))
    unsure = Counter(call.session for call in calls if call.kind in {"compact", "fleet"} and call.outcome == "unknown")
    for name, log in logs.items():
        if not name.startswith("kept"):
            continue  # it took its boundaries along when it was deleted
        made = sum(logged["type"] == "COMPACTION" for logged in log)
        answered, possible = hand[name] + fleet[name], unsure[name] + unsure[""]
        if made < answered:
            yield Fault(kind="lost", said=f"{name}: {answered} compactions were applied, {made} are there")
        elif made > answered + possible:
            yield Fault(kind="unasked", said=f"{name}: {made} boundaries, {answered} applied, {possible} unknown")
