"""The two messages of a summary turn (rule 30). Pure."""

from typing import Final

# It asks, so that the summary is an answer: no model takes it for an instruction, or for its own last words.
QUESTION: Final = (
    "What has happened so far in this conversation? Its earlier messages have been condensed; take your answer as"
    " background for what follows, not as a new request."
)


def is_blank(text: str) -> bool:
    """Say whether a summary says nothing, so that the view must stay as it was (rule 31)."""
    return not text.strip()
