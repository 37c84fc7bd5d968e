"""MessageWindowChatMemory over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.api.asking import HELLO, expire, pointers, problem
from tests.conftest import Service
from tests.talk import Message, Talk, assistant, developer, system, tool, turns, user


class Memory:
    """A chat memory over HTTP."""

    def __init__(self, http: httpx.Client, conversation: str) -> None:
        self.http = http
        self.path = f"/v1/chat-memory/{conversation}"

    def add(self, *messages: Message, most: int | None = None) -> list[Message]:
        params = {} if most is None else {"max_messages": most}
        response = self.http.post(self.path + "/messages", json={"messages": list(messages)}, params=params)
        assert response.status_code == 200, response.text
        assert set(response.json()) == {"messages"}
        found: list[Message] = response.json()["messages"]
        assert self.get() == found
        return found

    def get(self) -> list[Message]:
        response = self.http.get(self.path)
        assert response.status_code == 200, response.text
        found: list[Message] = response.json()["messages"]
        return found


@pytest.fixture
def memory(http: httpx.Client, session_id: str) -> Memory:
    return Memory(http, session_id)


def test_an_unknown_conversation_is_an_empty_memory(memory: Memory) -> None:
    assert memory.http.get(memory.path).json() == {"messages": []}
    assert memory.http.delete(memory.path).status_code == 204
    assert memory.get() == []


def test_an_add_returns_the_memory_and_makes_the_session(memory: Memory, talk: Talk) -> None:
    assert memory.add(user("a")) == [user("a")]
    assert memory.add(assistant("b"), user("c")) == [user("a"), assistant("b"), user("c")]
    assert talk.session()["version"] == 3
    assert talk.texts() == ["a", "b", "c"]


def test_a_memory_holds_twenty_messages_unless_it_is_told(memory: Memory) -> None:
    found = memory.add(*turns(15))
    assert len(found) == 20
    assert found == turns(15)[10:]


def test_messages_come_back_byte_for_byte(memory: Memory) -> None:
    message = r'{"content":"\u0000 é \u00e9", "role":"user","n":1.10,"big":123456789012345678901234567890}'
    added = memory.http.post(
        memory.path + "/messages",
        content=f'{{"messages":[{message}]}}',
        headers={"Content-Type": "application/json"},
    )
    assert added.text == memory.http.get(memory.path).text == f'{{"messages":[{message}]}}'


WINDOWS: list[tuple[str, int, list[Message], list[Message]]] = [
    ("the oldest leave", 2, [user("1"), user("2"), user("3")], [user("2"), user("3")]),
    ("of one message, the newest", 1, [user("1"), user("2")], [user("2")]),
    ("until a user message is the first", 3, [*turns(2)], turns(2)[2:]),
    ("an answer without its question leaves too", 1, [user("q"), assistant("a")], []),
    ("system messages never leave", 2, [system("p"), user("1"), user("2")], [system("p"), user("2")]),
    ("and do count", 1, [system("p"), user("1")], [system("p")]),
    ("nor are they moved", 3, [user("1"), user("2"), system("p"), user("3")], [user("2"), system("p"), user("3")]),
    ("several added at once all stay", 1, [system("a"), system("b"), user("1")], [system("a"), system("b")]),
    (
        "a result never stands without its call",
        3,
        [user("q"), assistant(None, c="f"), tool("c", "r"), assistant("a"), user("q2")],
        [user("q2")],
    ),
    ("what fits stays", 5, turns(2), turns(2)),
    (
        "a memory that begins with an answer keeps it while it fits",
        2,
        [assistant("hi"), user("1")],
        [assistant("hi"), user("1")],
    ),
]


@pytest.mark.parametrize(("_what", "most", "added", "kept"), WINDOWS, ids=[row[0] for row in WINDOWS])
def test_a_memory_keeps_the_newest_messages(
    memory: Memory, _what: str, most: int, added: list[Message], kept: list[Message]
) -> None:
    assert memory.add(*added, most=most) == kept


def test_another_system_message_drops_the_earlier_ones(memory: Memory) -> None:
    memory.add(system("a"), user("1"))
    assert memory.add(system("b")) == [user("1"), system("b")]
    assert memory.add(system("b")) == [user("1"), system("b"), system("b")]
    assert memory.add(developer("b")) == [user("1"), developer("b")]


def test_an_equal_system_message_is_added_again(memory: Memory) -> None:
    memory.add(system("a"), user("1"))
    assert memory.add(system("a"), user("2")) == [system("a"), user("1"), system("a"), user("2")]


def test_one_message_after_another_evicts_as_many_at_once_would(memory: Memory) -> None:
    for message in turns(6):
        memory.add(message, most=4)
    assert memory.get() == turns(6)[8:]


def test_a_smaller_window_evicts_more_and_a_larger_one_brings_nothing_back(memory: Memory) -> None:
    memory.add(*turns(5), most=10)
    assert memory.add(user("x"), most=3) == [user("question 5"), assistant("answer 5"), user("x")]
    assert memory.add(user("y"), most=100) == [user("question 5"), assistant("answer 5"), user("x"), user("y")]


def test_the_log_keeps_everything(memory: Memory, talk: Talk) -> None:
    memory.add(*turns(5), most=4)
    memory.http.delete(memory.path)
    assert memory.get() == []
    messages = [event["message"] for event in talk.log(types="MESSAGE")]
    assert messages == turns(5)
    assert talk.seqs() == []
    assert talk.session()["view"] | {"boundary": 0} == {"events": 0, "turns": 0, "tokens": 0, "boundary": 0}


def test_a_cleared_memory_starts_anew(memory: Memory) -> None:
    memory.add(system("p"), *turns(2))
    assert memory.http.delete(memory.path).status_code == 204
    assert memory.http.delete(memory.path).status_code == 204
    assert memory.add(user("again")) == [user("again")]


def test_a_memory_is_a_session_like_any_other(memory: Memory, talk: Talk) -> None:
    memory.add(*turns(3), most=4)
    boundary = talk.log(types="COMPACTION")[0]
    assert boundary["payload"]["window"] == {"rule": "max_messages", "size": 4}
    assert len(talk.get("/compactions")["data"]) == 1
    talk.append(user("by the other door"))
    assert memory.get()[-1] == user("by the other door")
    assert talk.view("openai")["messages"] == memory.get()


def test_a_memory_of_an_expired_session_is_gone_and_made_anew_by_an_add(
    service: Service, memory: Memory, talk: Talk
) -> None:
    memory.add(*turns(2))
    expire(service, talk.id)
    problem(memory.http.get(memory.path), 410, "session-expired")
    assert memory.add(user("again")) == [user("again")]
    assert talk.session()["version"] == 1


def test_many_who_add_at_once_lose_nothing(service: Service, memory: Memory, talk: Talk) -> None:
    def add(number: int) -> int:
        with service.client() as client:
            body = {"messages": [user(f"{number}")]}
            return client.post(memory.path + "/messages", json=body, params={"max_messages": 5}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(add, range(30))) == {200}
    assert len(memory.get()) == 5
    assert {event["message"]["content"] for event in talk.log(types="MESSAGE")} == {str(n) for n in range(30)}


BAD_ADDS: list[tuple[Any, str]] = [
    ({}, "/messages"),  # no messages
    ({"messages": []}, "/messages"),  # none
    ({"messages": None}, "/messages"),
    ({"messages": {}}, "/messages"),
    ({"messages": [HELLO["message"]] * 1001}, "/messages"),  # too many
    ({"messages": [HELLO["message"]], "max_messages": 3}, "/max_messages"),  # it is a query parameter
    ({"messages": [HELLO["message"], 1]}, "/messages/1"),
    ({"messages": [HELLO]}, "/messages/0/role"),  # an event is no message
    ({"messages": [user("x"), {"role": "user"}]}, "/messages/1/content"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "/messages/0/tool_call_id"),
]


@pytest.mark.parametrize(("body", "pointer"), BAD_ADDS, ids=lambda value: str(value)[:60])
def test_a_bad_message_is_named_and_nothing_is_added(memory: Memory, body: Any, pointer: str) -> None:
    assert pointers(memory.http.post(memory.path + "/messages", json=body)) == [pointer]
    problem(memory.http.get(memory.path.replace("chat-memory", "sessions")), 404, "session-not-found")


@pytest.mark.parametrize("most", [0, -1, "x", "", 10**9, 2**64])
def test_a_memory_holds_at_least_one_message(memory: Memory, most: Any) -> None:
    answer = memory.http.post(memory.path + "/messages", json={"messages": [user("x")]}, params={"max_messages": most})
    assert pointers(answer) == ["max_messages"]


def test_a_conversation_id_is_a_session_id(http: httpx.Client) -> None:
    bad = "/v1/chat-memory/a%20b"
    assert pointers(http.post(bad + "/messages", json={"messages": [user("x")]})) == ["conversation_id"]
    problem(http.get(bad), 404, "session-not-found")
    problem(http.delete(bad), 404, "session-not-found")
