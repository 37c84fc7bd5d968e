"""What a model server means by a status, and how long it asks to wait."""

from datetime import UTC, datetime

import pytest

from app.summarizer import rejection

NOW = datetime(2026, 3, 12, 14, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("milliseconds", "after", "seconds"),
    [
        # Nothing is asked.
        (None, None, None),
        ("", "", None),
        # Seconds, also in parts; milliseconds come first.
        (None, "7", 7.0),
        (None, " 1.5 ", 1.5),
        ("250", "7", 0.25),
        ("soon", "7", 7.0),
        # Dates: to come, past, and without a zone.
        (None, "Thu, 12 Mar 2026 14:30:20 GMT", 20.0),
        (None, "Thu, 12 Mar 2026 14:00:00 GMT", 0.0),
        (None, "Thu, 12 Mar 2026 14:30:20 -0000", 20.0),
        # What is neither.
        (None, "soon", None),
        (None, "-5", None),
        (None, "nan", None),
        (None, "inf", None),
        (None, "1e9", None),
        (None, "9" * 400, None),
        (None, "Thu, 99 Mar 2026 14:30:20 GMT", None),
    ],
)
def test_the_wait_that_is_asked_for(milliseconds: str | None, after: str | None, seconds: float | None) -> None:
    assert rejection.retry_after(milliseconds, after, now=NOW) == seconds


@pytest.mark.parametrize(
    ("body", "said"),
    [
        # OpenAI, Anthropic, FastAPI, Ollama, llama.cpp.
        (b'{"error": {"message": "no", "code": "bad", "param": null}}', "no\nbad"),
        (b'{"type": "error", "error": {"type": "bad", "message": "no"}}', "no\nbad"),
        (b'{"detail": "no"}', "no"),
        (b'{"error": "no"}', "no"),
        # No object, no JSON, no text.
        (b'["no"]', ""),
        (b"<html>no", "<html>no"),
        (b"\xff", "\ufffd"),
        (b"", ""),
    ],
)
def test_what_an_error_says_is_found_in_any_shape(body: bytes, said: str) -> None:
    assert rejection.said(body) == said


def test_an_echoed_conversation_does_not_make_an_error_about_length() -> None:
    body = b'{"error": {"message": "bad field"}, "input": "user: what is a context window?"}'
    assert rejection.failed(400, body).cause == "refused-request"


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        # Where to look depends on the status.
        (301, "base URL"),
        (401, "API key"),
        (404, "model's name"),
        (400, "limit of output tokens"),
        (413, "longer than the model takes"),
        (429, "quota"),
        (529, "overloaded"),
    ],
)
def test_a_failure_names_the_status_and_what_to_check(status: int, advice: str) -> None:
    message = str(rejection.failed(status, b"secret"))
    assert str(status) in message
    assert advice in message
    assert "secret" not in message
