import base64
import hashlib
import inspect
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken_ext.openai_public
from hypothesis import given, settings
from hypothesis import strategies as st

from app import encodings, tokens
from app.formats.reading import Format
from app.tokens import AUDIO_TOKENS, CALL_TOKENS, FILE_TOKENS, IMAGE_TOKENS, TokenCounter
from tests.formats.views import taken

ROOT = Path(__file__).parent.parent
VOCABULARY = ROOT / "app" / "vocabulary"
ENCODINGS = ["o200k_base", "cl100k_base"]


@pytest.fixture(scope="session", params=ENCODINGS)
def encoding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def plain(encoding: str) -> Iterator[tiktoken.Encoding]:
    """tiktoken as its own users get it, with its cache where turnlog keeps the vocabularies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(VOCABULARY))
        yield tiktoken.get_encoding(encoding)


@pytest.fixture(scope="session")
def counter() -> TokenCounter:
    return TokenCounter()


def message(role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"role": role, **fields}


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def rng() -> random.Random:
    return random.Random(7)  # noqa: S311 - the same text in every run


def prose(characters: int) -> str:
    words = re.split(
        " ", "The log is append-only; don't “change” it, naïve reader (123,456 times)!\n\n if x != y: return"
    )
    return " ".join(rng().choices(words, k=characters // 3))[:characters]


# The vocabulary


def test_the_files_are_the_ones_tiktoken_would_download(encoding: str) -> None:
    address = f"https://openaipublic.blob.core.windows.net/encodings/{encoding}.tiktoken"
    file = VOCABULARY / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    stated = inspect.getsource(getattr(tiktoken_ext.openai_public, encoding))
    assert address in stated
    assert hashlib.sha256(file.read_bytes()).hexdigest() in stated
    assert hashlib.sha256(file.read_bytes()).hexdigest() in (VOCABULARY / "README.md").read_text()


def test_plain_tiktoken_works_with_its_cache_there(plain: tiktoken.Encoding) -> None:
    assert plain.decode(plain.encode("Hello world")) == "Hello world"


def test_text_is_split_and_merged_the_way_tiktoken_does_it(encoding: str, plain: tiktoken.Encoding) -> None:
    ours = encodings.load(encoding)
    assert ours._pat_str == plain._pat_str
    assert ours.token_byte_values() == plain.token_byte_values()
    assert all(ours.encode_single_token(token) == rank for token, rank in plain._mergeable_ranks.items())


OFFLINE = """
import os, sys

def refuse(event, arguments):
    if event.startswith(("socket.", "urllib.", "http.")):
        raise AssertionError(event)

sys.addaudithook(refuse)
from app import tokens

before = dict(os.environ)
print(*(tokens.TokenCounter(encoding).text("Hello <|endoftext|> world") for encoding in sys.argv[1:]))
assert dict(os.environ) == before
assert "tiktoken_ext.openai_public" not in sys.modules
"""


def test_it_counts_without_network_home_and_temporary_files(tmp_path: Path) -> None:
    empty = {name: tmp_path / name for name in ("HOME", "TMPDIR", "TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")}
    for directory in empty.values():
        directory.mkdir(mode=0o500)
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **{name: str(at) for name, at in empty.items()}}
    ran = subprocess.run(
        [sys.executable, "-c", OFFLINE, *ENCODINGS], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    assert ran.stdout.split() == [str(TokenCounter(name).text("Hello <|endoftext|> world")) for name in ENCODINGS]
    assert [*tmp_path.glob("*/*")] == []


@pytest.mark.parametrize("name", ["no_such", "", "gpt-99", "acme-9-preview", "../o200k_base", "p50k_base"])
def test_an_unknown_encoding_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(encodings.UnknownEncoding, match=re.escape(repr(name)) + ".*o200k_base.*cl100k_base") as refused:
        TokenCounter(name)
    assert (refused.value.encoding, refused.value.known) == (name, tuple(ENCODINGS))


@pytest.mark.parametrize(
    "field",
    [
        {"file": "0000000000000000000000000000000000000000"},  # the file is missing
        {"sha256": "0" * 64},  # the file is another one
    ],
)
def test_a_missing_or_damaged_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch, field: dict[str, str]) -> None:
    known = encodings._VOCABULARIES["cl100k_base"]
    facts = {"file": known.file, "sha256": known.sha256, "pattern": known.pattern} | field
    monkeypatch.setitem(encodings._VOCABULARIES, "damaged", encodings._Vocabulary(**facts))
    monkeypatch.setattr(encodings, "toktok", None)  # which brings its own
    with pytest.raises(encodings.DamagedVocabulary, match="vocabulary of damaged"):
        TokenCounter("damaged")


def test_without_toktok_tiktoken_counts_the_same(
    monkeypatch: pytest.MonkeyPatch, encoding: str, plain: tiktoken.Encoding
) -> None:
    assert encodings.toktok is not None, "the suite is to run with both"
    fast = encodings.counter(encoding)
    monkeypatch.setattr(encodings, "toktok", None)
    slow = encodings.counter.__wrapped__(encoding)
    assert slow is not fast
    for text in ("", "Hello <|endoftext|> world", "的 naïve 😀 question", prose(20_000)):
        assert slow(text) == fast(text) == len(plain.encode_ordinary(text))


def test_the_counter_says_which_encoding_it_uses() -> None:
    assert TokenCounter().encoding == "o200k_base"
    assert TokenCounter("cl100k_base").encoding == "cl100k_base"


# Text


@pytest.mark.parametrize(
    "text",
    [
        "Explain <|endoftext|>, <|im_start|>, <|fim_prefix|> and <|endofprompt|> please",
        "<|endoftext|>",
        "<|start|>system<|message|><|return|><|call|>",
    ],
)
def test_text_that_looks_like_a_special_token_is_ordinary_text(
    encoding: str, plain: tiktoken.Encoding, text: str
) -> None:
    assert TokenCounter(encoding).text(text) == len(plain.encode(text, disallowed_special=()))
    assert TokenCounter(encoding).text(text) > len(plain.encode(text, allowed_special="all")) or "endof" not in text


# What is no character yet is a letter for the one and none for the other, as its tables are of this year or that.
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cn"], exclude_characters="ſ"), max_size=300)


@pytest.mark.parametrize("text", ["T'ſ'SKs", "\U0010ac29\U00018da0\ud5d2", "ſ'ſ \U00018da0" * 20])
def test_where_toktok_sees_other_letters_a_text_is_nearly_the_same(
    encoding: str, plain: tiktoken.Encoding, text: str
) -> None:
    exact = len(plain.encode_ordinary(text))
    assert abs(TokenCounter(encoding).text(text) - exact) <= max(1, exact // 20)


@settings(deadline=None)
@given(text=TEXTS)
def test_a_text_counts_exactly_as_tiktoken_counts_it(encoding: str, plain: tiktoken.Encoding, text: str) -> None:
    assert TokenCounter(encoding).text(text) == len(plain.encode(text, disallowed_special=()))


@pytest.mark.parametrize("text", ["a", " ", "的", "^", "\n"])
def test_a_text_as_long_as_a_piece_counts_exactly(encoding: str, plain: tiktoken.Encoding, text: str) -> None:
    assert TokenCounter(encoding).text(text * 16_384) == len(plain.encode_ordinary(text * 16_384))


@pytest.mark.parametrize(
    "text",
    [
        prose(200_000),
        Path(tokens.__file__).read_text() * 20,  # code
        json.dumps([{"id": at, "name": f"n{at}", "ok": at / 7} for at in range(5_000)], separators=(",", ":")),
        base64.b64encode(rng().randbytes(150_000)).decode(),
        "追記のみのログです、変更は、ありません。" * 10_000,
        "line\r\n\r\n\tline's\n" * 10_000,
        "https://example.org/a-b_c?d=e&f=%20" * 5_000,
    ],
    ids=["prose", "code", "json", "base64", "japanese", "lines", "addresses"],
)
def test_long_ordinary_text_counts_as_if_it_were_in_one_piece(
    encoding: str, plain: tiktoken.Encoding, text: str
) -> None:
    assert TokenCounter(encoding).text(text) == len(plain.encode_ordinary(text))


TRICKY = st.lists(
    st.sampled_from(
        [*"aAzZsdtT中のʰǅ\u0301019½² \t\n\r\u00a0\u3000\x1c\x85'’_-/.,:({\"😀\u200d。、", "'s", "'ll", "  "]
    ),
    max_size=40,
).map("".join)


@settings(deadline=None, max_examples=300)
@given(text=TRICKY | TEXTS)
def test_no_token_reaches_across_an_exact_cut(encoding: str, text: str) -> None:
    counter = TokenCounter(encoding)
    while found := tokens._EXACT_CUT.match(text):
        head, tail = text[: found.end()], text[found.end() :]
        assert counter.text(head) + counter.text(tail) == counter.text(text)
        text = head


@given(text=st.text("a b\n的.", max_size=60), times=st.integers(1, 3000))
def test_pieces_are_bounded_and_join_to_the_text(text: str, times: int) -> None:
    pieces = [*tokens._pieces(text * times)]
    assert "".join(pieces) == text * times
    assert max(map(len, pieces)) <= 16_384


@pytest.mark.parametrize(
    "text",
    [
        "^" * 1_000_000,
        "a" * 1_000_000,
        " " * 1_000_000,  # tiktoken panics on these in one piece
        " " * 1_000_000 + "x",
        "\n" * 1_000_000,
        " \t" * 500_000,
        "\u3000" * 1_000_000,
        "的" * 200_000,
        "😀" * 300_000,
        "".join(rng().choices("abcdefghijklmnopqrstuvwxyz", k=300_000)),
    ],
    ids=lambda text: f"{text[:2]!r}",
)
def test_a_million_characters_without_a_word_neither_hang_nor_panic(encoding: str, text: str) -> None:
    counter = TokenCounter(encoding)
    count = counter.text(text)
    assert 0 < count <= 3 * len(text)
    assert counter.message(message("tool", tool_call_id="c", content=text)) == count + counter.text("tool") + 3


# Messages


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 4),  # the message's 3 and its role
        ({"content": None}, 4),
        ({"content": ""}, 4),
        ({"content": []}, 4),
        ({"content": "   "}, 5),  # three blanks are a token
        ({"content": "Hello world"}, 6),
        ({"content": [{"type": "text", "text": "Hello world"}]}, 6),
        ({"content": ["Hello world"]}, 6),  # a string among the parts
        ({"content": [{"type": "text"}, {"type": "text", "text": None}, {}, None]}, 4),
        ({"content": [{"type": "text", "text": "Hello world", "annotations": [{"url": "x"}], "note": "y"}]}, 6),
        ({"content": [{"type": "text", "text": {"value": "Hello world"}}]}, 6),
        ({"content": [{"type": "refusal", "refusal": "Hello world"}]}, 6),
        ({"content": None, "refusal": "Hello world"}, 6),
        ({"content": "Hello world", "name": "Hello"}, 8),  # a token and 1
        ({"content": "Hello world", "name": ""}, 6),
        ({"content": "Hello world", "name": None}, 6),
        ({"content": "data:text/plain,Hello"}, 9),  # content is text, whatever it looks like
        ({"content": "Hello world", "tool_call_id": "call_" + "a" * 1000}, 6),
        ({"content": "Hello world", "id": "msg_1", "index": 7, "done": True, "share": Decimal("0.5")}, 6),
        ({"tool_calls": None, "function_call": None, "audio": None}, 4),
        ({"tool_calls": []}, 4),
        ({"tool_calls": {}, "function_call": {}}, 4),
        ({"reasoning_content": "Hello world"}, 6),
        ({"reasoning": {"steps": ["Hello", [" world"]], "effort": 3}}, 6),
        ({"content": [{"type": "thinking", "thinking": "Hello world", "signature": "a" * 500}]}, 6),
        ({"content": [{"type": "redacted_thinking", "data": "a" * 500}]}, 4),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "a" * 500}]}, 4),
        ({"reasoning_item": {"encrypted_content": "a" * 500, "thoughtSignature": "a" * 500}}, 4),
        ({"picture": "data:image/png;base64," + "a" * 500}, 4),
        ({"note": "data: Hello"}, 7),  # not a data: URL
        ({"content": [{"type": ["text"], "text": "Hello world"}]}, 6),  # an unknown part, if an odd one
    ],
)
def test_a_message_counts_its_frame_and_its_texts(counter: TokenCounter, fields: dict[str, Any], expected: int) -> None:
    assert counter.message(message("assistant", **fields)) == expected


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_every_role_counts_one_token(encoding: str, role: str) -> None:
    assert TokenCounter(encoding).message(message(role)) == 4


def test_a_tool_call_counts_its_name_and_arguments(counter: TokenCounter) -> None:
    arguments = '{"city":"Athens","days":3}'
    expected = 4 + CALL_TOKENS + counter.text("forecast") + counter.text(arguments)
    for one in (
        {"tool_calls": [call("forecast", arguments)]},
        {"tool_calls": [call("forecast", json.loads(arguments))]},
        {"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "forecast", "input": arguments}}]},
        {"function_call": {"name": "forecast", "arguments": arguments}},
    ):
        assert counter.message(message("assistant", content=None, **one)) == expected
    twice = message("assistant", content=None, tool_calls=[call("forecast", arguments)] * 2)
    assert counter.message(twice) == 2 * expected - 4


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "{}"),
        ("", ""),
        (None, ""),
        ({"n": Decimal("1.50")}, '{"n":1.50}'),  # numbers as they were sent
        ({"n": 10**40, "f": 0.5}, '{"n":1' + "0" * 40 + ',"f":0.5}'),
        ({"a": [1, None, True, {"b": "的\n"}]}, '{"a":[1,null,true,{"b":"的\\n"}]}'),
        ({"type": "file", "data": "text"}, '{"type":"file","data":"text"}'),  # the model is shown all of it
        ({"url": "data:text/plain,abc"}, '{"url":"data:text/plain,abc"}'),
        ("data:text/plain,abc", "data:text/plain,abc"),
    ],
)
def test_arguments_count_as_the_text_the_model_is_shown(counter: TokenCounter, arguments: Any, text: str) -> None:
    counted = counter.message(message("assistant", tool_calls=[call("f", arguments)]))
    assert counted == 4 + CALL_TOKENS + counter.text("f") + counter.text(text)


def test_a_long_argument_counts_in_full(counter: TokenCounter) -> None:
    written = json.dumps({"text": prose(40_000)})
    assert counter.message(message("assistant", content=None, tool_calls=[call("write", written)])) >= 6_000


BASE64 = "A" * 4_000_000
DATA_URL = f"data:image/png;base64,{BASE64}"


@pytest.mark.parametrize(
    ("part", "cost"),
    [
        ({"type": "image_url", "image_url": {"url": DATA_URL, "detail": "high"}}, IMAGE_TOKENS),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, IMAGE_TOKENS),
        ({"type": "image_url", "image_url": DATA_URL}, IMAGE_TOKENS),
        ({"type": "input_image", "image_url": DATA_URL}, IMAGE_TOKENS),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}}, IMAGE_TOKENS),
        ({"type": "acme_picture", "image_url": {"url": DATA_URL}}, IMAGE_TOKENS),  # an unknown part
        ({"inlineData": {"mimeType": "image/png", "data": BASE64}}, IMAGE_TOKENS),
        ({"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}}, AUDIO_TOKENS),
        ({"type": "file", "file": {"file_data": DATA_URL, "filename": "a.pdf"}}, FILE_TOKENS),
        ({"type": "file", "file": {"file_id": "file_1"}}, FILE_TOKENS),
        ({"type": "input_file", "file_data": BASE64}, FILE_TOKENS),
        ({"type": "document", "source": {"type": "text", "data": "Hello"}}, FILE_TOKENS),
        ({"type": "acme", "inner": [{"type": "image", "source": {"data": BASE64}}]}, IMAGE_TOKENS),
        ({"type": "acme", "inner": {"data": BASE64, "preview": DATA_URL}}, 0),
    ],
)
def test_media_cost_the_same_whatever_their_size(counter: TokenCounter, part: dict[str, Any], cost: int) -> None:
    sent = message("user", content=[{"type": "text", "text": "Hello world"}, part])
    assert counter.message(sent) == 6 + cost
    assert counter.message(message("tool", content=[part, part])) == 4 + 2 * cost


def test_pictures_beside_the_content_cost_the_same(counter: TokenCounter) -> None:
    assert counter.message(message(content="Hello world", images=[BASE64, BASE64])) == 6 + 2 * IMAGE_TOKENS
    generated = [{"type": "image_url", "image_url": {"url": DATA_URL}}]
    assert counter.message(message("assistant", content="Hello world", images=generated)) == 6 + IMAGE_TOKENS


def test_audio_that_the_assistant_spoke_costs_as_audio(counter: TokenCounter) -> None:
    assert counter.message(message("assistant", content=None, audio={"id": "audio_1"})) == 4 + AUDIO_TOKENS


def counted(counter: TokenCounter, sent_as: Format, sent: Any) -> int:
    [stored] = taken(sent_as, sent)
    return counter.message(json.loads(stored))


def test_a_part_whose_type_is_no_text_counts_its_text(counter: TokenCounter) -> None:
    assert counted(counter, "gemini", {"role": "user", "parts": [{"type": [], "text": "Hello world"}]}) == 6


@pytest.mark.parametrize(
    ("sent_as", "sent", "expected"),
    [
        ("anthropic", {"type": "thinking", "thinking": "Hello world", "signature": "a" * 500}, 6),
        ("anthropic", {"type": "redacted_thinking", "data": "a" * 500}, 4),
        ("anthropic", {"type": "text", "text": "Hello world", "cache_control": {"type": "ephemeral"}}, 6),
        ("anthropic", {"type": "server_tool_use", "id": "s", "name": "Hello", "input": {"a": " world"}}, 10),
        (
            "anthropic",
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s",
                "content": [{"type": "web_search_result", "title": "Hello world", "encrypted_content": "a" * 500}],
            },
            6,
        ),
        ("openai-responses", {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hello world"}]}, 6),
        ("openai-responses", {"type": "code_interpreter_call", "id": "ci_1", "code": "Hello world"}, 6),
        ("openai-responses", {"type": "mcp_call", "id": "m", "name": "", "arguments": "", "output": "Hello world"}, 6),
        ("openai-responses", {"type": "web_search_call", "id": "w", "action": {"query": "Hello world"}}, 6),
        ("openai-responses", {"type": "image_generation_call", "id": "i", "result": "A" * 5000}, 4 + IMAGE_TOKENS),
        ("openai-responses", {"role": "assistant", "id": "msg_1", "content": "Hello world"}, 6),
        ("openai-responses", {"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"a": "b"}}, 15),
        ("gemini", {"text": "Hello world", "thought": True}, 6),
        ("gemini", {"text": "Hello world", "thoughtSignature": "a" * 500}, 6),
        ("gemini", {"executableCode": {"code": "Hello world"}}, 6),
        ("gemini", {"codeExecutionResult": {"output": "Hello world"}, "thoughtSignature": "a" * 500}, 6),
    ],
)
def test_what_only_its_provider_is_sent_back_counts_too(
    counter: TokenCounter, sent_as: Format, sent: dict[str, Any], expected: int
) -> None:
    wrapped = {"anthropic": ("assistant", "content"), "gemini": ("model", "parts")}.get(sent_as)
    whole = {"role": wrapped[0], wrapped[1]: [sent]} if wrapped else sent
    assert counted(counter, sent_as, whole) == expected


KINDS = st.sampled_from(
    ["text", "refusal", "function", "custom", "image_url", "input_audio", "file", "thinking", "data:"]
)
TEXT_FIELDS = [
    "role",
    "content",
    "name",
    "refusal",
    "type",
    "text",
    "id",
    "x",
    "tool_calls",
    "function_call",
    "function",
]
OTHER_FIELDS = [
    "arguments",
    "input",
    "image_url",
    "images",
    "audio",
    "data",
    "signature",
    "source",
    "file",
    "inlineData",
]
FIELDS = st.sampled_from(TEXT_FIELDS + OTHER_FIELDS)
NUMBERS = (
    st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | KINDS
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner), max_leaves=20)


@settings(deadline=None)
@given(sent=st.dictionaries(FIELDS, JSON))
def test_any_message_has_a_count_and_always_the_same(counter: TokenCounter, sent: dict[str, Any]) -> None:
    count = counter.message(sent)
    assert count >= tokens.MESSAGE_TOKENS
    assert count == counter.message(dict(reversed(sent.items())))
