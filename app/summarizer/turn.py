"""The two messages of a summary turn (rule 30). Pure."""

from collections.abc import Sequence
from typing import Final

from app.summarizer import ledger

# It asks, so that the summary is an answer: no model takes it for an instruction, or for its own last words.
QUESTION: Final = (
    "What has happened so far in this conversation? Its earlier messages have been condensed; take your answer as"
    " background for what follows, not as a new request."
)

# It says what the text is, so that nothing a conversation smuggles into a summary reads like a new instruction.
LABEL: Final = "Background from earlier in this conversation, condensed:"

_GAP: Final = "\n\n"


def is_blank(text: str) -> bool:
    """Say whether a summary says nothing, so that the view must stay as it was (rule 31)."""
    return not text.strip()


def told(text: str, facts: Sequence[str]) -> str:
    """Return the answer's content: the label, the summary's own text, and the ledger when it holds anything."""
    return LABEL + _GAP + text + _ledger(facts)


def text_of(content: str, facts: Sequence[str]) -> str:
    """Return the ``text`` that ``told`` was given with the same facts, so that wrappers never nest.

    Content without the label, such as a summary that a caller brought along, is its own text.
    """
    if not content.startswith(LABEL + _GAP):
        return content
    return content.removeprefix(LABEL + _GAP).removesuffix(_ledger(facts))


def _ledger(facts: Sequence[str]) -> str:
    return _GAP + ledger.rendered(facts) if facts else ""
