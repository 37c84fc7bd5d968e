"""Field cases C: real clients at the same moment, each with connections of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.conftest import Service
from tests.field.conftest import fresh_id
from tests.field.modelled import Modelled, attempts, condense, long_turns, told
from tests.field.refusals import refused
from tests.model_server import Reply
from tests.talk import Message, Talk, assistant, seqs_in, tool, turns, user
from tests.validity import assert_valid


def at_once(service: Service, count: int, call: Callable[[httpx.Client, int], httpx.Response]) -> list[httpx.Response]:
    """Call from ``count`` clients at the same moment and return the answers, in the order of the clients."""
    start = threading.Barrier(count)

    def one(number: int) -> httpx.Response:
        with service.client() as http:
            http.get("/healthz").raise_for_status()  # the connection is there before the start
            start.wait(timeout=60)
            return call(http, number)

    with ThreadPoolExecutor(count) as threads:
        return [*threads.map(one, range(count))]


def compact_at_once(model: Modelled, talk: Talk, answer: Reply) -> list[httpx.Response]:
    """Compact one session to two turns from eight clients at the same moment."""
    model.server.answer = answer
    body = {"window": {"rule": "last_turns", "size": 2}, "summarizer": {"type": "llm"}}
    return at_once(model.service, 8, lambda http, _: http.post(f"{talk.path}/compact", json=body))


def test_c23_eight_compactions_at_once_write_one_boundary_and_pay_once(model: Modelled) -> None:
    talk = model.talk()
    talk.append(*long_turns(10))
    answers = compact_at_once(model, talk, Reply(text="Eight turns.", delay=1.5))
    assert {answer.status_code for answer in answers} == {200}
    outcomes = [answer.json() for answer in answers]
    [applied] = [outcome for outcome in outcomes if outcome["status"] == "applied"]
    assert seqs_in(applied["covered"]["ranges"]) == [*range(1, 17)]
    for outcome in outcomes:
        if outcome is not applied:
            assert (outcome["status"], outcome["reason"]) in {("unchanged", "fits-window"), ("unchanged", "lost-race")}
    assert len(model.server.requests) == 1
    assert len(talk.get("/compactions")["data"]) == 1
    assert told(talk) == ["Eight turns."]
    assert talk.seqs() == [22, 23, *range(17, 21)]
    assert [attempt["status"] for attempt in attempts(talk)] == ["applied"]
    assert_valid(talk)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Reply(status=400, delay=1.5), "refused-request"),  # refused
        (Reply(text=" ", delay=1.5), "empty"),  # an answer that is no summary
    ],
)
def test_c23_eight_compactions_at_once_pay_once_for_a_failure_too(model: Modelled, answer: Reply, cause: str) -> None:
    talk = model.talk()
    talk.append(*long_turns(10))
    answers = compact_at_once(model, talk, answer)
    assert [refused(one, 502, code="summarizer-failed")["cause"] for one in answers] == [cause] * 8
    assert len(model.server.requests) == 1
    assert [(one["status"], one["error"]) for one in attempts(talk)] == [("failed", cause)]
    assert talk.seqs() == [*range(1, 21)]
    # Nothing is locked, and the next call is a new one.
    model.server.answer = "Eight turns."
    assert condense(talk, last_turns=2)["status"] == "applied"


def test_c23_eight_compactions_at_once_of_a_view_that_does_not_shrink_pay_once(model: Modelled) -> None:
    """Those who waited for somebody else's call have its outcome; they do not ask the same of the model again."""
    talk = model.talk()
    talk.append(*turns(10))
    answers = compact_at_once(model, talk, Reply(text="blah " * 500, delay=1.5))
    outcomes = [(answer.status_code, answer.json()["status"], answer.json()["reason"]) for answer in answers]
    assert set(outcomes) == {(200, "unchanged", "does-not-shrink")}
    assert len(model.server.requests) == 1


def test_c24_appends_and_reads_go_on_while_the_model_is_thinking(model: Modelled) -> None:
    """The case has the model think for thirty seconds; here for as long as the others need, which is the same."""
    talk = model.talk()
    talk.append(*long_turns(10))
    thought = threading.Event()

    def think(_: object) -> str:
        assert thought.wait(60)
        return "Eight turns."

    model.server.answer = think
    with model.service.client() as own, ThreadPoolExecutor(1) as thread:
        try:
            compacting = thread.submit(condense, Talk(own, talk.id), last_turns=2)
            model.server.wait_for(1)
            question, answer = turns(1, first=11)
            assert talk.append(question)["version"] == 21
            assert talk.append(answer, expected_version=21)["version"] == 22
            assert talk.seqs() == [*range(1, 23)]
            assert not compacting.done()
        finally:
            thought.set()
        outcome = compacting.result()
    assert outcome["status"] == "applied"
    assert seqs_in(outcome["covered"]["ranges"]) == [*range(1, 17)]
    assert told(talk) == ["Eight turns."]
    assert talk.seqs() == [24, 25, *range(17, 23)]
    assert talk.texts()[-2:] == ["question 11", "answer 11"]
    assert_valid(talk)


def batch_of(writer: int) -> list[Message]:
    """Return ten events that only make sense together: two turns, each with a call and its result."""
    said: list[Message] = []
    for part in ("a", "b"):
        call = f"w{writer}{part}"
        said += [
            user(f"{call} asks"), assistant(None, **{call: "f"}), tool(call, f"{call} result"),
            assistant(f"{call} says"), assistant(f"{call} adds"),
        ]  # fmt: skip
    return said


@pytest.mark.parametrize("exists", [True, False], ids=["existing", "created-by-the-first"])
def test_c25_many_writers_on_one_session_keep_their_batches_contiguous(service: Service, *, exists: bool) -> None:
    session, writers = fresh_id(), 20
    path = f"/v1/sessions/{session}"
    with service.client() as http:
        if exists:
            assert http.put(path).status_code == 201

        def append(own: httpx.Client, writer: int) -> httpx.Response:
            events = [{"message": message} for message in batch_of(writer)]
            return own.post(f"{path}/events?create=true", json={"events": events})

        answers = at_once(service, writers, append)
        talk = Talk(http, session)
        stored = [answer for answer in answers if answer.status_code == 201]
        for answer in answers:
            if answer.status_code != 201:
                refused(answer, 409, 503)
        assert stored
        log = talk.log()
        assert [event["seq"] for event in log] == [*range(1, 10 * len(stored) + 1)]
        assert len({event["id"] for event in log}) == len(log)
        by_seq = {event["seq"]: event["message"] for event in log}
        for writer, answer in enumerate(answers):
            if answer.status_code == 201:
                seqs = [event["seq"] for event in answer.json()["events"]]
                assert seqs == [*range(seqs[0], seqs[0] + 10)]
                assert [by_seq[seq] for seq in seqs] == batch_of(writer)
                assert answer.json()["version"] == seqs[-1]
        assert talk.session()["version"] == len(log)
        assert talk.session()["view"]["turns"] == 2 * len(stored)
        assert_valid(talk)


def test_c25_writers_of_one_event_leave_no_gap(service: Service) -> None:
    session = fresh_id()
    path = f"/v1/sessions/{session}/events?create=true"

    def append(own: httpx.Client, writer: int) -> httpx.Response:
        last = None
        for number in range(20):
            last = own.post(path, json={"events": [{"message": user(f"{writer}-{number}")}]})
            assert last.status_code == 201, last.text
        assert last is not None
        return last

    at_once(service, 20, append)
    with service.client() as http:
        log = Talk(http, session).log()
        assert [event["seq"] for event in log] == [*range(1, 401)]
        for writer in range(20):
            own = [event["message"]["content"] for event in log if event["message"]["content"].startswith(f"{writer}-")]
            assert own == [f"{writer}-{number}" for number in range(20)]


def test_c25_of_writers_that_expect_one_version_exactly_one_wins(service: Service) -> None:
    session = fresh_id()
    with service.client() as http:
        talk = Talk(http, session)
        talk.append(user("first"))
        body = {"expected_version": 1}

        def append(own: httpx.Client, writer: int) -> httpx.Response:
            return own.post(talk.path + "/events", json={**body, "events": [{"message": user(f"writer {writer}")}]})

        answers = at_once(service, 20, append)
        assert sorted(answer.status_code for answer in answers) == [201] + [412] * 19
        for answer in answers:
            if answer.status_code == 412:
                assert refused(answer, 412, code="version-conflict")["current_version"] == 2
        assert talk.session()["version"] == 2


REPEATABLE: list[tuple[str, dict[str, str], list[dict[str, Any]]]] = [
    (
        "key",
        {"Idempotency-Key": "order-4711"},
        [{"message": user("Where is it?")}, {"message": assistant("On its way.")}],
    ),
    (
        "ids",
        {},
        [{"id": "q-1", "message": user("Where is it?")}, {"id": "a-1", "message": assistant("On its way.")}],
    ),
]


@pytest.mark.parametrize(("headers", "events"), [row[1:] for row in REPEATABLE], ids=[row[0] for row in REPEATABLE])
@pytest.mark.parametrize("first", [True, False], ids=["after-the-first", "all-at-once"])
def test_c26_a_retry_after_a_lost_answer_stores_nothing_twice(
    service: Service, headers: dict[str, str], events: list[dict[str, Any]], *, first: bool
) -> None:
    session = fresh_id()
    path = f"/v1/sessions/{session}/events?create=true"

    def send(own: httpx.Client, _: int) -> httpx.Response:
        return own.post(path, json={"events": events}, headers=headers)

    with service.client() as http:
        seen = []
        if first:
            seen.append(send(http, 0))
            assert seen[0].status_code == 201
            seen.append(send(http, 0))
            assert seen[1].status_code == 200
            assert all(event["replayed"] for event in seen[1].json()["events"])
        seen += at_once(service, 50, send)
        assert sorted(answer.status_code for answer in seen) == [200] * (len(seen) - 1) + [201]
        said = {tuple((event["id"], event["seq"]) for event in answer.json()["events"]) for answer in seen}
        assert len(said) == 1
        assert {answer.json()["version"] for answer in seen} == {2}
        talk = Talk(http, session)
        log = talk.log()
        assert [(event["id"], event["seq"]) for event in log] == [*said.pop()]
        assert [event["message"] for event in log] == [event["message"] for event in events]
        assert talk.session()["version"] == 2
        assert talk.view()["turns"] == 1


def test_c26_a_retry_comes_after_others_have_written(talk: Talk) -> None:
    body = {"events": [{"message": user("a")}], "expected_version": 0}
    path, headers = talk.path + "/events?create=true", {"Idempotency-Key": "k"}
    first = talk.http.post(path, json=body, headers=headers)
    talk.append(user("b"), user("c"))
    again = talk.http.post(path, json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["version"] == first.json()["version"] == 1
    assert again.json()["events"] == [{**event, "replayed": True} for event in first.json()["events"]]
    assert talk.texts() == ["a", "b", "c"]


def test_c26_the_same_key_or_id_with_other_content_is_refused(talk: Talk) -> None:
    path, headers = talk.path + "/events?create=true", {"Idempotency-Key": "k"}
    assert talk.http.post(path, json={"events": [{"message": user("a")}]}, headers=headers).status_code == 201
    for other in ([user("b")], [user("a"), user("b")], []):
        response = talk.http.post(path, json={"events": [{"message": one} for one in other]}, headers=headers)
        refused(response, 409 if other else 422)
    talk.append({"id": "e", "message": user("c")})
    refusal = refused(talk.http.post(path, json={"events": [{"id": "e", "message": user("d")}]}), 409)
    assert (refusal["code"], refusal["event_id"], refusal["seq"]) == ("event-id-conflict", "e", 2)
    assert talk.texts() == ["a", "c"]
