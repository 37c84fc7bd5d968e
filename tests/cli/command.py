"""The command `turnlog`, run by a test in its own process: as `main` runs it, and much faster than a new process."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

from app.cli import main
from tests.journeys.processes import environment


def turnlog(*arguments: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `turnlog` with these arguments and settings, and return what it said and its exit code."""
    words = ["turnlog", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    code: int | str | None = 0
    with (
        mock.patch.dict(os.environ, environment(**settings), clear=True),
        mock.patch.object(sys, "argv", words),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return subprocess.CompletedProcess(words, int(code or 0), out.getvalue(), err.getvalue())


def success(ended: subprocess.CompletedProcess[str]) -> str:
    """Return what a command that went well said."""
    assert ended.returncode == 0, f"exit code {ended.returncode}: {ended.stdout}{ended.stderr}"
    assert "Traceback" not in ended.stderr
    return ended.stdout


def failure(ended: subprocess.CompletedProcess[str]) -> str:
    """Return all that a command said which did a part of its work: exit code 1, without a traceback."""
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, f"exit code {ended.returncode}: {said}"
    assert "Traceback" not in said
    return said


def with_user(url: str, user_info: str) -> str:
    """Return the URL of the same database for another user; ``user_info`` is a name, or name:password."""
    head, _, rest = url.partition("://")
    return f"{head}://{user_info}@{rest.partition('@')[2]}"
