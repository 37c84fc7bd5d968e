"""Every provider's messages in, a view for every provider out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from app.domain.event import StoredEvent
from app.domain.view import View
from app.formats import anthropic, anthropic_in, gemini, gemini_in, openai, openai_responses, responses_in, text
from app.formats.incoming import Incoming
from app.formats.reading import Format
from app.formats.rendered import Rendered

_PARSERS: Final[Mapping[str, Callable[[Sequence[str], str], list[Incoming]]]] = {
    "openai-responses": responses_in.parse,
    "anthropic": anthropic_in.parse,
    "gemini": gemini_in.parse,
}
_RENDERERS: Final[Mapping[str, Callable[[View[StoredEvent]], Rendered]]] = {
    "openai": openai.render,
    "openai-responses": openai_responses.render,
    "anthropic": anthropic.render,
    "gemini": gemini.render,
    "text": text.render,
}


def parse(messages: Sequence[str], sent_as: Format, place: str) -> list[Incoming]:
    """Turn a provider's messages, each as JSON text, into messages of the log; OpenAI's chat messages are that already.

    ``place`` is the JSON pointer of their list. One message may become several, and several items one.

    Raises:
        InvalidRequest: with pointers into the request.
    """
    parser = _PARSERS.get(sent_as)
    if parser is not None:
        return parser(messages, place)
    return [Incoming(message=message, native=None, place=f"{place}/{at}") for at, message in enumerate(messages)]


def render(view: View[StoredEvent], output: Format | Literal["text"]) -> Rendered:
    """Render a view for a provider. The same view gives the same bytes, in every process."""
    return _RENDERERS[output](view)
