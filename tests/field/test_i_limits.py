"""Field cases I: limits, abuse, and what a long log costs."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, NamedTuple, cast
from uuid import UUID

import asyncpg
import httpx
import pytest
from sqlalchemy import TextClause
from sqlalchemy.dialects.postgresql.asyncpg import dialect

from app.api import deps
from app.domain.event import Draft
from app.domain.exact_json import MOST_VALUES
from app.storage import events as event_store
from app.storage import flights
from app.storage import sessions as session_store
from app.storage import views as view_store
from tests.conftest import Service, cloned, execute
from tests.field.abuse import at_ease, batched, exchange
from tests.field.conftest import Copies, fresh_id
from tests.field.refusals import places, refused
from tests.journeys.processes import Serving
from tests.talk import Talk, assistant, turns, user
from tests.validity import assert_valid

JSON = {"content-type": "application/json"}
MIB = 1024 * 1024


# Also promised: no request keeps the others waiting, whatever it makes the parser do.


def full(before: str, item: str, after: str, *, size: int = 8 * MIB, most: int = 10_000_000) -> bytes:
    """Return a body that holds an item as often as it may and can."""
    count = min(most, (size - len(before) - len(after)) // (len(item) + 1))
    return (before + ",".join([item] * count) + after).encode()


MESSAGES = '{"format":"openai","messages":['
PAYLOAD = '{"events":[{"type":"ACME.X","payload":{"a":['
CONTENT = '{"events":[{"message":{"role":"user","content":['
PART = '{"type":"text","text":""}'
DEEP = "[" * 90 + "]" * 90
# Those that are taken have nearly as many values as they may.
DENSE: list[tuple[str, bytes, int]] = [
    ("events", full(MESSAGES, "[]", "]}"), 422),
    ("events", full(MESSAGES, "1", "]}"), 422),
    ("events", full("[", "1", "]"), 422),
    ("events", full('{"events":[', "{}", "]}"), 422),
    ("events", full('{"events":[', "{}", "]}", most=40_000), 422),
    ("events", full(PAYLOAD, "[]", "]}}]}", size=4 * MIB), 422),
    ("events", full(PAYLOAD, "[]", "]}}]}", most=49_000), 201),
    ("events", full(PAYLOAD, DEEP, "]}}]}", size=4 * MIB), 422),
    ("events", full(PAYLOAD, DEEP, "]}}]}", most=1_000), 201),
    ("events", full(CONTENT, PART, "]}}]}", size=4 * MIB), 422),
    ("events", full(CONTENT, PART, "]}}]}", most=30_000), 201),
    ("events", b'{"events":[{"type":"ACME.X","payload":{"a":"' + b"\\\\" * 2_000_000 + b'"}}]}', 201),
    ("messages", full('{"messages":[', "[]", "]}"), 422),
    ("messages", full('{"messages":[', "[]", "]}", most=49_000), 422),
    ("events", b"," * 8 * MIB, 422),
    ("events", b'"' * 8 * MIB, 422),
]


def test_no_body_keeps_the_others_waiting(database_url: str) -> None:
    with Serving(database_url=database_url) as serving, serving.client() as http:

        def post_them_all() -> None:
            for last, body, status in DENSE:
                name = fresh_id()
                talks = {
                    "events": f"/v1/sessions/{name}/events?create=true",
                    "messages": f"/v1/chat-memory/{name}/messages",
                }
                response = http.post(talks[last], content=body, headers=JSON)
                assert response.status_code == status, response.text[:500]
                if status == 201:
                    assert http.get(f"/v1/sessions/{name}/view?format=openai").status_code == 200

        at_ease(serving, post_them_all)


def test_a_body_with_too_many_values_is_told_how_many_there_may_be(talk: Talk) -> None:
    problem = refused(append(talk, full(PAYLOAD, "[]", "]}}]}", size=4 * MIB).decode()), 422, code="invalid-request")
    assert str(MOST_VALUES) in problem["detail"]


# C72

HEAD = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
BODY_LIMIT = 8 * MIB  # settings.max.body_bytes; /v1/capabilities says so
PIECE = b" " * 65_536
CHUNK = b"10000\r\n" + PIECE + b"\r\n"
# Of a body that is too large: what has arrived of it, once more in one piece, and what is made for it meanwhile.
A_FEW_TIMES = 4 * BODY_LIMIT


@pytest.fixture(scope="module")
def serving(postgres: str, template: str) -> Iterator[Serving]:
    """A process of its own, with every limit as it is unless set."""
    with cloned(postgres, template) as url, Serving(database_url=url) as running:
        yield running


def oversized(framing: str) -> Iterator[bytes]:
    """Yield a request of 200 MB."""
    if framing == "announced":
        yield HEAD + b"Content-Length: 200000000\r\n\r\n"
        yield from repeat(PIECE, 200_000_000 // len(PIECE))
    else:
        yield HEAD + CHUNKED
        yield from repeat(CHUNK, 200_000_000 // len(PIECE))


@pytest.mark.parametrize("framing", ["announced", "chunked"])
def test_c72_200_megabytes_are_refused_soon_after_the_limit(serving: Serving, framing: str) -> None:
    def send() -> None:
        statuses, sent = exchange(serving, oversized(framing))
        assert statuses == [413]
        # What the two sockets hold has been sent, too.
        assert sent < BODY_LIMIT + 24 * MIB

    assert at_ease(serving, send).grown < A_FEW_TIMES


@pytest.mark.parametrize("framing", ["announced", "chunked"])
def test_c72_whoever_goes_on_sending_is_hung_up_on(serving: Serving, framing: str) -> None:
    def send() -> None:
        statuses, sent = exchange(serving, oversized(framing), hears=False)
        assert statuses in ([413], [])
        assert sent < 150_000_000

    assert at_ease(serving, send).grown < A_FEW_TIMES


def test_c72_what_follows_a_body_that_was_announced_as_shorter_is_no_part_of_it(serving: Serving) -> None:
    def send() -> None:
        pieces = [HEAD + b"Content-Length: 2\r\n\r\n{}", *repeat(PIECE.replace(b" ", b"a"), 3000)]
        assert exchange(serving, pieces[:2], answers=2, hears=False)[0] in ([201, 400], [400])
        statuses, sent = exchange(serving, pieces, answers=2, hears=False)
        assert statuses in ([201, 400], [400], [])
        assert sent < 24 * MIB

    assert at_ease(serving, send).grown < A_FEW_TIMES


def test_c72_a_body_may_come_byte_by_byte_until_its_chunks_take_a_mebibyte(serving: Serving) -> None:
    few, many = b'{"metadata":{"a":"' + b"a" * 60_000 + b'"}}', b" " * 1_000_000

    def send() -> None:
        for body, status in ((few, 201), (many, 413)):
            chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
            pieces = [HEAD + b"Connection: close\r\n" + CHUNKED, *batched(chunks, 65_536), b"0\r\n\r\n"]
            assert exchange(serving, pieces)[0] == [status]

    assert at_ease(serving, send).grown < A_FEW_TIMES


# C73

DEEPEST = 100  # settings.max_json_depth, of the whole body; /v1/capabilities says so


def nest(levels: int, *, of: str = "[]") -> str:
    """Return nested arrays or objects as JSON text."""
    if of == "[]":
        return "[" * levels + "]" * levels
    return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)


def in_content(levels: int) -> str:
    """Return an append whose body nests so deeply as a whole, in a part of the content."""
    part = f'{{"type":"acme","data":{nest(levels - 6)}}}'
    return f'{{"events":[{{"message":{{"role":"user","content":[{part}]}}}}]}}'


def in_bare_content(levels: int) -> str:
    return f'{{"events":[{{"message":{{"role":"user","content":{nest(levels - 4)}}}}}]}}'


def in_metadata(levels: int) -> str:
    return f'{{"events":[{{"message":{{"role":"user","content":"a"}},"metadata":{{"a":{nest(levels - 4)}}}}}]}}'


def in_arguments(levels: int) -> str:
    call = f'{{"id":"c","type":"function","function":{{"name":"f","arguments":{nest(levels - 7, of="{}")}}}}}'
    return f'{{"events":[{{"message":{{"role":"assistant","content":null,"tool_calls":[{call}]}}}}]}}'


def in_payload(levels: int) -> str:
    return f'{{"events":[{{"type":"ACME.X","payload":{{"a":{nest(levels - 4)}}}}}]}}'


NESTED = [in_content, in_metadata, in_arguments, in_payload]
Nested = Callable[[int], str]


def append(talk: Talk, body: str) -> httpx.Response:
    """POST an append byte for byte."""
    return talk.http.post(talk.path + "/events?create=true", content=body.encode(), headers=JSON)


@pytest.mark.parametrize("where", [*NESTED, in_bare_content], ids=lambda where: where.__name__)
@pytest.mark.parametrize("levels", [DEEPEST + 1, 1_000, 20_000, 1_000_000])
def test_c73_json_that_nests_too_deeply_is_refused(copy_of: Copies, where: Nested, levels: int) -> None:
    talk = copy_of(turns(1))
    problem = refused(append(talk, where(levels)), 422, code="invalid-request")
    assert str(DEEPEST) in problem["detail"]
    assert talk.session()["version"] == 2


@pytest.mark.parametrize("where", NESTED, ids=lambda where: where.__name__)
@pytest.mark.parametrize("levels", [50, DEEPEST])
def test_c73_json_up_to_the_documented_depth_comes_back(talk: Talk, where: Nested, levels: int) -> None:
    body = where(levels)
    assert append(talk, body).status_code == 201
    inside = nest(levels - 7, of="{}") if where is in_arguments else nest(levels - 6)
    assert inside in talk.http.get(talk.path + "/events").text
    for output in ("events", "openai", "text"):
        assert talk.http.get(f"{talk.path}/view?format={output}").status_code == 200
    assert append(talk, body).status_code == 201
    assert append(talk, '{"events":[{"message":{"role":"user","content":"a"}}]}').status_code == 201
    assert talk.compact(last_turns=1, summary="Deep things.")["status"] in {"applied", "unchanged"}
    assert talk.http.get(talk.path + "/view?format=openai").status_code == 200


@pytest.mark.parametrize("path", ["", "/compact"])
@pytest.mark.parametrize("levels", [DEEPEST + 1, 20_000])
def test_c73_other_bodies_are_held_to_the_same_depth(copy_of: Copies, path: str, levels: int) -> None:
    talk = copy_of(turns(2))
    trigger = '{"type":"any","of":[' * (levels // 2) + '{"type":"always"}' + "]}" * (levels // 2)
    body = (
        f'{{"window":{{"rule":"last_turns","size":1}},"trigger":{trigger}}}'
        if path
        else f'{{"metadata":{{"a":{nest(levels)}}}}}'
    )
    method = "POST" if path else "PATCH"
    refused(talk.http.request(method, talk.path + path, content=body.encode(), headers=JSON), 422)
    refused(talk.http.post("/v1/sessions", content=body.encode(), headers=JSON), 422)
    assert talk.session()["metadata"] == {}


@pytest.mark.parametrize("levels", [50, 1_000, 20_000])
def test_c73_nesting_inside_an_argument_string_is_only_text(talk: Talk, levels: int) -> None:
    said = assistant(None, c="f")
    said["tool_calls"][0]["function"]["arguments"] = nest(levels)
    talk.append(user(nest(levels)), said)
    talk.append({"role": "tool", "tool_call_id": "c", "content": nest(levels, of="{}")}, *turns(2))
    assert talk.view("openai")["messages"][1] == said
    assert nest(levels) in talk.http.get(talk.path + "/view?format=text").text
    assert_valid(talk)
    assert talk.compact(last_turns=1, summary="Deep things.")["status"] == "applied"


def test_c73_brackets_without_an_end_are_refused(talk: Talk) -> None:
    for body in ("[" * 20_000, '{"events":' + "[" * 20_000, '"' + "[" * 20_000, "]" * 20_000, '{"a":' * 20_000):
        refused(append(talk, body), 400, 422)


# C74

NUMBERS = [
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1" + "0" * 30,
    "-1",
    "0",
    "abc",
    "1e3",
    "",
    "1.5",
]
PARAMETERS = [
    *(("/events", name) for name in ("limit", "after", "before", "last_n")),
    *(("/view", name) for name in ("at_version", "last_n")),
    ("/compactions", "limit"),
]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("path", "name"), PARAMETERS)
def test_c74_any_number_as_a_page_parameter_is_taken_or_refused(
    http: httpx.Client, numbered: Talk, path: str, name: str, number: str
) -> None:
    response = http.get(numbered.path + path, params={name: number})
    if response.status_code != 200:
        assert name in json.dumps(refused(response, 422))
    elif path == "/events":
        seqs = [one["seq"] for one in response.json()["data"]]
        assert seqs in ([], [*range(1, 8)])


@pytest.fixture(scope="module")
def numbered(http: httpx.Client) -> Talk:
    """A session to read, with a boundary in it."""
    talk = Talk(http, fresh_id())
    talk.append(*turns(3))
    talk.compact(last_turns=2)
    return talk


@pytest.mark.parametrize("number", NUMBERS)
def test_c74_any_number_elsewhere_is_taken_or_refused(http: httpx.Client, numbered: Talk, number: str) -> None:
    for path in (
        f"/v1/sessions?limit={number}",
        f"/v1/sessions?metadata.n={number}",
        f"{numbered.path}/events/{number}",
    ):
        response = http.get(path)
        if response.status_code != 200:
            refused(response, 404, 422)
    memory = http.post(f"/v1/chat-memory/{fresh_id()}/messages?max_messages={number}", json={"messages": [user("a")]})
    if memory.status_code != 200:
        refused(memory, 422)
    for header in (number, f'"{number}"'):
        response = http.post(
            numbered.path + "/events", json={"events": [{"message": {"role": "none"}}]}, headers={"If-Match": header}
        )
        refused(response, 400, 412, 422)
        response = http.get(numbered.path + "/view", headers={"If-None-Match": f'"{number}-events"'})
        assert response.status_code == 200


HUGE = [2**31, 2**63 - 1, 2**63, 2**64, 10**30, 10**400]


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("rule", ["last_turns", "last_events", "token_budget"])
def test_c74_a_huge_window_covers_nothing(copy_of: Copies, rule: str, size: int) -> None:
    talk = copy_of(turns(5))
    response = talk.http.post(talk.path + "/compact", json={"window": {"rule": rule, "size": size}})
    if response.status_code == 200:
        assert (response.json()["status"], response.json()["reason"]) == ("unchanged", "fits-window")
    else:
        assert places(refused(response, 422)) == ["/window/size"]
    assert talk.seqs() == [*range(1, 11)]
    assert talk.session()["version"] == 10


@pytest.mark.parametrize("size", HUGE)
def test_c74_huge_numbers_in_triggers_policies_and_versions_are_taken_or_refused(copy_of: Copies, size: int) -> None:
    talk = copy_of(turns(5))
    window = {"rule": "last_turns", "size": 2}
    threshold = {"type": "token_count", "threshold": size}
    for path, body in (
        ("/compact", {"window": window, "trigger": threshold}),
        ("/compact", {"window": window, "trigger": {"type": "any", "of": [{"type": "always"}, threshold]}}),
        ("/compact", {"window": window, "summarizer": {"type": "llm", "max_tokens": size}, "dry_run": True}),
        ("/compact", {"window": {"rule": "last_turns", "size": 1}, "expected_version": size}),
        ("/events", {"events": [{"message": user("a")}], "expected_version": size}),
        ("/events", {"events": [{"message": user("a"), "token_count": size}]}),
    ):
        response = talk.http.post(talk.path + path, json=body)
        if response.status_code not in {200, 201}:
            refused(response, 412, 422)
    for change in ({"policy": {"window": {**window, "size": size}}}, {"ttl_seconds": size}, {"metadata": {"n": size}}):
        response = talk.http.patch(talk.path, json=change)
        if response.status_code != 200:
            refused(response, 422)
    for path in ("", "/view", "/events", "/compactions"):
        assert talk.http.get(talk.path + path).status_code == 200
    assert talk.http.post(talk.path + "/compact").status_code in {200, 422}
    assert talk.http.get("/v1/sessions?limit=1000").status_code == 200
    refused(talk.http.post("/v1/purge", json={"limit": size}), 422)


def test_c74_token_counts_that_clients_give_add_up_beyond_32_bits(talk: Talk) -> None:
    largest = 2**31 - 1
    talk.append(*({"message": message, "token_count": largest} for message in turns(3)))
    assert talk.session()["view"]["tokens"] == talk.view()["token_count"] == 6 * largest
    outcome = talk.compact(token_budget=4 * largest)
    assert outcome["tokens"] == {"before": 6 * largest, "after": 4 * largest, "saved": 2 * largest}
    assert talk.get("/compactions")["data"][0]["tokens"] == outcome["tokens"]


# C75


def walk(talk: Talk, between: Callable[[int], None], **params: Any) -> list[dict[str, Any]]:
    """Read the log page by page and do something between the pages."""
    found: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    for page in range(20):
        answer = talk.get("/events", params={"limit": 100, **params, **more})
        found += answer["data"]
        if not answer["has_more"]:
            assert answer["next_cursor"] is None
            return found
        between(page)
        more = {"cursor": answer["next_cursor"]}
    raise AssertionError("the pages do not end")


@pytest.fixture
def long(copy_of: Copies) -> Talk:
    """A session of 250 events."""
    return copy_of(turns(125))


def disturb(talk: Talk) -> Callable[[int], None]:
    """Append seven events and compact, between any two pages."""

    def between(page: int) -> None:
        talk.append(*turns(3, first=1000 + 10 * page), user("and?"))
        talk.compact(last_turns=50 - page)

    return between


def test_c75_a_walk_forward_meets_every_event_once_and_in_order(long: Talk) -> None:
    seqs = [one["seq"] for one in walk(long, disturb(long))]
    assert seqs == [*range(1, len(seqs) + 1)]
    assert len(seqs) >= 250 + 7
    texts = [one["message"]["content"] for one in walk(long, lambda _: None, types="MESSAGE", synthetic="false")]
    assert texts[:250] == [message["content"] for message in turns(125)]


def test_c75_a_walk_backward_meets_every_event_once_and_in_order(long: Talk) -> None:
    seqs = [one["seq"] for one in walk(long, disturb(long), order="desc")]
    assert seqs == [*range(250, 0, -1)]


@pytest.mark.parametrize("field", ["after", "before"])
def test_c75_walking_by_seq_meets_every_event_once(long: Talk, field: str) -> None:
    order, last = ("asc", 0) if field == "after" else ("desc", 251)
    seen: list[int] = []
    between, pages = disturb(long), 0
    while page := long.get("/events", params={"limit": 100, "order": order, field: last})["data"]:
        seen += [one["seq"] for one in page]
        last = seen[-1]
        pages += 1
        if pages < 3:
            between(pages)
    assert seen == ([*range(1, len(seen) + 1)] if field == "after" else [*range(250, 0, -1)])
    assert len(seen) >= 250


def test_c75_a_walk_over_the_view_shows_the_view_of_its_first_page(long: Talk) -> None:
    before = long.seqs()
    assert [one["seq"] for one in walk(long, disturb(long), active="true")] == before
    assert long.seqs() != before


def test_c75_a_walk_over_sessions_meets_each_once_while_others_are_made(http: httpx.Client) -> None:
    mark = fresh_id()

    def make(number: int) -> str:
        return str(http.post("/v1/sessions", json={"metadata": {"mark": mark, "n": number}}).json()["id"])

    made = [make(number) for number in range(25)]
    seen: list[str] = []
    more: dict[str, str] = {}
    for page in range(4):
        answer = http.get("/v1/sessions", params={"metadata.mark": mark, "limit": 10, **more}).json()
        seen += [one["id"] for one in answer["data"]]
        if not answer["has_more"]:
            break
        http.delete(f"/v1/sessions/{seen[0]}")
        make(100 + page)
        more = {"cursor": answer["next_cursor"]}
    assert seen[:25] == made
    assert len(set(seen)) == len(seen)


MADE_UP = [
    "abc", "", "0", "====", "%%%", "é", "eyJhIjoxfQ", "a" * 10_000, "../../etc/passwd", "null", "\0",
]  # fmt: skip
FORGED: list[tuple[Any, ...]] = [
    (), ("asc",), ("asc", "1"), ("sideways", 1), ("asc", -1), ("asc", 2**63 - 1), ("asc", 2**63), ("desc", 10**30),
    ("asc", 1.5), ("asc", True), ("asc", None), ("asc", 1, 1), (1,), (-1,), (2**63,), (10**30,), (1, 1), (-1, -1),
    (1, -3), (10**30, 0), (2**63 - 1, 0), (1, 10**30), ("2026-01-01T00:00:00.000000Z", "x"),
    ("2026-01-01T00:00:00", "00000000-0000-0000-0000-000000000000"),
    ("x", "00000000-0000-0000-0000-000000000000"),
    ("0001-01-01T00:00:00+14:00", "00000000-0000-0000-0000-000000000000"),
    ("9999-12-31T23:59:59-14:00", "00000000-0000-0000-0000-000000000000"),
]  # fmt: skip


@pytest.mark.parametrize(
    "cursor", [*MADE_UP, *(deps.cursor_of(*forged) for forged in FORGED)], ids=[*map(ascii, MADE_UP), *map(str, FORGED)]
)
def test_c75_a_cursor_that_was_never_handed_out_is_refused_or_harmless(
    http: httpx.Client, numbered: Talk, cursor: str
) -> None:
    plausible = cursor not in MADE_UP
    for path in (
        f"{numbered.path}/events",
        f"{numbered.path}/events?active=true",
        f"{numbered.path}/compactions",
        "/v1/sessions",
    ):
        response = http.get(path, params={**dict(httpx.URL(path).params), "cursor": cursor})
        if plausible and response.status_code == 200:
            assert isinstance(response.json()["data"], list)
        else:
            refused(response, 400, 422)


# C76: no clocks here. What a statement touches says the same, and is the same on every machine.

LONG = 50_000
MOST_READ = 60  # pages
MOST_WRITTEN_EACH = 45  # the same for each further session of a statement, without the catalogue
MOST_WRITTEN = 140  # two events, and each has three indexes; the pages of the catalogue are among them
# A session by itself, or an event by its session and seq (the second index has the boundaries alone).
INDEXES = {"pk_sessions", "pk_events", "ix_events_boundaries"}
# 10,000 sessions of two events each, so that neither table is one session's alone.
CROWD = (
    """INSERT INTO sessions (session_key, tenant, session_id, metadata, labels, version, view_events, view_turns)
       SELECT md5('s' || n)::uuid, 'default', 's' || n, '{}', '{}', 2, 2, 1 FROM generate_series(1, 10000) n""",
    """INSERT INTO events (session_key, seq, event_id, type, role, body, metadata)
       SELECT md5('s' || n)::uuid, seq, n || '-' || seq, 'MESSAGE', CASE seq WHEN 1 THEN 'user' ELSE 'assistant' END,
              '{"role":"user","content":"a"}', '{}'
         FROM generate_series(1, 10000) n, generate_series(1, 2) seq""",
    "ANALYZE",
)


class Going(NamedTuple):
    """A batch on a flight, without anybody who waits for an answer."""

    drafts: list[Draft]
    expected_version: int | None = None


class Overheard:
    """Stands in for a handle and keeps the statement that storage would run, with its parameters."""

    def __init__(self) -> None:
        self.said: tuple[TextClause, dict[str, Any]] | None = None

    async def all(self, statement: TextClause, parameters: dict[str, Any]) -> list[Any]:
        self.said = (statement, parameters)
        return []

    async def first(self, statement: TextClause, parameters: dict[str, Any]) -> None:
        self.said = (statement, parameters)


def explain(url: str, said: tuple[TextClause, dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Run a statement as the driver is given it, roll it back, and return its plan's nodes, the root first."""
    assert said is not None
    compiled = said[0].compile(dialect=dialect())
    values = [said[1][name] for name in compiled.positiontup or ()]

    async def run() -> str:
        connection = await asyncpg.connect(url)
        try:
            transaction = connection.transaction()
            await transaction.start()
            plan = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {compiled}", *values)
            await transaction.rollback()
            return str(plan)
        finally:
            await connection.close()

    return nodes(json.loads(asyncio.run(run()))[0]["Plan"])


def explain_generic(url: str, said: tuple[TextClause, dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Do the same with the one plan for all parameters that PostgreSQL makes of a statement it sees often."""
    assert said is not None
    compiled = said[0].compile(dialect=dialect())
    values = [said[1][name] for name in compiled.positiontup or ()]
    literals = ", ".join(map(literal, values))

    async def run() -> str:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("SET plan_cache_mode = force_generic_plan")
            await connection.execute(f"PREPARE often AS {compiled}")
            return str(await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE often ({literals})"))
        finally:
            await connection.close()

    return nodes(json.loads(asyncio.run(run()))[0]["Plan"])


def literal(value: Any) -> str:
    """Write a parameter as SQL does."""
    if value is None:
        return "NULL"
    return "'{" + ",".join(map(element, value)) + "}'" if isinstance(value, list) else f"'{value}'"


def element(value: Any) -> str:
    """Write an element of an array as Postgres does."""
    return "NULL" if value is None else '"' + str(value).replace('"', r"\"") + '"'


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a plan's nodes, the root first."""
    return [plan, *(node for inner in plan.get("Plans", ()) for node in nodes(inner))]


def buffers(plan: list[dict[str, Any]]) -> int:
    """Return at least as many pages as a plan touched: writes beside the query proper are no part of its root."""
    beside = [node for node in plan[1:] if node.get("Parent Relationship") == "InitPlan"]
    return sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in (plan[0], *beside))


def assert_cheap(plan: list[dict[str, Any]], most: int) -> None:
    """Check that a plan reads both tables by their keys alone, and touches few pages."""
    read = [
        node for node in plan if "Scan" in node["Node Type"] and node.get("Relation Name") in {"sessions", "events"}
    ]
    by_index = {node["Index Name"] for node in plan if "Index Name" in node}
    assert by_index <= INDEXES
    assert not [node["Node Type"] for node in read if node["Node Type"] == "Seq Scan"]
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in read) < 50
    assert buffers(plan) <= most


@pytest.mark.parametrize("boundaries", [1, 100])
def test_c76_what_a_view_and_an_append_cost_does_not_grow_with_the_log(
    own_service: Service, database_url: str, boundaries: int
) -> None:
    execute(database_url, *CROWD[:-1])
    said = [{"token_count": 5, "message": message} for message in turns(500)]
    each = LONG // boundaries
    with own_service.client() as http:
        talk = Talk(http, "long")
        for _ in range(boundaries):
            for start in range(0, each, 1000):
                talk.append(*said[: each - start])
            assert talk.compact(last_turns=3)["status"] == "applied"
        compacted = talk.session()["version"]
        assert compacted == LONG + boundaries
        assert talk.view()["turns"] == 3
        talk.append(assistant("one more"))
    execute(database_url, CROWD[-1])
    key, overheard = session_store.key_of("default", "long"), Overheard()
    handle: Any = overheard
    for at_version in (None, compacted):  # as it is now, and as it was: then the boundary is searched for
        for read in (view_store.whole, view_store.skeleton):
            asyncio.run(read(handle, key, at_version=at_version))
            assert_cheap(explain(database_url, overheard.said), MOST_READ)
            assert_cheap(explain_generic(database_url, overheard.said), MOST_READ)
    asyncio.run(event_store.append(handle, key, [draft(at) for at in range(2)], expected_version=None))
    assert_cheap(explain(database_url, overheard.said), MOST_WRITTEN)
    # The same for a flight of many sessions: each costs what it costs alone.
    crowd = [UUID(hashlib.md5(f"s{at}".encode(), usedforsecurity=False).hexdigest()) for at in range(1, 16)]
    aboard = {key: [Going(drafts=[draft(0)]), Going(drafts=[draft(1)])] for key in [key, *crowd]}
    asyncio.run(flights.append(handle, cast("flights.Flight", aboard)))
    assert_cheap(explain(database_url, overheard.said), MOST_WRITTEN + len(crowd) * MOST_WRITTEN_EACH)
    assert_cheap(explain_generic(database_url, overheard.said), MOST_WRITTEN + len(crowd) * MOST_WRITTEN_EACH)


def test_c76_the_boundary_is_looked_up_once_however_much_is_in_the_view(
    own_service: Service, database_url: str
) -> None:
    with own_service.client() as http:
        talk = Talk(http, "long")
        talk.append(*turns(3), user("work"), *(assistant(f"step {at}") for at in range(500)))
        assert talk.compact(last_turns=1)["status"] == "applied"
    execute(database_url, "ANALYZE")
    overheard = Overheard()
    handle: Any = overheard
    asyncio.run(view_store.whole(handle, session_store.key_of("default", "long")))
    for plan in (explain(database_url, overheard.said), explain_generic(database_url, overheard.said)):
        assert max(node["Actual Loops"] for node in plan if node.get("Relation Name") == "events") <= 2
        assert buffers(plan) <= MOST_READ


def draft(at: int) -> Draft:
    """Return an event to append."""
    message = json.dumps(user("one more"))
    return Draft(
        event_id=f"more-{at}", type="MESSAGE", role="user", body=message, metadata="{}", timestamp=None, token_count=5
    )


def test_c76_an_append_and_a_view_are_one_statement_each(own_service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    fetch = asyncpg.Connection.fetch

    async def noted(connection: Any, statement: str, *values: Any, **options: Any) -> Any:
        statements.append(statement)
        return await fetch(connection, statement, *values, **options)

    monkeypatch.setattr(asyncpg.Connection, "fetch", noted)
    with own_service.client() as http:
        talk = Talk(http, "s")
        talk.append(*turns(5))
        talk.compact(last_turns=2)
        for request in (
            lambda: talk.append(user("a")),
            lambda: talk.append(*turns(400)),
            talk.view,
            lambda: talk.view("openai"),
            lambda: talk.view(at_version=7),
            lambda: http.get(talk.path + "/view", headers={"If-None-Match": '"811-events"'}),
            lambda: http.get(talk.path),
        ):
            statements.clear()
            request()
            assert len(statements) == 1, statements
