"""`turnlog migrate`, `compact` and `purge`."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.settings import Settings
from app.storage import schema
from tests.cli.command import failure, success, turnlog, with_user
from tests.conftest import Service, rows, settings_for, with_database
from tests.journeys.processes import refusal, run, usage_error
from tests.journeys.replayed import boundaries, check_session
from tests.model_server import ModelServer, Reply
from tests.talk import Talk, system, turns


def url_of(service: Service) -> str:
    assert service.settings.database_url
    return service.settings.database_url.get_secret_value()


@pytest.fixture
def client(own_service: Service) -> Iterator[httpx.Client]:
    with own_service.client() as client:
        yield client


def talked(client: httpx.Client, *names: str) -> list[Talk]:
    """Make sessions of five turns."""
    talks = [Talk(client, name) for name in names]
    for talk in talks:
        talk.append(system("You are patient."), *turns(5))
    return talks


LAST_TURN = {"window": {"rule": "last_turns", "size": 1}, "trigger": {"type": "turn_count", "threshold": 2}}
SUMMARIZED = {**LAST_TURN, "summarizer": {"type": "llm"}}


def stand(client: httpx.Client, policy: dict[str, Any], *names: str) -> None:
    """Give sessions a policy."""
    for name in names:
        assert client.patch(f"/v1/sessions/{name}", json={"policy": policy}).status_code == 200


def with_model(service: Service, model: ModelServer, **changes: Any) -> Settings:
    """Return the settings of a service, with a model for summaries."""
    summarizer = {"provider": "openai", "base_url": model.base_url("openai"), "model": "m"}
    return settings_for(url_of(service), summarizer=summarizer, **changes)


# migrate


def test_an_empty_database_is_brought_to_the_newest_revision_once(empty_database_url: str) -> None:
    for _ in range(2):
        said = success(turnlog("migrate", TURNLOG_DATABASE_URL=empty_database_url))
        assert said == f"the schema is at revision {schema.head()}\n"

    assert rows(empty_database_url, "SELECT version_num FROM alembic_version") == [{"version_num": schema.head()}]
    assert rows(empty_database_url, "SELECT count(*) FROM sessions") == [{"count": 0}]


def test_the_embedded_database_is_migrated_and_stopped(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"

    assert schema.head() in success(run("migrate", "--data-dir", data_dir))

    assert list(data_dir.glob("postgres-*/PG_VERSION"))
    assert list(data_dir.glob("postgres-*/postmaster.pid")) == [], "PostgreSQL was left running"


def test_a_database_that_cannot_be_reached_is_one_line() -> None:
    line = refusal(turnlog("migrate", TURNLOG_DATABASE_URL="postgresql://u:secret@127.0.0.1:1/x"))

    assert "secret" not in line


def test_a_database_that_does_not_exist_is_one_line(postgres: str) -> None:
    assert "not_there" in refusal(turnlog("migrate", TURNLOG_DATABASE_URL=with_database(postgres, "not_there")))


def test_a_user_that_does_not_exist_is_one_line(database_url: str) -> None:
    assert "stranger" in refusal(turnlog("migrate", TURNLOG_DATABASE_URL=with_user(database_url, "stranger")))


def test_a_data_folder_that_cannot_be_made_is_one_line() -> None:
    assert "/dev/null/turnlog" in refusal(turnlog("migrate"))


# compact


def test_named_sessions_are_compacted_and_no_others(own_service: Service, client: httpx.Client) -> None:
    one, two, three = talked(client, "one", "two", "three")

    said = success(turnlog("compact", "one", "two", "--last-turns", "2", "--url", own_service.url))

    assert re.fullmatch(r"2 sessions: 2 applied; \d+ tokens before, \d+ after\n", said)
    for talk, expected in ((one, 1), (two, 1), (three, 0)):
        assert len(boundaries(check_session(talk))) == expected
    assert one.view()["turns"] == 2


def test_every_session_is_compacted(own_service: Service, client: httpx.Client) -> None:
    talks = talked(client, "one", "two", "three")
    Talk(client, "short").append(*turns(1))

    said = success(turnlog("compact", "--all", "--last-events", "4", TURNLOG_DATABASE_URL=url_of(own_service)))

    assert said.startswith("4 sessions: 3 applied, 1 fits-window; ")
    assert all(talk.session()["view"]["events"] == 5 for talk in talks)
    again = success(turnlog("compact", "--all", "--last-events", "4", TURNLOG_DATABASE_URL=url_of(own_service)))
    assert again.startswith("4 sessions: 4 fits-window; ")


def test_a_token_budget_is_a_window_too(own_service: Service, client: httpx.Client) -> None:
    [talk] = talked(client, "one")

    success(turnlog("compact", "one", "--token-budget", "50", "--url", own_service.url))

    assert talk.view()["token_count"] <= 50


def test_a_dry_run_writes_nothing(own_service: Service, client: httpx.Client) -> None:
    [talk] = talked(client, "one")
    before = check_session(talk)

    said = success(turnlog("compact", "--all", "--last-turns", "1", "--dry-run", "--url", own_service.url))

    assert "1 planned" in said
    assert check_session(talk) == before


def test_without_a_window_each_policy_counts(own_service: Service, client: httpx.Client) -> None:
    with_policy, without = talked(client, "with", "without")
    stand(client, LAST_TURN, "with")

    said = failure(turnlog("compact", "with", "without", "--url", own_service.url))

    assert "2 sessions: " in said
    assert "1 applied" in said
    assert "1 failed" in said
    assert "without: " in said
    assert with_policy.view()["turns"] == 1
    assert without.view()["turns"] == 5


def test_an_unknown_session_is_named_and_holds_up_no_other(own_service: Service, client: httpx.Client) -> None:
    [talk] = talked(client, "one")

    said = failure(turnlog("compact", "nobody", "a/b", "one", "--last-turns", "1", "--url", own_service.url))

    assert "nobody: " in said
    assert "a/b: " in said
    assert talk.view()["turns"] == 1


def test_no_sessions_at_all_is_no_error(own_service: Service) -> None:
    assert "0 sessions" in success(turnlog("compact", "--all", "--last-turns", "1", "--url", own_service.url))


@pytest.mark.parametrize(
    "words",
    [
        (),  # neither names nor --all
        ("one", "--all", "--last-turns", "2"),  # both
        ("--all", "--last-turns", "2", "--last-events", "2"),  # two windows
        ("--all", "--last-turns", "0"),  # keeps nothing
        ("--all", "--token-budget", "many"),
        ("one", "--metadata", "agent=helpdesk"),  # nothing to choose from
        ("--all", "--metadata", "helpdesk"),  # a value of what?
        ("one", "--max-seconds", "5"),  # only the fleet's runs are timed
        ("--all", "--last-turns", "2", "--max-seconds", "5"),
        ("--all", "--max-seconds", "0"),
        ("--all", "--dry-run", "--metadata", "agent=helpdesk"),  # what is due is listed as a whole
        ("--all", "--dry-run", "--max-seconds", "5"),
    ],
)
def test_compact_explains_what_it_wants(words: tuple[str, ...]) -> None:
    assert "Usage: turnlog compact" in usage_error(turnlog("compact", *words))


# compact --all: the sessions that are due


def test_the_sessions_that_are_due_are_compacted_by_their_policies(own_service: Service, client: httpx.Client) -> None:
    one, two, short, without = talked(client, "one", "two", "short", "without")
    stand(client, LAST_TURN, "one", "two")
    stand(client, {**LAST_TURN, "trigger": {"type": "turn_count", "threshold": 5}}, "short")

    said = success(turnlog("compact", "--all", "--url", own_service.url))

    assert re.fullmatch(r"2 sessions: 2 applied; \d+ tokens before, \d+ after\n", said)
    assert [talk.view()["turns"] for talk in (one, two, short, without)] == [1, 1, 5, 5]
    assert all(len(boundaries(check_session(talk))) == 1 for talk in (one, two))


def test_one_that_fails_holds_up_no_other_and_is_told(own_service: Service, client: httpx.Client) -> None:
    good, better, bad = talked(client, "good", "better", "bad")
    stand(client, LAST_TURN, "good", "better")
    stand(client, SUMMARIZED, "bad")

    ended = turnlog("compact", "--all", "--url", own_service.url)

    said = failure(ended)
    assert "bad: no-summarizer, and waits for 30 s\n" in ended.stderr
    assert re.search(r"3 sessions: 2 applied, 1 failed; .*; 1 wait or are being worked on\n", said)
    assert [talk.view()["turns"] for talk in (good, better, bad)] == [1, 1, 5]
    assert "retry_at" in bad.session()


def test_a_session_that_waits_after_a_failure_is_left_alone(own_service: Service, client: httpx.Client) -> None:
    [bad] = talked(client, "bad")
    stand(client, SUMMARIZED, "bad")
    failure(turnlog("compact", "--all", "--url", own_service.url))
    waits = bad.session()["retry_at"]

    said = success(turnlog("compact", "--all", "--url", own_service.url))

    assert said == "0 sessions: nothing to do; 0 tokens before, 0 after; 1 wait or are being worked on\n"
    assert bad.session()["retry_at"] == waits


def test_nothing_due_is_no_error(own_service: Service, client: httpx.Client) -> None:
    talked(client, "one")

    said = success(turnlog("compact", "--all", "--url", own_service.url))

    assert said == "0 sessions: nothing to do; 0 tokens before, 0 after\n"


def test_runs_follow_each_other_until_none_is_due(own_service: Service, client: httpx.Client) -> None:
    talks = talked(client, *(f"s{number}" for number in range(45)))
    stand(client, LAST_TURN, *(talk.id for talk in talks))

    said = success(turnlog("compact", "--all", TURNLOG_DATABASE_URL=url_of(own_service)))

    assert said.startswith("45 sessions: 45 applied; ")
    assert {talk.session()["view"]["turns"] for talk in talks} == {1}


def test_one_that_cannot_shrink_is_looked_at_once(own_service: Service, client: httpx.Client) -> None:
    talk = Talk(client, "giant")
    talk.append(*turns(1))
    stand(client, {**LAST_TURN, "trigger": {"type": "token_count", "threshold": 1}}, "giant")

    first = success(turnlog("compact", "--all", "--url", own_service.url))
    second = success(turnlog("compact", "--all", "--url", own_service.url))

    assert first.startswith("1 sessions: 1 fits-window; ")
    assert second.startswith("0 sessions: nothing to do; ")


def test_summaries_are_written_straight_on_the_database(own_service: Service, client: httpx.Client) -> None:
    [talk] = talked(client, "one")
    stand(client, SUMMARIZED, "one")
    with ModelServer() as model:
        model.answer = "Four questions, four answers."
        said = success(
            turnlog(
                "compact",
                "--all",
                TURNLOG_DATABASE_URL=url_of(own_service),
                TURNLOG_SUMMARIZER_PROVIDER="openai",
                TURNLOG_SUMMARIZER_BASE_URL=model.base_url("openai"),
                TURNLOG_SUMMARIZER_MODEL="m",
            )
        )

    assert said.startswith("1 sessions: 1 applied; ")
    assert len(model.requests) == 1
    assert any("Four questions, four answers." in text for text in talk.texts())


def test_the_embedded_database_has_nothing_due(tmp_path: Path) -> None:
    said = success(run("compact", "--all", "--data-dir", tmp_path / "data"))

    assert said.startswith("0 sessions: nothing to do; ")


def test_after_its_time_it_ends_and_says_what_remains(own_service: Service, client: httpx.Client) -> None:
    talks = talked(client, "one", "two", "three", "four", "five", "six")
    stand(client, SUMMARIZED, *(talk.id for talk in talks))
    began = time.monotonic()
    with ModelServer() as model, Service(with_model(own_service, model, compact_concurrency=1)) as summarizing:
        model.answer = Reply(text="In short.", delay=0.7)
        said = success(turnlog("compact", "--all", "--max-seconds", "2", "--url", summarizing.url))
        assert time.monotonic() - began < 20

    found = re.fullmatch(
        r"(\d) sessions: \1 applied; \d+ tokens before, \d+ after(?:; (\d) wait or are being worked on)?"
        r"; (\d) remain\n",
        said,
    )
    assert found
    assert sum(int(number or 0) for number in found.groups()) == len(talks)


def test_metadata_chooses_among_the_sessions_that_are_due(own_service: Service, client: httpx.Client) -> None:
    talks = talked(client, "one", "two", "three")
    stand(client, LAST_TURN, "one", "two", "three")
    for talk, metadata in zip(talks, ({"agent": "a", "team": "x"}, {"agent": "a"}, {"agent": "b"}), strict=True):
        assert client.patch(talk.path, json={"metadata": metadata}).status_code == 200

    first = success(
        turnlog("compact", "--all", "--metadata", "agent=a", "--metadata", "team=x", "--url", own_service.url)
    )
    assert first.startswith("1 sessions: 1 applied; ")
    assert [talk.view()["turns"] for talk in talks] == [1, 5, 5]

    by_hand = success(
        turnlog("compact", "--all", "--metadata", "agent=b", "--last-turns", "2", "--url", own_service.url)
    )
    assert by_hand.startswith("1 sessions: 1 applied; ")
    assert [talk.view()["turns"] for talk in talks] == [1, 5, 2]


def test_a_dry_run_of_the_fleet_lists_what_is_due(own_service: Service, client: httpx.Client) -> None:
    small, large = talked(client, "small", "large")
    large.append(*turns(3, first=6))
    talked(client, "without")
    stand(client, LAST_TURN, "small", "large")
    before = check_session(small), check_session(large)

    said = success(turnlog("compact", "--all", "--dry-run", "--url", own_service.url))

    tokens = [talk.view()["token_count"] for talk in (large, small)]
    assert said.splitlines() == [
        f"large: 8 turns, {tokens[0]} tokens",
        f"small: 5 turns, {tokens[1]} tokens",
        "2 sessions are due; 0 wait or are being worked on",
    ]
    assert (check_session(small), check_session(large)) == before


# purge


def test_expired_sessions_are_purged_with_their_logs(own_service: Service, client: httpx.Client) -> None:
    old, older, living = talked(client, "old", "older", "living")
    url = url_of(own_service)
    rows(url, "UPDATE sessions SET expires_at = now() - interval '1 hour' WHERE session_id LIKE 'old%'")

    assert success(turnlog("purge", TURNLOG_DATABASE_URL=url)) == "2 expired sessions purged\n"
    assert success(turnlog("purge", "--url", own_service.url)) == "0 expired sessions purged\n"

    old.get("", status=404)
    older.get("", status=404)
    assert len(check_session(living)) == 11
    assert rows(url, "SELECT count(*) FROM events") == [{"count": 11}]


def test_more_sessions_than_one_sweep_takes_are_purged(own_service: Service) -> None:
    rows(
        url_of(own_service),
        "INSERT INTO sessions (session_key, tenant, session_id, expires_at, metadata, labels)"
        " SELECT gen_random_uuid(), 'default', 's' || n, now() - interval '1 second', '{}', '{}'"
        " FROM generate_series(1, 2345) AS n",
    )

    assert success(turnlog("purge", "--url", own_service.url)) == "2345 expired sessions purged\n"


def test_purging_through_a_service_that_is_away_is_one_line() -> None:
    assert "http://127.0.0.1:1" in refusal(turnlog("purge", "--url", "http://127.0.0.1:1"))
