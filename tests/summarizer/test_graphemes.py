"""A text is cut between characters as a reader sees them."""

import pytest

from app.summarizer import graphemes

WHOLE = [
    # A letter with a combining mark, and with several.
    "e\u0301",
    "q\u0307\u0323",
    # Hindi and Thai vowel signs.
    "\u0915\u093f",
    "\u0e01\u0e33",
    # A family, joined.
    "👨\u200d👩\u200d👧\u200d👦",
    # A thumb with a skin tone; a heart with its variation selector.
    "👍🏽",
    "❤\ufe0f",
    # A flag of two letters, and one of tags.
    "🇩🇪",
    "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    # A keycap.
    "1\ufe0f\u20e3",
    # A Korean syllable, spelt out.
    "\u1112\u1161\u11ab",
    # A line break of two characters.
    "\r\n",
]


@pytest.mark.parametrize("whole", WHOLE)
def test_no_cut_falls_inside_a_character(whole: str) -> None:
    text = f"a{whole}b"
    for index in range(1, len(whole) + 1):
        assert graphemes.before(text, index) in {1, len(whole) + 1}
        assert graphemes.after(text, index) in {1, len(whole) + 1}


def test_flags_in_a_row_are_cut_between_flags() -> None:
    flags = "🇩🇪🇫🇷🇮🇹"
    assert [graphemes.before(flags, index) for index in range(7)] == [0, 0, 2, 2, 4, 4, 6]
    assert [graphemes.after(flags, index) for index in range(7)] == [0, 2, 2, 4, 4, 6, 6]


def test_the_ends_of_a_text_are_places_for_a_cut() -> None:
    assert (graphemes.before("", 0), graphemes.after("", 0)) == (0, 0)
    assert graphemes.before("ab", 2) == graphemes.after("ab", 2) == 2
