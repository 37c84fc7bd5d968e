"""The verbatim ledger: ids, amounts, dates, addresses and paths, kept beside a summary as they were written. Pure.

A summary is a paraphrase, and a paraphrase of a paraphrase loses a digit sooner or later. What is found by rule is
carried along by rule.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from app.summarizer import facts as kinds

# The most that a ledger takes, in tokens. When it is full, the oldest facts leave.
CAP_TOKENS: Final = 400
# Longer ones, such as signed URLs, are left out: each would take the place of many, and a cut one is worthless.
LONGEST_FACT: Final = 200

_HEADING: Final = "Verbatim from the conversation:\n"
_BETWEEN: Final = " · "
_BETWEEN_TOKENS: Final = 1
_ENDS_A_SENTENCE: Final = ".,;:!?*_'"
_CLOSES: Final = {")": "(", "]": "[", "}": "{"}


def find(text: str) -> list[str]:
    """Return the facts of a text, each once, where it occurs first.

    A fact inside a longer one, such as a number in a URL, is not listed on its own.
    """
    found = (_trimmed(text[start:end]) for start, end in _longest(_spans(text)) if end - start <= 2 * LONGEST_FACT)
    return list(dict.fromkeys(fact for fact in found if 1 < len(fact) <= LONGEST_FACT))


def carried(earlier: Sequence[str], found: Iterable[str]) -> tuple[str, ...]:
    """Return the facts of both, oldest first; one that is mentioned again becomes one of the newest."""
    facts: dict[str, None] = {}
    for fact in chain(earlier, found):
        facts.pop(fact, None)
        facts[fact] = None
    return tuple(facts)


def within(facts: Sequence[str], *, count: Callable[[str], int], cap: int) -> tuple[str, ...]:
    """Return the newest facts that fit into ``cap`` tokens as ``rendered``, oldest first."""
    used = count(_HEADING)
    start = len(facts)
    while start > 0 and used <= cap:
        start -= 1
        used += count(facts[start]) + _BETWEEN_TOKENS
    # Tokens do not add up exactly, so what is rendered has the last word.
    while start < len(facts) and count(rendered(facts[start:])) > cap:
        start += 1
    return tuple(facts[start:])


def rendered(facts: Sequence[str]) -> str:
    """Return the ledger as text, or nothing when it holds no fact."""
    return _HEADING + _BETWEEN.join(facts) if facts else ""


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for pattern in kinds.PATTERNS:
        group = "fact" if "fact" in pattern.groupindex else 0
        for match in pattern.finditer(text):
            yield match.span(group)


def _longest(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans in order; of those that overlap, the longest, and of equal ones the first."""
    last: tuple[int, int] | None = None
    for span in sorted(spans):
        if last is None or span[0] >= last[1]:
            if last is not None:
                yield last
            last = span
        elif span[1] - span[0] > last[1] - last[0]:
            last = span
    if last is not None:
        yield last


def _trimmed(fact: str) -> str:
    """Take away what closes the sentence or the bracket around a URL or a path, and is not part of it."""
    while fact:
        end = fact[-1]
        is_unbalanced = end in _CLOSES and fact.count(end) > fact.count(_CLOSES[end])
        if not is_unbalanced and end not in _ENDS_A_SENTENCE:
            break
        if end == "." and fact.lower().endswith(".m."):
            break
        fact = fact[:-1]
    return fact
