"""The rules of semantics.md in the slowest and plainest way, with no code of the domain's own, to check it against."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.compaction import Reason
from app.domain.event import Event
from app.domain.policy import LlmSummarizer, Policy
from app.domain.trigger import TokenCount, TurnCount
from app.domain.view import View
from app.domain.window import Rule


def pairs_of(events: Sequence[Event]) -> list[tuple[Event, Event]]:
    """Match results with calls: the newest open call of the id, else the one answered last."""
    calls: list[dict[str, object]] = []
    found: list[tuple[Event, Event]] = []
    answered = 0
    for event in events:
        calls += [{"id": call, "by": event, "answered": 0} for call in event.calls]
        if event.answers is None:
            continue
        same = [call for call in calls if call["id"] == event.answers]
        still_open = [call for call in same if not call["answered"]]
        if not same:
            continue
        call = still_open[-1] if still_open else max(same, key=lambda one: one["answered"])  # type: ignore[arg-type,return-value]
        if still_open:
            answered += 1
            call["answered"] = answered
        by = call["by"]
        assert isinstance(by, Event)
        found.append((by, event))
    return found


@dataclass(frozen=True, slots=True)
class Split:
    """A view in the words of the window rules."""

    prompt: list[Event]
    superseded: list[Event]
    preamble: list[Event]
    summaries: list[Event]
    turns: list[Event]


def split(view: View[Event]) -> Split:
    system = sorted((event for event in view.events if event.role in {"system", "developer"}), key=lambda e: e.seq)
    summaries = [event for event in view.events if event.synthetic]
    rest = [event for event in view.events if event not in system and event not in summaries]
    preamble: list[Event] = []
    while rest and rest[0].role != "user":
        preamble.append(rest.pop(0))
    return Split(system[-1:], system[:-1], preamble, summaries, rest)


def fits(policy: Policy, parts: Split, kept: Sequence[Event]) -> bool:
    """Say whether a suffix of the turns fits the window as it is (rule 17)."""
    match policy.window.rule:
        case Rule.LAST_EVENTS:
            return len(kept) <= policy.window.size
        case Rule.LAST_TURNS:
            return sum(event.role == "user" for event in kept) <= policy.window.size
        case Rule.TOKEN_BUDGET:
            stays = [*parts.prompt, *parts.preamble]
            if policy.summarizer is None:
                stays += parts.summaries
            bound = policy.summarizer.max_tokens or 0 if isinstance(policy.summarizer, LlmSummarizer) else 0
            spent = sum(event.token_count for event in [*stays, *kept]) + bound
            return not kept or spent <= policy.window.size


def fires(policy: Policy, view: View[Event]) -> bool:
    real = [event for event in view.events if event.role == "user" and not event.synthetic]
    match policy.trigger:
        case TurnCount(threshold):
            return len(real) > threshold
        case TokenCount(threshold):
            return sum(event.token_count for event in view.events) >= threshold
        case _:
            return True


def expected(view: View[Event], policy: Policy) -> Reason | list[int]:
    """Return why nothing is to be covered, or the seqs of the turns from the cut on (rules 17 to 21)."""
    parts = split(view)
    turns = parts.turns
    if not fires(policy, view):
        return Reason.TRIGGER_NOT_FIRED
    if not turns:
        return Reason.NO_TURN
    if fits(policy, parts, turns):
        return Reason.FITS_WINDOW
    starts = [at for at, event in enumerate(turns) if event.role == "user"]
    raw = next(at for at in range(len(turns) + 1) if fits(policy, parts, turns[at:]))
    ahead = [start for start in starts if start >= raw]
    cut = ahead[0] if ahead else starts[-1]
    if cut == 0:
        return Reason.NEWEST_TURN_ONLY
    pairs = [(turns.index(call), turns.index(result)) for call, result in pairs_of(turns)]
    while any(call < cut <= result for call, result in pairs):
        cut = max(start for start in starts if start < cut)
    return [event.seq for event in turns[cut:]] if cut else Reason.NO_SAFE_CUT


def older_kind(memory: list[Event], added: list[Event], says: dict[int, str], max_messages: int) -> list[Event]:
    """Rule 37, one message at a time."""
    system = [event for event in memory if event.is_system]
    said = [(event.role, says[event.seq]) for event in system]
    if any(event.is_system and (event.role, says[event.seq]) not in said for event in added):
        memory = [event for event in memory if event not in system]
    kept = [*memory, *added]
    left = False
    while True:
        others = [event for event in kept if not event.is_system]
        too_many = len(kept) > max_messages
        if not others or not (too_many or (left and others[0].role != "user")):
            return kept
        kept.remove(others[0])
        left = True
