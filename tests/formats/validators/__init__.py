"""One validator a provider: what its API refuses, written from its published rules and from users' reports of 400s.

None of them knows the renderers. ``check(body)`` takes a request body (what a read of the view returns) and gives every
rule that it breaks, in words; an empty list is a body that the provider takes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.formats.validators import anthropic, gemini, openai, openai_responses

CHECKS: Final[Mapping[str, Callable[[dict[str, Any]], list[str]]]] = {
    "openai": openai.check,
    "openai-responses": openai_responses.check,
    "anthropic": anthropic.check,
    "gemini": gemini.check,
}
