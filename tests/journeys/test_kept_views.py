"""Views that a process keeps are the views that one without a cache reads, whatever happens between two reads.

Two services share a database: the first keeps views and the second, with a bound of 0, keeps none. A third one, which
keeps views too, stands for another process. Everybody writes; each has to answer with the same bytes.
"""

import asyncio
import itertools
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.view import replay
from app.service.views import FORMATS
from app.storage import sessions as session_store
from app.storage import views as view_store
from tests.api.asking import expire, problem, rows, url_of
from tests.conftest import Service, cloned, execute, settings_for
from tests.field.test_i_limits import CROWD, Overheard, assert_cheap, explain, explain_generic
from tests.journeys.test_replay import APPENDED, PLAIN, REMEMBERED, SUMMARIZED, Pass, Remember, as_event, shown
from tests.talk import Talk, assistant, custom, system, turns, user

some = settings(max_examples=25, deadline=None)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete the session; the next step creates one with the same id."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Let the session have expired."""


@dataclass
class Services:
    """A process that keeps views, one that keeps none, and another that keeps them."""

    keeping: Service
    plain: Service
    other: Service

    def clients(self) -> list[httpx.Client]:
        return [self.keeping.client(), self.plain.client(), self.other.client()]


@pytest.fixture(scope="module")
def services(postgres: str, template: str) -> Iterator[Services]:
    with (
        cloned(postgres, template) as url,
        Service(settings_for(url)) as keeping,
        Service(settings_for(url, view_cache_bytes=0)) as plain,
        Service(settings_for(url, view_cache_bytes=100_000)) as other,
    ):
        yield Services(keeping, plain, other)


@pytest.fixture(scope="module")
def clients(services: Services) -> Iterator[list[httpx.Client]]:
    found = services.clients()
    yield found
    for one in found:
        one.close()


@pytest.fixture
def talks(clients: list[httpx.Client], session_id: str) -> list[Talk]:
    """The same session, asked of each service."""
    return [Talk(one, session_id) for one in clients]


READS = st.lists(
    st.tuples(st.sampled_from(FORMATS), st.sampled_from([None, None, 1, 3]), st.sampled_from([0, 2])),
    min_size=1,
    max_size=3,
)
# Who takes a step: any of the three processes.
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2]),
        st.one_of(APPENDED, APPENDED, PLAIN, SUMMARIZED, REMEMBERED, st.builds(Forget), st.builds(Expire)),
        READS,
    ),
    min_size=4,
    max_size=14,
)


def take(services: Services, talk: Talk, step: Any) -> None:
    """Take a step, whatever comes of it."""
    if isinstance(step, Pass):
        policy: dict[str, Any] = {"window": {"rule": step.window.rule.value, "size": step.window.size}}
        if step.summary is not None:
            policy["summarizer"] = {"type": "text", "text": step.summary}
        talk.http.post(f"{talk.path}/compact", json=policy)
    elif isinstance(step, Remember):
        talk.http.post(
            f"/v1/chat-memory/{talk.id}/messages",
            params={"max_messages": step.size},
            json={"messages": list(step.messages)},
        )
    elif isinstance(step, Forget):
        talk.http.delete(talk.path)
    elif isinstance(step, Expire):
        if talk.http.get(talk.path).status_code == httpx.codes.OK:
            expire(services.plain, talk.id)
    else:
        talk.append(*step)


def answer(talk: Talk, output: str, last_n: int | None) -> tuple[int, str | None, str | None, bytes]:
    params = {"format": output, **({} if last_n is None else {"last_n": last_n})}
    response = talk.http.get(talk.path + "/view", params=params)
    ok = response.status_code == httpx.codes.OK
    headers = response.headers
    return response.status_code, headers.get("etag"), headers.get("content-type"), response.content if ok else b""


@some
@given(STEPS)
def test_whatever_happens_a_kept_view_is_the_view_that_is_read_anew(
    services: Services, clients: list[httpx.Client], steps: list[tuple[int, Any, list[tuple[str, int | None, int]]]]
) -> None:
    name = f"kept{os.getpid()}-{next(_numbers)}"
    talks = [Talk(one, name) for one in clients]
    for who, step, reads in steps:
        take(services, talks[who], step)
        for output, last_n, reader in reads:
            expected = answer(talks[1], output, last_n)
            assert answer(talks[reader], output, last_n) == expected
            assert answer(talks[reader], output, last_n) == expected
        check_against_replay(talks)


def check_against_replay(talks: list[Talk]) -> None:
    response = talks[0].http.get(talks[0].path + "/view")
    if response.status_code != httpx.codes.OK:
        return
    logged = talks[1].log()
    expected = replay([as_event(one) for one in logged])
    view = response.json()
    assert (view["version"], view["boundary"]) == (len(logged), expected.boundary)
    assert (view["turns"], view["token_count"]) == (expected.turns, expected.tokens)
    assert view["events"] == [{**logged[seq - 1], "covered": False} for seq in shown(expected)]


def assert_same(talks: list[Talk]) -> None:
    for output in FORMATS:
        for last_n in (None, 2):
            first, *others = [answer(talk, output, last_n) for talk in talks]
            assert first[0] == httpx.codes.OK
            assert others == [first, first]


def test_what_another_process_writes_is_in_the_next_view(talks: list[Talk]) -> None:
    keeping, plain, _ = talks
    plain.append(system("Be kind."), *turns(3))
    assert_same(talks)
    for write in (
        lambda: plain.append(user("more")),
        lambda: plain.append(custom(action="exported")),
        lambda: plain.append(system("Be brief.")),
        lambda: plain.append(assistant(c="look")),
        lambda: plain.append({"role": "tool", "tool_call_id": "c", "content": "found"}),
        lambda: plain.compact(last_turns=2),
        lambda: plain.append(*turns(3)),
        lambda: plain.compact(last_turns=1, summary="They spoke."),
        lambda: plain.append(*turns(1)),
    ):
        version = keeping.view()["version"]
        write()
        assert keeping.view()["version"] > version
        assert_same(talks)


def test_a_deleted_session_is_gone_and_a_new_one_with_its_id_starts_anew(talks: list[Talk]) -> None:
    keeping, plain, _ = talks
    for word in ("first", "second"):
        plain.append(user(word), assistant("yes"))
        assert_same(talks)
        assert keeping.texts() == [word, "yes"]
        assert plain.http.delete(plain.path).status_code == httpx.codes.NO_CONTENT
        problem(keeping.http.get(keeping.path + "/view"), 404, "session-not-found")


def test_a_kept_view_of_an_expired_session_is_not_answered(services: Services, talks: list[Talk]) -> None:
    keeping, plain, _ = talks
    keeping.append(*turns(2))
    assert_same(talks)
    expire(services.plain, plain.id)
    problem(keeping.http.get(keeping.path + "/view"), 410, "session-expired")
    plain.append(user("anew"))
    assert_same(talks)
    assert keeping.texts() == ["anew"]


def test_a_caller_who_has_the_view_gets_304_from_a_process_that_keeps_it(talks: list[Talk]) -> None:
    keeping = talks[0]
    keeping.append(*turns(2))
    tag = answer(keeping, "openai", None)[1]
    assert tag == '"4-openai"'
    for _ in range(2):
        response = keeping.http.get(keeping.path + "/view", params={"format": "openai"}, headers={"If-None-Match": tag})
        assert (response.status_code, response.content) == (304, b"")
        assert answer(keeping, "openai", None)[0] == httpx.codes.OK
    keeping.append(user("more"))
    response = keeping.http.get(keeping.path + "/view", params={"format": "openai"}, headers={"If-None-Match": tag})
    assert (response.status_code, response.headers["etag"]) == (200, '"5-openai"')


def test_an_append_that_asks_for_the_view_gets_the_one_that_is_read_anew(talks: list[Talk]) -> None:
    keeping, plain, _ = talks
    keeping.append(*turns(2))
    for output in FORMATS:
        assert_same(talks)
        body = {"events": [{"message": user("more")}]}
        made = keeping.post("/events", body, 201, params={"return": "view", "format": output})
        if output == "text":
            assert made["view"]["text"] == answer(plain, "text", None)[3].decode()
        else:
            assert made["view"] == plain.view(output)


def test_a_log_that_was_rewound_and_written_on_is_not_taken_for_the_one_before(
    services: Services, talks: list[Talk]
) -> None:
    """As after a backup was restored, or a standby took over that had not got the newest transactions."""
    keeping, plain, _ = talks
    plain.append(user("one"), assistant("two"))
    plain.append(user("lost"), custom(action="lost"))
    assert_same(talks)
    rewind = """WITH gone AS (DELETE FROM events WHERE seq > 2
                               AND session_key = (SELECT session_key FROM sessions WHERE session_id = $1))
                UPDATE sessions SET version = 2, view_events = 2, view_turns = 1 WHERE session_id = $1"""
    rows(url_of(services.plain), rewind, plain.id)
    for said in ([user("written"), custom(action="on")], [user("and on")]):
        plain.append(*said)
        assert_same(talks)
    assert keeping.texts() == ["one", "two", "written", "and on"]
    assert_same(talks)


def test_a_process_keeps_what_its_bound_allows_and_none_when_it_is_nothing(
    services: Services, clients: list[httpx.Client], session_id: str
) -> None:
    caches = [one.app.state.context.view_cache for one in (services.keeping, services.plain, services.other)]
    for at in range(30):
        talks = [Talk(one, f"{session_id}-{at}") for one in clients]
        talks[0].append(*turns(5))
        assert_same(talks)
    big = [Talk(one, f"{session_id}-big") for one in clients]
    big[0].append(user("long " * 20_000))
    assert_same(big)
    assert len(caches[0]) >= 31
    assert (len(caches[1]), caches[1].bytes) == (0, 0)
    assert 1 <= len(caches[2]) < 30
    assert caches[2].bytes <= 100_000


def test_reads_of_one_session_that_overlap_are_each_right(talks: list[Talk]) -> None:
    keeping, plain, _ = talks
    plain.append(*turns(2))

    def append_and_read(at: int) -> None:
        version = plain.append(user(f"more {at}"))["version"]
        view = keeping.view()
        assert view["version"] >= version
        assert [event["seq"] for event in view["events"]] == [*range(1, view["version"] + 1)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append_and_read, range(40)))
    assert keeping.view()["version"] == 44
    assert_same(talks)


def test_c76_a_read_that_sends_what_is_held_touches_few_pages_and_only_what_is_new(
    own_service: Service, database_url: str
) -> None:
    execute(database_url, *CROWD)
    with own_service.client() as http:
        talk = Talk(http, "long")
        for _ in range(20):
            talk.append(*turns(500))
        assert talk.compact(last_turns=15)["status"] == "applied"
        execute(database_url, "ANALYZE")
        key, overheard = session_store.key_of("default", "long"), Overheard()
        context = own_service.app.state.context
        talk.view()
        entry = context.view_cache.of(key)
        handle: Any = overheard
        for said, visible in (([], 0), ([user("more"), assistant("yes")], 2)):
            if said:
                talk.append(*said)
            asyncio.run(view_store.whole(handle, key, held=entry.held))
            for plan in (explain(database_url, overheard.said), explain_generic(database_url, overheard.said)):
                assert_cheap(plan, 40)
                read = [node for node in plan if node.get("Relation Name") == "events" and node["Actual Loops"]]
                # The event at the held version, and those that are new; never the boundary.
                assert sum(node["Actual Rows"] * node["Actual Loops"] for node in read) == 1 + visible
        assert json.loads(talk.http.get(talk.path + "/view").content)["version"] == 20_003
