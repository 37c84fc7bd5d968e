from typing import Any

import pytest

from app.domain import message
from app.domain.errors import InvalidRequest
from app.domain.message import Shape


def call(call_id: Any = "c1", **fields: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ({"role": "system", "content": "be kind"}, Shape("system")),  # the prompt
        ({"role": "developer", "content": "be kind"}, Shape("developer")),  # its newer name
        ({"role": "user", "content": "hello"}, Shape("user")),  # a question
        ({"role": "user", "content": ""}, Shape("user")),  # empty is a text too
        ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, Shape("user")),  # parts
        ({"role": "user", "content": [{"type": "hologram", "x": 1}]}, Shape("user")),  # an unknown part is kept
        ({"role": "user", "content": "x", "name": "bob", "mood": {"y": 1}}, Shape("user")),  # unknown fields too
        ({"role": "assistant", "content": "hello"}, Shape("assistant")),  # an answer
        ({"role": "assistant", "content": None}, Shape("assistant")),  # nothing said
        ({"role": "assistant"}, Shape("assistant")),  # no content at all
        ({"role": "assistant", "refusal": "I would rather not"}, Shape("assistant")),  # a refusal speaks
        ({"role": "assistant", "content": None, "tool_calls": None}, Shape("assistant")),  # no calls, said with null
        ({"role": "assistant", "content": None, "tool_calls": []}, Shape("assistant")),  # or with an empty list
        ({"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]}, Shape("assistant", ("a", "b"))),
        ({"role": "assistant", "tool_calls": [call("a"), call("a")]}, Shape("assistant", ("a", "a"))),  # ids repeat
        ({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}]},
         Shape("assistant", ("a",))),  # function is the default type, and arguments may be an object
        ({"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {}}]},
         Shape("assistant", ("a",))),  # calls of other types only need an id
        ({"role": "tool", "tool_call_id": "a", "content": "42"}, Shape("tool", answers="a")),  # a result
        ({"role": "tool", "tool_call_id": "a", "content": None}, Shape("tool", answers="a")),  # a result of nothing
        ({"role": "user", "content": [{"type": "tool_result"}, {"type": "text", "text": "so?"}]},
         Shape("user")),  # tool results beside something said
    ],
)  # fmt: skip
def test_a_message_shows_who_speaks_and_which_calls_it_makes_or_answers(given: Any, shape: Shape) -> None:
    assert message.check(given) == shape


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        (None, ""),  # not an object
        (["user", "hello"], ""),  # not a list
        ("hello", ""),  # not a bare text
        ({}, "/role"),  # no role
        ({"role": "User", "content": "x"}, "/role"),  # another case
        ({"role": "function", "content": "x"}, "/role"),  # an older role
        ({"role": ["user"], "content": "x"}, "/role"),  # not even hashable
        ({"role": "user"}, "/content"),  # a user says something
        ({"role": "user", "content": None}, "/content"),  # null says nothing
        ({"role": "system", "content": None}, "/content"),  # neither does an instruction
        ({"role": "developer"}, "/content"),  # of either name
        ({"role": "user", "content": 5}, "/content"),  # a number
        ({"role": "user", "content": {"type": "text"}}, "/content"),  # a part outside a list
        ({"role": "assistant", "content": False}, "/content"),  # a boolean
        ({"role": "user", "content": ["hello"]}, "/content/0"),  # a bare string is no part
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {}]}, "/content/1/type"),  # no type
        ({"role": "user", "content": [{"type": 1}]}, "/content/0/type"),  # a type that is no string
        ({"role": "user", "content": [{"type": "text"}]}, "/content/0/text"),  # a text part without text
        ({"role": "user", "content": [{"type": "text", "text": None}]}, "/content/0/text"),  # null is no text
        ({"role": "user", "content": [{"type": "tool_result"}, {"type": "tool_result"}]},
         "/content"),  # it would start a turn in the middle of a call (rule 10)
        ({"role": "user", "content": "x", "name": 1}, "/name"),  # a name that is no string
        ({"role": "assistant", "refusal": {}}, "/refusal"),  # a refusal that is no string
        ({"role": "user", "content": "x", "tool_calls": [call()]}, "/tool_calls"),  # only the assistant calls
        ({"role": "assistant", "tool_calls": {}}, "/tool_calls"),  # not a list
        ({"role": "assistant", "tool_calls": ["c1"]}, "/tool_calls/0"),  # a call that is no object
        ({"role": "assistant", "tool_calls": [call(), call(None)]}, "/tool_calls/1/id"),  # an id that is none
        ({"role": "assistant", "tool_calls": [{"type": "custom"}]}, "/tool_calls/0/id"),  # no id
        ({"role": "assistant", "tool_calls": [call(function=None)]}, "/tool_calls/0/function"),
        ({"role": "assistant", "tool_calls": [call(function={"arguments": ""})]}, "/tool_calls/0/function/name"),
        ({"role": "assistant", "tool_calls": [call(function={"name": "f"})]}, "/tool_calls/0/function/arguments"),
        ({"role": "assistant", "tool_calls": [call(function={"name": "f", "arguments": []})]},
         "/tool_calls/0/function/arguments"),  # arguments are a string or an object
        ({"role": "user", "content": "x", "turnlog": {}}, "/turnlog"),  # the field for providers' own pieces is ours
        ({"role": "tool", "content": "42"}, "/tool_call_id"),  # a result of no call
        ({"role": "tool", "tool_call_id": 7, "content": "42"}, "/tool_call_id"),  # an id that is no string
        ({"role": "tool", "tool_call_id": "a", "content": 42}, "/content"),  # a number as the result
    ],
)  # fmt: skip
def test_a_wrong_message_is_refused_where_it_is_wrong(given: Any, pointer: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        message.check(given)
    assert [problem.pointer for problem in caught.value.problems] == [pointer]
