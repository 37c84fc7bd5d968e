"""Appends that leave together, on a real database: every promise of one append holds for each of many at once."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest

from app import bootstrap
from app.domain.errors import EventIdConflict, SessionExpired, SessionNotFound, Unavailable, VersionConflict
from app.domain.event import Draft
from app.domain.key import DEFAULT_TENANT
from app.metrics import Meter
from app.service import events as service
from app.service import sessions
from app.service.context import Context
from app.service.drafts import NewEvent
from app.service.events import Options, Receipt
from app.storage import database, events, flights
from app.storage import sessions as session_store
from app.storage.database import UniqueViolation, Writer
from tests.conftest import execute, rows, settings_for, wait_until

LONG = 60.0
AHEAD = {"ahead-1": 1, "ahead-2": 1}


@asynccontextmanager
async def running(url: str, *names: str) -> AsyncIterator[Context]:
    """Run the service's own parts on a database that has these sessions."""
    async with asyncio.timeout(LONG), bootstrap.running(settings_for(url), url, Meter()) as context:
        for name in names:
            await sessions.create(context, DEFAULT_TENANT, sessions.NewSession(session_id=name))
        yield context


def said(text: str, event_id: str | None = None) -> NewEvent:
    return NewEvent(message=f'{{"role":"user","content":"{text}"}}', event_id=event_id)


def append(context: Context, name: str, *batch: NewEvent, **options: Any) -> Coroutine[Any, Any, Receipt]:
    return service.append(context, DEFAULT_TENANT, name, batch, Options(**options))


async def outcomes(*work: Coroutine[Any, Any, Receipt]) -> list[Any]:
    """Do everything at once and return the answers and errors."""
    return await asyncio.gather(*work, return_exceptions=True)


@asynccontextmanager
async def in_the_air(context: Context) -> AsyncIterator[None]:
    """Let as many appends be in flight as may go alone, until the block ends, so that all others go together."""
    names = ["ahead-1", "ahead-2"]
    for name in names:
        await sessions.create(context, DEFAULT_TENANT, sessions.NewSession(session_id=name))
    async with held(context, *names):
        ahead = [asyncio.create_task(append(context, name, said("ahead"))) for name in names]
        await asyncio.sleep(0.05)
        yield
    assert [(await task).version for task in ahead] == [1, 1]


@asynccontextmanager
async def held(context: Context, *names: str) -> AsyncIterator[Writer]:
    """Hold sessions' row locks in a transaction of somebody else."""
    async with context.database.writing() as tx:
        for name in names:
            await session_store.lock(tx, session_store.key_of(DEFAULT_TENANT, name))
        yield tx


class Flights:
    """Notes who went together, in the statement that carries many."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self._append = flights.append

    async def __call__(self, writer: Writer, flight: flights.Flight) -> Any:
        self.batches.append(sum(map(len, flight.values())))
        return await self._append(writer, flight)


@pytest.fixture
def flown() -> Any:
    noted = Flights()
    with patch.object(flights, "append", noted):
        yield noted.batches


def logs(url: str) -> dict[str, list[dict[str, Any]]]:
    """Return every log, oldest event first, and check that figures and log agree."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(
        url,
        "SELECT session_id, seq, event_id, body::text AS body, token_count FROM events JOIN sessions"
        " USING (session_key) ORDER BY session_key, seq",
    ):
        found[row["session_id"]].append(row)
    for figures in rows(url, "SELECT session_id, version, view_events, view_turns, view_tokens FROM sessions"):
        log = found[figures["session_id"]]
        assert [one["seq"] for one in log] == [*range(1, figures["version"] + 1)]
        assert figures["view_events"] == figures["view_turns"] == len(log)
        assert figures["view_tokens"] == sum(one["token_count"] for one in log)
        assert len({one["event_id"] for one in log}) == len(log)
    return found


@pytest.mark.parametrize("sessions_at_once", [50, 1], ids=["fifty-sessions", "one-hot-session"])
def test_many_batches_at_once_are_each_contiguous_and_leave_no_gap(
    database_url: str, flown: list[int], sessions_at_once: int
) -> None:
    names = [f"s{at}" for at in range(sessions_at_once)]

    async def run() -> list[tuple[str, list[str], Receipt]]:
        async with running(database_url, *names) as context:

            async def one(number: int) -> tuple[str, list[str], Receipt]:
                name, texts = names[number % len(names)], [f"{number}-{at}" for at in range(1 + number % 3)]
                return name, texts, await append(context, name, *map(said, texts))

            return await asyncio.gather(*map(one, range(200)))

    told = asyncio.run(run())

    stored = logs(database_url)
    assert sum(map(len, stored.values())) == sum(len(texts) for _, texts, _ in told)
    for name, texts, receipt in told:
        seqs = [event.seq for event in receipt.events]
        assert seqs == [*range(seqs[0], seqs[0] + len(texts))]
        assert receipt.version == seqs[-1]
        at = [stored[name][seq - 1] for seq in seqs]
        assert [one["event_id"] for one in at] == [event.event_id for event in receipt.events]
        assert [one["body"] for one in at] == [said(text).message for text in texts]
    assert len(flown) < 20, "they did not go together"
    assert sum(flown) >= 190, "few went by themselves, and nobody twice"


def test_one_event_sent_twice_is_stored_once_and_other_content_is_refused(database_url: str, flown: list[int]) -> None:
    async def run() -> list[Any]:
        async with running(database_url, "s", "t", "u") as context, in_the_air(context):
            answers = asyncio.gather(
                append(context, "s", said("a", "e")),
                append(context, "s", said("a", "e")),
                append(context, "t", said("a", "e")),
                append(context, "t", said("b", "e")),
                append(context, "u", said("a", "e")),
                return_exceptions=True,
            )
            return await answers

    first, second, third, fourth, fifth = asyncio.run(run())

    assert flown[0] == 5
    assert sorted([first.all_replayed, second.all_replayed]) == [False, True]
    assert first.version == second.version == 1
    [conflict] = [answer for answer in (third, fourth) if isinstance(answer, EventIdConflict)]
    assert (conflict.event_id, conflict.seq) == ("e", 1)
    assert (fifth.version, fifth.all_replayed) == (1, False)
    assert {name: len(log) for name, log in logs(database_url).items() if log} == {**AHEAD, "s": 1, "t": 1, "u": 1}


def test_a_session_that_somebody_holds_holds_up_only_its_own_appends(database_url: str, flown: list[int]) -> None:
    async def run() -> None:
        async with running(database_url, "held", "s", "t") as context:
            async with held(context, "held") as tx:
                waiting = [asyncio.create_task(append(context, "held", said(f"{at}"))) for at in range(30)]
                for _ in range(20):
                    await asyncio.gather(append(context, "s", said("a")), append(context, "t", said("a")))
                assert not any(task.done() for task in waiting)
                # One of them waits for the lock, and the others for that one: the connections are left to others.
                assert context.database.pool_use()["writing"] == 2
                key = session_store.key_of(DEFAULT_TENANT, "held")
                assert await events.append(tx, key, [draft("theirs")], expected_version=None) == 0
            receipts = await asyncio.gather(*waiting)
            assert sorted(receipt.version for receipt in receipts) == [*range(2, 32)]

    asyncio.run(run())

    assert {name: len(log) for name, log in logs(database_url).items()} == {"held": 31, "s": 20, "t": 20}
    assert 29 in flown, "those who waited did not go together"


def test_a_session_is_found_locked_once_for_all_its_batches(database_url: str, flown: list[int]) -> None:
    async def run() -> None:
        async with running(database_url, "held", "s") as context, in_the_air(context):
            async with held(context, "held"):
                waiting = [asyncio.create_task(append(context, "held", said(f"{at}"))) for at in range(5)]
                other = await append(context, "s", said("a"))
                assert other.version == 1
                await asyncio.sleep(0.05)
                assert context.database.pool_use()["writing"] == 2 + 2 + 1, "two who hold, and those who wait"
            assert sorted([(await task).version for task in waiting]) == [1, 2, 3, 4, 5]

    asyncio.run(run())

    assert flown == [6, 4]
    assert [one["body"] for one in logs(database_url)["held"]] == [said(f"{at}").message for at in range(5)]


def test_a_caller_who_goes_away_harms_nobody(database_url: str, flown: list[int]) -> None:
    async def run() -> None:
        async with running(database_url, "held", "s") as context:
            async with in_the_air(context):
                tasks = [asyncio.create_task(append(context, "s", said(f"{at}"))) for at in range(6)]
                await asyncio.sleep(0)
                tasks[1].cancel()  # before the flight boards
                answers = await asyncio.gather(*tasks, return_exceptions=True)
                assert isinstance(answers[1], asyncio.CancelledError)
                assert [answer.version for answer in answers if isinstance(answer, Receipt)] == [1, 2, 3, 4, 5]
                async with held(context, "held"):
                    waiting = [asyncio.create_task(append(context, "held", said(f"{at}"))) for at in range(3)]
                    await asyncio.sleep(0.05)
                    waiting[0].cancel()  # the one who waits for the lock, for all of them
                    waiting[1].cancel()
                    await asyncio.sleep(0.05)
                assert (await waiting[2]).version in {1, 2}
            assert (await append(context, "held", said("later"))).version in {2, 3}
        assert not context.unfinished

    asyncio.run(run())

    assert len(logs(database_url)["s"]) == 5


def test_who_waits_behind_one_that_had_no_answer_in_time_does_not_begin_to_wait_as_long(database_url: str) -> None:
    async def run() -> list[Any]:
        async with running(database_url, "held", "s") as context, held(context, "held"):
            waiting = asyncio.gather(
                *(append(context, "held", said(f"{at}")) for at in range(5)), return_exceptions=True
            )
            await asyncio.sleep(0.05)
            assert (await append(context, "s", said("a"))).version == 1
            return await waiting

    with patch.object(database, "STATEMENT_SECONDS", 0.5):
        found = asyncio.run(run())

    assert [type(one) for one in found] == [Unavailable] * 5


def test_a_leader_who_goes_away_lets_the_others_go(database_url: str) -> None:
    async def run() -> None:
        async with running(database_url, "s") as context:
            async with held(context, "s"):
                leader = asyncio.create_task(append(context, "s", said("a")))
                await asyncio.sleep(0.05)
                follower = asyncio.create_task(append(context, "s", said("b")))
                await asyncio.sleep(0.05)
                leader.cancel()
                await asyncio.sleep(0.05)
            # Postgres may have stored the leader's batch all the same, as ever when a client goes away.
            assert (await follower).version in {1, 2}

    asyncio.run(run())

    assert logs(database_url)["s"][-1]["body"] == said("b").message


def test_of_those_who_expect_one_version_exactly_one_wins(database_url: str, flown: list[int]) -> None:
    async def run() -> None:
        async with running(database_url, "s") as context:
            for version in range(5):
                found = await outcomes(
                    *(append(context, "s", said(f"{at}"), expected_version=version) for at in range(10))
                )
                assert sorted(one.version for one in found if isinstance(one, Receipt)) == [version + 1]
                lost = [one for one in found if isinstance(one, VersionConflict)]
                assert {one.current for one in lost} == {version + 1}
                assert len(lost) == 9
            async with in_the_air(context):
                found = await outcomes(
                    append(context, "s", said("a")),
                    append(context, "s", said("b"), expected_version=6),
                    append(context, "s", said("c"), expected_version=6),
                    append(context, "s", said("d")),
                )
                assert [one.version for one in (found[0], found[1], found[3])] == [6, 7, 8]
                assert isinstance(found[2], VersionConflict)

    asyncio.run(run())

    assert [one["seq"] for one in logs(database_url)["s"]] == [*range(1, 9)]


def test_missing_expired_and_new_sessions_go_with_the_others(database_url: str, flown: list[int]) -> None:
    async def run() -> list[Any]:
        async with running(database_url, "s", "expired") as context:
            await append(context, "expired", said("old"))
            await asyncio.to_thread(
                execute, database_url, "UPDATE sessions SET expires_at = now() WHERE session_id = 'expired'"
            )
            async with in_the_air(context):
                return await outcomes(
                    append(context, "missing", said("a")),
                    append(context, "new", said("a"), create=True),
                    append(context, "expired", said("a")),
                    append(context, "s", said("a")),
                    append(context, "new", said("b"), create=True),
                )

    missing, first, expired, there, second = asyncio.run(run())

    assert flown == [5], "what is missing or expired needs no statement of its own to tell so"
    assert isinstance(missing, SessionNotFound)
    assert isinstance(expired, SessionExpired)
    assert there.version == 1
    assert sorted([first.version, second.version]) == [1, 2]
    assert len(logs(database_url)["new"]) == 2


def test_when_the_database_goes_away_everybody_hears_it_and_nothing_is_half_written(database_url: str) -> None:
    async def run() -> list[Any]:
        async with running(database_url, *(f"s{at}" for at in range(8))) as context:
            # The flight's statement stands still in the middle of its insert, and is ended there.
            await asyncio.to_thread(
                execute,
                database_url,
                "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN PERFORM pg_sleep(30) FROM sessions WHERE session_key = NEW.session_key"
                " AND session_id = 's3'; RETURN NEW; END $$",
                "CREATE TRIGGER wait BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION wait()",
            )
            async with in_the_air(context):
                work = asyncio.gather(
                    *(append(context, f"s{at % 8}", said(f"{at}")) for at in range(16)), return_exceptions=True
                )
                await asyncio.to_thread(wait_until, lambda: bool(rows(database_url, _END_SLEEPER)))
                found = await work
            await asyncio.to_thread(execute, database_url, "DROP TRIGGER wait ON events")
            assert (await append(context, "s3", said("later"))).version == 1
            return found

    found = asyncio.run(run())

    assert [type(one) for one in found] == [Unavailable] * 16
    assert {name: len(log) for name, log in logs(database_url).items() if log} == {**AHEAD, "s3": 1}


_END_SLEEPER = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


def test_a_batch_that_the_database_refuses_fails_alone(database_url: str) -> None:
    async def run() -> list[Any]:
        async with running(database_url, "s", "t") as context:
            execute_later = "ALTER TABLE events ADD CONSTRAINT ck_fault CHECK (body::text NOT LIKE '%bad%')"
            await asyncio.to_thread(execute, database_url, execute_later)
            async with in_the_air(context):
                return await outcomes(
                    append(context, "s", said("a")), append(context, "s", said("bad")), append(context, "t", said("b"))
                )

    good, bad, other = asyncio.run(run())

    assert good.version == other.version == 1
    assert type(bad).__name__ == "CheckViolationError"
    assert len(logs(database_url)["s"]) == 1


def test_large_batches_and_long_queues_are_not_one_statement(database_url: str, flown: list[int]) -> None:
    async def run() -> None:
        async with running(database_url, "s", "t", "large") as context, in_the_air(context):
            work = asyncio.gather(
                append(context, "large", *(said(f"{at}") for at in range(101))),
                *(append(context, "s", said(f"{at}")) for at in range(100)),
                *(append(context, "t", *(said(f"{at}-{n}") for n in range(90))) for at in range(6)),
            )
            await work

    asyncio.run(run())

    assert max(flown) == flights.MOST_BATCHES
    assert sum(flown) == 106
    assert {name: len(log) for name, log in logs(database_url).items()} == {
        **AHEAD, "large": 101, "s": 100, "t": 540,
    }  # fmt: skip


def test_an_id_that_is_stored_is_told_as_by_the_single_statement(database_url: str) -> None:
    async def run() -> None:
        async with running(database_url, "s") as context:
            key = session_store.key_of(DEFAULT_TENANT, "s")
            appends = context.appends
            assert await appends.append(key, [draft("e")], expected_version=None) == 0
            async with in_the_air(context):
                with pytest.raises(UniqueViolation) as raised:
                    await appends.append(key, [draft("e")], expected_version=None)
                assert raised.value.constraint == events.EVENT_ID_CONSTRAINT
                assert await appends.append(key, [draft("f")], expected_version=3) is None
                assert await appends.append(key, [draft("f")], expected_version=1) == 1

    asyncio.run(run())


def draft(event_id: str) -> Draft:
    return Draft(
        event_id=event_id, type="MESSAGE", role="user", body='{"role":"user","content":"x"}', metadata="{}",
        timestamp=None, token_count=7,
    )  # fmt: skip


def test_two_processes_on_one_hot_session_lose_nothing(database_url: str) -> None:
    async def run() -> Sequence[int]:
        async with running(database_url, "s") as one, running(database_url) as other:

            async def writer(context: Context, number: int) -> list[int]:
                return [(await append(context, "s", said(f"{number}-{at}"))).version for at in range(10)]

            told = await asyncio.gather(*(writer((one, other)[at % 2], at) for at in range(20)))
            return [version for mine in told for version in mine]

    assert sorted(asyncio.run(run())) == [*range(1, 201)]
    logs(database_url)


@pytest.mark.parametrize(("events_each", "characters"), [(501, 5), (1, 1_100_000)])
def test_batches_that_are_larger_than_a_flight_is_go_one_after_the_other(
    database_url: str, events_each: int, characters: int
) -> None:
    async def journey() -> None:
        async with running(database_url, "large", "small") as context:
            batch = [said("x" * characters) for _ in range(events_each)]
            found = await outcomes(
                *(append(context, "large", *batch) for _ in range(4)), append(context, "small", said("a"))
            )
            assert sorted(one.version for one in found[:4]) == [events_each * at for at in (1, 2, 3, 4)]
            assert found[4].version == 1
            assert (await append(context, "small", said("b"))).version == 2

    asyncio.run(journey())
