"""The service with a model that the test plays: a loopback server that answers, delays, fails and records."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import httpx

from app.summarizer import turn
from tests.conftest import Service, cloned, settings_for
from tests.model_server import ModelServer, Provider, Request
from tests.talk import Message, Talk, turns

KEY: Final = "sk-field-4711"
LLM: Final[dict[str, Any]] = {"type": "llm"}
PROVIDERS: Final[tuple[Provider, ...]] = ("openai", "anthropic")
_numbers = itertools.count(1)


def summarizer(server: ModelServer, provider: Provider = "openai", **changes: Any) -> dict[str, Any]:
    """Return the settings of a summarizer that asks the server."""
    return {
        "provider": provider,
        "base_url": server.base_url(provider),
        "model": "stub-1",
        "api_key": KEY,
        "timeout": 30,
        **changes,
    }


class Modelled(NamedTuple):
    """A running service, the model it asks, and its database."""

    service: Service
    server: ModelServer
    url: str
    http: httpx.Client

    def talk(self, session_id: str | None = None) -> Talk:
        """Return a session, a new one unless it is named."""
        return Talk(self.http, session_id or f"modelled-{next(_numbers)}")

    def reset(self) -> "Modelled":
        """Forget what was asked, answer as in the beginning, and return itself."""
        self.server.answer = "A summary."
        self.server.requests.clear()
        return self


@contextmanager
def modelled(
    postgres: str, template: str, provider: Provider = "openai", *, asks: dict[str, Any] | None = None, **settings: Any
) -> Iterator[Modelled]:
    """Run the service with a model on a database of its own; ``asks`` changes the summarizer's settings."""
    with (
        cloned(postgres, template) as url,
        ModelServer() as server,
        Service(settings_for(url, summarizer=summarizer(server, provider, **(asks or {})), **settings)) as service,
        service.client() as http,
    ):
        yield Modelled(service, server, url, http)


def variables(server: ModelServer, **changes: str) -> dict[str, str]:
    """Return the environment of a process that asks the server."""
    asks = {**summarizer(server), **changes}
    return {f"TURNLOG_SUMMARIZER_{name.upper()}": str(value) for name, value in asks.items()}


def condense(talk: Talk, status: int = 200, **window: Any) -> Any:
    """Compact with a summary by the model."""
    return talk.compact(status, summarizer=LLM, **window)


def told(talk: Talk) -> list[str]:
    """Return the summaries that the view holds, each without its label."""
    answers = [event for event in talk.view()["events"] if event["synthetic"] and event["message"]["role"] != "user"]
    return [turn.text_of(one["message"]["content"], one["metadata"].get("ledger", ())) for one in answers]


def long_turns(count: int, first: int = 1) -> list[Message]:
    """Return turns whose summary is smaller than they are."""
    return [{**message, "content": f"{message['content']}{' and so on' * 40}"} for message in turns(count, first)]


def without_filler(request: Request) -> str:
    """Return what the model was sent as data, as a model that copies it does, but for what makes turns long."""
    _, _, data = request.user.partition("\n")
    return data.replace(" and so on", "")


def state(talk: Talk) -> tuple[bytes, list[dict[str, Any]], Any]:
    """Return what a compaction that comes to nothing must leave as it was: the view's bytes, the log, the figures."""
    session = talk.session()
    return talk.http.get(f"{talk.path}/view").content, talk.log(), (session["version"], session["view"])


def attempts(talk: Talk) -> list[dict[str, Any]]:
    """Return the attempts that called the model, newest first."""
    found: list[dict[str, Any]] = talk.get("/compactions", params={"attempts": "true"})["data"]
    return found
