"""The main job on real input: import conversations, compact every one, read every view.

What a view must be is written here a second time, from the conversations as they stand in the file.
"""

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import cloned, shared
from tests.journeys.processes import Serving, run
from tests.journeys.replayed import Logged, boundaries, check_session, replayed
from tests.talk import Message, Talk

READERS = 6


class Conversation(NamedTuple):
    """A conversation of the file, and the session that it was stored in."""

    session_id: str
    messages: list[Message]


class Place(NamedTuple):
    """A service, and the database that it works on."""

    service: Serving
    database_url: str

    @property
    def url(self) -> str:
        return self.service.url


@pytest.fixture
def place(postgres: str, template: str) -> Iterator[Place]:
    with cloned(postgres, template) as url, Serving(database_url=url) as service:
        yield Place(service, url)


def told(command: Any) -> str:
    """Return what a command that went well said."""
    assert command.returncode == 0, command.stdout + command.stderr
    return str(command.stdout)


def conversations(file: Path, prefix: str = "") -> list[Conversation]:
    lines = map(json.loads, file.read_text().splitlines())
    return [Conversation(prefix + line["id"], line["messages"]) for line in lines]


@pytest.mark.parametrize("name", ["tau-bench-airline", "swe-agent"])
def test_real_conversations_are_stored_compacted_and_read_back(place: Place, name: str) -> None:
    file = shared(f"data/{name}.jsonl")
    said = conversations(file)
    events = sum(len(one.messages) for one in said)
    new = f"{len(said)} conversations: {events} events stored, 0 were there already"

    assert new in told(run("import", file, "--url", place.url))
    # The second time straight to the database: the two ways give the events the same ids.
    again = told(run("import", file, TURNLOG_DATABASE_URL=place.database_url))
    assert f"{len(said)} conversations: 0 events stored, {events} were there already" in again
    every(place, said, check_stored)

    outcome = told(run("compact", "--all", "--last-turns", "2", "--url", place.url))
    check_told(outcome, every(place, said, check_last_turns))

    eight = conversations(file, "eight-")
    assert new in told(run("import", file, "--url", place.url, "--prefix", "eight-"))
    names = [one.session_id for one in eight]
    outcome = told(run("compact", *names, "--last-events", "8", "--url", place.url))
    check_told(outcome, every(place, eight, check_last_events))

    budget = conversations(file, "budget-")
    assert new in told(run("import", file, "--prefix", "budget-", TURNLOG_DATABASE_URL=place.database_url))
    names = [one.session_id for one in budget]
    outcome = told(run("compact", *names, "--token-budget", "2000", TURNLOG_DATABASE_URL=place.database_url))
    check_told(outcome, every(place, budget, check_token_budget))


def every(place: Place, said: Sequence[Conversation], check: Any) -> list[Any]:
    """Check every session of a file, some at once, and return what the checks found."""

    def some(part: Sequence[Conversation]) -> list[Any]:
        with place.service.client() as client:
            return [check(Talk(client, one.session_id), one.messages) for one in part]

    with ThreadPoolExecutor(READERS) as pool:
        return [found for part in pool.map(some, parts(said)) for found in part]


def parts(said: Sequence[Conversation]) -> list[Sequence[Conversation]]:
    size = -(-len(said) // READERS)
    return [said[at : at + size] for at in range(0, len(said), size)]


def check_told(outcome: str, applied: Sequence[bool]) -> None:
    """Hold what `turnlog compact` said to the boundaries that are in the logs."""
    found = re.search(r"(\d+) sessions: (.*); (\d+) tokens before, (\d+) after", outcome)
    assert found, outcome
    counts = {word: int(number) for number, word in (part.split(" ") for part in found[2].split(", "))}
    assert int(found[1]) == len(applied) == sum(counts.values())
    assert counts.get("applied", 0) == sum(applied)
    assert counts.keys() <= {"applied", "fits-window", "newest-turn-only", "no-safe-cut", "no-turn"}
    assert int(found[4]) <= int(found[3])


def check_stored(talk: Talk, messages: list[Message]) -> None:
    """What was imported is what the file says, byte for byte as far as JSON tells, and all of it is the view."""
    log = talk.log()
    assert [logged["message"] for logged in log] == messages
    assert [list(logged["message"]) for logged in log] == [list(message) for message in messages], "keys changed places"
    assert talk.view("openai")["messages"] == messages


def check_last_turns(talk: Talk, messages: list[Message]) -> bool:
    kept, made = check_compacted(talk, messages)
    turns = sum(message["role"] == "user" for message in messages)
    assert turns_of(kept) == min(2, turns) or is_held_back(messages, kept, at_least=2)
    return bool(made)


def check_last_events(talk: Talk, messages: list[Message]) -> bool:
    kept, made = check_compacted(talk, messages)
    assert len(kept) <= 8 or turns_of(kept) == 1 or is_held_back(messages, kept, at_least=1)
    return bool(made)


def check_token_budget(talk: Talk, messages: list[Message]) -> bool:
    kept, made = check_compacted(talk, messages)
    tokens = talk.session()["view"]["tokens"]
    assert tokens <= 2000 or turns_of(kept) == 1 or is_held_back(messages, kept, at_least=1)
    for boundary in made:
        assert boundary["payload"]["tokens"]["after"] == tokens
    return bool(made)


def check_compacted(talk: Talk, messages: list[Message]) -> tuple[list[Message], list[Logged]]:
    """Hold a view to the rules; return what it keeps of the conversation, and its boundary."""
    log = check_session(talk)
    made = boundaries(log)
    assert len(made) <= 1
    assert [logged["message"] for logged in log if logged["type"] == "MESSAGE"] == messages, "the log lost something"

    seqs = [event.seq for event in replayed(log).events]
    prompts = [seq for seq in seqs if messages[seq - 1]["role"] == "system"]
    assert seqs[0] == prompts[-1] == 1, "the view does not start with the prompt"
    shown = talk.view("openai")
    assert shown["messages"] == [messages[seq - 1] for seq in seqs]
    assert shown["warnings"] == []

    kept = seqs[1:]
    assert kept == list(range(kept[0], len(messages) + 1)), "the view is not the prompt and the end of the log"
    assert messages[kept[0] - 1]["role"] == "user", "the view does not start with a turn"
    check_no_pair_is_parted(messages, set(seqs))
    check_order_of_calls(shown["messages"])
    return [messages[seq - 1] for seq in kept], made


def check_no_pair_is_parted(messages: Sequence[Message], shown: set[int]) -> None:
    for call, result in pairs(messages):
        assert (call in shown) == (result in shown), f"the call {call} and its result {result} are parted"


def pairs(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Return which message answers which, by their seqs: a result belongs to the nearest call of its id before it."""
    found = []
    for result, message in enumerate(messages, start=1):
        if message["role"] == "tool":
            callers = [
                seq
                for seq, caller in enumerate(messages[: result - 1], start=1)
                if any(call["id"] == message["tool_call_id"] for call in caller.get("tool_calls") or ())
            ]
            found += [(callers[-1], result)] if callers else []
    return found


def check_order_of_calls(messages: Sequence[Message]) -> None:
    """Hold messages to what a provider insists on: no result without a call right before it."""
    called: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in called, "a result without its call"
        else:
            called = {call["id"] for call in message.get("tool_calls") or ()}


def turns_of(messages: Sequence[Message]) -> int:
    return sum(message["role"] == "user" for message in messages)


def is_held_back(messages: Sequence[Message], kept: Sequence[Message], *, at_least: int) -> bool:
    """Say whether every later cut would part a call from its result, so that more than was asked for had to stay."""
    first = len(messages) - len(kept) + 1
    later = [seq for seq, message in enumerate(messages, start=1) if message["role"] == "user" and seq > first]
    possible = later[: len(later) - at_least + 1]
    return all(any(call < cut <= result for call, result in pairs(messages)) for cut in possible)
