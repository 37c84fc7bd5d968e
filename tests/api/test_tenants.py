"""Tenants with the same ids everywhere: none of them sees, changes or holds up anything of the other's."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import httpx
import pytest

from tests.api.asking import expire, problem
from tests.api.keyed import ALL, clients, make_key
from tests.conftest import Service, cloned, execute, rows, settings_for
from tests.talk import turns

POLICY = {
    "trigger": {"type": "turn_count", "threshold": 2},
    "window": {"rule": "last_turns", "size": 1},
}


class Two(NamedTuple):
    """Two tenants' clients, an admin's of a third one, and the service."""

    one: httpx.Client
    other: httpx.Client
    admin: httpx.Client
    service: Service
    url: str


@pytest.fixture
def two(postgres: str, template: str) -> Iterator[Two]:
    with cloned(postgres, template) as url:
        keys = [make_key(url, "one", ALL), make_key(url, "other", ALL), make_key(url, "root", ("admin",))]
        with Service(settings_for(url)) as service, clients(service, *keys) as [one, other, admin]:
            yield Two(one, other, admin, service, url)


def say(http: httpx.Client, *texts: str, session: str = "s", **headers: str) -> httpx.Response:
    events = [{"id": f"e{at}", "message": {"role": "user", "content": text}} for at, text in enumerate(texts)]
    if "Idempotency-Key" in headers:
        events = [{"message": event["message"]} for event in events]
    path = f"/v1/sessions/{session}/events"
    return http.post(path, params={"create": "true"}, json={"events": events}, headers=headers)


def said(http: httpx.Client, session: str = "s") -> list[Any]:
    view = http.get(f"/v1/sessions/{session}/view", params={"format": "openai"})
    return [message["content"] for message in view.json()["messages"]]


FOREIGN: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("PATCH", "", {"metadata": {"stolen": True}}),
    ("DELETE", "", None),
    ("GET", "/events", None),
    ("GET", "/events?active=true", None),
    ("GET", "/events?last_n=1", None),
    ("GET", "/events/e0", None),
    ("POST", "/events", {"events": [{"message": {"role": "user", "content": "mine"}}]}),
    ("GET", "/view", None),
    ("HEAD", "/view", None),
    ("POST", "/compact", {"window": {"rule": "last_turns", "size": 1}}),
    ("GET", "/compactions", None),
    ("GET", "/compactions?attempts=true", None),
]


def test_a_foreign_session_is_one_that_does_not_exist(two: Two) -> None:
    assert say(two.one, "a", "b").status_code == 201
    before = rows(two.url, "SELECT * FROM sessions")
    for method, path, body in FOREIGN:
        foreign = two.other.request(method, f"/v1/sessions/s{path}", json=body)
        nobody = two.other.request(method, f"/v1/sessions/nobody{path}", json=body)
        assert foreign.status_code == nobody.status_code == 404, path
        if method != "HEAD":
            told = [problem(answer, 404, "session-not-found") for answer in (foreign, nobody)]
            assert len({one["detail"] for one in told}) == 1
    assert two.other.get("/v1/sessions").json()["data"] == []
    assert rows(two.url, "SELECT * FROM sessions") == before


def test_the_same_ids_are_different_things(two: Two) -> None:
    assert say(two.one, "mine").json()["events"][0]["replayed"] is False
    assert say(two.other, "theirs").json()["events"][0]["replayed"] is False
    assert (said(two.one), said(two.other)) == (["mine"], ["theirs"])
    assert say(two.one, "mine").json()["events"][0]["replayed"] is True
    problem(say(two.other, "mine"), 409, "event-id-conflict")

    for http, text in ((two.one, "mine"), (two.other, "theirs")):
        first = say(http, text, session="k", **{"Idempotency-Key": "same"})
        assert first.status_code == 201
        assert say(http, text, session="k", **{"Idempotency-Key": "same"}).json()["version"] == 1
    problem(say(two.other, "mine", session="k", **{"Idempotency-Key": "same"}), 409, "idempotency-key-reused")

    assert two.one.post("/v1/sessions", json={"id": "p"}).status_code == 201
    assert two.other.put("/v1/sessions/p").status_code == 201
    assert two.one.delete("/v1/sessions/p").status_code == 204
    assert two.other.get("/v1/sessions/p").status_code == 200


def test_lists_filters_and_cursors_show_a_tenant_his_own(two: Two) -> None:
    for at in range(3):
        for http in (two.one, two.other):
            body = {"id": f"s{at}", "metadata": {"principal": "alice", "of": http.headers["authorization"][-4:]}}
            assert http.post("/v1/sessions", json=body).status_code == 201
    for http in (two.one, two.other):
        mine = http.headers["authorization"][-4:]
        for params in ({}, {"metadata.principal": "alice"}):
            found = http.get("/v1/sessions", params=params).json()["data"]
            assert [one["id"] for one in found] == ["s0", "s1", "s2"]
            assert {one["metadata"]["of"] for one in found} == {mine}
    assert (
        two.other.get("/v1/sessions", params={"metadata.of": two.one.headers["authorization"][-4:]}).json()["data"]
        == []
    )
    cursor = two.one.get("/v1/sessions", params={"limit": 1}).json()["next_cursor"]
    page = two.other.get("/v1/sessions", params={"cursor": cursor}).json()["data"]
    assert {one["metadata"]["of"] for one in page} == {two.other.headers["authorization"][-4:]}


def test_a_cursor_into_another_tenants_log_is_a_place_in_ones_own(two: Two) -> None:
    say(two.one, "a", "b", "c")
    say(two.other, "x", "y")
    cursor = two.one.get("/v1/sessions/s/events", params={"limit": 1}).json()["next_cursor"]
    page = two.other.get("/v1/sessions/s/events", params={"cursor": cursor}).json()["data"]
    assert [one["message"]["content"] for one in page] == ["y"]


def test_the_kept_view_of_one_is_never_the_answer_to_the_other(two: Two) -> None:
    say(two.one, "mine")
    say(two.other, "theirs")
    for _ in range(3):
        assert said(two.one) == ["mine"]
        assert said(two.other) == ["theirs"]
    tag = two.one.get("/v1/sessions/s/view").headers["etag"]
    two.one.delete("/v1/sessions/s")
    assert two.one.get("/v1/sessions/s/view").status_code == 404
    assert two.other.get("/v1/sessions/s/view", headers={"If-None-Match": tag}).status_code == 304


def test_a_chat_memory_is_a_tenants_own(two: Two) -> None:
    def add(http: httpx.Client, text: str) -> Any:
        body = {"messages": [{"role": "user", "content": text}]}
        return http.post("/v1/chat-memory/c/messages", json=body).json()["messages"]

    assert len(add(two.one, "mine")) == 1
    assert [one["content"] for one in add(two.other, "theirs")] == ["theirs"]
    assert two.one.delete("/v1/chat-memory/c").status_code == 204
    assert len(two.other.get("/v1/chat-memory/c").json()["messages"]) == 1
    assert two.one.get("/v1/chat-memory/c").json()["messages"] == []


def long_sessions(two: Two) -> None:
    for http in (two.one, two.other):
        http.post("/v1/sessions", json={"id": "s", "policy": POLICY})
        events = [{"message": message} for message in turns(4)]
        assert http.post("/v1/sessions/s/events", json={"events": events}).status_code == 201


def boundaries(http: httpx.Client) -> int:
    return len(http.get("/v1/sessions/s/compactions").json()["data"])


def test_a_compaction_is_of_one_tenants_session(two: Two) -> None:
    long_sessions(two)
    done = two.one.post("/v1/sessions/s/compact").json()
    assert done["status"] == "applied"
    assert (boundaries(two.one), boundaries(two.other)) == (1, 0)
    assert len(said(two.other)) == 8
    cursor = two.one.get("/v1/sessions/s/compactions").json()["next_cursor"]
    assert cursor is None


def test_a_run_over_the_fleet_is_about_the_keys_tenant(two: Two) -> None:
    long_sessions(two)
    assert two.one.get("/v1/compact/due").json()["due"] == 1
    report = two.one.post("/v1/compact").json()
    assert (report["due"], report["applied"], report["remaining"]) == (1, 1, 0)
    assert [set(one) & {"tenant"} for one in report["results"]] == [set()]
    assert (boundaries(two.one), boundaries(two.other)) == (1, 0)
    assert two.other.get("/v1/compact/due").json()["due"] == 1
    assert two.admin.get("/v1/compact/due").json()["due"] == 0, "an admin's own tenant has no session"


def test_an_admin_has_the_fleet_of_all_tenants_compacted_and_told_whose_each_session_is(two: Two) -> None:
    long_sessions(two)
    everybody = {"Turnlog-Tenant": "*"}
    due = two.admin.get("/v1/compact/due", headers=everybody).json()
    assert sorted((one["tenant"], one["session_id"]) for one in due["data"]) == [("one", "s"), ("other", "s")]
    report = two.admin.post("/v1/compact", headers=everybody).json()
    assert sorted((one["tenant"], one["session_id"]) for one in report["results"]) == [("one", "s"), ("other", "s")]
    assert (report["due"], report["applied"], report["remaining"]) == (2, 2, 0)
    assert (boundaries(two.one), boundaries(two.other)) == (1, 1)


def test_a_purge_is_of_the_keys_tenant_or_of_all(two: Two) -> None:
    for session in ("a", "b"):
        for http in (two.one, two.other):
            say(http, "gone", session=session)
        expire(two.service, session, ago=timedelta(hours=1))
    assert two.one.post("/v1/purge", json={"limit": 1}).json() == {"purged": 1, "remaining": 1}
    assert two.one.post("/v1/purge").json() == {"purged": 1, "remaining": 0}
    assert two.admin.post("/v1/purge").json() == {"purged": 0, "remaining": 0}
    assert rows(two.url, "SELECT DISTINCT tenant FROM sessions") == [{"tenant": "other"}]
    assert two.admin.post("/v1/purge", headers={"Turnlog-Tenant": "*"}).json() == {"purged": 2, "remaining": 0}


def test_an_admin_acts_for_another_tenant_and_nobody_else_does(two: Two) -> None:
    say(two.one, "mine")
    for_one = {"Turnlog-Tenant": "one"}
    assert two.admin.get("/v1/sessions/s").status_code == 404
    assert two.admin.get("/v1/sessions/s", headers=for_one).json()["id"] == "s"
    assert say(two.admin, "mine", "more", **for_one).json()["version"] == 2
    assert said(two.one) == ["mine", "more"]
    assert two.one.get("/v1/sessions/s", headers=for_one).status_code == 200, "one's own tenant may be named"
    for tenant in ("one", "*", "nobody"):
        answer = two.other.get("/v1/sessions/s", headers={"Turnlog-Tenant": tenant})
        assert problem(answer, 403, "forbidden")["scope"] == "admin"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "x" * 256, "**", "*,one", "\xe9"])
def test_a_name_that_no_tenant_has_is_refused(two: Two, name: str) -> None:
    headers = [(b"turnlog-tenant", name.encode("latin-1"))]
    problem(two.admin.get("/v1/sessions", headers=headers), 422, "invalid-request")


def test_a_tenant_named_twice_is_none(two: Two) -> None:
    headers = [(b"turnlog-tenant", b"one"), (b"turnlog-tenant", b"other")]
    problem(two.admin.get("/v1/sessions", headers=headers), 422, "invalid-request")


def test_all_tenants_at_once_are_for_schedulers_alone(two: Two) -> None:
    say(two.one, "mine")
    everybody = {"Turnlog-Tenant": "*"}
    for method, path in [
        ("GET", "/v1/sessions"), ("POST", "/v1/sessions"), ("GET", "/v1/sessions/s"), ("DELETE", "/v1/sessions/s"),
        ("POST", "/v1/sessions/s/events"), ("GET", "/v1/sessions/s/view"), ("POST", "/v1/sessions/s/compact"),
        ("GET", "/v1/chat-memory/s"),
    ]:  # fmt: skip
        problem(two.admin.request(method, path, headers=everybody), 422, "invalid-request")
    assert two.admin.get("/v1/capabilities", headers=everybody).status_code == 200, "the server is every tenant's"


def test_rows_without_a_policy_follow_the_servers_whosever_they_are(two: Two) -> None:
    """One default policy stands for all tenants: it is the server's."""
    for http in (two.one, two.other):
        say(http, "a", "b", "c")
    policy = '{"trigger": {"type": "turn_count", "threshold": 2}, "window": {"rule": "last_turns", "size": 1}}'
    execute(two.url, "ANALYZE sessions")
    with Service(settings_for(two.url, default_policy=policy)):
        assert two.one.get("/v1/compact/due").json()["due"] == 1
        assert two.other.get("/v1/compact/due").json()["due"] == 1
