"""Have the model write a summary of what a compaction covers, part by part when it is long (rules 28, 29 and 31)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from anyio import to_thread

from app.domain.errors import InvalidRequest, SummarizerFailed
from app.domain.event import StoredEvent
from app.domain.policy import LlmSummarizer
from app.formats import text
from app.service import outcomes
from app.service.context import Context, Summarizing, offloaded
from app.summarizer import folding, ledger, prompt, turn
from app.summarizer.folding import Chunk, Entry
from app.tokens import LONG_TEXT, MESSAGE_TOKENS

# A provider counts a few tokens for each message and for what its own tokenizer sees otherwise.
_MARGIN: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a summarizer is shown: the earlier summary with its ledger, then what was said, oldest first."""

    earlier: str | None
    facts: tuple[str, ...]
    entries: tuple[Entry, ...]


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a summary has come: when a later part fails, what was paid for is still there.

    ``text`` is the summary so far, ``shown`` the seq of the newest event in it. The counts are the provider's own.
    """

    story: Story = field(default_factory=lambda: Story(earlier=None, facts=(), entries=()))
    text: str | None = None
    shown: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def paid(self, input_tokens: int, output_tokens: int) -> None:
        """Take note of what a call cost."""
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens

    def facts(self) -> tuple[str, ...]:
        """Return the ledger of the summary so far, oldest first."""
        told = (entry.text for entry in self.story.entries if entry.seq <= self.shown)
        return ledger.carried(self.story.facts, (fact for said in told for fact in ledger.find(said)))


def story_of(events: Sequence[StoredEvent]) -> Story:
    """Tell the events that a compaction covers; system messages are no part of the story."""
    told = [
        (turn.text_of(outcomes.content_of(event.body), shown), carried)
        for event in events
        if event.synthetic and event.role == "assistant"
        for carried, shown in [outcomes.facts_of(event.metadata)]
    ]
    spoken = [event for event in events if not event.synthetic and not event.is_system]
    return Story(
        earlier="\n\n".join(summary for summary, _ in told) or None,
        # A summary that was brought along has no ledger yet.
        facts=tuple(fact for summary, facts in told for fact in facts or ledger.find(summary)),
        entries=tuple(
            Entry(seq=event.seq, text=prompt.quoted(said), starts_turn=event.starts_turn)
            for event, said in zip(spoken, text.transcript(spoken), strict=True)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A summary to be written: of which events, how, and how many tokens of the view it takes the place of.

    ``fits`` says that the whole turn that tells it may have no more tokens than ``how`` allows the summary.
    """

    events: Sequence[StoredEvent]
    how: LlmSummarizer
    worth: int
    fits: bool = False


def model_of(ctx: Context) -> Summarizing:
    """Return the configured model.

    Raises:
        InvalidRequest: there is none.
    """
    if ctx.summarizing is None:
        raise InvalidRequest.at(
            "/summarizer",
            "this server has no model for summaries: its operator sets TURNLOG_SUMMARIZER_PROVIDER,"
            " TURNLOG_SUMMARIZER_MODEL and, where one is needed, TURNLOG_SUMMARIZER_API_KEY; or bring a text along",
        )
    return ctx.summarizing


async def write(ctx: Context, summarizing: Summarizing, order: Order, progress: Progress) -> None:
    """Summarize, and put what comes of it into ``progress``; all of it ends within the time that the settings allow.

    A summary that is too long is let through when it is no smaller than what it replaces, which is the better reason.

    Raises:
        SummarizerFailed, SummarizerTimeout: ``progress`` has the parts that succeeded before.
    """
    deadline = asyncio.get_running_loop().time() + summarizing.seconds
    progress.story = await to_thread.run_sync(story_of, order.events)
    earlier, parts, most = await to_thread.run_sync(_parts, ctx, summarizing, progress.story, order)
    for part in parts:
        asked = prompt.prompt(
            earlier=earlier, entries=part.entries, instructions=order.how.instructions, max_tokens=most
        )
        progress.calls += 1
        try:
            answer = await summarizing.model.complete(asked, max_tokens=most, deadline=deadline)
        except SummarizerFailed as error:
            progress.paid(*error.tokens)
            raise
        progress.paid(answer.input_tokens or 0, answer.output_tokens or 0)
        size = await offloaded(len(answer.text) > LONG_TEXT, ctx.tokens.text, answer.text)
        if size > most and (part is not parts[-1] or size < order.worth):
            raise SummarizerFailed("too-long", f"the summary has {size} tokens, and {most} are allowed")
        earlier = progress.text = answer.text
        progress.shown = part.last_seq


def _parts(ctx: Context, summarizing: Summarizing, story: Story, order: Order) -> tuple[str | None, list[Chunk], int]:
    """Cut the story into parts of which each fits a request together with the summary so far.

    Returns the earlier summary, the parts, and how many tokens an answer may have: no more than half of what a request
    has room for, so that the next one has room for it. An earlier summary that would leave no room for anything else
    is shortened, for its author may have been anybody.

    Raises:
        SummarizerFailed: the instructions leave no room.
    """
    count = ctx.tokens.text
    how = order.how
    most = min(how.max_tokens or summarizing.max_tokens, summarizing.max_tokens)
    if order.fits and how.max_tokens is not None:
        most = min(most, max(how.max_tokens - turn_tokens(count), how.max_tokens // 2))
    empty = prompt.scaffold(instructions=how.instructions, max_tokens=most, with_earlier=True)
    left = summarizing.max_input_tokens - count(empty.system) - count(empty.user) - _MARGIN
    if left < 2 * folding.LEAST_ROOM:
        raise SummarizerFailed("no-room", "the instructions leave no room in a request for what is to be summarized")
    most = min(most, left // 2)
    earlier, first_room = None, left
    if story.earlier is not None:
        earlier = folding.shortened(prompt.quoted(story.earlier), count=count, room=left // 2)
        first_room = left - count(earlier)
    return earlier, folding.chunks(story.entries, count=count, first_room=first_room, room=left - most), most


def turn_tokens(count: Callable[[str], int]) -> int:
    """Count what a summary turn has beside the summary: the question, the label, and what each message costs.

    What is no larger than that cannot get smaller by a summary, whatever it says.
    """
    return count(turn.QUESTION) + count(turn.told("", ())) + 2 * (MESSAGE_TOKENS + 1)
