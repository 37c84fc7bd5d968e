"""A compaction as values: a plan made from a view, then the sealed outcome that may be written (rules 17 to 22)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import Final, NamedTuple, TypeVar

from app.domain import parts, trigger, turn, window
from app.domain.event import Event
from app.domain.parts import Parts
from app.domain.policy import Policy
from app.domain.ranges import Ranges
from app.domain.view import View
from app.domain.window import Rule, Window

E = TypeVar("E", bound=Event)


class Reason(StrEnum):
    """Why nothing was written (rule 21)."""

    TRIGGER_NOT_FIRED = "trigger-not-fired"
    NO_TURN = "no-turn"
    FITS_WINDOW = "fits-window"
    NEWEST_TURN_ONLY = "newest-turn-only"
    NO_SAFE_CUT = "no-safe-cut"
    SUMMARIZER_DECLINED = "summarizer-declined"
    DOES_NOT_SHRINK = "does-not-shrink"
    LOST_RACE = "lost-race"


DETAILS: dict[Reason, str] = {
    Reason.TRIGGER_NOT_FIRED: "The trigger does not fire on the view.",
    Reason.NO_TURN: "The view has no user message, so there is no turn to cover.",
    Reason.FITS_WINDOW: "All turns of the view fit the window.",
    Reason.NEWEST_TURN_ONLY: "Only the newest turn is left, and the newest turn always stays.",
    Reason.NO_SAFE_CUT: "Every cut would part a tool call from its result.",
    Reason.SUMMARIZER_DECLINED: "The summarizer returned no text.",
    Reason.DOES_NOT_SHRINK: "The view with the summary would not be smaller than the view is now.",
    Reason.LOST_RACE: "Another compaction wrote a boundary first.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """Nothing is to be written; ``tokens`` are those of the view as it stays."""

    reason: Reason
    tokens: int
    over_budget: bool

    @property
    def detail(self) -> str:
        """The reason as a sentence."""
        return DETAILS[self.reason]


class Tokens(NamedTuple):
    """The view's tokens before and after a compaction."""

    before: int
    after: int

    @property
    def saved(self) -> int:
        """How many tokens smaller the view gets."""
        return self.before - self.after


class Left(NamedTuple):
    """A view as a policy leaves it, in turns and events: it is looked at again when it has more of them.

    0 is any number: so many turns count only where no event alone can change anything.
    """

    turns: int = 0
    events: int = 0


NEVER_SETTLED: Final = Left()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a compaction would cover and keep, made from the view at ``version`` whose newest boundary is ``boundary``.

    ``covered`` is the new cumulative coverage, ``newly_covered`` what this pass adds. ``pinned`` is in view order. The
    counts are of events and turns that leave the view, and of events that the turns from the cut on hold. ``left`` is
    what the policy leaves in the view.
    """

    version: int
    boundary: int | None
    covered: Ranges
    newly_covered: Ranges
    pinned: tuple[int, ...]
    preserved: Ranges
    covered_events: int
    covered_turns: int
    covered_tokens: int
    preserved_events: int
    left: Left
    tokens: Tokens


def over_budget(kept: Window, tokens: int) -> bool:
    """Say whether a view of so many tokens is larger than a token budget allows; other windows have no budget."""
    return kept.rule is Rule.TOKEN_BUDGET and tokens > kept.size


def staying(reason: Reason, policy: Policy, tokens: int) -> Unchanged:
    """Say why a view of so many tokens stays as it is."""
    return Unchanged(reason=reason, tokens=tokens, over_budget=over_budget(policy.window, tokens))


def plan(view: View[E], policy: Policy) -> Plan | Unchanged:
    """Decide what a compaction by ``policy`` covers, or why it covers nothing."""

    def unchanged(reason: Reason) -> Unchanged:
        return staying(reason, policy, view.tokens)

    if not trigger.fires(policy.trigger, turns=view.turns, tokens=view.tokens):
        return unchanged(Reason.TRIGGER_NOT_FIRED)
    found = parts.take_apart(view)
    if not found.turns:
        return unchanged(Reason.NO_TURN)
    pinned = _pinned(found, with_summaries=policy.summarizer is None)
    reserved = sum(event.token_count for event in pinned) + policy.summary_reserve
    raw = window.raw_cut(policy.window, found.turns, reserved)
    if raw == 0:
        return unchanged(Reason.FITS_WINDOW)
    cut = window.turn_cut(found.turns, raw)
    if cut == 0:
        return unchanged(Reason.NEWEST_TURN_ONLY)
    cut = window.safe_cut(found.turns, cut)
    if cut == 0:
        return unchanged(Reason.NO_SAFE_CUT)
    return covering(view, pinned, found.turns[cut:])


def narrowed(view: View[E], policy: Policy, shown: int) -> Plan | None:
    """Plan to cover no more than the turns up to the seq ``shown``, for a summarizer that was shown no more (rule 28).

    None when that holds no whole turn, or every cut in it would part a tool call from its result.
    """
    found = parts.take_apart(view)
    cut = next((at for at, event in enumerate(found.turns) if event.seq > shown), len(found.turns))
    at_most = max((start for start in turn.starts(found.turns) if start <= cut), default=0)
    safe = window.safe_cut(found.turns, at_most) if at_most else 0
    return (
        covering(view, _pinned(found, with_summaries=policy.summarizer is None), found.turns[safe:]) if safe else None
    )


def limited(view: View[E], policy: Policy, planned: Plan, tokens: int) -> Plan:
    """Return a plan that covers turns of about so many tokens at most, or the plan itself when it covers no more.

    At least one turn is covered, however large it is.
    """
    if planned.covered_tokens <= tokens:
        return planned
    turns = parts.take_apart(view).turns
    so_far = accumulate(event.token_count for event in turns)
    shown = max((event.seq for event, used in zip(turns, so_far, strict=True) if used <= tokens), default=0)
    return narrowed(view, policy, shown) or planned


def _pinned(found: Parts[E], *, with_summaries: bool) -> tuple[E, ...]:
    """Return what stays before the turns, in view order: a new summary takes the place of the earlier ones."""
    prompt = (found.prompt,) if found.prompt else ()
    return (*prompt, *found.preamble, *(found.summaries if with_summaries else ()))


def covering(view: View[E], pinned: Sequence[E], preserved: Sequence[E]) -> Plan:
    """Plan to cover everything in the view that is neither pinned nor preserved (rule 22)."""
    staying = {event.seq for event in (*pinned, *preserved)}
    leaving = [event for event in view.events if event.seq not in staying]
    kept, newly = Ranges.of(staying), Ranges.of(event.seq for event in leaving)
    before, lost = view.tokens, sum(event.token_count for event in leaving)
    turns_lost = sum(event.starts_turn for event in leaving)
    return Plan(
        version=view.version,
        boundary=view.boundary,
        covered=(view.covered | newly).bridged(kept),
        newly_covered=newly.bridged(kept | view.covered),
        pinned=tuple(event.seq for event in pinned),
        preserved=Ranges.of(event.seq for event in preserved).bridged(
            Ranges.of(event.seq for event in pinned) | newly | view.covered
        ),
        covered_events=len(leaving),
        covered_turns=turns_lost,
        covered_tokens=lost,
        preserved_events=len(preserved),
        left=Left(turns=view.turns - turns_lost, events=len(view.events) - len(leaving)),
        tokens=Tokens(before, before - lost),
    )


# Why only a further turn can change anything: there is no other turn to cut before, or trying again costs money.
_WAITS_FOR_A_TURN: Final = {Reason.NO_TURN, Reason.NEWEST_TURN_ONLY, Reason.DOES_NOT_SHRINK, Reason.SUMMARIZER_DECLINED}


def resting(policy: Policy, found: Left, reason: Reason | None = None) -> Left:
    """Say when a view that ``policy`` has done with is to be looked at again.

    ``found`` is what is in the view, and ``reason`` why nothing was covered; None when something was.
    """
    by_turn = policy.window.rule is Rule.LAST_TURNS or found.turns <= 1 or reason in _WAITS_FOR_A_TURN
    return Left(turns=found.turns) if by_turn else Left(events=found.events)


def seal(planned: Plan, policy: Policy, summary_tokens: int | None) -> Plan | Unchanged:
    """Hold a plan against the summary that its summarizer wrote, and return the plan with the final token figures.

    ``summary_tokens`` are those of both messages of the summary turn; None means that the summarizer wrote nothing.
    Without a summarizer the plan stands as it is.
    """
    if policy.summarizer is None:
        return planned
    before, without = planned.tokens
    after = without + (summary_tokens or 0)
    if summary_tokens is not None and after < before:
        return replace(planned, tokens=Tokens(before, after))
    reason = Reason.SUMMARIZER_DECLINED if summary_tokens is None else Reason.DOES_NOT_SHRINK
    return staying(reason, policy, before)
