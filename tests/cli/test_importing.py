"""`turnlog import`."""

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command import failure, success, turnlog
from tests.conftest import Service
from tests.journeys.processes import Serving, refusal, run, usage_error
from tests.journeys.replayed import check_session
from tests.talk import Message, Talk, assistant, system, tool, turns, user

SHORT = [system("You are patient."), user("Where is my order?"), assistant(c1="find_order"), tool("c1", "shipped")]
LONGER = [user("Hello"), *turns(700)]


def line(name: Any, messages: Any) -> str:
    return json.dumps({"id": name, "messages": messages}, ensure_ascii=False)


def written(folder: Path, *lines: str) -> Path:
    file = folder / "talks.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def two(folder: Path, session_id: str) -> Path:
    return written(folder, line(f"{session_id}-a", SHORT), line(f"{session_id}-b", LONGER))


def stored(client: httpx.Client, session_id: str) -> list[Message]:
    return [logged["message"] for logged in check_session(Talk(client, session_id))]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_file_imported_twice_is_stored_once(
    tmp_path: Path, service: Service, http: httpx.Client, session_id: str
) -> None:
    file = two(tmp_path, session_id)
    url = service.settings.database_url
    assert url

    first = success(turnlog("import", file, TURNLOG_DATABASE_URL=url.get_secret_value()))
    second = success(turnlog("import", file, TURNLOG_DATABASE_URL=url.get_secret_value()))
    through_the_service = success(turnlog("import", file, "--url", f"{service.url}/"))

    events = len(SHORT) + len(LONGER)
    assert first == f"2 conversations: {events} events stored, 0 were there already\n"
    assert second == through_the_service == f"2 conversations: 0 events stored, {events} were there already\n"
    assert stored(http, f"{session_id}-a") == SHORT
    assert stored(http, f"{session_id}-b") == LONGER  # in more than one batch, in order


def test_a_file_that_has_grown_adds_what_is_new(
    tmp_path: Path, service: Service, http: httpx.Client, session_id: str
) -> None:
    success(turnlog("import", written(tmp_path, line(session_id, SHORT)), "--url", service.url))
    more = [*SHORT, assistant("It is on its way."), user("Thanks!")]

    said = success(turnlog("import", written(tmp_path, line(session_id, more)), "--url", service.url))

    assert said == "1 conversations: 2 events stored, 4 were there already\n"
    assert stored(http, session_id) == more


def test_a_prefix_makes_copies(tmp_path: Path, service: Service, http: httpx.Client, session_id: str) -> None:
    file = two(tmp_path, session_id)
    for prefix in ("", "copy-", "copy:2~"):
        assert "0 were there" in success(turnlog("import", file, "--url", service.url, "--prefix", prefix))

    assert stored(http, f"copy-{session_id}-a") == stored(http, f"copy:2~{session_id}-a") == SHORT


def test_what_a_file_says_is_stored_as_it_is(
    tmp_path: Path, service: Service, http: httpx.Client, session_id: str
) -> None:
    text = (
        '{"content": "caf\\u00e9 \\u0000 \\u2028 <|endoftext|>", "role": "user", "big": 123456789012345678901234567890,'
        ' "small": 1.10}'
    )
    file = written(tmp_path, "", f'{{"messages": [{text}], "id": "{session_id}", "source": "kept elsewhere"}}', "  ")

    success(turnlog("import", file, "--url", service.url))

    assert text in http.get(f"/v1/sessions/{session_id}/events").text


def test_a_conversation_without_messages_is_no_error(
    tmp_path: Path, service: Service, http: httpx.Client, session_id: str
) -> None:
    said = success(turnlog("import", written(tmp_path, line(session_id, [])), "--url", service.url))

    assert "0 events stored" in said


@pytest.mark.parametrize(
    "broken",
    [
        "{",  # cut short
        '{"id": "x", "messages": [}',  # not JSON
        '{"messages": []}',  # no id
        '{"id": "x"}',  # no messages
        '{"id": 7, "messages": []}',  # an id of another type
        '{"id": "x", "messages": {"role": "user"}}',  # not a list
        "[]",  # not an object
        '{"id": "x", "messages": [' + "[" * 100_000 + "]" * 100_000 + "]}",  # deeper than any stack
    ],
    ids=["cut", "not-json", "no-id", "no-messages", "id-number", "no-list", "no-object", "deep"],
)
def test_a_broken_line_is_named_by_its_number_and_nothing_is_stored(
    tmp_path: Path, service: Service, http: httpx.Client, session_id: str, broken: str
) -> None:
    file = written(tmp_path, line(session_id, SHORT), "", broken)

    said = refusal(turnlog("import", file, "--url", service.url))

    assert "line 3" in said
    assert len(said) < 500
    assert http.get(f"/v1/sessions/{session_id}").status_code == 404


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path: Path, service: Service) -> None:
    file = tmp_path / "latin.jsonl"
    file.write_bytes(b'{"id": "x", "messages": []}\n{"id": "caf\xe9", "messages": []}\n')

    assert "line 2" in refusal(turnlog("import", file, "--url", service.url))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, service: Service) -> None:
    for file in (tmp_path / "missing.jsonl", tmp_path):
        line = refusal(turnlog("import", file, "--url", service.url))
        assert str(file) in line


def test_a_conversation_that_is_refused_is_named_and_holds_up_no_other(
    tmp_path: Path, service: Service, http: httpx.Client, session_id: str
) -> None:
    bad: Sequence[str] = (
        line(f"{session_id}-bad", [user("fine"), {"role": "wizard", "content": "x"}]),
        line(f"{session_id}/events", SHORT),
        line(f"{session_id}?x=1", SHORT),
        line(f"{session_id}#x", SHORT),
        line("", SHORT),
    )
    file = written(tmp_path, line(f"{session_id}-1", SHORT), *bad, line(f"{session_id}-2", SHORT))

    said = failure(turnlog("import", file, "--url", service.url))

    assert f"2 conversations: {2 * len(SHORT)} events stored, 0 were there already, 5 conversations failed" in said
    for name in (f"{session_id}-bad", f"{session_id}/events", f"{session_id}?x=1", f"{session_id}#x"):
        assert f"{name}: " in said, "a conversation that failed is not named"
    assert "/events/1/message/role" in said or "role" in said
    assert stored(http, f"{session_id}-1") == stored(http, f"{session_id}-2") == SHORT
    assert http.get(f"/v1/sessions/{session_id}-bad").status_code == 404
    assert http.get(f"/v1/sessions/{session_id}").status_code == 404


def test_another_conversation_under_an_id_in_use_is_refused(
    tmp_path: Path, service: Service, http: httpx.Client, session_id: str
) -> None:
    success(turnlog("import", written(tmp_path, line(session_id, SHORT)), "--url", service.url))

    said = failure(turnlog("import", written(tmp_path, line(session_id, turns(2))), "--url", service.url))

    assert "import-1" in said
    assert stored(http, session_id) == SHORT


def test_a_service_that_cannot_be_reached_is_named(tmp_path: Path, session_id: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"

    said = failure(turnlog("import", two(tmp_path, session_id), "--url", url))

    assert url in said


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://127.0.0.1", "http://127.0.0.1:port"])
def test_an_address_that_is_none_is_refused_in_words(tmp_path: Path, session_id: str, url: str) -> None:
    assert url in failure(turnlog("import", two(tmp_path, session_id), "--url", url))


def test_a_file_must_be_named() -> None:
    assert "file" in usage_error(turnlog("import")).lower()


def test_it_works_beside_a_running_service_and_without_one(tmp_path: Path, session_id: str) -> None:
    data_dir = tmp_path / "data"
    file = two(tmp_path, session_id)
    events = len(SHORT) + len(LONGER)
    with Serving(data_dir=data_dir) as service:
        said = success(run("import", file, "--data-dir", data_dir))
        assert f"{events} events stored" in said
        with service.client() as client:
            assert stored(client, f"{session_id}-a") == SHORT
        compacted = success(run("compact", "--all", "--last-turns", "1", "--data-dir", data_dir))
        assert compacted.startswith("2 sessions: ")
        assert "1 applied" in compacted
        assert "1 fits-window" in compacted
        with service.client() as client:
            assert len(check_session(Talk(client, f"{session_id}-b"))) == len(LONGER) + 1
            assert client.get("/readyz").status_code == 200, "a command took the database along"

    said = success(run("import", file, "--data-dir", data_dir))

    assert f"0 events stored, {events} were there already" in said
    assert list(data_dir.glob("postgres-*/postmaster.pid")) == [], "PostgreSQL was left running"
