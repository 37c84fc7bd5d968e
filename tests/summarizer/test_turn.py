"""The two messages of a summary turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.summarizer import turn

facts = st.lists(st.text(min_size=1), max_size=4)


@pytest.mark.parametrize("blank", ["", " ", "\n\t\u2003"])
def test_a_summary_of_blanks_says_nothing(blank: str) -> None:
    assert turn.is_blank(blank)
    assert not turn.is_blank(blank + "x")


def test_the_answer_is_labelled_and_ends_with_the_ledger() -> None:
    assert turn.told("They met.", ["4417", "May 5"]) == (
        f"{turn.LABEL}\n\nThey met.\n\nVerbatim from the conversation:\n4417 · May 5"
    )


def test_without_facts_there_is_no_ledger() -> None:
    assert turn.told("They met.", []) == f"{turn.LABEL}\n\nThey met."


@given(st.text(), facts)
def test_the_text_comes_back(text: str, kept: list[str]) -> None:
    assert turn.text_of(turn.told(text, kept), kept) == text


@given(st.text(), facts)
def test_the_text_comes_back_when_it_was_wrapped_before(text: str, kept: list[str]) -> None:
    wrapped = turn.told(text, kept)
    assert turn.text_of(turn.told(wrapped, kept), kept) == wrapped


@given(st.text(), facts)
def test_content_without_the_label_is_its_own_text(content: str, kept: list[str]) -> None:
    assert turn.text_of(content, kept) == content
