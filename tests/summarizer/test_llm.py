"""Asking a model over real HTTP: what is retried, what is not, and when it ends."""

import asyncio
import json

import httpx
import pytest

from app.domain.errors import SummarizerFailed, SummarizerTimeout
from app.summarizer.answer import Answer
from app.summarizer.llm import ATTEMPTS, LARGEST_ANSWER, Llm, Provider
from app.summarizer.model import Model
from app.summarizer.prompt import Prompt
from tests.model_server import ModelServer, Reply

KEY = "sk-very-secret-4711"
PROMPT = Prompt(system="Condense.", user="user: my locker code is 4417")
PROVIDERS: tuple[Provider, ...] = ("openai", "anthropic")


def model(client: httpx.AsyncClient, base_url: str, provider: Provider = "openai") -> Llm:
    return Llm(client, provider=provider, base_url=base_url, model="small", api_key=KEY, pause=0.001)


def ask(server: ModelServer, *, provider: Provider = "openai", seconds: float = 30, times: int = 1) -> list[Answer]:
    """Ask the same model several times, in one process."""

    async def asked() -> list[Answer]:
        async with httpx.AsyncClient(timeout=httpx.Timeout(None, connect=10), trust_env=False) as client:
            llm = model(client, server.base_url(provider), provider)
            loop = asyncio.get_running_loop()
            return [await llm.complete(PROMPT, max_tokens=50, deadline=loop.time() + seconds) for _ in range(times)]

    return asyncio.run(asked())


def failure(server: ModelServer, *, provider: Provider = "openai", seconds: float = 30) -> SummarizerFailed:
    with pytest.raises(SummarizerFailed) as caught:
        ask(server, provider=provider, seconds=seconds)
    return caught.value


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Provider:
    chosen: Provider = request.param
    return chosen


def test_the_answer_comes_with_its_model_and_its_tokens(provider: Provider) -> None:
    with ModelServer(api_key=KEY) as server:
        server.answer = Reply(text=" The code is 4417.\n", usage=(12, 7))
        assert ask(server, provider=provider) == [
            Answer(text="The code is 4417.", model="small", input_tokens=12, output_tokens=7)
        ]
    (seen,) = server.requests
    assert (seen.system, seen.user, seen.refused) == (PROMPT.system, PROMPT.user, None)


def test_it_is_a_model() -> None:
    async def named() -> str:
        async with httpx.AsyncClient(trust_env=False) as client:
            one: Model = model(client, "http://127.0.0.1/v1")
            return one.name

    assert asyncio.run(named()) == "small"


PASSING: list[Reply] = [
    # The request came too slowly, clashed with another, or too early.
    Reply(status=408),
    Reply(status=409),
    Reply(status=425),
    # Too many requests, with and without a word on when to come back: in seconds, milliseconds, as a date that
    # has passed, and unreadable.
    Reply(status=429),
    Reply(status=429, headers={"Retry-After": "0"}),
    Reply(status=429, headers={"retry-after-ms": "2", "Retry-After": "600"}),
    Reply(status=429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    Reply(status=429, headers={"Retry-After": "soon"}),
    # Broken, away, overloaded, and what gateways make of a timeout.
    Reply(status=500),
    Reply(status=503, body=b"<html>"),
    Reply(status=529),
    Reply(status=524),
    # The connection ends without an answer, or in the middle of it.
    Reply(hangs_up=True),
    Reply(cuts_body=True),
]


@pytest.mark.parametrize("reply", PASSING, ids=str)
def test_what_may_pass_is_tried_again(reply: Reply, provider: Provider) -> None:
    with ModelServer() as server:
        server.script([reply, reply, "Third time lucky."])
        assert ask(server, provider=provider)[0].text == "Third time lucky."
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        # Told to come back later, for ever.
        (Reply(status=429), "rate-limited"),
        # Overloaded for ever.
        (Reply(status=529), "overloaded"),
        # A server that hangs up on everyone.
        (Reply(hangs_up=True), "unreachable"),
    ],
    ids=str,
)
def test_retries_are_bounded(reply: Reply, cause: str, provider: Provider) -> None:
    with ModelServer() as server:
        server.answer = reply
        assert failure(server, provider=provider).cause == cause
        assert len(server.requests) == ATTEMPTS


def test_nobody_listening_is_unreachable() -> None:
    with ModelServer() as server:
        pass
    assert failure(server).cause == "unreachable"


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        # The wait that the server asks for would end long after the deadline.
        (Reply(status=429, headers={"Retry-After": "3600"}), "rate-limited"),
        (Reply(status=503, headers={"Retry-After": "Wed, 21 Oct 2065 07:28:00 GMT"}), "overloaded"),
    ],
)
def test_a_wait_past_the_deadline_is_not_begun(reply: Reply, cause: str) -> None:
    with ModelServer() as server:
        server.answer = reply
        found = failure(server, seconds=60)
        assert (found.cause, len(server.requests)) == (cause, 1)
    assert not isinstance(found, SummarizerTimeout)


@pytest.mark.parametrize(
    "reply",
    [
        # It accepts the connection and never answers.
        Reply(hangs=True),
        # It begins to answer, a byte at a time.
        Reply(trickle=0.05),
        # It explains an error, a byte at a time.
        Reply(status=500, trickle=0.05),
    ],
    ids=str,
)
def test_the_deadline_ends_an_answer_that_does_not(reply: Reply, provider: Provider) -> None:
    with ModelServer() as server:
        server.answer = reply
        found = failure(server, provider=provider, seconds=0.3)
    assert isinstance(found, SummarizerTimeout)
    assert found.cause == "timeout"


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        # What a client sees of a server that goes away in the middle of a retry.
        (Reply(hangs_up=True), "unreachable"),
        # The provider said that it has enough, and then nothing more.
        (Reply(status=429), "rate-limited"),
    ],
)
def test_a_deadline_that_ends_a_retry_tells_what_failed_before(first: Reply, cause: str) -> None:
    with ModelServer() as server:
        server.script([first])
        server.answer = Reply(hangs=True)
        assert failure(server, seconds=3).cause == cause
        assert len(server.requests) == 2


def test_a_deadline_that_has_passed_is_a_timeout() -> None:
    with ModelServer() as server:
        assert failure(server, seconds=-1).cause == "timeout"


def test_a_cancelled_call_stays_cancelled() -> None:
    async def cancelled(server: ModelServer) -> None:
        async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
            loop = asyncio.get_running_loop()
            llm = model(client, server.base_url("openai"))
            call = asyncio.create_task(llm.complete(PROMPT, max_tokens=5, deadline=loop.time() + 60))
            await asyncio.to_thread(server.wait_for, 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    with ModelServer() as server:
        server.answer = Reply(hangs=True)
        asyncio.run(cancelled(server))


FAILURES: list[tuple[Reply, str]] = [
    # Nothing, blanks, null.
    (Reply(text=""), "empty"),
    (Reply(text=" \n\t"), "empty"),
    (Reply(text=None), "empty"),
    # Cut off at the limit, in the words of either protocol.
    (Reply(text="…you went fro", stop="length"), "cut-off"),
    (Reply(text="…you went fro", stop="max_tokens"), "cut-off"),
    (Reply(text="…you went fro", stop="model_context_window_exceeded"), "cut-off"),
    # Stopped for a reason that is no ordinary end.
    (Reply(stop="pause_turn"), "cut-off"),
    (Reply(stop="error"), "cut-off"),
    (Reply(stop="content_filter"), "content-filter"),
    (Reply(text=None, refusal="I cannot."), "refused"),
    (Reply(calls_tool=True), "tool-call"),
    # The model thought, and said nothing.
    (Reply(text=None, reasoning="Hm."), "only-reasoning"),
    (Reply(text="<think>Hm.</think>\n"), "only-reasoning"),
    (Reply(text="<think>Hm. The user"), "unclosed-think"),
    # Not the protocol's JSON.
    (Reply(body=b""), "unreadable"),
    (Reply(body=b"{"), "unreadable"),
    (Reply(body=b"\xff"), "unreadable"),
    (Reply(body=b"<html>Welcome</html>"), "unreadable"),
    (Reply(body=b"{}"), "unreadable"),
    (Reply(body=b'{"choices": [], "content": null}'), "unreadable"),
    (Reply(body=b'{"choices": [{"message": {"content": 7}}], "content": [{"text": 7}]}'), "unreadable"),
    (Reply(body=b'{"error": {"message": "no"}}'), "unreadable"),
    (Reply(body=b"[" * 100_000), "unreadable"),
    # Larger than any summary, and damaged on the way.
    (Reply(body=b" " * (LARGEST_ANSWER + 1)), "unreadable"),
    (Reply(headers={"Content-Encoding": "gzip"}), "unreadable"),
    # The request is refused: its key, its place, its model, its size.
    (Reply(status=401), "not-authorized"),
    (Reply(status=403), "not-authorized"),
    (Reply(status=404), "refused-request"),
    (Reply(status=400), "refused-request"),
    (Reply(status=422), "refused-request"),
    # Azure's filter, about the conversation.
    (Reply(status=400, stop="content_filter"), "content-filter"),
    (Reply(status=301, headers={"Location": "/elsewhere"}), "refused-request"),
    (Reply(status=413), "context-length"),
    (Reply(status=400, error="This model's maximum context length is 8192 tokens."), "context-length"),
    (Reply(status=400, error="prompt is too long: 9 tokens > 8 maximum"), "context-length"),
    (Reply(status=400, error="Input is too long for requested model."), "context-length"),
    (Reply(status=400, error="the request exceeds the available context size"), "context-length"),
    (Reply(status=400, error="Your input exceeds the context window of this model."), "context-length"),
    (Reply(status=400, stop="context_length_exceeded"), "context-length"),
]


@pytest.mark.parametrize(("reply", "cause"), FAILURES, ids=lambda one: str(one)[:80])
def test_what_is_no_summary_fails_at_once_and_says_why(reply: Reply, cause: str, provider: Provider) -> None:
    with ModelServer() as server:
        server.answer = reply
        found = failure(server, provider=provider)
        assert (found.cause, len(server.requests)) == (cause, 1)
    assert str(found)


def test_too_much_input_is_told_from_other_refusals(provider: Provider) -> None:
    with ModelServer(count=len) as server:
        server.refuse_over = 10
        assert failure(server, provider=provider).cause == "context-length"


def test_a_model_that_wants_the_newer_limit_gets_it_from_then_on() -> None:
    with ModelServer() as server:
        server.wants_max_completion_tokens = True
        assert len(ask(server, times=3)) == 3
        assert ["max_tokens" in one.json for one in server.requests] == [True, False, False, False]


def test_a_refusal_of_the_newer_limit_is_not_tried_for_ever() -> None:
    with ModelServer() as server:
        server.answer = Reply(status=400, error="max_completion_tokens is too large")
        assert failure(server).cause == "refused-request"
        assert len(server.requests) == 2


def test_a_prompt_too_long_for_vllm_changes_no_name() -> None:
    told = "'max_tokens' or 'max_completion_tokens' is too large. This model's maximum context length is 4096 tokens."
    with ModelServer() as server:
        server.answer = Reply(status=400, error=told)
        assert failure(server).cause == "context-length"
        assert len(server.requests) == 1


def test_an_open_model_is_asked_without_a_key() -> None:
    async def asked(server: ModelServer) -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            llm = Llm(client, provider="openai", base_url=server.base_url("openai") + "/", model="m", api_key="")
            await llm.complete(PROMPT, max_tokens=5, deadline=asyncio.get_running_loop().time() + 30)

    with ModelServer() as server:
        asyncio.run(asked(server))
        assert "authorization" not in server.requests[0].headers


def echo(status: int) -> Reply:
    """Return an error that repeats the key and the conversation, as some providers do."""
    return Reply(status=status, error=f"Incorrect API key provided: {KEY}. You said: {PROMPT.user}")


@pytest.mark.parametrize(
    "reply",
    [
        # Errors that repeat what they were sent.
        *(echo(status) for status in (400, 401, 404, 429, 500)),
        # A refusal that explains itself, and an answer that is not the protocol's.
        Reply(text=None, refusal=PROMPT.user + KEY),
        Reply(body=json.dumps({"choices": PROMPT.user + KEY, "content": KEY}).encode()),
    ],
    ids=str,
)
def test_neither_the_key_nor_the_conversation_is_in_an_error(reply: Reply, provider: Provider) -> None:
    with ModelServer() as server:
        server.answer = reply
        found = failure(server, provider=provider)
    told = "".join(f"{one!s} {one!r} {vars(one)}" for one in chain_of(found))
    assert KEY not in told
    assert "4417" not in told


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an error and everything that a log would print with it."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None:
        chain.append(following)
        following = following.__cause__ or following.__context__
    return chain


def test_the_key_is_in_no_repr() -> None:
    async def shown() -> str:
        async with httpx.AsyncClient(trust_env=False) as client:
            llm = model(client, "http://127.0.0.1/v1")
            return repr(llm) + repr(llm._request(PROMPT, 5)) + repr(llm._endpoint)

    assert KEY not in asyncio.run(shown())


@pytest.mark.parametrize(
    "key",
    [
        # A line break inside, and letters that headers do not have.
        "sk-a\nb",
        "sk-ключ",
    ],
)
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    async def made() -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            Llm(client, provider="openai", base_url="http://127.0.0.1/v1", model="m", api_key=key)

    with pytest.raises(ValueError, match="API key") as caught:
        asyncio.run(made())
    assert key not in str(caught.value)


def test_the_line_break_at_the_end_of_a_key_file_is_no_part_of_the_key() -> None:
    async def asked(server: ModelServer) -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            base = server.base_url("openai")
            llm = Llm(client, provider="openai", base_url=base, model="m", api_key=KEY + "\n")
            await llm.complete(PROMPT, max_tokens=5, deadline=asyncio.get_running_loop().time() + 30)

    with ModelServer(api_key=KEY) as server:
        asyncio.run(asked(server))


@pytest.mark.parametrize(
    "url",
    [
        # No scheme, another one, no host, and no URL at all.
        "api.example.com/v1",
        "ftp://example.com/v1",
        "https:///v1",
        "http://host:port",
        "",
    ],
)
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    async def made() -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            model(client, url)

    with pytest.raises(ValueError, match="base URL"):
        asyncio.run(made())
