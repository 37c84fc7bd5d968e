"""The one protocol that the service is written against, and what a call to a provider is made of. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.summarizer.answer import Answer
from app.summarizer.prompt import Prompt


class Model(Protocol):
    """Something that answers a prompt with a text."""

    @property
    def name(self) -> str:
        """The model's name, as the operator configured it."""

    async def complete(self, prompt: Prompt, *, max_tokens: int, deadline: float) -> Answer:
        """Answer in at most ``max_tokens`` tokens, before the running loop's ``time()`` reaches ``deadline``.

        Raises:
            SummarizerFailed: there is no answer that can be used; its ``cause`` says why.
            SummarizerTimeout: the deadline came first.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a model is asked, and as whom; the key is in no repr, nor the URL, which may hold a password."""

    base_url: str = field(repr=False)
    model: str
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One POST of a JSON body; all of it is kept out of its repr, for it holds the key and the conversation."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: Mapping[str, Any] = field(repr=False)
