"""Field cases E: token counts, and budgets that rest on them."""

import base64
import json
import os
import random
import secrets
import shutil
import string
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import tiktoken

import app
from tests.conftest import Service
from tests.field import offline
from tests.field.conftest import fresh_id
from tests.field.modelled import modelled
from tests.field.refusals import places, refused
from tests.model_server import Reply
from tests.talk import Talk, assistant, custom, seqs_in, system, tool, turns, user
from tests.validity import assert_valid

ROOT = Path(__file__).parents[2]
IMAGE = 765  # docs/tokens.md


@pytest.fixture(scope="session")
def plain() -> Iterator[tiktoken.Encoding]:
    """tiktoken as its own users get it, with its cache where turnlog keeps the vocabularies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(Path(app.__file__).parent / "vocabulary"))
        yield tiktoken.get_encoding("o200k_base")


def words(count: int) -> str:
    """Return prose of exactly ``count`` tokens."""
    return " ".join(["the"] * count)


SPECIAL = "Explain <|endoftext|>, <|im_start|>, <|fim_prefix|> and <|endofprompt|> please"


def test_c34_text_that_looks_like_a_special_token_is_ordinary_text(
    talk: Talk, http: httpx.Client, plain: tiktoken.Encoding
) -> None:
    events = talk.append(
        user(SPECIAL), assistant(SPECIAL, c=SPECIAL), tool("c", SPECIAL), custom(text=SPECIAL),
        {"metadata": {"k": SPECIAL}, "message": {"role": "user", "content": "x", "name": SPECIAL}}, assistant(SPECIAL),
    )["events"]  # fmt: skip
    text = len(plain.encode(SPECIAL, disallowed_special=()))
    assert text > len(plain.encode(SPECIAL, allowed_special="all"))
    assert events[0]["token_count"] == text + 4
    assert events[2]["token_count"] == text + 4
    assert events[3]["token_count"] == 0
    assert_valid(talk)
    talk.append(*turns(2))
    outcome = talk.compact(token_budget=50 + text, summary=SPECIAL)
    assert outcome["status"] == "applied"
    assert talk.texts()[1] == SPECIAL
    assert talk.view()["token_count"] == talk.session()["view"]["tokens"] == outcome["tokens"]["after"]
    # A session cannot have such an id: it is refused, like every id outside the rule.
    refused(http.post("/v1/sessions", json={"id": SPECIAL}), 422)


MONOTONOUS = {
    "carets": "^" * 1_000_000,
    "letters": "a" * 1_000_000,
    "blanks": " " * 1_000_000,
    "han": "的" * 200_000,
    "random letters": "".join(random.Random(7).choices(string.ascii_letters, k=300_000)),  # noqa: S311
}


@pytest.mark.parametrize("text", MONOTONOUS.values(), ids=MONOTONOUS)
def test_c35_a_million_equal_characters_stop_neither_the_append_nor_anybody_else(service: Service, text: str) -> None:
    answers: list[int] = []
    stop = threading.Event()

    def ask_for_health() -> None:
        with service.client() as own:
            while not stop.wait(0.1):
                answers.append(own.get("/healthz").status_code)

    asking = threading.Thread(target=ask_for_health)
    with service.client() as http:
        talk = Talk(http, fresh_id())
        talk.append(user("hi"))
        asking.start()
        try:
            talk.append(assistant(None, c="run"), tool("c", text), assistant("done"), *turns(1))
            outcome = talk.compact(token_budget=2000)
        finally:
            stop.set()
            asking.join(timeout=60)
        assert {*answers} <= {200}
        assert outcome["status"] == "applied"
        assert talk.texts() == [message["content"] for message in turns(1)]
        assert talk.log()[2]["message"]["content"] == text
        assert talk.log()[2]["token_count"] > 1000


def test_c36_the_whole_service_starts_and_counts_without_any_network(talk: Talk, tmp_path: Path) -> None:
    # The same numbers as in a service that could have a network and has a home.
    appended = talk.append(*offline.SAID)
    compacted = talk.compact(token_budget=500)
    assert compacted["status"] == "applied"
    expected = [[event["token_count"] for event in appended["events"]], compacted["status"], compacted["tokens"]]
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    for folder in (home, temporary):
        folder.mkdir()
    alone = ["unshare", "-n"] if _may_unshare() else []
    ran = subprocess.run(
        [*alone, sys.executable, offline.__file__, str(home), str(temporary)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [expected, expected]


def _may_unshare() -> bool:
    """Say whether this machine lets us have a network namespace; elsewhere the audit hook alone keeps watch."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("model", ["acme-9-preview", "gpt-99", "claude-x", ""])
def test_c37_a_model_that_nobody_knows_is_only_a_label(talk: Talk, http: httpx.Client, model: str) -> None:
    assert http.put(talk.path, json={"metadata": {"model": model, "encoding": "no_such"}}).status_code == 201
    event = {"metadata": {"model": model}, "message": {**user("Hello world"), "model": model}}
    counted = talk.append(event, user("Hello world"))["events"]
    assert counted[1]["token_count"] == 6
    assert talk.log()[0]["message"]["model"] == model
    assert talk.session()["metadata"]["model"] == model
    assert http.get("/v1/capabilities").json()["tokens"]["encoding"] == "o200k_base"
    # Nowhere else can one be given: neither is silently ignored.
    for field in ("model", "encoding"):
        body = {"events": [{"message": user("a")}], field: model}
        assert places(refused(http.post(talk.path + "/events", json=body), 422)) == [f"/{field}"]
        window = {"window": {"rule": "token_budget", "size": 5}, field: model}
        assert places(refused(http.post(talk.path + "/compact", json=window), 422)) == [f"/{field}"]
        refused(http.get(talk.path + "/view", params={field: model}), 400)


def test_c37_an_encoding_that_nobody_knows_stops_the_start(database_url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "from app.cli import main; main()", "serve", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "TURNLOG_DATABASE_URL": database_url, "TURNLOG_ENCODING": "no_such"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode != 0
    assert "no_such" in ran.stderr
    assert "o200k_base" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_c38_tool_call_arguments_count(talk: Talk, plain: tiktoken.Encoding) -> None:
    prose = "She walked to the harbour and counted the boats. " * 817
    assert len(prose) > 40_000
    arguments = json.dumps({"text": prose})
    call = {"id": "c", "type": "function", "function": {"name": "write_file", "arguments": arguments}}
    counted = talk.append(
        user("write it"), {"role": "assistant", "content": None, "tool_calls": [call]}, tool("c", "ok"),
        user("thanks"), assistant("sure"),
    )["events"]  # fmt: skip
    assert counted[1]["token_count"] >= len(plain.encode(arguments)) + len(plain.encode("write_file")) >= 6_000
    outcome = talk.compact(token_budget=2000)
    assert (outcome["status"], seqs_in(outcome["covered"]["ranges"])) == ("applied", [1, 2, 3])
    assert talk.seqs() == [4, 5]


@pytest.mark.parametrize(
    "said",
    [
        {"role": "assistant", "content": "ok", "reasoning_content": words(8_000)},
        {"role": "assistant", "content": [{"type": "text", "text": words(8_000)}]},
        {"role": "assistant", "content": None, "refusal": words(8_000)},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"t": words(8_000)}}}
            ],
        },
        {"role": "user", "content": "hi", "name": words(8_000)},
    ],
    ids=["reasoning", "part", "refusal", "argument object", "name"],
)
def test_c38_every_text_that_a_model_is_sent_counts(talk: Talk, said: dict[str, Any]) -> None:
    assert talk.append(user("a"), said)["events"][1]["token_count"] >= 8_000


def test_c39_an_image_costs_the_same_whatever_its_size(talk: Talk) -> None:
    data = base64.b64encode(secrets.token_bytes(3_000_000)).decode()
    assert len(data) == 4_000_000
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    said = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}
    counted = talk.append(said, *turns(1))["events"]
    assert IMAGE < counted[0]["token_count"] < IMAGE + 20
    outcome = talk.compact(token_budget=20_000)
    assert (outcome["status"], outcome["reason"]) == ("unchanged", "fits-window")
    assert talk.view()["events"][0]["message"] == said
    assert talk.view("openai")["messages"][0] == said
    assert data not in talk.http.get(talk.path + "/view?format=text").text


def test_c40_a_prompt_larger_than_the_budget_is_kept_and_reported(talk: Talk) -> None:
    said = [message for number in range(4) for message in (user(words(46)), assistant(words(46)))]
    counted = talk.append(system(words(4996)), *said)["events"]
    assert [event["token_count"] for event in counted] == [5000] + [50] * 8
    outcome = talk.compact(token_budget=3000)
    assert outcome["status"] == "applied"
    assert seqs_in(outcome["covered"]["ranges"]) == [*range(2, 8)]  # a budget counts what is pinned
    assert outcome["pinned"] == [1]
    assert outcome["over_budget"] is True
    assert outcome["tokens"] == {"before": 5400, "after": 5100, "saved": 300}
    assert talk.seqs() == [1, 8, 9]
    again = talk.compact(token_budget=3000)
    assert (again["status"], again["reason"], again["over_budget"]) == ("unchanged", "newest-turn-only", True)


def test_c41_right_after_a_compaction_every_figure_is_the_current_views(talk: Talk) -> None:
    # Three turns of 600 tokens and the summary fit the budget; a summary that the caller brings is not reserved for.
    said = [message for number in range(17) for message in (user(words(296)), assistant(words(296)))]
    talk.append(*said)
    assert talk.session()["view"]["tokens"] == 10_200
    check = {"type": "token_count", "threshold": 2001}
    window: dict[str, Any] = {"rule": "token_budget", "size": 2000}
    summary = "Many questions were asked, and all of them were answered."
    outcome = talk.compact(window=window, trigger=check, summarizer={"type": "text", "text": summary})
    assert outcome["status"] == "applied"
    view = talk.view()
    assert view["token_count"] == sum(event["token_count"] for event in view["events"])
    assert outcome["tokens"]["before"] == 10_200
    assert outcome["tokens"]["after"] == view["token_count"] < 2001
    assert talk.session()["view"] == {
        "events": len(view["events"]),
        "turns": view["turns"],
        "tokens": view["token_count"],
        "boundary": outcome["boundary"],
    }
    for _ in range(2):
        again = talk.compact(window=window, trigger=check, summarizer={"type": "text", "text": summary})
        assert (again["status"], again["reason"]) == ("unchanged", "trigger-not-fired")
        assert again["tokens"]["before"] == talk.session()["view"]["tokens"] == talk.view()["token_count"]
        talk.append(user(words(16)))
    assert talk.session()["view"]["tokens"] == view["token_count"] + 40


def test_c41_right_after_a_compaction_by_the_model_no_check_selects_the_session(postgres: str, template: str) -> None:
    said = [message for number in range(17) for message in (user(words(296)), assistant(words(296)))]
    # The summary to come is reserved for, so two turns of 600 tokens fit the budget with it.
    policy = {
        "window": {"rule": "token_budget", "size": 2000},
        "trigger": {"type": "token_count", "threshold": 2001},
        "summarizer": {"type": "llm", "max_tokens": 500},
    }
    with modelled(postgres, template) as model:
        model.server.answer = Reply(text="Many questions were asked.", usage=(9_000, 400))
        talk = model.talk()
        talk.http.put(talk.path, json={"policy": policy})
        talk.append(*said)
        assert model.http.get("/v1/compact/due").json()["due"] == 1
        [done] = model.http.post("/v1/compact").json()["results"]
        assert (done["status"], done["tokens"]["before"]) == ("applied", 10_200)
        for appended in (0, 20):
            if appended:
                talk.append(user(words(appended - 4)))
            view = talk.view()
            assert view["token_count"] == sum(event["token_count"] for event in view["events"]) < 2001
            assert view["token_count"] == done["tokens"]["after"] + appended
            assert talk.session()["view"]["tokens"] == view["token_count"]
            assert model.http.get("/v1/compact/due").json() == {"due": 0, "deferred": 0, "data": []}
            assert model.http.post("/v1/compact").json()["results"] == []
        assert len(model.server.requests) == 1
