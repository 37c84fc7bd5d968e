"""What a renderer returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

# A field of a provider's request as JSON text: one value, or a list of values.
Field: TypeAlias = str | list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """One thing in which the rendered view differs from the log: a stable code, the event's seq, and a sentence."""

    code: str
    seq: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A tool call at the live end of a view that still waits for its result; ``call_id`` is the log's own."""

    call_id: str
    seq: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A view in a provider's shape: the fields of its request body, each as JSON text, or plain text."""

    fields: Mapping[str, Field] = field(default_factory=dict)
    text: str = ""
    warnings: tuple[Warned, ...] = ()
    open_calls: tuple[OpenCall, ...] = ()


class Notes:
    """The warnings of one rendering, collected in the order in which they come up."""

    def __init__(self) -> None:
        self._warned: dict[Warned, None] = {}

    def add(self, code: str, seq: int, detail: str) -> None:
        """Take note of an adaptation; the same one is noted once."""
        self._warned[Warned(code=code, seq=seq, detail=detail)] = None

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """Everything noted so far."""
        return tuple(self._warned)
