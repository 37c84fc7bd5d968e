"""tiktoken's encodings, from the vocabularies that turnlog or its dependencies ship and nowhere else.

toktok counts what tiktoken counts in a tenth of the time (docs/decisions/0017-counting-with-toktok.md). It is built for
most platforms; on the others tiktoken itself does it.
"""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import tiktoken

try:
    import toktok
except ImportError:
    toktok = None


class UnknownEncoding(Exception):
    """``encoding`` is not one of the ``known`` encodings."""

    def __init__(self, encoding: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown encoding {encoding!r}; known are {', '.join(known)}")
        self.encoding = encoding
        self.known = known


class DamagedVocabulary(Exception):
    """The vocabulary that was installed with turnlog is missing, or not the one that was shipped."""

    def __init__(self, encoding: str) -> None:
        super().__init__(f"the vocabulary of {encoding} is missing or damaged: install turnlog again")
        self.encoding = encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vocabulary:
    """A file below ``vocabulary/``, under the name that tiktoken's cache uses, and how tiktoken splits text for it."""

    file: str
    sha256: str
    pattern: str


_VOCABULARIES: Final = {
    "o200k_base": _Vocabulary(
        file="fb374d419588a4632f3f557e76b4b70aebbca790",
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern="|".join(
            [
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            ]
        ),
    ),
    "cl100k_base": _Vocabulary(
        file="9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        pattern="|".join(
            [
                r"'(?i:[sdmt]|ll|ve|re)",
                r"[^\r\n\p{L}\p{N}]?+\p{L}++",
                r"\p{N}{1,3}+",
                r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
                r"\s++$",
                r"\s*[\r\n]",
                r"\s+(?!\S)",
                r"\s",
            ]
        ),
    ),
}


@cache
def counter(encoding: str) -> Callable[[str], int]:
    """Return what counts the tokens of a text, special tokens in it as the ordinary text that they are.

    Whoever counts, the numbers are tiktoken's, but for a token where decision 0017 says so. The first time it takes
    half a second; later calls share what was made. It may be used by several threads, and counts beside Python.

    Raises:
        UnknownEncoding, DamagedVocabulary.
    """
    if encoding not in _VOCABULARIES:
        raise UnknownEncoding(encoding, tuple(_VOCABULARIES))
    if toktok is None:
        encode = load(encoding).encode_ordinary
        return lambda text: len(encode(text))
    # Its function for batches makes a buffer for each call, which takes longer than counting a message.
    count: Callable[[str], int] = toktok._encoding(encoding).count  # noqa: SLF001 - the name in its documentation
    # What is made at the first use is made now.
    count("")
    return count


def load(encoding: str) -> tiktoken.Encoding:
    """Build an encoding from turnlog's file alone: ``tiktoken.get_encoding`` would look elsewhere and download.

    It takes half a second.

    Raises:
        UnknownEncoding, DamagedVocabulary.
    """
    vocabulary = _VOCABULARIES.get(encoding)
    if vocabulary is None:
        raise UnknownEncoding(encoding, tuple(_VOCABULARIES))
    try:
        content = (resources.files("app") / "vocabulary" / vocabulary.file).read_bytes()
    except OSError as error:
        raise DamagedVocabulary(encoding) from error
    if hashlib.sha256(content).hexdigest() != vocabulary.sha256:
        raise DamagedVocabulary(encoding)
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, content.splitlines())}
    made = tiktoken.Encoding(encoding, pat_str=vocabulary.pattern, mergeable_ranks=ranks, special_tokens={})
    # tiktoken has copied them. It keeps the dict for pickling alone, and that is 28 MB of each server process.
    ranks.clear()
    return made
