"""The checker finds what it is there for: each planted fault, and none in a history that fits.

A history is told by a small service that is right: calls come one after the other, each lasting a second.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.service.views import FORMATS
from tests.journeys.torture.checker import check
from tests.journeys.torture.history import Call, History, Logged, load
from tests.journeys.torture.session import Session
from tests.talk import assistant, user

KEPT = "kept-0-0"


class Told:
    """A history that fits, to plant faults in."""

    def __init__(self, name: str = KEPT) -> None:
        self.name = name
        self.now = 0.0
        self.op = 0
        self.calls: list[Call] = []
        self.log: list[Logged] = []

    def call(self, kind: str, answer: Any = None, client: int = 1, **more: Any) -> Call:
        self.now += 2
        self.op += 1
        facts = {"op": self.op, "outcome": "ok", "status": 200, "began": self.now, "ended": self.now + 1, **more}
        self.calls.append(Call(client=client, kind=kind, session=self.name, answer=answer, **facts))
        return self.calls[-1]

    def append(self, size: int = 2, **more: Any) -> Call:
        mark = f"1.{self.op + 1}"
        said = [user(f"{mark} asks"), assistant(f"{mark} says")] * size
        sent = [{"message": one, "metadata": {"mark": mark, "at": at}} for at, one in enumerate(said[:size])]
        first = len(self.log) + 1
        self.log += [self.logged(first + at, f"{mark}.{at}", **one) for at, one in enumerate(sent)]
        stored = self.log[first - 1 :]
        receipt = [{"id": e["id"], "seq": e["seq"], "token_count": 5, "replayed": False} for e in stored]
        answer = {"version": len(self.log), "events": receipt}
        asked = {"events": sent, **more.pop("asked", {})}
        return self.call("append", **{"answer": answer, "status": 201, "asked": asked, **more})

    def logged(self, seq: int, name: str, **more: Any) -> Logged:
        stamp = f"2026-11-30T10:00:{seq % 60:02}.000000Z"
        event = {"id": name, "session_id": self.name, "seq": seq, "type": "MESSAGE", "timestamp": None}
        facts = {"stored_at": stamp, "metadata": {}, "synthetic": False, "token_count": 5, "covered": False}
        return {**event, **facts, **more}

    def view(self, output: str = "events", version: int | None = None) -> Call:
        at = len(self.log) if version is None else version
        shown = Session(self.name, self.log, []).shown(at, output)
        asked = {"format": output} if version is None else {"format": output, "at_version": version}
        return self.call("view", shown, asked=asked, raw=str(shown), headers={"etag": f'"{at}-{output}"'})

    def tail(self, after: int, limit: int = 100) -> Call:
        data = self.log[after : after + limit]
        answer = {"data": data, "has_more": after + limit < len(self.log)}
        return self.call("tail", answer, asked={"after": after, "limit": limit})

    def session(self) -> Call:
        view = Session(self.name, self.log, []).view(len(self.log))
        figures = {"events": len(view.events), "turns": view.turns, "tokens": view.tokens, "boundary": view.boundary}
        return self.call("session", {"version": len(self.log), "view": figures})

    def compact(self, first: int, last: int) -> Call:
        seq = len(self.log) + 1
        kept = [[last + 1, seq - 1]]
        tokens = {"before": 30, "after": 20, "saved": 10}
        payload = {"covered": [[1, last]], "newly_covered": [[first, last]], "preserved": kept, "summary": []}
        self.log.append(self.logged(seq, f"b{seq}", type="COMPACTION", payload={**payload, "tokens": tokens}))
        self.log[-1]["token_count"] = 0
        said = {"status": "applied", "version": seq, "boundary": seq, "tokens": tokens}
        ranges = {"covered": {"ranges": [[first, last]]}, "preserved": {"ranges": kept}}
        return self.call("compact", {**said, **ranges})

    def change(self, old: Call, **changes: Any) -> None:
        self.calls[self.calls.index(old)] = replace(old, **changes)

    def kinds(self) -> set[str]:
        return {fault.kind for fault in check(self.calls, {self.name: self.log})}


def told() -> Told:
    """Return a history with something of everything, six events and a boundary at 5."""
    one = Told()
    one.append()
    one.append()
    one.compact(1, 2)
    one.append(1)
    return one


@pytest.mark.parametrize("output", FORMATS)
def test_a_history_that_fits_has_no_fault(output: str) -> None:
    one = told()
    one.view(output)
    one.view(output, version=3)
    one.session()
    one.tail(2, limit=3)
    lost = one.append()
    one.change(lost, outcome="unknown", status=None, answer=None)
    one.call("view", None, status=304, asked={"format": output}, headers={"etag": f'"{len(one.log)}-{output}"'})
    one.call(
        "append", {"detail": "no"}, outcome="unknown", status=503, asked={"events": [{}]}, headers={"retry-after": "1"}
    )
    assert one.kinds() == set()


def test_an_answer_that_was_lost_and_given_again_fits() -> None:
    one = told()
    made = one.append()
    one.change(made, outcome="unknown", status=None, answer=None)
    again = [{**event, "replayed": True} for event in made.answer["events"]]
    one.call("append", {**made.answer, "events": again}, op=made.op, asked=made.asked)
    assert one.kinds() == set()
    one.change(one.calls[-1], answer=made.answer, status=201)
    one.change(one.calls[-2], outcome="ok", answer=made.answer, status=201)
    assert one.kinds() == {"receipt"}, "it was new twice"


def lose_an_event(one: Told) -> None:
    one.log.pop()


def lose_a_batch_in_the_middle(one: Told) -> None:
    del one.log[2:4]
    for at, logged in enumerate(one.log, 1):
        logged["seq"] = at


def store_twice(one: Told) -> None:
    one.log += [one.logged(7, "again", message=one.log[5]["message"], metadata=one.log[5]["metadata"])]


def swap_batches(one: Told) -> None:
    one.log[0:4] = [{**one.log[at], "seq": seq} for seq, at in enumerate((2, 3, 0, 1), 1)]
    for call, seqs in ((one.calls[0], (3, 4)), (one.calls[1], (1, 2))):
        events = [{**event, "seq": seq} for event, seq in zip(call.answer["events"], seqs, strict=True)]
        one.change(call, answer={"version": seqs[-1], "events": events})


def leave_a_gap(one: Told) -> None:
    one.log[5]["seq"] = 7


def repeat_a_seq(one: Told) -> None:
    one.log[5]["seq"] = 5


def tear_a_batch(one: Told) -> None:
    made = one.append(3)
    one.log.pop()
    one.change(made, outcome="unknown", status=None, answer=None)


def scatter_a_batch(one: Told) -> None:
    one.append(), one.append()
    one.log[6:10] = [{**one.log[at], "seq": seq} for seq, at in enumerate((6, 8, 7, 9), 7)]


def alter_a_message(one: Told) -> None:
    one.log[1] = {**one.log[1], "message": assistant("something else")}


def slip_in_an_event(one: Told) -> None:
    one.log.append(one.logged(7, "x", message=user("who?")))


def store_what_was_refused(one: Told) -> None:
    made = one.append(asked={"expected_version": 3})
    one.change(made, outcome="fail", status=412, answer={"current_version": 5})


def ignore_the_expected_version(one: Told) -> None:
    one.append(asked={"expected_version": 5})


def refuse_the_right_version(one: Told) -> None:
    asked = {"events": [{}], "expected_version": 6}
    one.call("append", {"current_version": 6}, outcome="fail", status=412, asked=asked)


def answer_another_seq(one: Told) -> None:
    made = one.calls[0]
    one.change(made, answer={"version": 3, "events": [{**e, "seq": e["seq"] + 1} for e in made.answer["events"]]})


def answer_another_version(one: Told) -> None:
    made = one.calls[0]
    one.change(made, answer={**made.answer, "version": 4})


def read_a_stale_view(one: Told) -> None:
    stale = one.view()
    made = one.append()
    one.change(made, began=stale.began - 1.5, ended=stale.began - 0.5)


def go_back(one: Told) -> None:
    one.tail(0)
    old = one.call("session", {"version": 4, "view": {"events": 4, "turns": 2, "tokens": 20, "boundary": None}})
    assert old.session == KEPT


def answer_304_for_an_old_view(one: Told) -> None:
    one.call("view", None, status=304, asked={"format": "events"}, headers={"etag": '"4-events"'})


def show_what_is_covered(one: Told) -> None:
    shown = one.view()
    events = [{**logged} for logged in one.log if logged["type"] == "MESSAGE"]
    one.change(shown, answer={**shown.answer, "events": events}, raw="x")


def leave_an_event_out_of_an_earlier_view(one: Told) -> None:
    shown = one.view("openai", version=4)
    one.change(shown, answer={**shown.answer, "messages": shown.answer["messages"][1:]}, raw="x")


def answer_other_bytes(one: Told) -> None:
    one.view("openai")
    one.change(one.view("openai"), raw="the same, but for a blank")


def show_the_future(one: Told) -> None:
    shown = one.view()
    made = one.calls[-2]
    one.change(made, began=shown.ended + 1, ended=shown.ended + 2)


def pass_an_event_over(one: Told) -> None:
    page = one.tail(0)
    one.change(page, answer={"data": [one.log[0], *one.log[2:]], "has_more": False})


def end_a_page_early(one: Told) -> None:
    page = one.tail(0)
    one.change(page, answer={"data": one.log[:5], "has_more": False})


def say_wrong_figures(one: Told) -> None:
    session = one.session()
    one.change(session, answer={**session.answer, "view": {**session.answer["view"], "turns": 9}})


def lose_a_boundary(one: Told) -> None:
    one.log[4] = one.logged(5, "b5", type="ACME.X", payload={}, metadata={"mark": "1.1"})


def claim_a_boundary_twice(one: Told) -> None:
    done = next(call for call in one.calls if call.kind == "compact")
    one.calls.append(replace(done, client=2))


def compact_unasked(one: Told) -> None:
    one.calls.remove(one.compact(3, 3))


def uncover(one: Told) -> None:
    one.compact(3, 3)
    one.log[-1]["payload"]["covered"] = [[3, 3]]


def fail(one: Told) -> None:
    one.call("view", {"detail": "oh"}, outcome="fail", status=500, asked={"format": "events"})


def say_503_without_when(one: Told) -> None:
    one.call("view", {"detail": "later"}, outcome="unknown", status=503, asked={"format": "events"})


PLANTED: list[tuple[Callable[[Told], None], str]] = [
    (lose_an_event, "lost"),
    (lose_a_batch_in_the_middle, "lost"),
    (store_twice, "duplicate"),
    (swap_batches, "order"),
    (leave_a_gap, "broken-log"),
    (repeat_a_seq, "broken-log"),
    (tear_a_batch, "torn"),
    (scatter_a_batch, "scattered"),
    (alter_a_message, "altered"),
    (slip_in_an_event, "stranger"),
    (store_what_was_refused, "refused-yet-stored"),
    (ignore_the_expected_version, "expected-version"),
    (refuse_the_right_version, "expected-version"),
    (answer_another_seq, "moved"),
    (answer_another_version, "receipt"),
    (read_a_stale_view, "stale"),
    (go_back, "stale"),
    (answer_304_for_an_old_view, "stale"),
    (show_what_is_covered, "view"),
    (leave_an_event_out_of_an_earlier_view, "view"),
    (answer_other_bytes, "view"),
    (show_the_future, "future"),
    (pass_an_event_over, "tail"),
    (end_a_page_early, "stale"),
    (say_wrong_figures, "figures"),
    (lose_a_boundary, "lost"),
    (claim_a_boundary_twice, "boundary"),
    (compact_unasked, "unasked"),
    (uncover, "broken-log"),
    (fail, "status"),
    (say_503_without_when, "no-retry-after"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_fault_is_found(plant: Callable[[Told], None], kind: str) -> None:
    one = told()
    plant(one)
    assert kind in one.kinds()


def deleted() -> tuple[Told, Call]:
    """Return a session that was deleted and made again, and the append that went with the old one."""
    one = Told("gone-0")
    old = one.append()
    one.log.clear()
    one.call("delete", status=204)
    one.append()
    return one, old


def test_a_session_that_was_deleted_and_made_again_fits() -> None:
    one, _ = deleted()
    one.view()
    assert one.kinds() == set()


def test_an_event_that_is_seen_after_its_deletion_is_found() -> None:
    one, old = deleted()
    seen = one.view()
    risen = {**one.log[0], "metadata": {"mark": old.mark, "at": 0}}
    one.change(seen, answer={**seen.answer, "events": [risen]})
    assert one.kinds() == {"risen"}


def test_an_event_that_is_stored_after_its_deletion_is_found() -> None:
    one, old = deleted()
    for at, logged in enumerate(one.log):
        logged["metadata"] = {"mark": old.mark, "at": at}
        logged["message"] = old.asked["events"][at]["message"]
    assert one.kinds() == {"risen", "lost"}


def test_what_may_have_been_sent_twice_may_come_back_after_a_deletion() -> None:
    one, old = deleted()
    one.calls.insert(0, replace(old, outcome="unknown", answer=None, status=None, began=old.began - 1.5))
    one.change(old, answer=old.answer)
    one.log[:] = [
        {**one.log[at], "metadata": {"mark": old.mark, "at": at}, "message": old.asked["events"][at]["message"]}
        for at in range(2)
    ]
    assert one.kinds() == {"lost"}  # of the append after the deletion, but the other is not said to have risen


def test_a_session_that_is_read_after_its_end_is_found() -> None:
    one = Told("brief-1-1")
    one.append()
    shown = one.view()
    one.change(shown, asked={"format": "events", "expires": shown.began - 1})
    assert one.kinds() == {"risen"}


def test_a_history_that_was_saved_is_checked_in_the_same_way(tmp_path: Path) -> None:
    one = told()
    one.view("text")
    one.log[1] = {**one.log[1], "message": assistant("something else")}
    History(one.calls).save(tmp_path / "history.jsonl", {KEPT: one.log})

    history, logs = load(tmp_path / "history.jsonl")

    assert history.calls == one.calls
    assert check(history.calls, logs) == check(one.calls, {KEPT: one.log}) != []
