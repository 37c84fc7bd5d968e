"""Many at once, with real transactions: threads with connections of their own, and two services on one database.

Where a moment matters, it is made: a transaction of the test holds the session's row lock until whoever is
meant to wait for it does, as Postgres itself says.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import asyncpg
import httpx
import pytest

from app import bootstrap
from app.domain.errors import SessionExpired, SessionNotFound
from app.domain.event import Draft
from app.domain.policy import NO_POLICY, Policy, TextSummarizer
from app.domain.trigger import Always
from app.domain.window import Rule, Window
from app.metrics import Meter
from app.service import compactions
from app.storage import events as event_store
from app.storage import sessions as session_store
from app.storage.database import Database, Writer
from tests.conftest import cloned, rows, settings_for, wait_until
from tests.journeys.processes import LONG, Serving
from tests.journeys.replayed import boundaries, check_session
from tests.talk import Talk, assistant, system, turns, user

T = TypeVar("T")
WRITERS = 20


class Pair(NamedTuple):
    """Two service processes on one database."""

    database_url: str
    services: tuple[Serving, Serving]

    def client(self, number: int = 0) -> httpx.Client:
        """Return a new client of one of the two; even and odd numbers meet different ones."""
        return self.services[number % 2].client()

    def url(self, number: int) -> str:
        return self.services[number % 2].url


@pytest.fixture(scope="module")
def pair(postgres: str, template: str) -> Iterator[Pair]:
    with (
        cloned(postgres, template) as url,
        Serving(database_url=url) as one,
        Serving(database_url=url) as other,
    ):
        yield Pair(url, (one, other))


@pytest.fixture
def talk(pair: Pair, session_id: str) -> Iterator[Talk]:
    with pair.client() as client:
        yield Talk(client, session_id)


def at_once(pair: Pair, count: int, work: Callable[[httpx.Client, int], T]) -> list[T]:
    """Do the work in so many threads, each with its own connection to one of the services, from one moment on."""
    start = threading.Barrier(count)

    def one(number: int) -> T:
        with pair.client(number) as client:
            client.get("/healthz")  # the connection stands before the start
            start.wait(LONG)
            return work(client, number)

    with ThreadPoolExecutor(count) as pool:
        return [future.result(LONG) for future in [pool.submit(one, number) for number in range(count)]]


def event(event_id: str, text: str = "x", role: str = "user") -> dict[str, Any]:
    return {"id": event_id, "message": {"role": role, "content": text}}


# Appends


def test_twenty_writers_on_one_session_lose_nothing_and_leave_no_gap(pair: Pair, talk: Talk) -> None:
    talk.append(system("You are patient."))

    def write(client: httpx.Client, number: int) -> list[tuple[str, int]]:
        mine = Talk(client, talk.id)
        acknowledged = []
        for batch in range(10):
            events = [event(f"w{number}-{batch}-{at}") for at in range(1 + (number + batch) % 3)]
            receipt = mine.append(*events, status=201)
            seqs = [one["seq"] for one in receipt["events"]]
            assert seqs == list(range(seqs[0], seqs[0] + len(events))), "a batch is not contiguous"
            assert receipt["version"] == seqs[-1]
            acknowledged += [(one["id"], one["seq"]) for one in receipt["events"]]
        return acknowledged

    told = at_once(pair, WRITERS, write)

    log = check_session(talk)
    places = {logged["id"]: logged["seq"] for logged in log}
    assert len(log) == 1 + sum(map(len, told))
    for mine in told:
        assert all(places[event_id] == seq for event_id, seq in mine)
        assert [seq for _, seq in mine] == sorted(seq for _, seq in mine), "a writer's batches changed places"


def test_of_writers_that_expect_the_same_version_one_wins_each_time(pair: Pair, talk: Talk) -> None:
    talk.append(user("Hello"))

    def write(client: httpx.Client, number: int) -> list[int]:
        mine = Talk(client, talk.id)
        won = []
        for expected in range(1, 9):
            answer = mine.append(event(f"w{number}-{expected}"), status=(201, 412), expected_version=expected)
            if "events" in answer:
                assert answer["version"] == expected + 1
                won.append(expected)
            else:
                assert answer["code"] == "version-conflict"
                assert answer["current_version"] != expected
            wait_until(lambda expected=expected: mine.session()["version"] > expected)
        return won

    winners = Counter(version for won in at_once(pair, WRITERS, write) for version in won)

    assert winners == dict.fromkeys(range(1, 9), 1)
    assert len(check_session(talk)) == 9


def test_one_batch_sent_by_many_at_once_is_stored_once(pair: Pair, talk: Talk) -> None:
    talk.append(user("Hello"))
    batch = [event("a"), event("b", role="assistant"), event("c")]

    receipts = at_once(pair, 8, lambda client, _: Talk(client, talk.id).append(*batch))

    assert Counter(one["events"][0]["replayed"] for one in receipts) == {False: 1, True: 7}
    assert {tuple(event["seq"] for event in one["events"]) for one in receipts} == {(2, 3, 4)}
    assert len(check_session(talk)) == 4


def test_one_request_sent_by_many_at_once_under_a_key_has_one_answer(pair: Pair, talk: Talk) -> None:
    talk.append(user("Hello"))
    body = {"events": [{"message": user("once")}, {"message": assistant("only")}]}

    def send(client: httpx.Client, _: int) -> httpx.Response:
        return client.post(f"{talk.path}/events", json=body, headers={"Idempotency-Key": "k"})

    answers = at_once(pair, 8, send)

    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 7}
    shown = [answer.json() for answer in answers]
    assert {answer["version"] for answer in shown} == {3}
    assert len({tuple((one["id"], one["seq"]) for one in answer["events"]) for answer in shown}) == 1
    assert len(check_session(talk)) == 3


def test_a_reader_that_asks_for_what_comes_after_never_misses_an_event(pair: Pair, talk: Talk) -> None:
    talk.append(user("Hello"))
    done = threading.Event()
    batches, writers = 12, 8

    def follow() -> list[int]:
        with pair.client(1) as client:
            mine, seen = Talk(client, talk.id), [1]
            while True:
                last_round = done.is_set()
                seen += [logged["seq"] for logged in mine.get("/events", params={"after": seen[-1]})["data"]]
                if last_round:
                    return seen

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(follow)
        try:
            at_once(
                pair,
                writers,
                lambda client, number: [
                    Talk(client, talk.id).append(event(f"{number}-{batch}-0"), event(f"{number}-{batch}-1"))
                    for batch in range(batches)
                ],
            )
        finally:
            done.set()
        seen = reader.result(LONG)

    assert seen == list(range(1, 2 + batches * writers * 2))


def test_appends_that_create_the_session_at_once_are_all_stored(pair: Pair, talk: Talk) -> None:
    receipts = at_once(
        pair, WRITERS, lambda client, number: Talk(client, talk.id).append(event(f"w{number}"), status=201)
    )

    log = check_session(talk)
    assert {logged["id"]: logged["seq"] for logged in log} == {
        receipt["events"][0]["id"]: receipt["events"][0]["seq"] for receipt in receipts
    }
    assert len(log) == WRITERS


# Sessions


def test_of_many_who_find_or_create_one_session_one_creates_it(pair: Pair, session_id: str) -> None:
    def put(client: httpx.Client, number: int) -> httpx.Response:
        return client.put(f"/v1/sessions/{session_id}", json={"metadata": {"by": str(number)}})

    answers = at_once(pair, WRITERS, put)

    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: WRITERS - 1}
    assert len({answer.text for answer in answers}) == 1, "they were shown different sessions"


def test_an_expired_id_is_used_again_by_one_of_many(pair: Pair, talk: Talk) -> None:
    _make_expired(pair, talk)

    answers = at_once(pair, WRITERS, lambda client, _: client.put(talk.path, json={}))

    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: WRITERS - 1}
    assert check_session(talk) == []


def test_appends_over_an_expired_session_share_one_new_session(pair: Pair, talk: Talk) -> None:
    _make_expired(pair, talk)

    at_once(pair, WRITERS, lambda client, number: Talk(client, talk.id).append(event(f"w{number}"), status=201))

    assert {logged["id"] for logged in check_session(talk)} == {f"w{number}" for number in range(WRITERS)}


def _make_expired(pair: Pair, talk: Talk) -> None:
    talk.append(*turns(3))
    _expire(pair, talk.id)
    talk.get("", status=410)


def _expire(pair: Pair, *session_ids: str) -> None:
    """Let sessions have expired an hour ago."""
    rows(
        pair.database_url,
        "UPDATE sessions SET expires_at = now() - interval '1 hour' WHERE session_id = ANY($1::text[])",
        list(session_ids),
    )


def test_a_session_extended_while_a_purge_runs_is_never_lost(pair: Pair, session_id: str) -> None:
    names = [f"{session_id}-{number}" for number in range(40)]
    with pair.client() as client:
        for name in names:
            Talk(client, name).append(*turns(1))
    _expire(pair, *names)

    def act(client: httpx.Client, number: int) -> dict[str, int]:
        if number < 4:
            for _ in range(10):
                assert client.post("/v1/purge", json={"limit": 5}).status_code == 200
            return {}
        mine = [name for at, name in enumerate(names) if at % 4 == number - 4]
        return {name: client.patch(f"/v1/sessions/{name}", json={"ttl_seconds": 3600}).status_code for name in mine}

    answers = {name: status for told in at_once(pair, 8, act) for name, status in told.items()}

    assert set(answers.values()) <= {200, 404}
    with pair.client() as client:
        for name, status in answers.items():
            assert client.get(f"/v1/sessions/{name}").status_code == status
            if status == 200:
                assert len(check_session(Talk(client, name))) == 2


def test_chat_memories_filled_by_many_never_hold_more_than_they_may(pair: Pair, talk: Talk) -> None:
    most, adds = 6, 6
    path = f"/v1/chat-memory/{talk.id}"

    def add(client: httpx.Client, number: int) -> None:
        for at in range(adds):
            said = [user(f"q{number}-{at}"), assistant(f"a{number}-{at}")][: 1 + (number + at) % 2]
            if (number, at) == (0, 0):
                said = [system("Be brief."), *said]
            answer = client.post(f"{path}/messages", params={"max_messages": most}, json={"messages": said})
            assert answer.status_code == 200, answer.text
            _check_memory(answer.json()["messages"], most)
            assert said[-1] in answer.json()["messages"]
            _check_memory(client.get(path).json()["messages"], most)

    at_once(pair, 12, add)

    log = check_session(talk)
    said = [logged for logged in log if logged["type"] == "MESSAGE"]
    assert len(said) == 1 + sum(1 + (number + at) % 2 for number in range(12) for at in range(adds))
    assert all(boundary["payload"]["window"] == {"rule": "max_messages", "size": most} for boundary in boundaries(log))


def _check_memory(messages: Sequence[dict[str, Any]], most: int) -> None:
    others = [message for message in messages if message["role"] != "system"]
    assert len(messages) <= most
    assert not others or others[0]["role"] == "user"


# Compactions, at moments that are made


class Moment:
    """A transaction of the test that holds a session's row lock, and sees who waits for it."""

    def __init__(self, pair: Pair, session_id: str, tx: Writer, observer: asyncpg.Connection) -> None:
        self.key = session_store.key_of("default", session_id)
        self.tx = tx
        self._observer = observer
        self.clients = [httpx.AsyncClient(base_url=pair.url(number), timeout=LONG) for number in range(2)]

    def post(self, number: int, path: str, body: Any) -> asyncio.Task[httpx.Response]:
        """Send a request to one of the services, without waiting for its answer."""
        return asyncio.create_task(self.clients[number % 2].post(path, json=body))

    async def waited_for(self, count: int) -> None:
        """Return when so many transactions wait, as they must, for the lock held here."""
        async with asyncio.timeout(LONG):
            while await self._observer.fetchval(_WAITING) < count:  # noqa: ASYNC110 - Postgres calls nobody back
                await asyncio.sleep(0.01)

    async def append(self, *drafts: Draft) -> int | None:
        """Append by the very statement that the service uses, inside the transaction that holds the lock."""
        return await event_store.append(self.tx, self.key, drafts, expected_version=None)


_WAITING = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'turnlog' AND wait_event_type = 'Lock'
"""


@asynccontextmanager
async def holding(pair: Pair, session_id: str) -> AsyncIterator[Moment]:
    """Hold a session's row lock; it is given up, and the work done meanwhile committed, when the block ends."""
    database = Database(pair.database_url, pool_size=1)
    observer = await asyncpg.connect(pair.database_url)
    try:
        async with database.writing() as tx:
            moment = Moment(pair, session_id, tx, observer)
            await session_store.lock(tx, moment.key)
            yield moment
    finally:
        await observer.close()
        await database.close()


async def answered(moment: Moment, *requests: Awaitable[httpx.Response]) -> list[Any]:
    """Return the answers to requests that were held up, which all succeed."""
    answers = await asyncio.wait_for(asyncio.gather(*requests), LONG)
    for client in moment.clients:
        await client.aclose()
    assert all(answer.is_success for answer in answers), [answer.text for answer in answers]
    return [answer.json() for answer in answers]


def draft(event_id: str, role: str = "user", tokens: int = 7) -> Draft:
    return Draft(
        event_id=event_id,
        type="MESSAGE",
        role=role,  # type: ignore[arg-type]
        body=f'{{"role": "{role}", "content": "{event_id}"}}',
        metadata="{}",
        timestamp=None,
        token_count=tokens,
    )


def window(**rule: int) -> dict[str, Any]:
    [(name, size)] = rule.items()
    return {"window": {"rule": name, "size": size}}


LONG_TALK = (system("You are patient."), *turns(8))
SUMMARY = {"summarizer": {"type": "text", "text": "Short."}}


def long_talk(talk: Talk) -> None:
    """Say something of which a summary is shorter."""
    talk.append(*({"message": said, "token_count": 50} for said in LONG_TALK))


@pytest.mark.parametrize("summary", [{}, SUMMARY], ids=["window", "summary"])
def test_what_is_appended_between_decide_and_write_is_in_the_tail(
    pair: Pair, talk: Talk, summary: dict[str, Any]
) -> None:
    long_talk(talk)
    body = {**window(last_turns=2), **summary}
    planned = talk.post("/compact", {**body, "dry_run": True})

    async def scenario() -> list[Any]:
        async with holding(pair, talk.id) as moment:
            compaction = moment.post(0, f"{talk.path}/compact", body)
            await moment.waited_for(1)  # it has decided, and waits to write
            await moment.append(draft("late-1"), draft("late-2", "assistant"))
            await moment.append(draft("late-3"))
        return await answered(moment, compaction)

    [applied] = asyncio.run(scenario())

    assert (planned["status"], applied["status"]) == ("planned", "applied")
    assert applied["boundary"] == 21
    for fixed in ("covered", "pinned", "preserved", "tokens"):
        assert applied[fixed] == planned[fixed], f"{fixed} is not what was planned"
    log = check_session(talk, every_version=True)
    [boundary] = boundaries(log)
    assert boundary["payload"]["covered"] == planned["covered"]["ranges"] == [[2, 13]]
    assert [logged["id"] for logged in log[17:20]] == ["late-1", "late-2", "late-3"]
    assert talk.seqs() == [1, *(range(22, 24) if summary else ()), *range(14, 21)]


@pytest.mark.parametrize("summary", [{}, SUMMARY], ids=["window", "summary"])
def test_appends_that_queue_with_a_compaction_all_get_through(pair: Pair, talk: Talk, summary: dict[str, Any]) -> None:
    long_talk(talk)

    async def scenario() -> list[Any]:
        async with holding(pair, talk.id) as moment:
            requests = [moment.post(0, f"{talk.path}/compact", {**window(last_turns=2), **summary})]
            await moment.waited_for(1)
            requests += [
                moment.post(number, f"{talk.path}/events", {"events": [event(f"late-{number}")]})
                for number in range(12)
            ]
            # In each service one of them waits for the lock, and the others for that one.
            await moment.waited_for(3)
        return await answered(moment, *requests)

    applied, *receipts = asyncio.run(scenario())

    assert applied["status"] == "applied"
    log = check_session(talk)
    places = {logged["id"]: logged["seq"] for logged in log}
    assert all(places[one["id"]] == one["seq"] for receipt in receipts for one in receipt["events"])
    assert len(log) == 17 + 1 + 12 + (2 if summary else 0)
    assert boundaries(log)[0]["payload"]["covered"] == [[2, 13]]
    assert {places[f"late-{number}"] for number in range(12)} < set(talk.seqs())


def test_a_session_that_is_held_holds_up_its_own_appends_and_no_others(pair: Pair, talk: Talk) -> None:
    names = [f"{talk.id}-{number}" for number in range(30)]
    with pair.client() as client:
        for name in (talk.id, *names):
            Talk(client, name).append(user("Hello"))

    async def scenario() -> list[Any]:
        async with holding(pair, talk.id) as moment:
            held_up = [
                moment.post(number, f"{talk.path}/events", {"events": [event(f"w{number}")]}) for number in range(30)
            ]
            await moment.waited_for(2)
            others = [
                moment.post(number, f"/v1/sessions/{name}/events", {"events": [event("a"), event("b")]})
                for number, name in enumerate(names)
            ]
            for answer in await asyncio.wait_for(asyncio.gather(*others), LONG):
                assert [one["seq"] for one in answer.json()["events"]] == [2, 3]
            assert not any(request.done() for request in held_up)
        return await answered(moment, *held_up)

    receipts = asyncio.run(scenario())

    assert sorted(receipt["version"] for receipt in receipts) == [*range(2, 32)]
    assert len(check_session(talk)) == 31


@pytest.mark.parametrize("summary", [{}, SUMMARY], ids=["window", "summary"])
def test_of_eight_compactions_with_one_plan_one_writes_and_seven_lose_the_race(
    pair: Pair, talk: Talk, summary: dict[str, Any]
) -> None:
    long_talk(talk)

    async def scenario() -> list[Any]:
        async with holding(pair, talk.id) as moment:
            body = {**window(last_turns=2), **summary}
            requests = [moment.post(number, f"{talk.path}/compact", body) for number in range(8)]
            await moment.waited_for(8)
        return await answered(moment, *requests)

    outcomes = asyncio.run(scenario())

    assert Counter((one["status"], one["reason"]) for one in outcomes) == {
        ("applied", None): 1,
        ("unchanged", "lost-race"): 7,
    }
    log = check_session(talk)
    assert len(boundaries(log)) == 1
    assert len(log) == 17 + 1 + (2 if summary else 0)
    for lost in outcomes:
        assert lost["version"] == len(log)
        assert (lost["boundary"] is None) == (lost["status"] == "unchanged")


def test_of_eight_compactions_at_once_one_writes(pair: Pair, talk: Talk) -> None:
    for round_number in range(1, 6):
        talk.append(*turns(6, first=round_number * 10))

        outcomes = at_once(pair, 8, lambda client, _: Talk(client, talk.id).compact(last_turns=2))

        assert sum(one["status"] == "applied" for one in outcomes) == 1
        assert {one["reason"] for one in outcomes} <= {None, "lost-race", "fits-window"}
        assert len(boundaries(check_session(talk))) == round_number


def test_a_compaction_whose_session_is_deleted_and_made_anew_finds_nobody(pair: Pair, talk: Talk) -> None:
    long_talk(talk)

    async def scenario() -> httpx.Response:
        async with holding(pair, talk.id) as moment:
            compaction = moment.post(0, f"{talk.path}/compact", window(last_turns=2))
            await moment.waited_for(1)
            assert await session_store.delete(moment.tx, moment.key)
            new = {
                "session_id": talk.id,
                "metadata": "{}",
                "labels": {},
                "policy": None,
                "ttl_seconds": 3600,
                "standing": NO_POLICY,
            }
            assert await session_store.create(moment.tx, "default", new)
        answer = await asyncio.wait_for(compaction, LONG)
        for client in moment.clients:
            await client.aclose()
        return answer

    answer = asyncio.run(scenario())

    assert (answer.status_code, answer.json()["code"]) == (404, "session-not-found")
    assert check_session(talk) == []


def test_a_late_append_does_not_bring_a_deleted_session_back(pair: Pair, talk: Talk) -> None:
    long_talk(talk)

    async def scenario() -> httpx.Response:
        async with holding(pair, talk.id) as moment:
            late = moment.post(0, f"{talk.path}/events", {"events": [event("late")]})
            await moment.waited_for(1)
            assert await session_store.delete(moment.tx, moment.key)
        answer = await asyncio.wait_for(late, LONG)
        for client in moment.clients:
            await client.aclose()
        return answer

    assert asyncio.run(scenario()).status_code == 404
    talk.get("", status=404)
    assert rows(pair.database_url, "SELECT 1 FROM events WHERE session_key = $1", _key(talk)) == []


def _key(talk: Talk) -> Any:
    return session_store.key_of("default", talk.id)


class Paused:
    """A compaction in this process that has decided, and goes on to write only when it is told to.

    It stops where it makes the ids of its summary turn. It has neither a connection nor a lock at that
    moment, just as when it would wait for a model.
    """

    def __init__(self, pair: Pair, session_id: str) -> None:
        self._settings = settings_for(pair.database_url)
        self._url = pair.database_url
        self._session_id = session_id
        self._decided = threading.Event()
        self._go_on = threading.Event()

    def __enter__(self) -> "Paused":
        self._pool = ThreadPoolExecutor(1)
        self._outcome = self._pool.submit(asyncio.run, self._compact())
        wait_until(lambda: self._decided.is_set() or self._outcome.done(), LONG)
        assert self._decided.is_set(), self._outcome.exception()
        return self

    def __exit__(self, *_: object) -> None:
        self._go_on.set()
        self._pool.shutdown()

    def finish(self) -> compactions.Outcome:
        """Let it write, and return how it ended."""
        self._go_on.set()
        return self._outcome.result(LONG)

    def _new_id(self) -> str:
        self._decided.set()
        assert self._go_on.wait(LONG)
        return bootstrap.new_id()

    async def _compact(self) -> compactions.Outcome:
        policy = Policy(trigger=Always(), window=Window(Rule.LAST_TURNS, 2), summarizer=TextSummarizer(text="Short."))
        async with bootstrap.running(self._settings, self._url, Meter()) as ctx:
            paused = replace(ctx, new_id=self._new_id)
            return await compactions.compact(paused, "default", self._session_id, compactions.Request(policy=policy))


def test_a_compaction_that_waits_for_its_summary_holds_up_no_append_and_covers_what_it_planned(
    pair: Pair, talk: Talk
) -> None:
    long_talk(talk)
    with Paused(pair, talk.id) as compaction:
        # Acknowledged while the compaction stands between decide and write: it holds nothing that they would need.
        receipts = at_once(
            pair, 6, lambda client, number: Talk(client, talk.id).append(event(f"late-{number}"), status=201)
        )
        outcome = compaction.finish()

    assert outcome.status == "applied"
    log = check_session(talk, every_version=True)
    [boundary] = boundaries(log)
    assert boundary["seq"] == 24
    assert boundary["payload"]["covered"] == [[2, 13]]
    assert {one["seq"] for receipt in receipts for one in receipt["events"]} == set(range(18, 24))
    assert talk.seqs() == [1, 25, 26, *range(14, 24)]


def test_another_boundary_written_meanwhile_voids_a_compaction(pair: Pair, talk: Talk) -> None:
    long_talk(talk)
    with Paused(pair, talk.id) as compaction:
        assert talk.compact(last_turns=3)["status"] == "applied"
        talk.append(user("And then?"))
        outcome = compaction.finish()

    assert (outcome.status, outcome.reason) == ("unchanged", "lost-race")
    log = check_session(talk)
    assert [boundary["seq"] for boundary in boundaries(log)] == [18]
    assert not any(logged["synthetic"] for logged in log)


def test_the_chat_memory_that_evicts_meanwhile_voids_a_compaction(pair: Pair, talk: Talk) -> None:
    long_talk(talk)
    with Paused(pair, talk.id) as compaction:
        answer = talk.http.post(
            f"/v1/chat-memory/{talk.id}/messages", params={"max_messages": 5}, json={"messages": [user("More?")]}
        )
        assert answer.status_code == 200
        outcome = compaction.finish()

    assert (outcome.status, outcome.reason) == ("unchanged", "lost-race")
    assert len(boundaries(check_session(talk))) == 1


@pytest.mark.parametrize("again", ["empty", "same-talk"])
def test_a_session_made_anew_meanwhile_is_left_alone(pair: Pair, talk: Talk, again: str) -> None:
    long_talk(talk)
    with Paused(pair, talk.id) as compaction:
        assert talk.http.delete(talk.path).status_code == 204
        assert talk.http.put(talk.path, json={}).status_code == 201
        if again == "same-talk":
            long_talk(talk)  # as far as version and boundary go, nothing has changed
        before = talk.log()
        with pytest.raises(SessionNotFound):
            compaction.finish()

    assert check_session(talk) == before
    assert boundaries(before) == []


def test_a_session_that_expires_meanwhile_is_left_alone(pair: Pair, talk: Talk) -> None:
    long_talk(talk)
    with Paused(pair, talk.id) as compaction:
        _expire(pair, talk.id)
        with pytest.raises(SessionExpired):
            compaction.finish()

    assert talk.http.patch(talk.path, json={"ttl_seconds": 3600}).status_code == 200
    assert len(check_session(talk)) == 17


def test_appends_compactions_and_readers_at_once_leave_every_served_view_reproducible(pair: Pair, talk: Talk) -> None:
    talk.append(system("You are patient."), *turns(4))
    served: dict[int, list[int]] = {}

    def act(client: httpx.Client, number: int) -> None:
        mine = Talk(client, talk.id)
        for round_number in range(8):
            if number < 4:
                mine.append(*turns(2, first=number * 100 + round_number * 2))
            elif number < 6:
                summary = "The story so far, in short." if round_number % 2 else None
                mine.compact(last_turns=2, summary=summary)
            else:
                view = mine.view()
                seqs = [shown["seq"] for shown in view["events"]]
                assert served.setdefault(view["version"], seqs) == seqs, "one version had two views"

    at_once(pair, 8, act)

    check_session(talk, versions=sorted(served))
    for version, seqs in served.items():
        assert talk.seqs(at_version=version) == seqs
