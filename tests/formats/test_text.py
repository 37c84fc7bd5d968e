"""Rendering a view as a transcript."""

import pytest

from app.formats import text
from tests.formats.test_openai import view_of

PARAGRAPHS = [
    ("u", '{"role":"user","content":"hello"}', "user: hello"),  # what is said
    ("u", '{"role":"user","content":"two\\nlines"}', "user: two\nlines"),
    ("u", '{"role":"user","content":""}', "user: "),  # nothing
    ("u", '{"role":"user","content":"x","name":"ann"}', "user (ann): x"),  # who says it
    ("u", '{"role":"user","content":"x","name":""}', "user: x"),
    ("s", '{"role":"system","content":"be kind"}', "system: be kind"),
    ("d", '{"role":"developer","content":"be kind"}', "developer: be kind"),
    (
        "u",
        '{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}},'
        '{"type":"text","text":"b"}]}',
        "user: a\n[image_url]\nb",
    ),  # a mark for what is no text
    ("u", '{"role":"user","content":[]}', "user: "),
    ("a", '{"role":"assistant","content":null}', "assistant: "),
    ("a", '{"role":"assistant"}', "assistant: "),
    ("a", '{"role":"assistant","content":null,"refusal":"no"}', "assistant: (refused) no"),
    (
        "a",
        '{"role":"assistant","content":"let me see","tool_calls":[{"id":"c1","function":{"name":"f",'
        '"arguments":"{\\"id\\": 9}"}},{"id":"c2","function":{"name":"g","arguments":{"b":1.10,"a":2}}}]}',
        'assistant: let me see\n[call c1] f({"id": 9})\n[call c2] g({"b":1.10,"a":2})',
    ),  # calls with their arguments, in either form
    (
        "a",
        '{"role":"assistant","tool_calls":[{"id":"c1","type":"custom","custom":{"name":"f","input":"x"}}]}',
        "assistant: [call c1]",
    ),
    (
        "a",
        '{"role":"assistant","tool_calls":[{"id":"c1","type":"custom","function":"x"}]}',
        "assistant: [call c1]",
    ),  # what the rules for messages do not look into
    ("t", '{"role":"tool","tool_call_id":"c1","content":"shipped"}', "tool [c1]: shipped"),  # a result and its call
    ("t", '{"role":"tool","tool_call_id":"c1","content":null}', "tool [c1]: "),
    ("t", '{"role":"tool","tool_call_id":"c1","name":"f","content":"x"}', "tool (f) [c1]: x"),
    ("u", '{"role":"user","content":[{"type":"x","n":1e400}]}', "user: [x]"),  # more than a double holds
    ("u", '{"role":"user","content":"x","n":1e400,"m":' + "9" * 5000 + "}", "user: x"),
]


@pytest.mark.parametrize(("role", "body", "shown"), PARAGRAPHS, ids=lambda value: str(value)[:90])
def test_a_message_is_a_paragraph(role: str, body: str, shown: str) -> None:
    assert text.render(view_of(body, roles=role)).text == shown + "\n"


def test_an_empty_view_is_an_empty_text() -> None:
    assert text.render(view_of(roles="")).text == ""


def test_paragraphs_are_parted_by_an_empty_line() -> None:
    said = ['{"role":"user","content":"a"}', '{"role":"assistant","content":"b"}']
    assert text.render(view_of(*said, roles="ua")).text == "user: a\n\nassistant: b\n"


def test_a_longer_view_begins_with_the_shorter_one() -> None:
    said = ['{"role":"user","content":"a"}', '{"role":"assistant","content":"b"}', '{"role":"user","content":"c"}']
    shorter, longer = text.render(view_of(*said[:2], roles="ua")).text, text.render(view_of(*said, roles="uau")).text
    assert longer.startswith(shorter)
