"""Token counts of messages (rule 33), made with the vocabularies that turnlog ships. The formula is docs/tokens.md."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from app import encodings
from app.domain.event import ROLES
from app.domain.message import RESERVED, unshaped

# OpenAI's cookbook ("How to count tokens with tiktoken") frames a message with 3 tokens and a name with 1.
MESSAGE_TOKENS: Final = 3
NAME_TOKENS: Final = 1
# OpenAI publishes no figure for a call; openai-chat-tokens measured 3 on top of its name and arguments.
CALL_TOKENS: Final = 3
# A 1024 × 1024 picture in high detail: 85 tokens and 170 for each of its four tiles, says OpenAI.
IMAGE_TOKENS: Final = 765
# One minute of speech: OpenAI counts a token for every 100 ms that a user speaks.
AUDIO_TOKENS: Final = 600
# A dense page: Anthropic gives 1,500–3,000 tokens for a page of a PDF. Also ten seconds of video for Gemini.
FILE_TOKENS: Final = 3000

# Prose of this length takes 1.1 ms to count. A hop to a thread and back takes 0.15 ms when the event loop is idle and
# 1.4 ms and more when it is busy, so that shorter texts are counted sooner where they are.
LONG_TEXT: Final = 16_384

# Longer texts are counted in pieces. tiktoken panics, with a BaseException, on half a million blanks or more, and one
# run of a character costs more for each character the longer it is: twice as much at 128 K characters as at this size.
_PIECE: Final = 16_384

# No token of either vocabulary reaches across these places, whatever stands around them, so a cut there changes no
# count: before a blank that follows anything but a blank; and after a letter or digit, before white space or a
# punctuation mark (but the apostrophe, which "'s" needs). The last such place of a stretch is found.
_EXACT_CUT: Final = re.compile(r"(?s:.*)(?:\S(?= )|[^\W_](?=[\s!-&(-/:-@\[-`{-~、。，．！？：；]))")

_DATA_URL: Final = re.compile(r"data:[^,\s]{0,200},", re.IGNORECASE)

# A part of one of these types has a fixed cost, whatever it holds.
_MEDIA_PARTS: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        ("image", "image_url", "image_file", "input_image", "output_image", "image_generation_call"), IMAGE_TOKENS
    ),
    **dict.fromkeys(("audio", "audio_url", "input_audio", "output_audio"), AUDIO_TOKENS),
    **dict.fromkeys(("file", "input_file", "document", "video", "video_url", "input_video"), FILE_TOKENS),
}
# So has the value of one of these fields (each item, when it is a list), in a part or message of any type.
_MEDIA_FIELDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("image_url", "images", "inlineData", "inline_data"), IMAGE_TOKENS),
    **dict.fromkeys(("audio", "input_audio"), AUDIO_TOKENS),
    "fileData": FILE_TOKENS,
}
# Of a text part, this field alone is shown to a model: no annotation, probability or cache directive.
_TEXT_PARTS: Final = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
# These hold text even if it looks like a data: URL, for a model is shown it as it stands.
_TEXT_FIELDS: Final = frozenset({"role", "content", "text", "refusal", "name", "arguments", "input"})
# Arguments that are an object reach the model as JSON.
_ARGUMENT_FIELDS: Final = frozenset({"arguments", "input"})
# These hold nothing that a model reads as text: labels, ids, base64 data, signatures, encrypted text, directives.
_NOT_TEXT: Final = frozenset(
    {"type", "id", "call_id", "tool_call_id", "tool_use_id", "toolUseId", "file_id", "cache_control"}
    | {"data", "file_data", "b64_json", "bytes", "signature", "thought_signature", "thoughtSignature"}
    | {"encrypted_content", "encryptedContent", "redacted_content", "redactedContent"}
)
_COMPACT_JSON: Final = msgspec.json.Encoder(decimal_format="number")


class TokenCounter:
    """Counts tokens of message events the way docs/tokens.md says.

    Making the first one of an encoding reads its vocabulary, which takes about half a second; later ones share it.
    Nothing else is read, and no network is tried, whatever the environment says. May be used by several threads.

    Raises:
        UnknownEncoding: turnlog ships no vocabulary of that name.
        DamagedVocabulary: it does, and what is installed is something else.
    """

    def __init__(self, encoding: str = "o200k_base") -> None:
        self._count = encodings.counter(encoding)
        # Every message counts its role, and a call takes nearly a microsecond for the shortest text.
        self._roles: dict[str, int] = {role: self._count(role) for role in ROLES}
        self.encoding = encoding

    def message(self, message: Mapping[str, Any]) -> int:
        """Count an OpenAI-shaped chat message, parsed JSON whose nesting ``exact_json.check_bounds`` has bounded.

        3 tokens, the role, the name and 1, every text, and every call's name and arguments and 3; 765 for an image,
        600 for audio, 3000 for a file. Unknown parts and fields count with their strings; ids, data and signatures
        do not count.
        """
        count = _frame(message)
        for found in _countable(message):
            count += found if isinstance(found, int) else self.text(found)
        return count

    def text(self, text: str) -> int:
        """Count a text on its own, special tokens in it as ordinary text.

        It is exactly tiktoken's count for a text of up to 16,384 characters, and for longer prose, code and JSON too.
        A longer text without blanks, digits or punctuation may count a token more or less for each 16,384 characters.
        """
        if len(text) > _PIECE:
            return sum(map(self._count, _pieces(text)))
        known = self._roles.get(text)
        return self._count(text) if known is None else known


def _frame(message: Mapping[str, Any]) -> int:
    """Return the tokens around what a message says: its own, and those of its name and its calls."""
    calls = message.get("tool_calls")
    return (
        MESSAGE_TOKENS
        + (NAME_TOKENS if message.get("name") else 0)
        + CALL_TOKENS * (len(calls) if isinstance(calls, list) else 0)
        + (CALL_TOKENS if message.get("function_call") else 0)
    )


def _countable(message: Mapping[str, Any]) -> Iterator[str | int]:
    """Yield what a message says: texts to count, and tokens that are counted already."""
    deep: list[tuple[str, Any]] = []
    for field, value in message.items():
        # Most messages are texts and nothing else.
        if not isinstance(value, str):
            deep.append((field, value))
        elif value and field not in _NOT_TEXT:
            yield _string(field, value)
    if RESERVED in message:
        deep = [item for item in deep if item[0] != RESERVED] + [("", piece) for piece in unshaped(message)]
    if deep:
        yield from _inside(deep)


def _inside(rest: list[tuple[str, Any]]) -> Iterator[str | int]:
    """Yield what fields hold that are no texts."""
    while rest:
        field, value = rest.pop()
        if field in _NOT_TEXT or not (value or field in _ARGUMENT_FIELDS):
            continue
        if isinstance(value, list):
            rest.extend((field, item) for item in value)
        elif isinstance(value, str):
            yield _string(field, value)
        elif isinstance(value, Mapping):
            known = _known_object(field, value)
            if known is None:
                rest.extend(value.items())
            else:
                yield known


def _string(field: str, value: str) -> str | int:
    if field in _MEDIA_FIELDS:
        return _MEDIA_FIELDS[field]
    if field not in _TEXT_FIELDS and _DATA_URL.match(value):
        return 0
    return value


def _known_object(field: str, value: Mapping[str, Any]) -> str | int | None:
    """Return what an object counts as a whole, or None when its fields count one by one."""
    if field in _ARGUMENT_FIELDS:
        return _COMPACT_JSON.encode(value).decode()
    kind = value.get("type")
    if not isinstance(kind, str):
        kind = ""
    text = value.get(_TEXT_PARTS.get(kind, ""))
    if isinstance(text, str):
        return text
    return _MEDIA_PARTS.get(kind, _MEDIA_FIELDS.get(field))


def _pieces(text: str) -> Iterator[str]:
    """Cut a text into pieces of at most ``_PIECE`` characters, where it changes no count if there is such a place."""
    start = 0
    while len(text) - start > _PIECE:
        limit = start + _PIECE
        # The search sees one character past the limit, so that it may cut right at the limit.
        exact = _EXACT_CUT.match(text, start + _PIECE // 2, limit + 1)
        cut = exact.end() if exact else limit
        yield text[start:cut]
        start = cut
    yield text[start:]
