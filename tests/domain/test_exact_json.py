import json
from decimal import Decimal

import pytest

from app.domain import exact_json
from app.domain.errors import InvalidRequest
from app.domain.exact_json import Json


def refused(text: str) -> tuple[str, str]:
    """Return the place and the reason with which a text is refused."""
    with pytest.raises(InvalidRequest) as caught:
        exact_json.parse(text)
    (problem,) = caught.value.problems
    return problem.pointer, problem.detail


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),  # the three words of JSON
        ("true", True),  # which are no strings
        ("9007199254740993", 9007199254740993),  # an integer that a double cannot hold
        ("1e400", Decimal("1e400")),  # a number that a double takes for infinite
        ("0.1", Decimal("0.1")),  # not the double next to it
        ('"\\u0000"', "\0"),  # NUL is a character like any other
        ('"\\ud83d\\ude00"', "😀"),  # a whole surrogate pair is one character
        ('["\\ud83d\\ude00",{"\\ud83d\\ude00":1}]', ["😀", {"😀": 1}]),  # wherever it stands
        ('"\\\\ud83d"', "\\ud83d"),  # an escaped backslash before what looks like half of a pair
        ('{"b":1,"a":[{}]}', {"b": 1, "a": [{}]}),  # objects and lists
    ],
)
def test_json_is_parsed_to_its_exact_value(text: str, value: Json) -> None:
    parsed = exact_json.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    "digits",
    [
        4000,  # as an int
        4001,  # as a Decimal, for Python converts no longer strings to int
        5000,
        200_000,  # in time that grows with the length only
    ],
)
def test_integers_of_any_size_keep_every_digit(digits: int) -> None:
    text = "7" * digits
    assert str(Decimal(str(exact_json.parse(text)))) == text
    parsed = exact_json.parse(f"-{text}")
    assert isinstance(parsed, int | Decimal)
    assert parsed < 0


def test_the_order_of_keys_is_kept() -> None:
    parsed = exact_json.parse('{"z":1,"a":2,"m":3}')
    assert isinstance(parsed, dict)
    assert list(parsed) == ["z", "a", "m"]


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_what_only_looks_like_a_number_is_refused_by_name(name: str) -> None:
    assert refused(f'{{"a":[{name}]}}') == ("", f"{name} is not JSON")


def test_an_exponent_that_no_decimal_holds_is_refused() -> None:
    assert refused("1e9999999999999999999") == ("", "a number has an exponent of more than 18 digits")


@pytest.mark.parametrize(
    "text",
    [
        "",  # nothing at all
        "{",  # cut off
        "[1,]",  # a trailing comma
        "{} {}",  # two values
        "'a'",  # single quotes
        '"\n"',  # a raw control character inside a string
        "\ufeff{}",  # a byte order mark
        "01",  # a leading zero
    ],
)
def test_what_is_not_json_is_refused(text: str) -> None:
    pointer, detail = refused(text)
    assert pointer == ""
    assert detail.startswith("is not JSON: ")


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ('"\\ud800"', ""),  # the value itself
        ('{"a":["x","\\uDFFF"]}', "/a/1"),  # deep inside, in upper case
        ('{"a/b~c":"\\ud83d"}', "/a~1b~0c"),  # the pointer escapes what JSON pointers escape
        ('{"\\ud83dx":1}', "/\ufffdx"),  # a key; it is named by what can be shown of it
        ('[{"ok":"\\ud83d\\ude00"},"\\ude00\\ud83d"]', "/1"),  # the halves in the wrong order
    ],
)
def test_half_a_surrogate_pair_is_refused_where_it_stands(text: str, pointer: str) -> None:
    assert refused(text) == (pointer, "holds half of a surrogate pair, which is no character")


@pytest.mark.parametrize(
    ("text", "pointer", "key"),
    [
        ('{"a":1,"a":1}', "", "a"),  # even with the same value
        ('[{"x":{"b":1,"c":2,"b":3}}]', "/0/x", "b"),  # deep inside
        ('{"a":1,"\\u0061":2}', "", "a"),  # the same key, written in two ways
        ('{"\\ud800":1,"\\ud800":2}', "", "\ufffd"),  # a key that cannot be shown
        ('{"k":{"a":1,"a":2},"k":3}', "", "k"),  # the outer one, when the inner is lost in it
    ],
)
def test_a_key_that_occurs_twice_is_refused_where_it_stands(text: str, pointer: str, key: str) -> None:
    assert refused(text) == (pointer, f"the key {key} occurs twice")


def test_a_long_key_is_cut_short_in_the_refusal() -> None:
    key = "k" * 10_000
    _, detail = refused(f'{{"{key}":1,"{key}":2}}')
    assert len(detail) < 120


@pytest.mark.parametrize(
    ("text", "deepest"),
    [
        ("1", 0),  # a bare value nests in nothing
        ("[]", 1),  # an empty list is one level
        ("[[],[],[[]]]", 3),  # the deepest branch counts
        ('{"a":{"b":[1]}}', 3),  # objects and lists count alike
        ('["[[[[[[[["]', 1),  # brackets inside a string do not count
        ('["\\"[[[[[["]', 1),  # not even behind an escaped quote
        ('["\\\\",[[]]]', 3),  # an escaped backslash does not escape the quote behind it
        ("[[1],[1],[1],[1]]", 2),  # many brackets side by side are not deep
    ],
)
def test_a_text_may_nest_as_deeply_as_it_is_allowed_to(text: str, deepest: int) -> None:
    exact_json.check_bounds(text, deepest)
    if deepest:
        with pytest.raises(InvalidRequest, match=f"nested deeper than {deepest - 1} levels"):
            exact_json.check_bounds(text, deepest - 1)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, '["' + '\\"[' * 200_000 + '"' + "[" * 101])
def test_depth_is_found_without_recursion(text: str) -> None:
    with pytest.raises(InvalidRequest, match="nested deeper than 100 levels"):
        exact_json.check_bounds(text, 100)


def many(item: str, count: int) -> str:
    return "[" + ",".join([item] * count) + "]"


@pytest.mark.parametrize(
    ("item", "values"),
    [
        ("1", 1),
        ('"a"', 1),
        ("[]", 2),  # an empty list counts like one with an item
        ("{}", 2),
        ('{"a":1}', 2),
        ('{"a":1,"b":[2,3]}', 5),
        ('"[],{},[1,2,3]"', 1),  # what a string holds is no value
        ('"\\\\\\"[],{},"', 1),  # not even behind an escaped quote
    ],
)
def test_a_text_has_so_many_values_and_no_more(item: str, values: int) -> None:
    most = exact_json.MOST_VALUES // values
    exact_json.check_bounds(many(item, most), 100)
    with pytest.raises(InvalidRequest, match=f"has more than {exact_json.MOST_VALUES} values"):
        exact_json.check_bounds(many(item, most + 1), 100)


@pytest.mark.parametrize("text", ["," * 1_000_000, "[]" * 1_000_000, '[""' * 99 + ',"' * 1_000_000])
def test_what_is_no_json_is_held_to_the_same_bounds(text: str) -> None:
    with pytest.raises(InvalidRequest):
        exact_json.check_bounds(text, 100)


def test_a_long_text_in_a_string_is_one_value() -> None:
    exact_json.check_bounds('{"a":"' + "1,[{" * 1_000_000 + '"}', 100)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":[2]}', '{ "b": [2], "a": 1 }'),  # key order and space
        ("100", "1e2"),  # the same number, written in another way
        ("1", "1.0"),  # with a fraction of nothing
        ("[0]", "[-0.0]"),  # zero has no sign that counts
        ('"\\u00e9"', '"é"'),  # the same character, escaped
        ("null", "null"),  # nothing is nothing
        ("true", "true"),  # a boolean is itself
        ("7" * 5000, "7" * 5000),  # integers too long for an int
        ("[]", "[]"),  # empty lists
    ],
)
def test_values_are_equal_however_they_are_written(one: str, other: str) -> None:
    assert exact_json.equal(exact_json.parse(one), exact_json.parse(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("true", "1"),  # a boolean is no number
        ("false", "0"),  # nor is false zero
        ("[true]", "[1]"),  # not even inside
        ('{"a":false}', '{"a":0}'),  # nor in an object
        ("null", "false"),  # nothing is not false
        ("null", "{}"),  # nor empty
        ("1", '"1"'),  # a number is no string
        ("9007199254740993", "9007199254740992"),  # the same double
        ("0.1", "0.1000000000000000055511151231257827"),  # the same double again
        ("[1,2]", "[2,1]"),  # the order of a list matters
        ("[1]", "[1,1]"),  # lengths differ
        ('{"a":1}', '{"a":1,"b":null}'),  # a null is not nothing
        ('{"a":1}', '{"b":1}'),  # other keys
        ('{"a":1}', '{"a":2}'),  # other values
        ('["a"]', '{"0":"a"}'),  # a list is no object
        ("true", "false"),  # the two booleans
        ("7" * 5000, "7" * 4999 + "8"),  # the last of 5000 digits
        ("1e999999999999999999", "1e999999999999999998"),  # far from anything a machine could write out
        ('"é"', '"e\\u0301"'),  # looking the same is not being the same
    ],
)
def test_values_that_say_something_else_differ(one: str, other: str) -> None:
    assert not exact_json.equal(exact_json.parse(one), exact_json.parse(other))
    assert not exact_json.equal(exact_json.parse(other), exact_json.parse(one))


def test_what_json_writes_is_read_back() -> None:
    value = {"a": [1, "x\0", None, True, {"ü": []}]}
    assert exact_json.parse(json.dumps(value)) == value
