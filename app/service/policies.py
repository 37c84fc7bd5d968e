"""Policies and their parts as JSON: the shape in requests, on sessions, in boundaries and in the settings."""

from typing import Annotated, Final, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Meta, Struct

from app.domain import policy as domain
from app.domain import trigger as triggers
from app.domain import window as windows
from app.domain.errors import InvalidRequest

AtLeastOne = Annotated[int, Meta(ge=1)]
# They stand in every request to the model, so they are a paragraph and no document.
LONGEST_INSTRUCTIONS: Final = 4000


class Always(Struct, frozen=True, tag_field="type", tag="always", forbid_unknown_fields=True):
    """Fires on every view."""


class TurnCount(Struct, frozen=True, tag_field="type", tag="turn_count", forbid_unknown_fields=True):
    """Fires when the view has more than `threshold` turns."""

    threshold: AtLeastOne


class TokenCount(Struct, frozen=True, tag_field="type", tag="token_count", forbid_unknown_fields=True):
    """Fires when the view has at least `threshold` tokens."""

    threshold: AtLeastOne


class AnyOf(Struct, frozen=True, tag_field="type", tag="any", forbid_unknown_fields=True):
    """Fires when one of the triggers does."""

    of: Annotated[list["Trigger"], Meta(min_length=1)]


class AllOf(Struct, frozen=True, tag_field="type", tag="all", forbid_unknown_fields=True):
    """Fires when all of the triggers do."""

    of: Annotated[list["Trigger"], Meta(min_length=1)]


Trigger: TypeAlias = Always | TurnCount | TokenCount | AnyOf | AllOf


class Window(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of the recent conversation a compaction keeps."""

    rule: Literal["last_events", "last_turns", "token_budget"]
    size: AtLeastOne


class TextSummarizer(Struct, frozen=True, tag_field="type", tag="text", forbid_unknown_fields=True):
    """The caller brings the summary along."""

    text: str


class LlmSummarizer(Struct, frozen=True, tag_field="type", tag="llm", forbid_unknown_fields=True, omit_defaults=True):
    """The server's configured model writes the summary.

    `max_tokens` bounds its answer, and the server's own bound holds too. With a `ledger` the ids, numbers, dates, URLs,
    addresses and paths of what is covered are listed after the summary, word for word.
    """

    instructions: Annotated[str, Meta(max_length=LONGEST_INSTRUCTIONS)] | None = None
    max_tokens: AtLeastOne | None = None
    ledger: bool = True


Summarizer: TypeAlias = TextSummarizer | LlmSummarizer


class Policy(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Trigger, window and summarizer for compactions that nobody asks for by hand."""

    window: Window
    trigger: Trigger | None = None
    # Of both kinds, for msgspec asks for a type only where there is something to tell apart; see ``check_standing``.
    summarizer: Summarizer | None = None


def parse(text: str | bytes) -> domain.Policy:
    """Read a stored policy.

    Raises:
        msgspec.ValidationError: when it is not one.
    """
    shape = msgspec.json.decode(text, type=Policy)
    return of(shape.window, shape.trigger, shape.summarizer)


def standing(own: str | None, default: domain.Policy | None) -> domain.Policy | None:
    """Return the policy that stands for a session: its own, else the server's."""
    return parse(own) if own is not None else default


def of(window: Window, trigger: Trigger | None, summarizer: Summarizer | None) -> domain.Policy:
    """Turn the shapes into the domain's policy; no trigger is always."""
    return domain.Policy(
        window=windows.Window(windows.Rule(window.rule), window.size),
        trigger=_trigger(trigger or Always()),
        summarizer=_summarizer(summarizer),
    )


def check_standing(policy: domain.Policy) -> None:
    """Check that a policy may stand on a session: it brings no summary along, and compacting by it comes to an end.

    Raises:
        InvalidRequest: at ``/summarizer/type`` or ``/window``.
    """
    if isinstance(policy.summarizer, domain.TextSummarizer):
        raise InvalidRequest.at("/summarizer/type", "is llm: a text is the summary of one view, and no policy")
    if policy.fires_on_its_own_window:
        raise InvalidRequest.at(
            "/window", "is so large that the trigger fires on it again at once: the trigger is the high-water mark"
        )


def _trigger(shape: Trigger) -> triggers.Trigger:
    match shape:
        case Always():
            return triggers.Always()
        case TurnCount(threshold):
            return triggers.TurnCount(threshold)
        case TokenCount(threshold):
            return triggers.TokenCount(threshold)
        case AnyOf(of=inner):
            return triggers.AnyOf(tuple(map(_trigger, inner)))
        case AllOf(of=inner):
            return triggers.AllOf(tuple(map(_trigger, inner)))
        case _:
            assert_never(shape)


def _summarizer(shape: Summarizer | None) -> domain.Summarizer | None:
    match shape:
        case None:
            return None
        case TextSummarizer(text):
            return domain.TextSummarizer(text=text)
        case LlmSummarizer(instructions=instructions, max_tokens=max_tokens, ledger=ledger):
            return domain.LlmSummarizer(instructions=instructions, max_tokens=max_tokens, ledger=ledger)
        case _:
            assert_never(shape)


def trigger_of(trigger: triggers.Trigger) -> Trigger:
    """Return the JSON shape of a trigger."""
    match trigger:
        case triggers.Always():
            return Always()
        case triggers.TurnCount(threshold):
            return TurnCount(threshold)
        case triggers.TokenCount(threshold):
            return TokenCount(threshold)
        case triggers.AnyOf(inner):
            return AnyOf([trigger_of(one) for one in inner])
        case triggers.AllOf(inner):
            return AllOf([trigger_of(one) for one in inner])
        case _:
            assert_never(trigger)
