"""What the README and the pages under docs/ say is what happens."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app.settings import fields
from tests.conftest import Service

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
ADDRESS = "http://127.0.0.1:8080"
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
# What differs from run to run: the ids that the service makes, and times.
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def section(title: str) -> str:
    """Return a section of the README, without its title."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.DOTALL | re.MULTILINE)
    assert found, f"README.md has no section {title!r}"
    return found[1]


def commands(title: str) -> Iterator[tuple[str, str]]:
    """Return the commands of a section, each with the block that follows it: what it printed."""
    blocks = [(found["language"], found["text"]) for found in BLOCK.finditer(section(title))]
    for (language, command), (_, printed) in zip(blocks[::2], blocks[1::2], strict=True):
        assert language == "sh", f"a command was expected: {command}"
        yield command, printed


def run(command: str, service: Service) -> str:
    """Run a command of the README against a service, and return what it prints."""
    words = shlex.split(command.replace("\\\n", ""))
    if words[0] == "curl":
        return curl(words[1:], service.url)
    assert words[0] == ".venv/bin/turnlog"
    return turnlog(words[1:], service)


def curl(words: list[str], url: str) -> str:
    """Do what curl does with the few options that the README uses."""
    body = None
    if words[0] == "--json":
        body, words = words[1], words[2:]
    (address,) = words
    assert address.startswith(ADDRESS)
    response = httpx.request(
        "GET" if body is None else "POST",
        address.replace(ADDRESS, url),
        content=body,
        headers=None if body is None else {"Content-Type": "application/json", "Accept": "application/json"},
    )
    return response.text


def turnlog(words: list[str], service: Service) -> str:
    """Run the command line on the database of a service."""
    assert service.settings.database_url is not None
    done = subprocess.run(
        [sys.executable, "-c", "from app.cli import main; main()", *words],
        cwd=ROOT,
        env={**os.environ, "TURNLOG_DATABASE_URL": service.settings.database_url.get_secret_value()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(printed: str) -> Any:
    """Return what was printed as a value to compare: JSON without its layout, or text, both without ids and times."""
    masked = TIME.sub("(time)", UUID.sub("(id)", printed)).strip()
    return json.loads(masked) if masked.startswith("{") else masked


def test_every_command_prints_what_the_readme_says(own_service: Service) -> None:
    walk = [*commands("A walk-through"), *commands("Import a file and compact it")]
    assert len(walk) >= 10
    for command, printed in walk:
        assert told(run(command, own_service)) == told(printed), command


class FakeModel:
    """A model behind OpenAI's client that answers every request with the same words."""

    def __init__(self) -> None:
        self.asked: list[list[dict[str, Any]]] = []
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    def create(self, *, model: str, messages: list[dict[str, Any]]) -> Any:
        assert model
        self.asked.append(messages)
        message = {"role": "assistant", "content": "With pleasure.", "refusal": None}
        answer = SimpleNamespace(
            content=message["content"],
            model_dump=lambda *, exclude_none: {k: v for k, v in message.items() if v is not None or not exclude_none},
        )
        return SimpleNamespace(choices=[SimpleNamespace(message=answer)])


def snippet(language: str) -> str:
    """Return the README's first block in a language: the whole program that comes before the pieces for each SDK."""
    return next(block["text"] for block in BLOCK.finditer(README) if block["language"] == language)


SAID = [{"role": "user", "content": "Thanks!"}, {"role": "assistant", "content": "With pleasure."}]


def test_the_python_snippet_appends_once_and_sends_the_view(
    own_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FakeModel()
    monkeypatch.setitem(sys.modules, "openai", SimpleNamespace(OpenAI=lambda: model))
    names: dict[str, Any] = {}
    exec(snippet("python").replace(ADDRESS, own_service.url), names)  # noqa: S102 - the README's own code
    with names["turnlog"]:
        assert names["reply"]("turn-1", "Thanks!").content == "With pleasure."
        names["reply"]("turn-1", "Thanks!")
    assert model.asked == [SAID[:1], SAID]
    with own_service.client() as client:
        view = client.get("/v1/sessions/support-42/view", params={"format": "openai"}).json()
    assert view["messages"] == SAID


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_javascript_snippet_appends_once_and_sends_the_view(own_service: Service, tmp_path: Path) -> None:
    fake = """
        const asked = [];
        class OpenAI {
          chat = { completions: { create: async ({ messages }) => {
            asked.push(messages);
            return { choices: [{ message: { role: "assistant", content: "With pleasure." } }] };
          } } };
        }
    """
    use = """
        await reply("turn-1", "Thanks!");
        await reply("turn-1", "Thanks!");
        console.log(JSON.stringify(asked));
    """
    imports, rest = snippet("js").replace(ADDRESS, own_service.url).split("\n", 1)
    assert imports == 'import OpenAI from "openai";'
    script = tmp_path / "snippet.mjs"
    script.write_text(fake + rest + use, encoding="utf-8")
    done = subprocess.run(["node", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [SAID[:1], SAID]


def test_the_settings_table_has_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| `(TURNLOG_[A-Z_]+)` \| (\S+) \| \S.* \|$", section("Settings"), re.MULTILINE)
    shown = [(name, default.strip("`")) for name, default in rows]
    real = [(name, "unset" if field.default is None else str(field.default)) for name, field in fields().items()]
    assert shown == real


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(found), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's titles, as they are made on GitHub."""
    titles = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_documentation_names_no_setting_that_does_not_exist() -> None:
    known = set(fields())
    # Of docker-compose.yml, and of the file itself.
    known |= set(re.findall(r"TURNLOG_[A-Z_]+", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    for page in PAGES:
        named = set(re.findall(r"TURNLOG_[A-Z_]+", page.read_text(encoding="utf-8")))
        # What ends in _ stands for a whole group.
        groups = {name for name in named if name.endswith("_") and any(one.startswith(name) for one in known)}
        assert named - groups <= known, page.name
