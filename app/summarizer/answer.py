"""What a provider answered, judged: only a whole, plain text becomes a summary (rule 31). Pure.

No message quotes the answer, for it may repeat the conversation, and messages reach clients and logs.
"""

import re
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from app.domain.errors import SummarizerFailed

T = TypeVar("T")
# Providers and the servers in front of them spell an ordinary end in these ways; some leave it out.
_ENDED: Final = frozenset({"stop", "end_turn", "stop_sequence", "eos", "eos_token", "end", "complete", "completed"})
_CUT_OFF: Final = frozenset({"length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"})
_FILTERED: Final = frozenset({"content_filter", "content_filtered", "safety"})
_TOOL_CALL: Final = frozenset({"tool_calls", "tool_use", "function_call"})
_REFUSED: Final = frozenset({"refusal", "refused"})
_NAMEABLE: Final = re.compile(r"[a-z][a-z_]{0,39}")

# A summary may speak of these tags; one right after a quotation mark is spoken of, and not meant.
_TAG: Final = re.compile(r"(?<![`'\"])<(?P<closes>/?)think(?:ing)?>", re.IGNORECASE)
_BLANK: Final = re.compile(r"\s*+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A summary that can be used, and what the provider said about making it; None where it said nothing."""

    text: str
    model: str
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """An answer as any provider gives it; ``stop`` is the provider's own word for why it ended."""

    text: str | None
    stop: str | None
    refused: bool = False
    has_tool_calls: bool = False
    has_reasoning: bool = False


def judged(raw: Raw, *, model: str, used: tuple[object, object]) -> Answer:
    """Return an answer that is one, without the reasoning some models write before it.

    ``used`` are the tokens read and written, as reported; whatever becomes of the answer, they are paid for.

    Raises:
        SummarizerFailed: with the cause ``refused``, ``content-filter``, ``cut-off``, ``tool-call``, ``empty``,
            ``only-reasoning`` or ``unclosed-think``.
    """
    read, written = map(tokens, used)
    try:
        return Answer(text=_text(raw), model=model, input_tokens=read, output_tokens=written)
    except SummarizerFailed as error:
        error.tokens = (read or 0, written or 0)
        raise


def _text(raw: Raw) -> str:
    _check_stop(raw, (raw.stop or "stop").lower())
    text = _without_reasoning(raw.text or "")
    if text:
        return text
    if raw.has_reasoning or (raw.text or "").strip():
        raise SummarizerFailed("only-reasoning", "the model only reasoned and wrote no summary")
    raise SummarizerFailed("empty", "the model wrote nothing")


def decoded(body: bytes, shape: type[T], what: str) -> T:
    """Read an answer's JSON; ``what`` it should be is named when it is not.

    Raises:
        SummarizerFailed: ``unreadable``.
    """
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    # Raised out here, the failure does not carry the decoder's error along, which may quote the answer.
    raise unreadable(f"it is not {what}")


def unreadable(why: str) -> SummarizerFailed:
    """Make the failure of an answer that is not the protocol's; ``why`` quotes nothing of it."""
    return SummarizerFailed("unreadable", f"the model server's answer cannot be read: {why}")


def tokens(value: object) -> int | None:
    """Return a reported number of tokens, or None for what is no number of tokens: it must not cost the summary."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _check_stop(raw: Raw, stop: str) -> None:
    if raw.refused or stop in _REFUSED:
        raise SummarizerFailed("refused", "the model refused to write the summary")
    if stop in _FILTERED:
        raise SummarizerFailed("content-filter", "the provider's content filter stopped the summary")
    if stop in _CUT_OFF:
        raise SummarizerFailed("cut-off", "the summary was cut off at the model's limit; allow it more tokens")
    if raw.has_tool_calls or stop in _TOOL_CALL:
        raise SummarizerFailed("tool-call", "the model called a tool instead of writing the summary")
    if stop not in _ENDED:
        named = f" ({stop})" if _NAMEABLE.fullmatch(stop) else ""
        raise SummarizerFailed("cut-off", f"the model server did not say that the summary is complete{named}")


def _without_reasoning(text: str) -> str:
    """Drop leading ``<think>`` blocks, and everything up to a ``</think>`` whose opening tag the template has eaten."""
    start = 0
    opened: re.Match[str] | None = None
    leads = False
    for tag in _TAG.finditer(text):
        if not tag["closes"]:
            if opened is None:
                opened, leads = tag, _blank_until(text, start) == tag.start()
        elif opened is None or leads:
            start, opened, leads = tag.end(), None, False
        else:
            opened = None
    if opened is not None and (leads or text[: opened.start()].endswith("\n")):
        raise SummarizerFailed("unclosed-think", "the model's reasoning never ended, so there is no summary")
    return text[start:].strip()


def _blank_until(text: str, start: int) -> int:
    found = _BLANK.match(text, start)
    return found.end() if found else start
