"""`turnlog keys`, and what keys do to a running service and to the other commands."""

import re
from pathlib import Path

import httpx
import pytest

from tests.api.keyed import bearer
from tests.cli.command import success, turnlog
from tests.conftest import Service, rows, wait_until
from tests.journeys.processes import LONG, Serving, refusal, run, usage_error

KEY = re.compile(r"tl_[a-z0-9]{8}_[A-Za-z0-9_-]{43}\n")
ALL = "read,write,compact"
BOOTSTRAP = "first-key-of-all-and-long-enough-to-be-one"


def made(url: str, *options: object) -> str:
    """Make a key, which stands alone on standard output, and return it."""
    done = turnlog("keys", "create", *options, TURNLOG_DATABASE_URL=url)
    said = success(done)
    assert KEY.fullmatch(said), said
    key = said.strip()
    assert key[11:] not in done.stderr
    return key


def listed(url: str) -> list[list[str]]:
    said = success(turnlog("keys", "list", TURNLOG_DATABASE_URL=url))
    return [re.split(r"\s{2,}", line.strip()) for line in said.splitlines()[1:]]


def test_a_key_is_made_listed_and_revoked(database_url: str) -> None:
    assert success(turnlog("keys", "list", TURNLOG_DATABASE_URL=database_url)) == ""
    key = made(
        database_url, "--tenant", "acme", "--scopes", "write,read", "--name", "the [red]agent", "--expires-days", 7
    )
    admin = made(database_url, "--scopes", "admin")
    [mine] = [line for line in listed(database_url) if line[0] == key[:11]]
    assert mine[1:4] == ["acme", "read,write", "the [red]agent"]
    assert mine[-1] == "good"
    assert mine[-2] == "never"
    said = success(turnlog("keys", "list", TURNLOG_DATABASE_URL=database_url))
    assert key[11:] not in said
    assert admin[11:] not in said

    assert (
        success(turnlog("keys", "revoke", key[:11], TURNLOG_DATABASE_URL=database_url))
        == f"the key {key[:11]} is revoked\n"
    )
    again = success(turnlog("keys", "revoke", key[:11], TURNLOG_DATABASE_URL=database_url))
    assert again == f"the key {key[:11]} was revoked already\n"
    assert [line[-1] for line in listed(database_url) if line[0] == key[:11]] == ["revoked"]


def test_what_is_stored_of_a_key_is_not_the_key(database_url: str) -> None:
    key = made(database_url, "--scopes", ALL)
    [row] = rows(database_url, "SELECT * FROM api_keys")
    assert len(row["key_hash"]) == 32
    assert key[11:] not in str(row)
    assert (row["prefix"], row["tenant"], row["scopes"]) == (key[:11], "default", ["read", "write", "compact"])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--scopes", "read,everything"), "scopes"),
        (("--scopes", ""), "scopes"),
        (("--scopes", "read", "--tenant", "a b"), "tenant"),
        (("--scopes", "read", "--tenant", "*"), "tenant"),
        (("--scopes", "read", "--name", "n" * 256), "name"),
        (("--scopes", "read", "--expires-days", "0"), "expires_days"),
        (("--scopes", "read", "--expires-days", "-1"), "expires_days"),
        (("--scopes", "read", "--expires-days", "nan"), "expires_days"),
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(database_url: str, options: tuple[str, ...], named: str) -> None:
    assert named in refusal(turnlog("keys", "create", *options, TURNLOG_DATABASE_URL=database_url))
    assert rows(database_url, "SELECT * FROM api_keys") == []


def test_a_key_that_nobody_knows_is_not_revoked(database_url: str) -> None:
    line = refusal(turnlog("keys", "revoke", "tl_nobodyx", TURNLOG_DATABASE_URL=database_url))
    assert "tl_nobodyx" in line
    assert "Missing" in usage_error(run("keys", "create", TURNLOG_DATABASE_URL=database_url))


def test_the_other_commands_bring_their_key_along(own_service: Service, database_url: str, tmp_path: Path) -> None:
    url = database_url
    talk = tmp_path / "talk.jsonl"
    talk.write_text('{"id": "s", "messages": [{"role": "user", "content": "hello"}]}\n')
    key, admin = made(url, "--tenant", "acme", "--scopes", ALL), made(url, "--scopes", "admin")
    with own_service.client() as http:
        wait_until(lambda: http.get("/v1/sessions").status_code == 401)
    file = tmp_path / "key"
    file.write_text(admin + "\n")

    there = ("--url", own_service.url)
    assert "key" in refusal(turnlog("purge", *there))
    assert "1 events stored" in success(turnlog("import", talk, *there, TURNLOG_API_KEY=key))
    assert "1 were there" in success(turnlog("import", talk, *there, "--key-file", file, "--tenant", "acme"))
    assert "nothing to do" in success(turnlog("compact", "--all", *there, TURNLOG_API_KEY=key))
    assert "nothing to do" in success(turnlog("compact", "--all", *there, "--key-file", file, "--tenant", "*"))
    assert "admin" in refusal(turnlog("purge", *there, "--tenant", "*", TURNLOG_API_KEY=key))
    assert success(turnlog("purge", *there, "--key-file", file, "--tenant", "*")) == "0 expired sessions purged\n"

    # Straight on the database no key is asked for, and anybody's sessions are at hand.
    assert "1 were there" in success(turnlog("import", talk, "--tenant", "acme", TURNLOG_DATABASE_URL=url))
    assert success(turnlog("purge", "--tenant", "*", TURNLOG_DATABASE_URL=url)) == "0 expired sessions purged\n"


def test_a_key_that_cannot_be_one_is_not_sent_nor_repeated(own_service: Service, tmp_path: Path) -> None:
    there = ("purge", "--url", own_service.url)
    line = refusal(turnlog(*there, TURNLOG_API_KEY="secret words of a person who is mistaken"))
    assert "TURNLOG_API_KEY" in line
    assert "secret" not in line
    assert str(tmp_path / "none") in refusal(turnlog(*there, "--key-file", tmp_path / "none"))


def test_runs_across_tenants_name_sessions_after_their_tenant(database_url: str, tmp_path: Path) -> None:
    talk = tmp_path / "talk.jsonl"
    said = ", ".join(f'{{"role": "user", "content": "{number}"}}' for number in range(4))
    talk.write_text(f'{{"id": "s", "messages": [{said}]}}\n')
    policy = '{"trigger": {"type": "turn_count", "threshold": 2}, "window": {"rule": "last_turns", "size": 1}}'
    here = {"TURNLOG_DATABASE_URL": database_url, "TURNLOG_DEFAULT_POLICY": policy}
    for tenant in ("one", "other"):
        success(turnlog("import", talk, "--tenant", tenant, **here))
    due = success(turnlog("compact", "--all", "--dry-run", "--tenant", "*", **here))
    assert "one/s: 4 turns" in due
    assert "other/s: 4 turns" in due
    assert success(turnlog("compact", "--all", "--tenant", "*", **here)).startswith("2 sessions: 2 applied")


# A running service.


def answers(service: Serving, key: str | None) -> int:
    with service.client() as client:
        return client.get("/v1/sessions", headers=bearer(key) if key else {}).status_code


def test_a_key_is_made_while_the_service_runs_on_its_own_database(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with Serving(data_dir=folder) as service:
        assert answers(service, None) == 200
        key = success(run("keys", "create", "--scopes", ALL, "--data-dir", folder)).strip()
        wait_until(lambda: answers(service, None) == 401, 10)
        assert answers(service, key) == 200
        success(run("keys", "revoke", key[:11], "--data-dir", folder))
        wait_until(lambda: answers(service, key) == 401, 10)
        assert key[:11] in success(run("keys", "list", "--data-dir", folder))
        assert f"key={key[:11]} method=GET" in service.output
        assert "tenant=default" in service.output
        assert key[11:] not in service.output


def test_every_worker_stops_a_revoked_key_within_seconds(database_url: str) -> None:
    key = made(database_url, "--scopes", ALL)
    spare = made(database_url, "--scopes", ALL)
    with Serving("--workers", 3, database_url=database_url) as service:
        wait_until(lambda: service.started == 3, LONG)
        assert {answers(service, key) for _ in range(12)} == {200}
        success(turnlog("keys", "revoke", key[:11], TURNLOG_DATABASE_URL=database_url))
        # Connections go to any worker: all of a row are refused when all workers know.
        wait_until(lambda: {answers(service, key) for _ in range(20)} == {401}, 15)
        assert answers(service, spare) == 200


def test_the_bootstrap_key_opens_and_is_stored_once_by_replicas_that_start_together(database_url: str) -> None:
    settings = {"TURNLOG_BOOTSTRAP_KEY": BOOTSTRAP, "TURNLOG_LOG_LEVEL": "debug"}
    replicas = [Serving("--workers", 2, database_url=database_url, **settings) for _ in range(2)]
    try:
        for replica in replicas:
            replica.begin()
        for replica in replicas:
            replica.ready()
            assert answers(replica, None) == 401
            assert answers(replica, BOOTSTRAP) == 200
            assert answers(replica, BOOTSTRAP + "x") == 401
        [row] = rows(database_url, "SELECT prefix, tenant, name, scopes FROM api_keys")
        assert row == {
            "prefix": BOOTSTRAP[:11],
            "tenant": "default",
            "name": "bootstrap",
            "scopes": ["read", "write", "compact", "admin"],
        }
        for replica in replicas:
            assert BOOTSTRAP[11:] not in replica.output
    finally:
        for replica in replicas:
            replica.forget()


def test_a_bootstrap_key_that_was_revoked_stays_so(database_url: str) -> None:
    with Serving(database_url=database_url, TURNLOG_BOOTSTRAP_KEY=BOOTSTRAP) as service:
        success(turnlog("keys", "revoke", BOOTSTRAP[:11], TURNLOG_DATABASE_URL=database_url))
        assert service.terminate() == 0
        service.restart()
        assert answers(service, BOOTSTRAP) == 401
        assert "key.is_revoked" in service.output


def test_a_bootstrap_key_that_begins_like_another_is_refused_in_one_line(database_url: str) -> None:
    success(turnlog("migrate", TURNLOG_DATABASE_URL=database_url, TURNLOG_BOOTSTRAP_KEY=BOOTSTRAP))
    other = BOOTSTRAP[:11] + "another-rest-of-the-same-beginning"
    line = refusal(run("serve", "--port", "0", TURNLOG_DATABASE_URL=database_url, TURNLOG_BOOTSTRAP_KEY=other))
    assert "TURNLOG_BOOTSTRAP_KEY" in line
    assert "another-rest" not in line


def test_a_key_that_comes_too_often_is_told_when_to_come_again(database_url: str) -> None:
    key, other = made(database_url, "--scopes", ALL), made(database_url, "--scopes", ALL)
    limits = {"TURNLOG_RATE_LIMIT": "0.01", "TURNLOG_RATE_BURST": "3"}
    with Serving(database_url=database_url, **limits) as service, service.client() as client:
        found: list[httpx.Response] = [client.get("/v1/sessions", headers=bearer(key)) for _ in range(4)]
        assert [one.status_code for one in found] == [200, 200, 200, 429]
        assert {one.headers["ratelimit-policy"] for one in found} == {'"key";q=3;w=300'}
        assert [one.headers["ratelimit"].partition(";t=")[0] for one in found] == [
            f'"key";r={left}' for left in (2, 1, 0, 0)
        ]
        assert found[3].json()["code"] == "rate-limited"
        assert 1 <= int(found[3].headers["retry-after"]) <= 100
        assert client.get("/v1/sessions", headers=bearer(other)).status_code == 200
        assert "ratelimit" not in client.get("/v1/sessions").headers
        assert client.get("/healthz").status_code == 200
