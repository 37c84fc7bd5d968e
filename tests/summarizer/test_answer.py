"""Only a whole, plain text is a summary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import SummarizerFailed
from app.summarizer import answer
from app.summarizer.answer import Raw


def judged(raw: Raw) -> str:
    """Return the text of an answer that says nothing else of itself."""
    return answer.judged(raw, model="m", used=(None, None)).text


def test_what_an_answer_costs_is_known_even_when_it_is_no_summary() -> None:
    whole = answer.judged(Raw(text="So it went.", stop="stop"), model="m", used=(90, 4))
    assert (whole.input_tokens, whole.output_tokens) == (90, 4)
    with pytest.raises(SummarizerFailed) as caught:
        answer.judged(Raw(text="So it w", stop="length"), model="m", used=(90, "many"))
    assert caught.value.tokens == (90, 0)


@pytest.mark.parametrize("stop", ["stop", "end_turn", "stop_sequence", "STOP", "eos", "", None])
def test_an_ordinary_end_is_one_in_any_spelling(stop: str | None) -> None:
    assert judged(Raw(text=" It went well.\n", stop=stop)) == "It went well."


TEXTS: list[tuple[str, str]] = [
    # One block of reasoning, several, in either spelling.
    ("<think>Hm.</think>Done.", "Done."),
    ("\n<think>\nHm.\n</think>\n\nDone.", "Done."),
    ("<think>a</think> <THINKING>b</THINKING>\nDone.", "Done."),
    ("<think></think>Done.", "Done."),
    # The template ate the opening tag.
    ("Hm, the user wants…\n</think>\n\nDone.", "Done."),
    ("a</think><think>b</think>Done.", "Done."),
    # An opening tag inside the reasoning opens nothing.
    ("<think>a <think> b</think>Done.", "Done."),
    # A summary that speaks of the tags keeps them.
    ("They removed `<think>` and `</think>` by hand.", "They removed `<think>` and `</think>` by hand."),
    ("Done. The <think> tag stays open.", "Done. The <think> tag stays open."),
    ("Before <think>x</think> after.", "Before <think>x</think> after."),
]


@pytest.mark.parametrize(("text", "summary"), TEXTS)
def test_reasoning_before_the_text_is_no_part_of_it(text: str, summary: str) -> None:
    assert judged(Raw(text=text, stop="stop")) == summary


FAILURES: list[tuple[Raw, str]] = [
    (Raw(text=None, stop="stop"), "empty"),
    (Raw(text=" \u2003\n", stop="stop"), "empty"),
    # A refusal is one whatever else there is.
    (Raw(text="I cannot.", stop="stop", refused=True), "refused"),
    (Raw(text="I cannot.", stop="refusal"), "refused"),
    (Raw(text="They", stop="content_filter"), "content-filter"),
    # Cut off, also while it was still thinking.
    (Raw(text="They", stop="length"), "cut-off"),
    (Raw(text="They", stop="MAX_TOKENS"), "cut-off"),
    (Raw(text="<think>Hm", stop="length"), "cut-off"),
    (Raw(text=None, stop="length", has_reasoning=True), "cut-off"),
    (Raw(text="They", stop="model_context_window_exceeded"), "cut-off"),
    # Ends that turnlog does not know are not taken for whole.
    (Raw(text="They", stop="pause_turn"), "cut-off"),
    (Raw(text="They", stop="abort"), "cut-off"),
    # A call, with a text beside it or not, whatever the reason given.
    (Raw(text="Let me see.", stop="tool_use"), "tool-call"),
    (Raw(text="Let me see.", stop="stop", has_tool_calls=True), "tool-call"),
    # Thoughts alone, beside the text or in it.
    (Raw(text="", stop="stop", has_reasoning=True), "only-reasoning"),
    (Raw(text="<think>Hm.</think> ", stop="stop"), "only-reasoning"),
    (Raw(text="Hm.</think>", stop="stop"), "only-reasoning"),
    # Thoughts that never end, at the start or on a line of their own.
    (Raw(text="<think>Hm. They", stop="stop"), "unclosed-think"),
    (Raw(text="<think>a</think><think>b", stop="stop"), "unclosed-think"),
    (Raw(text="They met.\n<think>Is that so", stop="stop"), "unclosed-think"),
]


@pytest.mark.parametrize(("raw", "cause"), FAILURES)
def test_anything_else_is_a_failure_with_a_cause(raw: Raw, cause: str) -> None:
    with pytest.raises(SummarizerFailed) as caught:
        judged(raw)
    assert caught.value.cause == cause


def test_a_message_names_an_unknown_end_and_quotes_no_text() -> None:
    with pytest.raises(SummarizerFailed, match="pause_turn"):
        judged(Raw(text="secret", stop="pause_turn"))
    with pytest.raises(SummarizerFailed) as caught:
        judged(Raw(text="secret", stop="the user said: secret"))
    assert "secret" not in str(caught.value)


@given(st.lists(st.sampled_from(["<think>", "</think>", "\n", "a", " "]), max_size=12).map("".join))
def test_what_is_left_is_the_end_of_the_answer(text: str) -> None:
    try:
        left = judged(Raw(text=text, stop="stop"))
    except SummarizerFailed:
        return
    assert left
    assert text.rstrip().endswith(left)


def test_many_tags_do_not_take_for_ever() -> None:
    assert judged(Raw(text="a <think> b </think> " * 50_000, stop="stop")).startswith("a <think>")
    assert judged(Raw(text="</think>" * 100_000 + "a", stop="stop")) == "a"


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        # What providers report.
        (7, 7),
        (0, 0),
        # What is no number of tokens.
        (None, None),
        (True, None),
        (-1, None),
        ("7", None),
        (1.5, None),
    ],
)
def test_an_odd_number_of_tokens_costs_no_summary(value: object, tokens: int | None) -> None:
    assert answer.tokens(value) == tokens
