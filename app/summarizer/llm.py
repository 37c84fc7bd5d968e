"""Asking a model over HTTP: retries that stay within the deadline, answers of bounded size, no key in any error."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias, assert_never

import httpx
import msgspec
import tenacity

from app.domain.errors import SummarizerFailed, SummarizerTimeout
from app.summarizer import answer, anthropic_messages, openai_chat, rejection
from app.summarizer.answer import Answer
from app.summarizer.model import Endpoint, Request
from app.summarizer.prompt import Prompt

Provider: TypeAlias = Literal["openai", "anthropic"]

ATTEMPTS: Final = 5
# The first wait, in seconds; each further one is twice as long, plus up to as much again by chance.
PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 20.0
LARGEST_ANSWER: Final = 4 * 1024 * 1024
_SUCCESS: Final = range(200, 300)


class _Passing(Exception):
    """An attempt failed in a way that may pass; ``after`` is the wait, in seconds, that the server asked for."""

    def __init__(self, failure: SummarizerFailed, after: float | None = None) -> None:
        super().__init__()
        self.failure = failure
        self.after = after


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    status: int
    after: float | None
    body: bytes


class Llm:
    """A model behind OpenAI's or Anthropic's protocol; the client follows no redirects and has no read timeout.

    The call as a whole has a deadline instead, so that an answer that trickles ends as surely as one that hangs.
    ``pause`` is the first wait between two attempts, in seconds.

    Raises:
        ValueError: the base URL is no http(s) URL, or the key holds a character that no header can carry; the message
            shows neither.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        provider: Provider,
        base_url: str,
        model: str,
        api_key: str | None,
        pause: float = PAUSE,
    ) -> None:
        key = (api_key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the summarizer's API key holds a character that no HTTP header can carry")
        if not _is_web_url(base_url):
            raise ValueError("the summarizer's base URL is not an http:// or https:// URL")
        self.name = model
        self._client = client
        self._provider: Provider = provider
        self._endpoint = Endpoint(base_url=base_url, model=model, api_key=key or None)
        self._pause = pause
        # Learned from the first refusal and kept, so that it costs one call and not one more each time.
        self._limit_name: openai_chat.LimitName = "max_tokens"

    def __repr__(self) -> str:
        return f"Llm(provider={self._provider!r}, model={self.name!r})"

    async def complete(self, prompt: Prompt, *, max_tokens: int, deadline: float) -> Answer:
        """Ask, again where that may help, and return the answer; see ``Model``.

        A deadline that passes while a failed call is tried again tells that failure: what the last try would have
        come to is not known, and "not in time" would hide what is.
        """
        failure: SummarizerFailed
        failed: list[SummarizerFailed] = []
        try:
            async with asyncio.timeout_at(deadline):
                return await self._patiently(prompt, max_tokens, deadline, failed)
        except TimeoutError:
            failure = failed[-1] if failed else SummarizerTimeout("the model server did not answer in time")
        except _Passing as passing:
            failure = passing.failure
        # Raised out here, so that no error of the HTTP client hangs on it: some of those quote the headers.
        raise failure

    async def _patiently(
        self, prompt: Prompt, max_tokens: int, deadline: float, failed: list[SummarizerFailed]
    ) -> Answer:
        """Try up to ``ATTEMPTS`` times, and no more once the next wait would not end before the deadline.

        The failures that another try follows are added to ``failed``.
        """
        clock = asyncio.get_running_loop().time
        backoff = tenacity.wait_exponential_jitter(initial=self._pause, max=_LONGEST_PAUSE, jitter=self._pause)

        def wait(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            if not isinstance(error, _Passing):
                return 0.0
            failed.append(error.failure)
            return backoff(state) if error.after is None else error.after

        def is_enough(state: tenacity.RetryCallState) -> bool:
            return state.attempt_number >= ATTEMPTS or clock() + state.upcoming_sleep >= deadline

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_Passing),
            wait=wait,
            stop=is_enough,
            sleep=asyncio.sleep,
            reraise=True,
        )
        return await retrying(self._once, prompt, max_tokens)

    async def _once(self, prompt: Prompt, max_tokens: int) -> Answer:
        sent = self._limit_name
        reply = await self._post(self._request(prompt, max_tokens))
        if self._is_about_limit_name(sent, reply):
            self._limit_name = "max_completion_tokens"
            reply = await self._post(self._request(prompt, max_tokens))
        if reply.status not in _SUCCESS:
            failure = rejection.failed(reply.status, reply.body)
            raise _Passing(failure, reply.after) if rejection.is_passing(reply.status) else failure
        if len(reply.body) > LARGEST_ANSWER:
            raise answer.unreadable(f"it is larger than {LARGEST_ANSWER} bytes")
        match self._provider:
            case "openai":
                return openai_chat.read(reply.body, asked=self.name)
            case "anthropic":
                return anthropic_messages.read(reply.body, asked=self.name)
            case _:
                assert_never(self._provider)

    def _is_about_limit_name(self, sent: openai_chat.LimitName, reply: _Reply) -> bool:
        # What was sent is asked, and not what is known by now: two calls may learn it at the same time.
        return (
            self._provider == "openai"
            and sent == "max_tokens"
            and openai_chat.wants_other_limit_name(reply.status, reply.body)
        )

    def _request(self, prompt: Prompt, max_tokens: int) -> Request:
        match self._provider:
            case "openai":
                return openai_chat.request(self._endpoint, prompt, max_tokens=max_tokens, limit_name=self._limit_name)
            case "anthropic":
                return anthropic_messages.request(self._endpoint, prompt, max_tokens=max_tokens)
            case _:
                assert_never(self._provider)

    async def _post(self, request: Request) -> _Reply:
        """Send one request and read at most a little more than ``LARGEST_ANSWER`` of what comes back."""
        headers = {**request.headers, "Content-Type": "application/json", "Accept-Encoding": "identity"}
        content = msgspec.json.encode(request.body)
        try:
            async with self._client.stream("POST", request.url, headers=headers, content=content) as response:
                return _Reply(status=response.status_code, after=_after(response), body=await _bounded(response))
        except httpx.TransportError as error:
            kind = type(error).__name__
        except httpx.DecodingError:
            kind = ""
        if not kind:
            raise answer.unreadable("its encoding is damaged")
        raise _Passing(SummarizerFailed("unreachable", f"the model server cannot be reached ({kind})"))


async def _bounded(response: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > LARGEST_ANSWER:
            break
    return bytes(body)


def _after(response: httpx.Response) -> float | None:
    headers = response.headers
    return rejection.retry_after(headers.get("retry-after-ms"), headers.get("retry-after"), now=datetime.now(UTC))


def _is_web_url(text: str) -> bool:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return False
    return url.scheme in {"http", "https"} and bool(url.host)
