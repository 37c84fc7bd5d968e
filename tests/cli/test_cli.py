"""`turnlog` itself: what it can do, which version it is, what its contract is."""

import pytest
import yaml

from app import __version__
from app.main import create_app
from app.settings import Settings
from tests.cli.command import success, turnlog
from tests.journeys.processes import refusal, run, usage_error

COMMANDS = {
    "serve": ("--host", "--port", "--data-dir", "--workers", "--insecure"),
    "migrate": ("--data-dir",),
    "import": ("file", "--url", "--prefix", "--data-dir"),
    "compact": ("--all", "--last-turns", "--last-events", "--token-budget", "--dry-run", "--url", "--data-dir"),
    "purge": ("--url", "--data-dir"),
    "openapi": (),
}


def test_the_installed_command_says_its_version() -> None:
    ended = run("--version")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"turnlog {__version__}\n", "")


def test_help_names_every_command() -> None:
    said = success(turnlog("--help"))

    assert all(command in said for command in COMMANDS)
    assert "--version" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_explains_it_and_names_every_option(command: str) -> None:
    said = success(turnlog(command, "--help"))

    assert f"turnlog {command}" in said
    assert all(option in said.lower() for option in COMMANDS[command])


def test_without_a_command_it_shows_its_help() -> None:
    ended = turnlog()

    said = ended.stdout + ended.stderr
    assert ended.returncode in {0, 2}
    assert all(command in said for command in COMMANDS)
    assert "Traceback" not in said


@pytest.mark.parametrize("words", [("start",), ("--colour",), ("compact", "--newest", "2"), ("import",)])
def test_what_it_does_not_know_is_a_usage_error(words: tuple[str, ...]) -> None:
    assert "Usage: turnlog" in usage_error(turnlog(*words))


def test_openapi_prints_the_contract_as_yaml_and_needs_no_database() -> None:
    said = success(turnlog("openapi"))

    assert yaml.safe_load(said) == create_app(Settings()).openapi()
    assert said == success(turnlog("openapi")), "not the same twice"


def test_every_wrong_setting_is_named() -> None:
    ended = turnlog("migrate", TURNLOG_PORT="eighty", TURNLOG_LOG_LEVEL="loud")

    assert ended.returncode == 1
    assert "TURNLOG_PORT: " in ended.stderr
    assert "TURNLOG_LOG_LEVEL: " in ended.stderr


def test_the_password_of_a_database_is_not_shown() -> None:
    assert "secret" not in refusal(turnlog("migrate", TURNLOG_DATABASE_URL="mysql://u:secret@127.0.0.1/x"))
