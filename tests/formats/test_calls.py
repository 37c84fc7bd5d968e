"""Ids, names and arguments that providers accept."""

import re

import pytest

from app.formats import anyone, raw_json
from app.formats.calls import Call, Ids, Names, as_object
from app.formats.reading import FORMATS, Format
from tests.formats.views import view_of

OTHER = re.compile(r"[^A-Za-z0-9_-]")


def ids() -> Ids:
    return Ids(re.compile(r"[A-Za-z0-9_-]+"), OTHER, 64)


def test_an_id_that_fits_stays_and_one_that_does_not_is_always_the_same() -> None:
    assert ids().fit("call_1", 1, 0) == "call_1"
    assert ids().fit("call|1", 1, 0) == ids().fit("call|1", 7, 3) != "call_1"
    assert len(ids().fit("x" * 300, 1, 0)) <= 64


def test_no_two_calls_get_one_id() -> None:
    desk = ids()
    told = ["a|1", "a:1", "a_1", "a_1", "a_1", "", ""]
    assert len({desk.fit(one, seq, 0) for seq, one in enumerate(told)}) == len(told)


def test_names_that_differ_stay_different() -> None:
    names = Names(re.compile(r"[A-Za-z0-9_-]{1,64}"), OTHER)
    assert names.fit("look_up") == "look_up"
    fitted = {names.fit(one) for one in ("look up", "look:up", "", "n" * 65, "n" * 66)}
    assert len(fitted) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one) for one in fitted)


@pytest.mark.parametrize(
    ("text", "shown", "wrapped"),
    [
        ('{"n": 1.10}', '{"n": 1.10}', False),
        ("", "{}", False),
        ("[1]", '{"arguments":"[1]"}', True),
        ('{"value": ', '{"arguments":"{\\"value\\": "}', True),
        ('{"a":1,"a":2}', '{"arguments":"{\\"a\\":1,\\"a\\":2}"}', True),
        (r'{"a":"\ud800"}', r'{"arguments":"{\"a\":\"\\ud800\"}"}', True),
        ('{"a":' * 200 + "1" + "}" * 200, None, True),
    ],
)
def test_arguments_are_an_object(text: str, shown: str | None, wrapped: bool) -> None:
    found = as_object(Call(id="c", name="f", arguments=text))
    assert found[1] is wrapped
    assert shown is None or found[0] == shown


@pytest.mark.parametrize("output", FORMATS)
def test_the_input_of_a_custom_tool_is_sent_if_it_is_no_text(output: Format) -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "x", "input": {"a": "kept"}}}
    rendered = anyone.render(view_of({"role": "assistant", "content": None, "tool_calls": [call]}), output)
    assert "kept" in raw_json.dump(rendered.fields)
