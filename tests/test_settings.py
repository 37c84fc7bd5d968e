"""Settings, read from the environment."""

import re
from pathlib import Path

import pydantic
import pytest

from app.settings import Settings, fields

README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in fields():
        monkeypatch.delenv(variable, raising=False)


def test_nothing_has_to_be_set() -> None:
    settings = Settings()
    assert settings.database_url is None
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 8080, 1)
    assert settings.default_ttl_seconds == 60 * 24 * 3600
    assert settings.default_policy is None
    assert settings.max.batch_events == 1000
    assert settings.max.body_bytes == 8 * 1024 * 1024
    assert settings.max.event_bytes == 4 * 1024 * 1024
    assert settings.max.json_depth == 100
    assert settings.encoding == "o200k_base"


def test_each_variable_is_the_fields_name_after_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_PORT", "9000")
    monkeypatch.setenv("TURNLOG_DATABASE_URL", "postgresql://u:p@h/d")
    monkeypatch.setenv("TURNLOG_LOG_FORMAT", "json")
    monkeypatch.setenv("PORT", "1")
    settings = Settings()
    assert settings.port == 9000
    assert settings.log_format == "json"
    assert settings.database_url
    assert settings.database_url.get_secret_value() == "postgresql://u:p@h/d"


def test_the_password_of_the_database_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_DATABASE_URL", "postgresql://u:hush@h/d")
    assert "hush" not in repr(Settings())
    assert "hush" not in str(Settings())
    assert "hush" not in Settings().model_dump_json()


LIVES = [("never", None), ("1", 1), ("86400", 86400)]


@pytest.mark.parametrize(("given", "seconds"), LIVES)
def test_a_default_life_is_a_number_of_seconds_or_never(
    monkeypatch: pytest.MonkeyPatch, given: str, seconds: int | None
) -> None:
    monkeypatch.setenv("TURNLOG_DEFAULT_TTL_SECONDS", given)
    assert Settings().default_ttl_seconds == seconds


BAD = [
    ("DEFAULT_TTL_SECONDS", "0"),  # no life at all
    ("DEFAULT_TTL_SECONDS", "-1"),
    ("DEFAULT_TTL_SECONDS", "for ever"),
    ("DEFAULT_TTL_SECONDS", ""),
    ("DEFAULT_POLICY", "{"),  # no JSON
    ("DEFAULT_POLICY", "last_turns"),
    ("PORT", "65536"),  # beyond the last
    ("PORT", "-1"),
    ("PORT", "http"),
    ("WORKERS", "0"),
    ("DATABASE_POOL_SIZE", "0"),
    ("MAX_BODY_BYTES", "1023"),
    ("MAX_EVENT_BYTES", "0"),
    ("MAX_BATCH_EVENTS", "0"),
    ("MAX_JSON_DEPTH", "7"),
    ("MAX_JSON_DEPTH", "501"),  # deeper than the parser goes
    ("MAX_PAGE", "99"),  # shorter than a page is unless asked for
    ("MAX_PAGE", "10001"),
    ("MAX_OPEN_REQUESTS", "0"),
    ("REQUEST_SECONDS", "0"),
    ("REQUEST_SECONDS", "never"),
    ("LOG_LEVEL", "loud"),
    ("LOG_FORMAT", "xml"),
    ("SHUTDOWN_SECONDS", "0"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_value_that_cannot_be_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"TURNLOG_{name}", value)
    with pytest.raises(pydantic.ValidationError) as caught:
        Settings()
    assert ["_".join(map(str, error["loc"])) for error in caught.value.errors()] == [name.lower()]


def test_the_largest_body_fits_into_what_may_be_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_MAX_OPEN_BYTES", "8388607")
    with pytest.raises(pydantic.ValidationError, match="TURNLOG_MAX_OPEN_BYTES is smaller"):
        Settings()
    monkeypatch.setenv("TURNLOG_MAX_BODY_BYTES", "8388607")
    assert Settings().max.open_bytes == 8388607


def test_settings_do_not_change() -> None:
    with pytest.raises(pydantic.ValidationError):
        Settings().port = 1  # type: ignore[misc]


def test_there_are_at_most_twenty_five_and_each_is_described() -> None:
    assert len(Settings.model_fields) <= 25
    assert all(field.description for field in fields().values())


def test_each_stands_in_the_readmes_table() -> None:
    variables = set(fields())
    rows = set(re.findall(r"^\|\s*`(TURNLOG_\w+)`", README.read_text(), re.MULTILINE))
    assert variables - rows == set(), "these have no row in README's table"
    assert rows - variables == set(), "these rows have no setting"
