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
class Rendered:
    """A view in a provider's shape: the fields of its request body, each as JSON text, or plain text."""

    fields: Mapping[str, Field] = field(default_factory=dict)
    text: str = ""
    warnings: tuple[Warned, ...] = ()
