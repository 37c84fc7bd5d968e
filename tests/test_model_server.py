"""The loopback model server is strict, scripted and interruptible."""

import threading
from typing import Any

import httpx
import pytest

from tests.model_server import ModelServer, Reply, Request

OPENAI: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
    "max_tokens": 9,
}
ANTHROPIC: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "system": "s",
    "messages": [{"role": "user", "content": "u"}],
}
KEYED = {"x-api-key": "k", "anthropic-version": "2023-06-01"}


def test_it_answers_in_both_protocols_and_records_what_came() -> None:
    with ModelServer() as server:
        server.answer = lambda request: f"{request.provider}: {request.user}"
        first = httpx.post(f"{server.base_url('openai')}/chat/completions", json=OPENAI).json()
        second = httpx.post(f"{server.base_url('anthropic')}/v1/messages", json=ANTHROPIC, headers=KEYED).json()
        recorded = server.wait_for(2, ended=True)
    assert first["choices"][0]["message"]["content"] == "openai: u"
    assert second["content"][0]["text"] == "anthropic: u"
    assert [(one.provider, one.system, one.user, one.status) for one in recorded] == [
        ("openai", "s", "u", 200),
        ("anthropic", "s", "u", 200),
    ]
    assert all(one.ended is not None and one.ended >= one.began for one in recorded)


@pytest.mark.parametrize(
    "body",
    [
        # A field that some model does not know.
        OPENAI | {"temperature": 0},
        # Content in parts, which not every endpoint takes.
        OPENAI | {"messages": [OPENAI["messages"][0], {"role": "user", "content": [{"type": "text", "text": "u"}]}]},
        # No system message, or two user messages.
        OPENAI | {"messages": [OPENAI["messages"][1]]},
        OPENAI | {"messages": [*OPENAI["messages"], OPENAI["messages"][1]]},
        # Another key inside a message.
        OPENAI | {"messages": [OPENAI["messages"][0], {"role": "user", "content": "u", "name": "ann"}]},
        # Both limits, none, or no number.
        OPENAI | {"max_completion_tokens": 9},
        {"model": "m", "messages": OPENAI["messages"]},
        OPENAI | {"max_tokens": "9"},
        # Blank content.
        OPENAI | {"messages": [OPENAI["messages"][0], {"role": "user", "content": " "}]},
        # No object at all.
        [],
    ],
)
def test_what_any_endpoint_would_refuse_is_refused(body: Any) -> None:
    with ModelServer() as server:
        assert httpx.post(f"{server.base_url('openai')}/chat/completions", json=body).status_code == 400
        assert server.requests[0].refused


def test_anthropic_needs_its_headers_and_no_other_field() -> None:
    with ModelServer(api_key="k") as server:
        url = f"{server.url}/v1/messages"
        assert httpx.post(url, json=ANTHROPIC).status_code == 401
        assert httpx.post(url, json=ANTHROPIC, headers=KEYED | {"x-api-key": "other"}).status_code == 401
        assert httpx.post(url, json=ANTHROPIC, headers={"x-api-key": "k"}).status_code == 400
        assert httpx.post(url, json=ANTHROPIC | {"top_k": 1}, headers=KEYED).status_code == 400
        assert httpx.post(url, json=ANTHROPIC, headers=KEYED).status_code == 200


def test_a_script_is_used_up_before_the_answer_and_too_much_input_uses_none_of_it() -> None:
    with ModelServer(count=len) as server:
        server.script([Reply(status=429, headers={"Retry-After": "7"}), "scripted"])
        server.refuse_over = 10
        url = f"{server.base_url('openai')}/chat/completions"
        long = OPENAI | {"messages": [OPENAI["messages"][0], {"role": "user", "content": "u" * 10}]}
        answers = [httpx.post(url, json=body) for body in (long, OPENAI, OPENAI, OPENAI)]
    assert [one.status_code for one in answers] == [400, 429, 200, 200]
    assert answers[0].json()["error"]["code"] == "context_length_exceeded"
    assert answers[1].headers["retry-after"] == "7"
    assert [one.json()["choices"][0]["message"]["content"] for one in answers[2:]] == ["scripted", "A summary."]


def test_closing_ends_what_hangs() -> None:
    errors: list[httpx.HTTPError] = []

    def ask(url: str) -> None:
        try:
            httpx.post(url, json=OPENAI, timeout=60)
        except httpx.HTTPError as error:
            errors.append(error)

    with ModelServer() as server:
        server.script([Reply(hangs=True), Reply(delay=600), Reply(trickle=600)])
        url = f"{server.base_url('openai')}/chat/completions"
        asking = [threading.Thread(target=ask, args=(url,)) for _ in range(3)]
        for one in asking:
            one.start()
        server.wait_for(3)
    for one in asking:
        one.join()
    assert len(errors) == 3


def test_a_broken_answer_function_fails_the_test() -> None:
    def broken(request: Request) -> str:
        raise RuntimeError(request.path)

    def asked() -> None:
        with ModelServer() as server:
            server.answer = broken
            with pytest.raises(httpx.HTTPError):
                httpx.post(f"{server.base_url('openai')}/chat/completions", json=OPENAI)
            server.wait_for(1, ended=True)

    with pytest.raises(RuntimeError, match="completions"):
        asked()
