"""Where a text may be cut without cutting a character that a reader sees as one. Pure."""

import unicodedata
from typing import Final

_ZERO_WIDTH_JOINER: Final = 0x200D
_REGIONAL_INDICATORS: Final = range(0x1F1E6, 0x1F200)
# Code points that belong to the one before them, beside those that Unicode calls marks.
_FOLLOWERS: Final = (
    range(0x1F3FB, 0x1F400),  # skin tones
    range(0xE0020, 0xE0080),  # the tags of regional flags
    range(0x1160, 0x1200),  # the vowels and endings of Korean syllables
    range(0xD7B0, 0xD800),  # and the rarer ones
    range(0xFF9E, 0xFFA0),  # halfwidth sound marks
    range(0x0E33, 0x0E34),  # Thai and
    range(0x0EB3, 0x0EB4),  # Lao vowels that are written with what they follow
    range(_ZERO_WIDTH_JOINER - 1, _ZERO_WIDTH_JOINER + 1),
)


def before(text: str, index: int) -> int:
    """Return the last place for a cut at or before ``index``."""
    while 0 < index < len(text) and not _is_boundary(text, index):
        index -= 1
    return index


def after(text: str, index: int) -> int:
    """Return the first place for a cut at or after ``index``."""
    while 0 < index < len(text) and not _is_boundary(text, index):
        index += 1
    return index


def _is_boundary(text: str, index: int) -> bool:
    left, right = text[index - 1], text[index]
    if ord(right) in _REGIONAL_INDICATORS and ord(left) in _REGIONAL_INDICATORS:
        return _flags_end_at(text, index)
    is_joined = ord(left) == _ZERO_WIDTH_JOINER or (left, right) == ("\r", "\n")
    return not is_joined and not _follows(right)


def _follows(character: str) -> bool:
    if character.isascii():
        return False
    code = ord(character)
    return unicodedata.category(character).startswith("M") or any(code in span for span in _FOLLOWERS)


def _flags_end_at(text: str, index: int) -> bool:
    """Say whether whole pairs of regional indicators, each a flag, end here."""
    start = index
    while start > 0 and ord(text[start - 1]) in _REGIONAL_INDICATORS:
        start -= 1
    return (index - start) % 2 == 0
