"""The notation of the worked compaction examples, and a parser for the file that holds them.

S system, U user, A assistant, C assistant with one tool call, R the result of the call with the same number,
P assistant before the first user message, X custom event, QU QA the summary turn a pass wrote. `:n` is a token count.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from app.domain.event import Role

EXAMPLES: Final = "cases/compaction-examples.txt"
EXAMPLES_COUNT: Final = 37
DEFAULT_TOKENS: Final = 10

_SAID: Final = re.compile(r"(?P<name>(?P<kind>[SDUACRPX])(?P<number>\d+))(?::(?P<tokens>\d+))?")
_CASE: Final = re.compile(r"case (?P<number>\d+): (?P<title>.+)")
_COMPACT: Final = re.compile(
    r"(?P<rule>last_events|last_turns|token_budget) (?P<size>\d+)(?: summary (?P<question>\d+)\+(?P<answer>\d+))?"
)
_ROLES: Final[dict[str, Role]] = {
    "S": "system", "D": "developer", "U": "user", "A": "assistant", "C": "assistant", "P": "assistant", "R": "tool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Said:
    """One word of the notation, such as `C2:30`. A custom event has no role and no tokens."""

    name: str
    kind: str
    number: str
    tokens: int

    @property
    def role(self) -> Role | None:
        return _ROLES.get(self.kind)

    @property
    def calls(self) -> tuple[str, ...]:
        return (f"call-{self.number}",) if self.kind == "C" else ()

    @property
    def answers(self) -> str | None:
        return f"call-{self.number}" if self.kind == "R" else None

    def as_event(self, scale: int = 1) -> dict[str, Any]:
        """Return the event as a client appends it, its tokens multiplied; its text is its name."""
        if self.role is None:
            return {"type": "ACME.CLICK", "payload": {"name": self.name}}
        message: dict[str, Any] = {"role": self.role, "content": self.name}
        if self.calls:
            function = {"name": "look", "arguments": "{}"}
            message["tool_calls"] = [{"id": call, "type": "function", "function": function} for call in self.calls]
        if self.answers is not None:
            message["tool_call_id"] = self.answers
        return {"id": self.name, "message": message, "token_count": self.tokens * scale}


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """A `log` line."""

    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """A `compact` line and what must hold after it. ``summary`` are the tokens of the summary's two messages."""

    rule: str
    size: int
    summary: tuple[int, int] | None
    expected: dict[str, str]

    @property
    def unchanged(self) -> str | None:
        """The reason why nothing is written, None when something is."""
        return self.expected.get("unchanged")

    def names(self, of: str) -> list[str]:
        """Return the names that `covered`, `pinned`, `preserved` or `view` must list."""
        text = self.expected[of]
        return [] if text == "-" else text.split()

    @property
    def saved(self) -> int:
        """How many tokens smaller the view gets."""
        return int(self.expected["saved"])


Step: TypeAlias = Append | Compact


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One block of the file."""

    number: int
    title: str
    steps: tuple[Step, ...]

    @property
    def has_summary(self) -> bool:
        return any(isinstance(step, Compact) and step.summary is not None for step in self.steps)

    def __str__(self) -> str:
        return f"{self.number}: {self.title}"


def said(words: str) -> tuple[Said, ...]:
    """Read words such as `S1 U1:8 C1 R1 A1`."""
    return tuple(_said(word) for word in words.split())


def _said(word: str) -> Said:
    found = _SAID.fullmatch(word)
    assert found, f"not a word of the notation: {word!r}"
    tokens = found["tokens"] or (0 if found["kind"] == "X" else DEFAULT_TOKENS)
    return Said(found["name"], found["kind"], found["number"], int(tokens))


def read(path: Path) -> list[Case]:
    """Read every case of the file; a line that is none of the notation's fails."""
    blocks = re.split(r"\n\s*\n", path.read_text(encoding="utf-8"))
    lines = [[line for line in block.splitlines() if not line.startswith("#")] for block in blocks]
    return [_case(block) for block in lines if block]


def _case(lines: list[str]) -> Case:
    head = _CASE.fullmatch(lines[0].strip())
    assert head, f"not the head of a case: {lines[0]!r}"
    steps: list[Step] = []
    for line in lines[1:]:
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if word == "log":
            steps.append(Append(said=said(rest)))
        elif word == "compact":
            steps.append(_compact(rest))
        else:
            step = steps[-1]
            assert isinstance(step, Compact), f"holds after no compaction: {line!r}"
            assert word in {"covered", "pinned", "preserved", "saved", "unchanged", "view"}, line
            assert word not in step.expected, f"said twice: {line!r}"
            step.expected[word] = rest
    for step in steps:
        if isinstance(step, Compact):
            told = {"unchanged", "view"} if step.unchanged else {"covered", "pinned", "preserved", "saved", "view"}
            assert step.expected.keys() == told, f"case {head['number']} tells too little or too much"
    return Case(number=int(head["number"]), title=head["title"], steps=tuple(steps))


def _compact(text: str) -> Compact:
    found = _COMPACT.fullmatch(text)
    assert found, f"not a window: {text!r}"
    summary = (int(found["question"]), int(found["answer"])) if found["question"] else None
    return Compact(rule=found["rule"], size=int(found["size"]), summary=summary, expected={})
