"""Calls and results, sorted out before any provider's words come in."""

from typing import Any

from app.formats import openai, pairing
from app.formats.pairing import Exchange, Talk
from app.formats.rendered import Notes
from tests.formats.views import view_of
from tests.talk import Message, assistant, system, tool, user


def talk_of(*messages: Message) -> tuple[Talk, list[tuple[str, int]]]:
    notes = Notes()
    talk = pairing.arrange(view_of(*messages), openai.RULES, notes)
    return talk, [(one.code, one.seq) for one in notes.warnings]


def laid_out(talk: Talk) -> list[Any]:
    """Return seqs; for an exchange its seq and the seqs of each call's results."""
    return [
        (item.message.seq, *([result.seq for result in slot.results] for slot in item.slots))
        if isinstance(item, Exchange)
        else item.seq
        for item in talk.items
    ]


def test_what_stands_between_a_call_and_its_result_follows_the_result() -> None:
    talk, warned = talk_of(user("q"), assistant(None, a="f"), user("steer"), tool("a", "r"), assistant("ok"))
    assert laid_out(talk) == [1, (2, [4]), 3, 5]
    assert warned == [("result-moved", 4)]


def test_a_call_at_the_live_end_is_open_and_one_that_something_follows_has_a_placeholder() -> None:
    calling = assistant(None, a="f", b="g")
    talk, warned = talk_of(user("q"), calling, tool("b", "r"))
    assert [(one.call_id, one.seq, one.name) for one in talk.open_calls] == [("a", 2, "f")]
    assert warned == []
    talk, warned = talk_of(user("q"), calling, tool("b", "r"), user("hello?"))
    assert talk.open_calls == ()
    assert warned == [("result-missing", 2)]


def test_a_system_message_at_the_end_leaves_a_call_open() -> None:
    talk, _ = talk_of(user("q"), assistant(None, a="f"), system("be brief"))
    assert len(talk.open_calls) == 1


def test_a_late_result_takes_the_place_of_the_placeholder() -> None:
    talk, warned = talk_of(user("q"), assistant(None, a="f"), user("hello?"), tool("a", "r"))
    assert laid_out(talk) == [1, (2, [4]), 3]
    assert warned == [("result-moved", 4)]


def test_an_id_that_repeats_belongs_to_the_newest_open_call() -> None:
    again = [user("q"), assistant(None, a="f"), tool("a", "r")]
    talk, warned = talk_of(*again, *again)
    assert laid_out(talk) == [1, (2, [3]), 4, (5, [6])]
    assert warned == []


def test_an_id_that_repeats_inside_one_message_is_answered_in_order() -> None:
    calling = assistant(None, a="f")
    calling["tool_calls"] *= 2
    talk, warned = talk_of(user("q"), calling, tool("a", "1"), tool("a", "2"))
    assert laid_out(talk) == [1, (2, [3], [4])]
    assert warned == [("call-id-changed", 2)]


def test_a_further_result_is_joined_at_once_and_text_later() -> None:
    talk, warned = talk_of(assistant(None, a="f"), tool("a", "started"), tool("a", "done"))
    assert laid_out(talk) == [(1, [2, 3])]
    assert warned == [("results-joined", 3)]
    talk, warned = talk_of(assistant(None, a="f"), tool("a", "started"), user("q"), tool("a", "done"))
    assert laid_out(talk) == [(1, [2]), 3, 4]
    assert warned == [("result-as-text", 4)]


def test_a_result_that_nobody_asked_for_names_its_tool() -> None:
    talk, warned = talk_of(user("q"), {**tool("z", "42"), "name": "calc"})
    (_, told) = talk.items
    assert not isinstance(told, Exchange)
    assert told.role == "user"
    assert [part.text for part in told.parts if hasattr(part, "text")] == [
        "[A result of the tool calc, whose call is not shown]\n42"
    ]
    assert warned == [("result-as-text", 2)]


def test_an_empty_view_stays_empty_and_a_prompt_alone_gets_an_opener() -> None:
    assert talk_of()[0].items == ()
    talk, warned = talk_of(system("S"))
    assert len(talk.items) == 1
    assert warned == [("opener-added", 1)]
