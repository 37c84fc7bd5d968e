"""How long a session waits after a compaction of it has failed."""

from typing import Final

FIRST_PAUSE_SECONDS: Final = 30
LONGEST_PAUSE_SECONDS: Final = 3600


def pause_seconds(failures: int) -> int:
    """Return the pause after so many failures in a row, at least 1: each is twice the one before, up to an hour."""
    # Seven doublings of the first pause are past the longest; more would only make huge numbers.
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS << min(failures - 1, 7))
