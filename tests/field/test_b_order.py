"""Field cases B: order and identity of sessions and events."""

import json
import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import httpx
import pytest

from tests.conftest import Service, settings_for
from tests.field.conftest import Copies, fresh_id
from tests.field.refusals import places, refused
from tests.talk import Talk, assistant, seqs_in, turns, user
from tests.validity import assert_valid


def stamped(count: int, timestamp: str, first: int = 1) -> list[dict[str, object]]:
    """Return events, alternating user and assistant, that all carry one timestamp."""
    return [
        {"timestamp": timestamp, "message": user(f"said {at}") if at % 2 else assistant(f"said {at}")}
        for at in range(first, first + count)
    ]


def test_c15_equal_timestamps_do_not_scramble_the_order(database_url: str) -> None:
    same = "2026-03-01T10:00:00.123456Z"
    expected = [f"said {at}" for at in range(1, 101)]
    session = fresh_id()
    with Service(settings_for(database_url)) as service, service.client() as http:
        talk, stop = Talk(http, session), threading.Event()

        def write_elsewhere(number: int) -> None:
            with service.client() as own:
                other = Talk(own, f"other-{number}")
                while not stop.is_set():
                    other.append(*stamped(10, same))

        others = [threading.Thread(target=write_elsewhere, args=(number,)) for number in range(20)]
        for other in others:
            other.start()
        try:
            talk.append(*stamped(50, same))
            talk.append(*stamped(50, same, first=51))
        finally:
            stop.set()
            for other in others:
                other.join(timeout=60)
        assert [event["message"]["content"] for event in talk.log()] == expected
        assert [event["seq"] for event in talk.log()] == [*range(1, 101)]
        assert [event["message"]["content"] for event in talk.log(limit=7)] == expected
        assert {event["timestamp"] for event in talk.log()} == {same}
        assert talk.texts() == expected
        talk.compact(last_turns=10)
        assert talk.texts() == expected[-20:]
        before = [talk.http.get(talk.path + "/view").content, talk.http.get(talk.path + "/events").content]
    with Service(settings_for(database_url)) as service, service.client() as http:
        talk = Talk(http, session)
        assert [talk.http.get(talk.path + "/view").content, talk.http.get(talk.path + "/events").content] == before
        assert [e["message"]["content"] for e in talk.log() if e["type"] == "MESSAGE"] == expected


def test_c16_a_wrong_clock_orders_nothing(talk: Talk) -> None:
    now = datetime.now(UTC)
    sent = [now + timedelta(hours=5), now, now - timedelta(days=2), now]
    said = [user("one"), assistant("two"), user("three"), assistant("four")]
    for instant, message in zip(sent, said, strict=True):
        talk.append({"timestamp": instant.isoformat(), "message": message})
    assert talk.texts() == ["one", "two", "three", "four"]
    outcome = talk.compact(last_turns=1)
    assert seqs_in(outcome["covered"]["ranges"]) == [1, 2]
    assert talk.seqs() == [3, 4]
    log = [event for event in talk.log() if event["type"] == "MESSAGE"]
    assert [datetime.fromisoformat(event["timestamp"]) for event in log] == sent
    stored = [datetime.fromisoformat(event["stored_at"]) for event in log]
    assert stored == sorted(stored)
    assert all(abs(instant - now) < timedelta(hours=1) for instant in stored)
    assert_valid(talk)


@pytest.mark.parametrize(
    ("timestamp", "read"),
    [
        ("2026-03-01T10:00:00Z", "2026-03-01T10:00:00.000000Z"),
        ("2026-03-01T15:30:00+05:30", "2026-03-01T10:00:00.000000Z"),
        ("2026-03-01T10:00:00.000001-00:00", "2026-03-01T10:00:00.000001Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
        ("9999-12-31T23:59:59.999999+00:00", "9999-12-31T23:59:59.999999Z"),
        (None, None),
    ],
)
def test_c17_a_timestamp_with_a_zone_is_read_back_as_the_same_instant(
    talk: Talk, timestamp: str | None, read: str | None
) -> None:
    talk.append({"timestamp": timestamp, "message": user("a")}, user("b"))
    assert [event["timestamp"] for event in talk.log()] == [read, None]
    assert [event["timestamp"] for event in talk.view()["events"]] == [read, None]


@pytest.mark.parametrize(
    "timestamp",
    [
        "2026-03-01T10:00:00",  # no zone: nobody knows when that was
        "2026-02-30T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-03-01T25:00:00Z",
        "2026-03-01",
        "",
        "yesterday",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+05:00",  # in UTC before the year 1
        "9999-12-31T23:59:59-05:00",  # in UTC after the year 9999
        "infinity",
        1772359200,
        True,
        {},
    ],
    ids=repr,
)
def test_c17_one_impossible_timestamp_leaves_nothing_of_its_batch(talk: Talk, timestamp: object) -> None:
    talk.append(user("before"))
    batch = [{"message": user("a")}, {"timestamp": timestamp, "message": user("b")}, {"message": user("c")}]
    response = talk.http.post(talk.path + "/events", json={"events": batch})
    assert places(refused(response, 422, code="invalid-request")) == ["/events/1/timestamp"]
    assert talk.texts() == ["before"]
    assert talk.session()["version"] == 1


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_c17_a_purge_up_to_a_moment_that_utc_does_not_have_is_refused(http: httpx.Client, moment: str) -> None:
    problem = refused(http.post("/v1/purge", json={"expired_before": moment}), 422, code="invalid-request")
    assert places(problem) == ["/expired_before"]


GOOD_IDS = ["a+b", "a,b", "a=b", "mail@example.org", "x:y~z_-.", "...", "A", "é".encode().hex(), "a" * 255]
BAD_IDS = [
    "team/alpha", "a b", "100%", "a%2Fb", "..", ".", "é", "用户-1", "x?y#z", "a\\b", "a\x00b", "a\nb", "a;b", "a*b",
    "e\u0301", "＋", "", "a" * 256, "team/events", "x/view",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD_IDS, ids=lambda name: name[:20])
def test_c21_a_session_id_that_can_be_created_is_reached_by_every_route(http: httpx.Client, name: str) -> None:
    path = f"/v1/sessions/{quote(name, safe='')}"
    mark = fresh_id()
    assert http.post("/v1/sessions", json={"id": name, "metadata": {"mark": mark}}).status_code == 201
    assert http.post(f"{path}/events", json={"events": [{"message": one} for one in turns(3)]}).status_code == 201
    assert http.post(f"{path}/events?create=true", json={"events": [{"message": user("x")}]}).status_code == 201
    assert http.post(f"{path}/compact", json={"window": {"rule": "last_turns", "size": 1}}).status_code == 200
    assert http.patch(path, json={"metadata": {"more": 1}}).json()["id"] == name
    for below in ("", "/view", "/events", "/compactions"):
        assert http.get(path + below).status_code == 200, below
    assert http.get(f"{path}/view").json()["session_id"] == name
    assert [one["id"] for one in http.get("/v1/sessions", params={"metadata.mark": mark}).json()["data"]] == [name]
    # The characters that need no encoding name the same session when they are encoded.
    everything = "".join(f"%{byte:02X}" for byte in name.encode())
    assert http.get(f"/v1/sessions/{everything}").json()["id"] == name
    assert http.delete(path).status_code == 204
    for below in ("", "/view", "/events", "/compactions"):
        refused(http.get(path + below), 404, code="session-not-found")


@pytest.mark.parametrize("name", BAD_IDS, ids=lambda name: ascii(name)[:20])
def test_c21_a_session_id_outside_the_rule_is_refused_at_creation_and_unknown_elsewhere(
    http: httpx.Client, name: str
) -> None:
    refused(http.post("/v1/sessions", json={"id": name}), 422, code="invalid-request")
    encoded = "".join(f"%{byte:02X}" for byte in name.encode())
    path = f"/v1/sessions/{encoded}"
    if name:
        batch = {"events": [{"message": user("x")}]}
        problem = refused(http.post(f"{path}/events?create=true", json=batch), 422, code="invalid-request")
        assert places(problem) == ["session_id"]
        refused(http.put(path, json={}), 422, code="invalid-request")
        refused(http.post(f"{path}/events", json=batch), 404)
        refused(http.post(f"{path}/compact", json={"window": {"rule": "last_turns", "size": 1}}), 404)
        refused(http.delete(path), 404)
        refused(http.patch(path, json={}), 404)
    for below in ("/view", "/events", "/compactions"):
        refused(http.get(path + below), 404)


def test_c21_an_encoded_slash_never_separates(copy_of: Copies) -> None:
    talk = copy_of([user("secret")])
    http = talk.http
    for path in (
        f"{talk.path}%2Fevents", f"{talk.path}%2fview", f"{talk.path}%252Fevents", f"/v1%2Fsessions/{talk.id}",
        f"/v1/sessions%2F{talk.id}",
    ):  # fmt: skip
        refused(http.get(path), 404, unsaid="secret")
    refused(http.delete(f"/v1%2Fsessions/{talk.id}"), 404)
    assert talk.texts() == ["secret"]


def test_c21_a_percent_sign_is_decoded_once(http: httpx.Client) -> None:
    # a%252Fb names the session "a%2Fb" and a%2Fb names "a/b": two names, neither of which a session can have.
    batch = {"events": [{"message": user("x")}]}
    for path in ("a%252Fb", "a%2Fb", "a%25252Fb"):
        refused(http.post(f"/v1/sessions/{path}/events?create=true", json=batch), 422)
    assert "session" not in json.dumps(refused(http.get("/v1/sessions/a/b"), 404, code="not-found"))


def test_c22_identical_text_is_not_a_duplicate(talk: Talk) -> None:
    answers = [talk.append(user("ok")) for _ in range(3)]
    assert [answer["events"][0]["seq"] for answer in answers] == [1, 2, 3]
    assert len({answer["events"][0]["id"] for answer in answers}) == 3
    assert not any(answer["events"][0]["replayed"] for answer in answers)
    together = talk.append(user("ok"), user("ok"), user("ok"))
    assert [event["seq"] for event in together["events"]] == [4, 5, 6]
    assert talk.texts() == ["ok"] * 6
    assert talk.view()["turns"] == talk.session()["view"]["turns"] == 6
    outcome = talk.compact(last_turns=2)
    assert seqs_in(outcome["covered"]["ranges"]) == [1, 2, 3, 4]
