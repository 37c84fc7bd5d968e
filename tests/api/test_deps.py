"""What routes ask for: query parameters that they know, bodies, cursors."""

import json
from base64 import urlsafe_b64encode
from typing import Any

import httpx
import pytest

from app.api import explorer
from app.api.deps import cursor_of, position_of
from app.domain.errors import MalformedRequest
from app.main import create_app
from app.settings import Settings
from tests.api.asking import HELLO, problem
from tests.talk import Talk, turns


def every_operation() -> list[tuple[str, str]]:
    """Return method and path of every route of the application, those that the framework adds included."""
    app = create_app(Settings())
    documented = [(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods]
    return [*documented, ("GET", "/openapi.json"), *(("GET", path) for path in explorer.FILES)]


@pytest.mark.parametrize(("method", "path"), every_operation())
def test_an_unknown_query_parameter_is_named_on_every_route(http: httpx.Client, method: str, path: str) -> None:
    path = path.replace("{session_id}", "s").replace("{event_id}", "e").replace("{conversation_id}", "c")
    for name in ("colour", "Limit", "limit ", "metadata", "METADATA.x", "session_id", "x[]", "é"):
        answer = problem(http.request(method, path, params={name: "1"}), 400, "malformed-request")
        assert repr(name) in answer["detail"]


def test_an_unknown_parameter_is_named_whatever_else_is_wrong(http: httpx.Client) -> None:
    problem(http.get("/v1/sessions", params={"limit": "x", "colour": 1}), 400, "malformed-request")
    problem(http.get("/v1/sessions/nobody", params={"colour": 1}), 400, "malformed-request")
    problem(http.post("/v1/sessions", params={"colour": 1}, content="{"), 400, "malformed-request")


def test_the_name_of_an_unknown_parameter_is_not_repeated_at_length(http: httpx.Client) -> None:
    answer = problem(http.get("/v1/sessions", params={"x" * 5000: 1}), 400, "malformed-request")
    assert len(answer["detail"]) < 200


def test_metadata_filters_are_for_lists_of_sessions_alone(http: httpx.Client, talk: Talk) -> None:
    talk.append(HELLO)
    problem(http.get(talk.path + "/events", params={"metadata.a": "1"}), 400, "malformed-request")


def made_up(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


MADE_UP = [
    "",  # nothing
    "x",  # no base64
    "nonsense",  # base64 of nonsense
    "é",  # not ASCII
    "====",
    "a" * 10_000,
    made_up(None),
    made_up({}),
    made_up([]),
    made_up(5),
    made_up("asc"),
    made_up([None]),
    made_up(["up", 3]),  # no direction
    made_up(["asc", "3"]),  # a string for a seq
    made_up(["asc", 3.5]),
    made_up(["asc", True]),
    made_up(["asc", -1]),  # before the beginning
    made_up(["asc", 2**63]),  # beyond the end
    made_up(["asc", 10**30]),
    made_up(["asc", 3, 3]),
    made_up([["asc"], 3]),
    made_up([-1]),
    made_up([2**63]),
    made_up([-5, 2]),
    made_up([3, -2]),
    made_up([2**63, 2**63]),
    made_up([10**6, 0]),  # a version that is not there
    made_up([2**63 - 1, 0]),
    made_up(["2026-01-01T00:00:00Z", "no uuid"]),
    made_up(["2026-01-01T00:00:00", "6f2a7c1e-5b0d-4f7e-9a53-7475726e6c6f"]),  # without a zone
    made_up(["2026-01-01", "6f2a7c1e-5b0d-4f7e-9a53-7475726e6c6f"]),
    made_up(["0001-01-01T00:00:00+10:00", "6f2a7c1e-5b0d-4f7e-9a53-7475726e6c6f"]),  # before the year 1
    made_up(["9999-12-31T23:59:59-10:00", "6f2a7c1e-5b0d-4f7e-9a53-7475726e6c6f"]),
    made_up(["yesterday", "6f2a7c1e-5b0d-4f7e-9a53-7475726e6c6f"]),
    made_up(["\0", "\0"]),
]
# Where each kind of cursor is read, and those of the list above that may pass there: any seq can be a place.
LISTS: list[tuple[str, dict[str, str]]] = [
    ("/v1/sessions", {}),
    ("{path}/events", {}),
    ("{path}/events", {"order": "desc"}),
    ("{path}/events", {"active": "true"}),
    ("{path}/compactions", {}),
]


@pytest.mark.parametrize(("path", "params"), LISTS, ids=str)
def test_a_made_up_cursor_is_malformed(http: httpx.Client, talk: Talk, path: str, params: dict[str, str]) -> None:
    talk.append(*turns(3))
    wrong = []
    for cursor in MADE_UP:
        answer = http.get(path.format(path=talk.path), params={**params, "cursor": cursor})
        if answer.status_code != 400:
            wrong.append((cursor[:80], answer.status_code))
    assert wrong == []


def test_a_cursor_of_one_list_is_none_of_another(http: httpx.Client, talk: Talk) -> None:
    talk.append(*turns(4))
    talk.compact(last_turns=3)
    talk.compact(last_turns=2)
    log = talk.get("/events", params={"limit": 1})["next_cursor"]
    view = talk.get("/events", params={"limit": 1, "active": "true"})["next_cursor"]
    boundaries = talk.get("/compactions", params={"limit": 1})["next_cursor"]
    sessions = http.get("/v1/sessions", params={"limit": 1}).json()["next_cursor"]
    homes = {
        ("/v1/sessions", False): sessions,
        (talk.path + "/events", False): log,
        (talk.path + "/events", True): view,
        (talk.path + "/compactions", False): boundaries,
    }
    for (path, active), home in homes.items():
        params = {"active": "true"} if active else {}
        for cursor in filter(None, homes.values()):
            answer = http.get(path, params={**params, "cursor": cursor})
            assert answer.status_code == (200 if cursor == home else 400), (path, cursor)


POSITIONS: list[tuple[list[Any], list[type]]] = [
    (["asc", 7], [str, int]),
    ([0], [int]),
    ([2**63 - 1], [int]),
    (["2026-01-01T00:00:00.000000Z", "é"], [str, str]),
]


@pytest.mark.parametrize(("position", "kinds"), POSITIONS)
def test_a_cursor_reads_back_as_the_place_it_was_made_of(position: list[Any], kinds: list[type]) -> None:
    cursor = cursor_of(*position)
    assert position_of(cursor, kinds) == position
    assert cursor.isascii()
    assert not set(cursor) & set("=&?/+ ")


def test_a_cursor_of_another_shape_is_refused() -> None:
    with pytest.raises(MalformedRequest):
        position_of(cursor_of("asc", 7), [int])


def test_an_empty_body_is_fine_where_a_body_is_optional(http: httpx.Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    assert http.put(path).status_code == 201
    assert http.patch(path).status_code == 200
    assert http.post("/v1/sessions", headers={"Content-Type": "application/json"}).status_code == 201
    problem(http.post(path + "/events"), 400, "malformed-request")
