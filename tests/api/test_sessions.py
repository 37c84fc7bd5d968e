"""Sessions over HTTP."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.api.asking import HELLO, INSTANT, SECRET, UUID7, expire, pointers, problem, raw, url_of
from tests.conftest import Service, rows
from tests.talk import Talk, turns

SIXTY_DAYS = 60 * 24 * 3600
HUNDRED_YEARS = 100 * 365 * 24 * 3600


def life(session: dict[str, Any]) -> timedelta:
    return datetime.fromisoformat(session["expires_at"]) - datetime.fromisoformat(session["created_at"])


def test_a_session_can_be_created_without_a_body(http: httpx.Client) -> None:
    response = http.post("/v1/sessions")

    made = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/v1/sessions/{made['id']}"
    assert response.headers["content-type"] == "application/json"
    assert UUID7.fullmatch(made["id"])
    assert INSTANT.fullmatch(made["created_at"])
    assert INSTANT.fullmatch(made["expires_at"])
    assert life(made) == timedelta(seconds=SIXTY_DAYS)
    rest = {key: value for key, value in made.items() if key not in {"id", "created_at", "expires_at"}}
    assert rest == {
        "metadata": {},
        "policy": None,
        "version": 0,
        "view": {"events": 0, "turns": 0, "tokens": 0, "boundary": None},
    }
    assert http.get(response.headers["location"]).json() == made


def test_a_session_comes_back_as_it_was_created(http: httpx.Client, session_id: str) -> None:
    policy = {"window": {"rule": "last_turns", "size": 3}, "trigger": {"type": "turn_count", "threshold": 5}}
    body = {"id": session_id, "ttl_seconds": 90, "metadata": {"principal": "alice"}, "policy": policy}

    made = http.post("/v1/sessions", json=body).json()

    assert made["id"] == session_id
    assert life(made) == timedelta(seconds=90)
    assert made["metadata"] == {"principal": "alice"}
    assert made["policy"] == policy
    assert http.get(f"/v1/sessions/{session_id}").json() == made


def test_the_figures_of_a_session_are_those_of_its_view(talk: Talk) -> None:
    talk.append({"message": {"role": "system", "content": "p"}, "token_count": 5})
    talk.append(*({"message": message, "token_count": 10} for message in turns(3)))
    talk.append({"type": "ACME.X", "payload": {}})

    assert talk.session()["version"] == 8
    assert talk.session()["view"] == {"events": 7, "turns": 3, "tokens": 65, "boundary": None}

    talk.compact(last_turns=1)

    assert talk.session()["version"] == 9
    assert talk.session()["view"] == {"events": 3, "turns": 1, "tokens": 25, "boundary": 9}


GOOD_IDS = [
    "a",  # the shortest
    "x" * 255,  # the longest
    "AZaz09._~:@+=,-",  # every kind of character
    "...",  # only one and two dots are other folders
    ".hidden",  # a dot in front
    "a..b",  # dots inside
    "user@example.org:chat=1,2+3~4",  # what people name conversations
]


@pytest.mark.parametrize("good", GOOD_IDS)
def test_an_id_that_needs_no_escaping_is_taken_as_it_is(service: Service, http: httpx.Client, good: str) -> None:
    made = http.put(f"/v1/sessions/{good}")
    assert made.status_code == 201, made.text
    assert made.json()["id"] == good
    status, _, body = raw(service, "GET", f"/v1/sessions/{good}")
    assert (status, json.loads(body)["id"]) == (200, good)
    assert http.delete(f"/v1/sessions/{good}").status_code == 204


BAD_IDS = [
    "x" * 256,  # one too many
    ".",  # this folder
    "..",  # the one above
    "a b",  # a space
    "a/b",  # a slash
    "a%b",  # a percent sign
    "a?b",  # where a query begins
    "a#b",  # where a fragment begins
    "é",  # a letter of another alphabet
    "a\0b",  # NUL
    "a\n",  # a newline at the end
    "a\\b",  # a backslash
    "a;b",  # what path parameters begin with
    "a*b",  # a wildcard
]


@pytest.mark.parametrize("bad", BAD_IDS)
def test_an_id_outside_the_rule_is_refused_at_creation_and_not_found_elsewhere(
    service: Service, http: httpx.Client, bad: str
) -> None:
    assert pointers(http.post("/v1/sessions", json={"id": bad})) == ["/id"]

    encoded = "".join(f"%{byte:02X}" for byte in bad.encode())
    for method, path, body in EVERY_ROUTE:
        status, _, answer = raw(
            service, method, path.format(id=encoded), json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        creating = method == "PUT" or "create=true" in path
        assert (status, json.loads(answer)["code"]) == (
            (422, "invalid-request") if creating else (404, "session-not-found")
        ), f"{method} {path}"


def test_an_empty_id_is_refused(http: httpx.Client) -> None:
    assert pointers(http.post("/v1/sessions", json={"id": ""})) == ["/id"]
    problem(http.get("/v1/sessions/"), 404, "not-found")


# Every route below a session's path that needs the session, and a body that would be fine.
EVERY_ROUTE: list[tuple[str, str, Any]] = [
    ("GET", "/v1/sessions/{id}", None),
    ("PUT", "/v1/sessions/{id}", {}),
    ("PATCH", "/v1/sessions/{id}", {}),
    ("DELETE", "/v1/sessions/{id}", None),
    ("POST", "/v1/sessions/{id}/events", {"events": [HELLO]}),
    ("POST", "/v1/sessions/{id}/events?create=true", {"events": [HELLO]}),
    ("GET", "/v1/sessions/{id}/events", None),
    ("GET", "/v1/sessions/{id}/events?active=true", None),
    ("GET", "/v1/sessions/{id}/events?last_n=1", None),
    ("GET", "/v1/sessions/{id}/events/e1", None),
    ("GET", "/v1/sessions/{id}/view", None),
    ("GET", "/v1/sessions/{id}/view?at_version=0", None),
    ("POST", "/v1/sessions/{id}/compact", {"window": {"rule": "last_turns", "size": 1}}),
    ("GET", "/v1/sessions/{id}/compactions", None),
]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [route for route in EVERY_ROUTE if route[0] != "PUT" and "create" not in route[1]],
    ids=lambda value: str(value)[:60],
)
def test_a_session_that_does_not_exist_is_not_found(
    http: httpx.Client, session_id: str, method: str, path: str, body: Any
) -> None:
    problem(http.request(method, path.format(id=session_id), json=body), 404, "session-not-found")


def test_ids_are_case_sensitive(http: httpx.Client, session_id: str) -> None:
    lower, upper = f"case-{session_id}", f"CASE-{session_id}"
    assert http.put(f"/v1/sessions/{lower}").status_code == 201
    problem(http.get(f"/v1/sessions/{upper}"), 404, "session-not-found")
    assert http.put(f"/v1/sessions/{upper}").status_code == 201


def test_an_encoded_character_of_an_id_is_that_character(service: Service, http: httpx.Client, session_id: str) -> None:
    http.put(f"/v1/sessions/{session_id}")
    status, _, body = raw(service, "GET", "/v1/sessions/" + "".join(f"%{ord(c):02x}" for c in session_id))
    assert (status, json.loads(body)["id"]) == (200, session_id)


ENCODED_SLASHES = [
    "/v1/sessions/{id}%2Fevents",  # never the events
    "/v1/sessions/{id}%2fview",  # in lower case neither
    "/v1/sessions/{id}%2F",  # nor the session itself
    "/v1%2Fsessions/{id}",  # nor anywhere else in the path
    "/v1/sessions%2F{id}",
    "/v1/sessions/{id}%252Fevents",  # encoded twice
]


@pytest.mark.parametrize("path", ENCODED_SLASHES)
def test_an_encoded_slash_never_separates(service: Service, talk: Talk, path: str) -> None:
    talk.append(HELLO)
    status, _, body = raw(service, "GET", path.format(id=talk.id))
    assert status == 404
    assert json.loads(body)["code"] in {"session-not-found", "not-found"}


def test_a_path_that_is_not_utf8_is_not_found(service: Service) -> None:
    status, _, body = raw(service, "GET", "/v1/sessions/%FF%FE")
    assert (status, json.loads(body)["code"]) == (404, "session-not-found")


def test_an_id_in_use_cannot_be_created_again(http: httpx.Client, session_id: str) -> None:
    first = http.post("/v1/sessions", json={"id": session_id, "metadata": {"a": 1}}).json()
    problem(http.post("/v1/sessions", json={"id": session_id}), 409, "session-exists")
    assert http.get(f"/v1/sessions/{session_id}").json() == first


def test_put_creates_and_then_returns_the_session_unchanged(http: httpx.Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    first = http.put(path, json={"metadata": {"a": 1}, "ttl_seconds": 100})
    again = http.put(path, json={"metadata": {"b": 2}, "ttl_seconds": None})

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.headers["location"] == path
    assert again.json() == first.json()


def test_put_takes_no_id_in_its_body(http: httpx.Client, session_id: str) -> None:
    assert pointers(http.put(f"/v1/sessions/{session_id}", json={"id": session_id})) == ["/id"]


def test_of_many_who_find_or_create_at_once_one_creates(service: Service, session_id: str) -> None:
    gate = threading.Barrier(8)

    def ask(number: int) -> httpx.Response:
        with service.client() as client:
            gate.wait()
            return client.put(f"/v1/sessions/{session_id}", json={"metadata": {"by": number}})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))

    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.text for answer in answers}) == 1


GOOD_LIVES = [
    (1, timedelta(seconds=1)),  # the shortest
    (HUNDRED_YEARS, timedelta(seconds=HUNDRED_YEARS)),  # the longest
]


@pytest.mark.parametrize(("ttl", "lasts"), GOOD_LIVES)
def test_a_session_lives_as_long_as_it_says(http: httpx.Client, ttl: int, lasts: timedelta) -> None:
    assert life(http.post("/v1/sessions", json={"ttl_seconds": ttl}).json()) == lasts


def test_a_null_ttl_is_never(http: httpx.Client) -> None:
    made = http.post("/v1/sessions", json={"ttl_seconds": None}).json()
    assert made["expires_at"] is None
    assert http.get(f"/v1/sessions/{made['id']}").json()["expires_at"] is None


BAD_LIVES = [
    0,  # none at all
    -1,  # in the past
    1.5,  # no whole number
    "60",  # a string
    True,  # no number
    HUNDRED_YEARS + 1,  # longer than the longest
    10**30,  # for which no database has a date
]


@pytest.mark.parametrize("ttl", BAD_LIVES)
def test_a_life_that_is_none_is_refused(http: httpx.Client, session_id: str, ttl: Any) -> None:
    body = {"ttl_seconds": ttl}
    assert pointers(http.post("/v1/sessions", json=body)) == ["/ttl_seconds"]
    assert pointers(http.put(f"/v1/sessions/{session_id}", json=body)) == ["/ttl_seconds"]
    http.put(f"/v1/sessions/{session_id}")
    assert pointers(http.patch(f"/v1/sessions/{session_id}", json=body)) == ["/ttl_seconds"]


# Key order, numbers beyond what a double holds, NUL, escapes, space: what a JSON library would change.
EXACT = (
    '{"z": 1, "a": 123456789012345678901234567890, "f": 1.10, "g":1e400, "h": -0.0,'
    r' "n": "\u0000 \u00e9 \/ \ud83d\ude00 é", "e": {"y": [ ], "x": null}, "k\u0000": true}'
)
JSON = {"Content-Type": "application/json"}


def test_metadata_comes_back_byte_for_byte(http: httpx.Client) -> None:
    made = http.post("/v1/sessions", content='{"metadata": ' + EXACT + "}", headers=JSON)
    assert f'"metadata":{EXACT}' in made.text
    again = http.get(made.headers["location"])
    assert again.text == made.text


def test_merged_metadata_keeps_numbers_order_and_nul(http: httpx.Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    http.put(path, content='{"metadata": ' + EXACT + "}", headers=JSON)

    change = r'{"metadata": {"a": null, "new": 98765432109876543210.10, "z": {"b": 1, "a": "\u0000"}}}'
    changed = http.patch(path, content=change, headers=JSON)

    pairs = json.loads(changed.text, object_pairs_hook=list, parse_int=str, parse_float=str)
    merged = next(value for key, value in pairs if key == "metadata")
    assert [key for key, _ in merged] == ["z", "f", "g", "h", "n", "e", "k\0", "new"]
    assert dict(merged)["z"] == [("b", "1"), ("a", "\0")]
    assert dict(merged)["new"] == "98765432109876543210.10"
    for kept in ("1.10", "1e400", "-0.0", r'"\u0000 \u00e9 \/ \ud83d\ude00 é"', "[ ]"):
        assert kept in changed.text
    assert http.get(path).text == changed.text


def test_a_null_removes_a_key_only_at_the_top(http: httpx.Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    http.put(path, json={"metadata": {"a": 1, "b": {"c": 1}, "d": 1}})

    changed = http.patch(path, json={"metadata": {"a": None, "b": {"c": None}, "never": None}}).json()

    assert changed["metadata"] == {"b": {"c": None}, "d": 1}


def test_a_change_of_nothing_changes_nothing(http: httpx.Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    made = http.put(path, json={"metadata": {"a": 1}, "policy": {"window": {"rule": "last_turns", "size": 1}}}).json()
    assert http.patch(path, json={}).json() == made
    assert http.patch(path).json() == made
    assert http.patch(path, json={"metadata": {}}).json() == made


BAD_METADATA = [
    (None, "/metadata"),  # null
    ([], "/metadata"),  # a list
    ("x", "/metadata"),  # a string
    (1, "/metadata"),  # a number
    ({"big": "x" * 70_000}, "/metadata"),  # larger than the limit
]


@pytest.mark.parametrize(("metadata", "pointer"), BAD_METADATA, ids=lambda value: str(value)[:20])
def test_metadata_is_an_object_of_a_bounded_size(
    http: httpx.Client, session_id: str, metadata: Any, pointer: str
) -> None:
    path = f"/v1/sessions/{session_id}"
    body = {"metadata": metadata}
    assert pointers(http.post("/v1/sessions", json=body)) == [pointer]
    assert pointers(http.put(path, json=body)) == [pointer]
    http.put(path)
    assert pointers(http.patch(path, json=body)) == [pointer]


BAD_METADATA_TEXTS = [
    (r'{"a": ["\ud800"]}', "/metadata/a/0"),  # half a character
    (r'{"a": {"b": 1, "b": 2}}', "/metadata/a"),  # a key that occurs twice
    (r'{"a": 1, "a": 2}', "/metadata"),  # at the top
]


@pytest.mark.parametrize(("text", "pointer"), BAD_METADATA_TEXTS)
def test_metadata_that_cannot_be_kept_exactly_is_refused(
    http: httpx.Client, session_id: str, text: str, pointer: str
) -> None:
    path = f"/v1/sessions/{session_id}"
    body = '{"metadata": ' + text + "}"
    assert pointers(http.post("/v1/sessions", content=body, headers=JSON)) == [pointer]
    http.put(path)
    assert pointers(http.patch(path, content=body, headers=JSON)) == [pointer]


def test_metadata_cannot_grow_past_its_limit_by_merging(http: httpx.Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    before = http.put(path, json={"metadata": {"a": "x" * 40_000}}).json()
    assert pointers(http.patch(path, json={"metadata": {"b": "x" * 40_000}})) == ["/metadata"]
    assert http.get(path).json() == before
    assert http.patch(path, json={"metadata": {"a": None, "b": "x" * 40_000}}).status_code == 200


def test_many_who_merge_at_once_lose_nothing(service: Service, http: httpx.Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    http.put(path)

    def merge(number: int) -> int:
        with service.client() as client:
            return client.patch(path, json={"metadata": {f"k{number}": number}}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(merge, range(24))) == {200}
    assert http.get(path).json()["metadata"].keys() == {f"k{number}" for number in range(24)}


BAD_BODIES = [
    ({"colour": "red"}, "/colour"),  # not known
    ({"tenant": "other"}, "/tenant"),  # nor this
    ({"version": 3}, "/version"),  # the service gives the version
    ({"id": 7}, "/id"),  # a number
    ({"id": None}, "/id"),  # null
    ({"policy": []}, "/policy"),  # no object
    ({"policy": {}}, "/policy/window"),  # without a window
    ({"policy": {"window": {}}}, "/policy/window/rule"),  # without a rule
    ({"policy": {"window": {"rule": "last_words", "size": 1}}}, "/policy/window/rule"),  # an unknown one
    ({"policy": {"window": {"rule": "last_turns"}}}, "/policy/window/size"),  # without a size
    ({"policy": {"window": {"rule": "last_turns", "size": 0}}}, "/policy/window/size"),  # of nothing
    ({"policy": {"window": {"rule": "last_turns", "size": "3"}}}, "/policy/window/size"),  # of a string
    ({"policy": {"window": {"rule": "last_turns", "size": 3, "x": 1}}}, "/policy/window/x"),  # with more
    (
        {"policy": {"window": {"rule": "last_turns", "size": 3}, "trigger": {"type": "moon"}}},
        "/policy/trigger/type",
    ),  # a trigger that is unknown
    (
        {"policy": {"window": {"rule": "last_turns", "size": 3}, "trigger": {"type": "turn_count", "threshold": 0}}},
        "/policy/trigger/threshold",
    ),  # one that always fires
    (
        {"policy": {"window": {"rule": "last_turns", "size": 3}, "trigger": {"type": "any", "of": []}}},
        "/policy/trigger/of",
    ),  # any of none
    (
        {
            "policy": {
                "window": {"rule": "last_turns", "size": 3},
                "trigger": {"type": "all", "of": [{"type": "always"}, {"type": "token_count", "threshold": -1}]},
            }
        },
        "/policy/trigger/of/1/threshold",
    ),  # inside another
    (
        {"policy": {"window": {"rule": "last_turns", "size": 3}, "summarizer": {"type": "text", "text": "t"}}},
        "/policy/summarizer/type",
    ),  # a text is of one moment only
    (
        {"policy": {"window": {"rule": "last_turns", "size": 3}, "summarizer": {}}},
        "/policy/summarizer/type",
    ),  # one of no type is not the model's by chance
    (
        {"policy": {"window": {"rule": "last_turns", "size": 3}, "summarizer": {"type": "llm", "max_tokens": 0}}},
        "/policy/summarizer/max_tokens",
    ),  # no summary fits
    (
        {"policy": {"window": {"rule": "last_turns", "size": 3}, "summarizer": {"type": "llm", "url": "http://x"}}},
        "/policy/summarizer/url",
    ),  # never an address from a request
    ({"policy": {"window": {"rule": "last_turns", "size": 3}, "dry_run": True}}, "/policy/dry_run"),  # no policy's
]


@pytest.mark.parametrize(("body", "pointer"), BAD_BODIES, ids=lambda value: str(value)[:60])
def test_every_bad_field_is_named(http: httpx.Client, body: dict[str, Any], pointer: str) -> None:
    assert pointers(http.post("/v1/sessions", json=body)) == [pointer]


@pytest.mark.parametrize(
    ("body", "pointer"), [bad for bad in BAD_BODIES if "policy" in bad[0]], ids=lambda value: str(value)[:60]
)
def test_a_bad_policy_is_refused_in_a_change(
    http: httpx.Client, session_id: str, body: dict[str, Any], pointer: str
) -> None:
    http.put(f"/v1/sessions/{session_id}")
    assert pointers(http.patch(f"/v1/sessions/{session_id}", json=body)) == [pointer]


POLICIES = [
    {"window": {"rule": "last_events", "size": 1}},  # the least
    {"window": {"rule": "token_budget", "size": 2**62}, "trigger": {"type": "always"}},  # a large size
    {"window": {"rule": "token_budget", "size": 10**30}},  # larger than any integer type of the database
    {
        "window": {"rule": "last_turns", "size": 3},
        "trigger": {
            "type": "any",
            "of": [
                {"type": "turn_count", "threshold": 3},
                {"type": "all", "of": [{"type": "always"}, {"type": "token_count", "threshold": 1000}]},
            ],
        },
        "summarizer": {"type": "llm", "instructions": "Be brief.\0", "max_tokens": 300},
    },  # everything
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda value: str(value)[:60])
def test_a_policy_is_stored_kept_and_removed(http: httpx.Client, session_id: str, policy: dict[str, Any]) -> None:
    path = f"/v1/sessions/{session_id}"
    assert http.put(path, json={"policy": policy}).json()["policy"] == policy
    assert http.patch(path, json={"metadata": {"a": 1}}).json()["policy"] == policy
    assert http.patch(path, json={"policy": None}).json()["policy"] is None
    assert http.get(path).json()["policy"] is None
    assert http.patch(path, json={"policy": policy}).json()["policy"] == policy
    assert http.get(path).json()["policy"] == policy


def test_a_change_of_life_counts_from_now(service: Service, http: httpx.Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    http.put(path)
    rows(
        url_of(service),
        "UPDATE sessions SET created_at = now() - interval '10 days' WHERE session_id = $1",
        session_id,
    )
    changed = http.patch(path, json={"ttl_seconds": 3600}).json()
    assert timedelta(days=10) < life(changed) < timedelta(days=10, hours=2)
    assert http.patch(path, json={"ttl_seconds": None}).json()["expires_at"] is None


def test_deleting_removes_the_session_with_its_log(service: Service, http: httpx.Client, talk: Talk) -> None:
    talk.append(*({"message": message, "token_count": 500} for message in turns(3)))
    assert talk.compact(last_turns=1, summary="s")["status"] == "applied"

    assert http.delete(talk.path).status_code == 204

    problem(http.get(talk.path), 404, "session-not-found")
    problem(http.delete(talk.path), 404, "session-not-found")
    problem(http.post(talk.path + "/events", json={"events": [HELLO]}), 404, "session-not-found")
    left = rows(
        url_of(service),
        "SELECT 1 FROM events e WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session_key = e.session_key)",
    )
    assert left == []
    talk.append(HELLO)
    assert [event["seq"] for event in talk.log()] == [1]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [route for route in EVERY_ROUTE if route[0] not in {"PUT", "DELETE"} and "create" not in route[1]],
    ids=lambda value: str(value)[:60],
)
def test_an_expired_session_is_gone(
    service: Service, http: httpx.Client, talk: Talk, method: str, path: str, body: Any
) -> None:
    talk.append({**HELLO, "id": "e1"})
    expire(service, talk.id)
    problem(http.request(method, path.format(id=talk.id), json=body), 410, "session-expired")
    problem(http.get(f"/v1/chat-memory/{talk.id}"), 410, "session-expired")


def test_a_change_of_life_brings_an_expired_session_back(service: Service, http: httpx.Client, talk: Talk) -> None:
    talk.append(HELLO)
    expire(service, talk.id)

    changed = http.patch(talk.path, json={"ttl_seconds": 60, "metadata": {"back": True}})

    assert changed.status_code == 200
    assert changed.json()["version"] == 1
    assert changed.json()["metadata"] == {"back": True}
    assert talk.texts() == ["hello"]


def test_a_change_that_leaves_a_session_expired_is_refused(service: Service, http: httpx.Client, talk: Talk) -> None:
    talk.append(HELLO)
    expire(service, talk.id)
    for body in ({}, {"metadata": {"a": 1}}, {"policy": None}):
        problem(http.patch(talk.path, json=body), 410, "session-expired")
    assert http.patch(talk.path, json={"ttl_seconds": 60}).json()["metadata"] == {}


WAYS_TO_REUSE = [
    ("POST", "/v1/sessions", {"id": "{id}"}, 201),  # create
    ("PUT", "/v1/sessions/{id}", {}, 201),  # find or create
    ("POST", "/v1/sessions/{id}/events?create=true", {"events": [{**HELLO, "id": "e1"}]}, 201),  # the first append
    ("POST", "/v1/chat-memory/{id}/messages", {"messages": [HELLO["message"]]}, 200),  # the first add
]


@pytest.mark.parametrize(("method", "path", "body", "status"), WAYS_TO_REUSE)
def test_the_id_of_an_expired_session_may_be_used_again_and_the_old_rows_go(
    service: Service, http: httpx.Client, talk: Talk, method: str, path: str, body: Any, status: int
) -> None:
    talk.append(*turns(3), {**HELLO, "id": "e1", "metadata": {"old": 1}})
    talk.compact(last_turns=1)
    http.patch(talk.path, json={"metadata": {"old": True}, "policy": {"window": {"rule": "last_turns", "size": 1}}})
    expire(service, talk.id)

    body = json.loads(json.dumps(body).replace("{id}", talk.id))
    made = http.request(method, path.format(id=talk.id), json=body)

    assert made.status_code == status, made.text
    session = talk.session()
    assert (session["metadata"], session["policy"]) == ({}, None)
    assert session["version"] == len(talk.log()) <= 1
    assert session["view"]["boundary"] is None
    assert all(event["metadata"] == {} for event in talk.log())


def test_of_many_who_take_over_an_expired_id_one_succeeds(service: Service, http: httpx.Client, talk: Talk) -> None:
    talk.append(HELLO)
    expire(service, talk.id)
    gate = threading.Barrier(8)

    def create(_: int) -> int:
        with service.client() as client:
            gate.wait()
            return client.post("/v1/sessions", json={"id": talk.id}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(create, range(8))) == [201] + [409] * 7
    assert talk.log() == []


def test_an_expired_session_can_be_deleted(service: Service, http: httpx.Client, talk: Talk) -> None:
    talk.append(HELLO)
    expire(service, talk.id)
    assert http.delete(talk.path).status_code == 204
    problem(http.get(talk.path), 404, "session-not-found")


# Lists.


def listed(http: httpx.Client, **params: Any) -> list[str]:
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = http.get("/v1/sessions", params={**params, **cursor}).json()
        assert set(page) == {"data", "has_more", "next_cursor"}
        assert page["has_more"] is (page["next_cursor"] is not None)
        found += [session["id"] for session in page["data"]]
        if not page["has_more"]:
            return found
        assert page["data"]
        cursor = {"cursor": page["next_cursor"]}


def test_sessions_are_listed_oldest_first_page_by_page(http: httpx.Client, session_id: str) -> None:
    ids = [f"{session_id}-{number}" for number in (3, 1, 2, 5, 4)]
    for one in ids:
        http.post("/v1/sessions", json={"id": one, "metadata": {"group": session_id}})

    assert listed(http, **{"metadata.group": session_id}) == ids
    assert listed(http, **{"metadata.group": session_id, "limit": 1}) == ids
    assert listed(http, **{"metadata.group": session_id, "limit": 2}) == ids
    assert listed(http, **{"metadata.group": session_id, "limit": 5}) == ids


def test_a_list_shows_sessions_as_they_are(http: httpx.Client, talk: Talk) -> None:
    talk.append({"message": {"role": "user", "content": SECRET}})
    http.patch(talk.path, json={"metadata": {"group": talk.id}})
    answer = http.get("/v1/sessions", params={"metadata.group": talk.id})
    assert answer.json()["data"] == [talk.session()]
    assert SECRET not in answer.text


def test_a_page_holds_a_hundred_sessions_unless_it_is_told(own_service: Service) -> None:
    rows(
        url_of(own_service),
        "INSERT INTO sessions (session_key, tenant, session_id, created_at, metadata, labels)"
        " SELECT gen_random_uuid(), 'default', 's' || n, timestamptz '2026-01-01Z', '{}', '{}'"
        " FROM generate_series(1, 1100) AS n",
    )
    with own_service.client() as http:
        assert len(http.get("/v1/sessions").json()["data"]) == 100
        assert len(http.get("/v1/sessions", params={"limit": 1000}).json()["data"]) == 1000
        # All were created at one moment, and still none is lost or shown twice.
        found = listed(http, limit=99)
        assert len(found) == 1100
        assert len(set(found)) == 1100


BAD_LISTS = [
    ({"limit": 0}, "limit"),  # nothing
    ({"limit": -1}, "limit"),  # less than nothing
    ({"limit": 1001}, "limit"),  # too many
    ({"limit": "ten"}, "limit"),  # no number
    ({"limit": ""}, "limit"),  # nothing
]


@pytest.mark.parametrize(("params", "name"), BAD_LISTS)
def test_a_limit_out_of_range_is_refused(http: httpx.Client, params: dict[str, Any], name: str) -> None:
    assert pointers(http.get("/v1/sessions", params=params)) == [name]


def test_sessions_that_are_made_between_pages_come_at_the_end(http: httpx.Client, session_id: str) -> None:
    for number in range(3):
        http.post("/v1/sessions", json={"id": f"{session_id}-{number}", "metadata": {"group": session_id}})
    params = {"metadata.group": session_id, "limit": 2}
    first = http.get("/v1/sessions", params=params).json()
    http.delete(f"/v1/sessions/{session_id}-1")  # The very one on which the page ended.
    http.post("/v1/sessions", json={"id": f"{session_id}-new", "metadata": {"group": session_id}})

    rest = http.get("/v1/sessions", params={**params, "cursor": first["next_cursor"]}).json()

    assert [session["id"] for session in rest["data"]] == [f"{session_id}-2", f"{session_id}-new"]


def test_expired_sessions_are_not_listed(service: Service, http: httpx.Client, session_id: str) -> None:
    for number in range(3):
        http.post("/v1/sessions", json={"id": f"{session_id}-{number}", "metadata": {"group": session_id}})
    expire(service, f"{session_id}-1")
    assert listed(http, **{"metadata.group": session_id}) == [f"{session_id}-0", f"{session_id}-2"]


LABELS = {
    "principal": "alice",
    "n": 42,
    "half": 0.5,
    "yes": True,
    "no": False,
    "null": None,
    "list": ["a"],
    "object": {"a": "b"},
    "space": "two words",
    "quote": "'\"\\;--",
    "percent": "100%_done",
    "unicode": "Zoë 🦊",
    "": "empty key",
    "empty": "",
    "dotted.key": "d",
    "a&b=c": "&=#+",
    "null as text": "null",
}
MATCHES = [
    ({"principal": "alice"}, True),  # a string
    ({"principal": "Alice"}, False),  # compared exactly
    ({"principal": "alic"}, False),  # as a whole
    ({"principal": "alice "}, False),
    ({"Principal": "alice"}, False),  # keys, too
    ({"n": "42"}, True),  # a number as its text
    ({"n": "42.0"}, False),  # and no other text
    ({"half": "0.5"}, True),
    ({"yes": "true"}, True),  # a boolean as its text
    ({"no": "false"}, True),
    ({"yes": "True"}, False),
    ({"null": "null"}, False),  # a null is no value
    ({"list": "a"}, False),  # nor is what is inside one
    ({"object": "b"}, False),
    ({"space": "two words"}, True),
    ({"quote": "'\"\\;--"}, True),  # what SQL is made of
    ({"percent": "100%_done"}, True),  # what LIKE is made of
    ({"percent": "100%"}, False),
    ({"unicode": "Zoë 🦊"}, True),
    ({"": "empty key"}, True),
    ({"empty": ""}, True),
    ({"dotted.key": "d"}, True),  # a dot in a key is no path
    ({"a&b=c": "&=#+"}, True),  # what a query string is made of
    ({"null as text": "null"}, True),
    ({"principal": "alice", "n": "42"}, True),  # both match
    ({"principal": "alice", "n": "43"}, False),  # one of them does not
    ({"unheard of": "x"}, False),
    ({"principal": "\0"}, False),  # what the index cannot hold
    ({"\0": "alice"}, False),
]


def test_every_metadata_filter_must_match(http: httpx.Client, session_id: str) -> None:
    http.post("/v1/sessions", json={"id": session_id, "metadata": {**LABELS, "group": session_id}})
    wrong = []
    for wanted, matches in MATCHES:
        params = {"metadata.group": session_id, **{f"metadata.{key}": value for key, value in wanted.items()}}
        if listed(http, **params) != ([session_id] if matches else []):
            wrong.append(wanted)
    assert wrong == []


NUMBERS = [
    "0",
    "-1",
    "1.50",  # with the zero that was written
    "1e2",  # in the notation that was written
    "1E+2",
    "0.0000001",  # and not 1E-7
    "12345678901234567890123",  # more than a double holds
    "-0.0",
]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_found_by_the_text_it_was_written_as(http: httpx.Client, session_id: str, number: str) -> None:
    body = f'{{"id": "{session_id}", "metadata": {{"group": "{session_id}", "n": {number}}}}}'
    assert http.post("/v1/sessions", content=body, headers=JSON).status_code == 201
    assert listed(http, **{"metadata.group": session_id, "metadata.n": number}) == [session_id]


def test_a_changed_value_is_found_and_the_old_one_is_not(http: httpx.Client, session_id: str) -> None:
    http.put(f"/v1/sessions/{session_id}", json={"metadata": {"group": session_id, "a": "1", "b": "1"}})
    http.patch(f"/v1/sessions/{session_id}", json={"metadata": {"a": "2", "b": None}})
    assert listed(http, **{"metadata.group": session_id, "metadata.a": "2"}) == [session_id]
    assert listed(http, **{"metadata.group": session_id, "metadata.a": "1"}) == []
    assert listed(http, **{"metadata.group": session_id, "metadata.b": "1"}) == []


def test_a_filter_that_is_given_twice_is_refused(http: httpx.Client) -> None:
    answer = http.get("/v1/sessions", params=[("metadata.a", "1"), ("metadata.a", "2")])
    assert pointers(answer) == ["metadata.a"]


def test_a_filter_without_the_prefix_is_an_unknown_parameter(http: httpx.Client) -> None:
    answer = problem(http.get("/v1/sessions", params={"principal": "alice"}), 400, "malformed-request")
    assert "principal" in answer["detail"]
