"""What providers take: the list at the top of the field cases, each line a rule that real users ran into.

Written from that list and not from the renderers, so that a mistake in one is not repeated in the other. Each check
takes the answer to a read of the view and returns every rule that it breaks, in words. A format that comes later adds
its check to ``CHECKS``, and every test that calls ``assert_valid`` holds it too.
"""

from collections.abc import Callable
from typing import Any

from tests.talk import Talk

LONGEST_CALL_ID = 64

Message = dict[str, Any]


def openai(view: dict[str, Any]) -> list[str]:
    """OpenAI chat completions: the `messages` of a request."""
    messages = view["messages"]
    return [*_system_leads(messages), *_somebody_speaks(messages), *_says_something(messages), *_calls_pair(messages)]


def _system_leads(messages: list[Message]) -> list[str]:
    late = [at for at, message in enumerate(messages) if message["role"] in {"system", "developer"} and at > 0]
    return [f"message {at} is a system message that does not lead" for at in late]


def _somebody_speaks(messages: list[Message]) -> list[str]:
    if any(message["role"] not in {"system", "developer"} for message in messages):
        return []
    return ["there is no message but the system's"]


def _says_something(messages: list[Message]) -> list[str]:
    return [
        f"message {at} is an assistant message without calls and without content"
        for at, message in enumerate(messages)
        if message["role"] == "assistant"
        and not message.get("tool_calls")
        and not message.get("refusal")
        and not _has_content(message.get("content"))
    ]


def _has_content(content: Any) -> bool:
    if isinstance(content, list):
        return any(part.get("text") or part["type"] != "text" for part in content)
    return isinstance(content, str) and bool(content.strip())


def _calls_pair(messages: list[Message]) -> list[str]:
    """Walk the calls and their results. Calls that nothing follows yet are still being worked on."""
    broken: list[str] = []
    waiting: dict[str, int] = {}
    answered: set[str] = set()
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            call = message.get("tool_call_id")
            if call in answered:
                broken.append(f"message {at} is a second result of one call")
            elif call not in waiting:
                broken.append(f"message {at} is a result without its call right before")
            else:
                answered.add(call)
                del waiting[call]
            continue
        broken += [f"the call in message {made} has no result before message {at}" for made in waiting.values()]
        ids = [call["id"] for call in message.get("tool_calls") or []]
        broken += [f"message {at} has a call id of {len(one)} characters" for one in ids if len(one) > LONGEST_CALL_ID]
        if len(set(ids)) < len(ids):
            broken.append(f"message {at} has two calls with one id")
        waiting, answered = dict.fromkeys(ids, at), set()
    return broken


CHECKS: dict[str, Callable[[dict[str, Any]], list[str]]] = {"openai": openai}


def problems(talk: Talk, **params: Any) -> list[str]:
    """Read the view in every format and return which rules are broken, by format."""
    return [f"{output}: {broken}" for output, check in CHECKS.items() for broken in check(talk.view(output, **params))]


def assert_valid(talk: Talk, **params: Any) -> None:
    """Read the view in every format and hold each to its provider's rules ("valid for all formats")."""
    assert not (found := problems(talk, **params)), "; ".join(found)
