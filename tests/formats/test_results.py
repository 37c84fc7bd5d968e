"""Results that no call waits for: never dropped, never passed off as an answer to something else, in any format."""

import pytest

from app.domain.window import Rule, Window
from tests.formats import spoken
from tests.formats.logs import Log, body_of, render
from tests.formats.spoken import FORMATS, Said
from tests.formats.validators import CHECKS
from tests.talk import assistant, tool, turns, user

every_format = pytest.mark.parametrize("output", FORMATS)


def said(output: str, log: Log) -> list[Said]:
    body = body_of(render(output, log.view()))
    assert CHECKS[output](body) == []
    return spoken.said(output, body)


def texts(things: list[Said]) -> str:
    return "\n".join(one.text for one in things if one.kind == "text")


@every_format
def test_a_result_whose_call_never_was_is_text_that_names_the_tool(output: str) -> None:
    things = said(output, Log([user("go"), {**tool("c9", "42 rows"), "name": "sql"}, assistant("ok")]))
    assert spoken.pairs(things) == []
    assert "42 rows" in texts(things)
    assert "sql" in texts(things)


@every_format
def test_a_result_whose_call_is_covered_is_text(output: str) -> None:
    log = Log([user("go"), assistant(None, c="export"), user("meanwhile"), assistant("yes?"), *turns(2)])
    assert log.compact(Window(Rule.LAST_TURNS, 2))
    log.append({**tool("c", "exported"), "name": "export"})
    things = said(output, log)
    assert spoken.pairs(things) == []
    assert "exported" in texts(things)
    assert "export" in texts(things).replace("exported", "")


@every_format
def test_an_early_result_and_the_final_one_are_both_visible(output: str) -> None:
    for between in ([], [assistant("working")], [user("and?")]):
        things = said(
            output, Log([user("go"), assistant(None, c="run"), tool("c", "half"), *between, tool("c", "full")])
        )
        shown = "\n".join(one.text for one in things if one.kind in {"text", "result"})
        assert "half" in shown
        assert "full" in shown
        assert len(spoken.pairs(things)) == 1


@every_format
def test_two_calls_with_one_id_in_one_message_each_get_their_own_result_in_order(output: str) -> None:
    twice = assistant(None, c="run")
    twice["tool_calls"] = [
        {"id": "c", "type": "function", "function": {"name": "run", "arguments": f'{{"n":{number}}}'}}
        for number in (1, 2)
    ]
    things = said(output, Log([user("go"), twice, tool("c", "first"), tool("c", "second"), assistant("ok")]))
    assert [(spoken.arguments(made.text)["n"], result.text) for made, result in spoken.pairs(things)] == [
        (1, "first"),
        (2, "second"),
    ]


@every_format
def test_a_call_at_the_live_end_is_open_and_gets_no_placeholder(output: str) -> None:
    log = Log([user("go"), assistant(None, a="f", b="g"), tool("b", "x")])
    body = body_of(render(output, log.view()))
    assert CHECKS[output](body) == []
    assert [(one["name"], one["seq"]) for one in body["open_tool_calls"]] == [("f", 2)]
    assert len(spoken.pairs(spoken.said(output, body))) == 1
