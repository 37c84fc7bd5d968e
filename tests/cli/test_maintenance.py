"""`turnlog migrate`, `compact` and `purge`."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.storage import schema
from tests.cli.command import failure, success, turnlog, with_user
from tests.conftest import Service, rows, with_database
from tests.journeys.processes import refusal, run, usage_error
from tests.journeys.replayed import boundaries, check_session
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
    policy = {
        "policy": {"window": {"rule": "last_turns", "size": 1}, "trigger": {"type": "turn_count", "threshold": 2}}
    }
    assert client.patch("/v1/sessions/with", json=policy).status_code == 200

    said = failure(turnlog("compact", "--all", "--url", own_service.url))

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
    ],
)
def test_compact_explains_what_it_wants(words: tuple[str, ...]) -> None:
    assert "Usage: turnlog compact" in usage_error(turnlog("compact", *words))


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
