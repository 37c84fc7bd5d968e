"""One pass over a view that ties tool calls to their results, so that every renderer only has to translate.

The list that comes out of it grows at its end as the log grows. Two things alone reach back: a result that comes after
something else was said goes to its call, and a call that was open gets a placeholder once something follows it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from app.domain.event import StoredEvent
from app.domain.view import View
from app.formats import parts, reading
from app.formats.calls import Call, Ids, Names
from app.formats.parts import Part, Text
from app.formats.reading import Format, Message
from app.formats.rendered import Notes, OpenCall

SUPERSEDED: Final = "superseded-system-message"
NO_RESULT: Final = "No result of this call was recorded."
NOTHING_SAID: Final = "(empty message)"
OPENER: Final = "(The conversation begins here.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a provider insists on, as far as this pass has to know it.

    ``speaks`` says whether a message with native pieces is anything that may stand alone as a message.
    """

    target: Format
    names: Names
    ids: Callable[[], Ids]
    ids_per_message: bool = False
    user_first: bool = False
    speaks: Callable[[Message], bool] = lambda _: True


@dataclass(slots=True, kw_only=True)
class Slot:
    """One call with what answered it: nothing, a result, or several that came one after the other.

    ``id`` and ``name`` are those that the provider accepts.
    """

    call: Call
    id: str
    name: str
    results: list[Message] = field(default_factory=list)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Everything that the results say, in their order."""
        return tuple(part for result in self.results for part in result.parts)


@dataclass(slots=True, kw_only=True)
class Exchange:
    """An assistant message that calls tools, with the results in the order of the calls.

    ``is_live`` when nothing follows it: only then may calls be open, that is, have no result and no placeholder.
    """

    message: Message
    slots: list[Slot]
    is_live: bool = False

    @property
    def answered(self) -> list[Slot]:
        """The calls that are shown with a result: all of them, but for the open ones."""
        return [slot for slot in self.slots if slot.results or not self.is_live]


Item: TypeAlias = Message | Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A view, sorted out: the prompt, and what was said after it."""

    prompt: Message | None
    items: tuple[Item, ...]
    open_calls: tuple[OpenCall, ...]


def arrange(view: View[StoredEvent], rules: Rules, notes: Notes) -> Talk:
    """Sort out a view: prompt, messages, and calls with their results."""
    prompt = _prompt(view, rules, notes)
    desk = _Desk(rules, notes)
    for event in view.events:
        if not event.is_system:
            desk.take(reading.read(event, rules.target, notes))
    open_calls = desk.close()
    return Talk(
        prompt=prompt, items=(*_opener(view, desk.items, rules, notes), *desk.items), open_calls=tuple(open_calls)
    )


def _prompt(view: View[StoredEvent], rules: Rules, notes: Notes) -> Message | None:
    """Return the newest system message (rule 16), unless it says nothing."""
    system = [event for event in view.events if event.is_system]
    newest = max(system, key=lambda event: event.seq, default=None)
    for event in system:
        if event is not newest:
            notes.add(SUPERSEDED, event.seq, "left out: a newer system message has taken its place")
    if newest is None:
        return None
    prompt = reading.read(newest, rules.target, notes)
    if any(isinstance(part, parts.Media) for part in prompt.parts):
        notes.add("media-left-out", newest.seq, "the system slot takes text alone")
    if not any(isinstance(part, Text) for part in prompt.parts):
        notes.add("empty-message-left-out", newest.seq, "left out: a system message with nothing to read")
        return None
    return prompt


def _opener(view: View[StoredEvent], items: list[Item], rules: Rules, notes: Notes) -> Iterable[Message]:
    """Open with a neutral user message where a provider would refuse the list otherwise; an empty view stays empty."""
    if items:
        first = items[0].message if isinstance(items[0], Exchange) else items[0]
        if not rules.user_first or first.role == "user":
            return
        seq = first.seq
    elif view.events:
        seq = view.events[0].seq
    else:
        return
    notes.add("opener-added", seq, "a neutral user message opens the list, for the provider wants one")
    yield reading.made(seq, "user", OPENER)


class _Desk:
    """Where the pass lays out its items."""

    def __init__(self, rules: Rules, notes: Notes) -> None:
        self.items: list[Item] = []
        self._rules = rules
        self._notes = notes
        self._ids = rules.ids()
        # By id, the calls without a result: newest message last, and in each message the first call first.
        self._open: dict[str, list[deque[tuple[Exchange, Slot]]]] = {}
        self._answered: dict[str, tuple[Exchange, Slot]] = {}

    def take(self, message: Message) -> None:
        """Lay out the next message of the view."""
        if message.answers is not None:
            self._take_result(message, message.answers)
        elif message.calls:
            self._take_calls(message)
        elif not self._says_something(message):
            self._take_silence(message)
        else:
            self.items.append(message)

    def _says_something(self, message: Message) -> bool:
        return bool(message.parts) if message.native is None else self._rules.speaks(message)

    def _take_silence(self, message: Message) -> None:
        if message.role == "user":
            self._notes.add(
                "empty-message-filled", message.seq, "a user message with nothing to read got a placeholder"
            )
            self.items.append(reading.made(message.seq, "user", NOTHING_SAID))
        else:
            self._notes.add("empty-message-left-out", message.seq, "left out: a message with nothing to send")

    def _take_calls(self, message: Message) -> None:
        if self._rules.ids_per_message:
            self._ids.start_message()
        exchange = Exchange(message=message, slots=[])
        queues: dict[str, deque[tuple[Exchange, Slot]]] = {}
        for index, call in enumerate(message.calls):
            slot = self._slot(message, index, call)
            exchange.slots.append(slot)
            queues.setdefault(call.id, deque()).append((exchange, slot))
        for call_id, queue in queues.items():
            self._open.setdefault(call_id, []).append(queue)
        self.items.append(exchange)

    def _slot(self, message: Message, index: int, call: Call) -> Slot:
        call_id = self._ids.fit(call.id, message.seq, index)
        name = self._rules.names.fit(call.name)
        if call_id != call.id:
            self._notes.add("call-id-changed", message.seq, f"call {index + 1} and its result go by the id {call_id}")
        if name != call.name:
            self._notes.add("tool-name-changed", message.seq, f"the tool of call {index + 1} goes by the name {name}")
        return Slot(call=call, id=call_id, name=name)

    def _take_result(self, message: Message, call_id: str) -> None:
        """Give a result to the newest open call of its id, else to the one answered last while nothing follows it."""
        waiting = self._open.get(call_id)
        if waiting:
            exchange, slot = waiting[-1].popleft()
            if not waiting[-1]:
                waiting.pop()
            self._answered[call_id] = exchange, slot
            if exchange is not self.items[-1]:
                self._notes.add("result-moved", message.seq, "put right after its call")
            slot.results.append(message)
            return
        exchange_and_slot = self._answered.get(call_id)
        if exchange_and_slot is not None and exchange_and_slot[0] is self.items[-1]:
            self._notes.add("results-joined", message.seq, "a further result of one call, put together with the first")
            exchange_and_slot[1].results.append(message)
            return
        slot_name = exchange_and_slot[1].call.name if exchange_and_slot else ""
        self._take_stray(message, slot_name)

    def _take_stray(self, message: Message, name: str) -> None:
        """Show a result that no call waits for as what somebody tells the model, under the tool's name."""
        if name:
            label = f"[A further result of the tool {name}]"
        else:
            label = f"[A result of the tool {message.name or message.answers}, whose call is not shown]"
        self._notes.add("result-as-text", message.seq, "a result that no call waits for is shown as text")
        told = _joined(label, message.parts)
        listed = None if len(told) == 1 else len(told)
        self.items.append(replace(reading.made(message.seq, "user", label), parts=told, listed=listed))

    def close(self) -> list[OpenCall]:
        """Close every call that something follows; return those of the last item that are open."""
        found: list[OpenCall] = []
        for at, item in enumerate(self.items):
            if not isinstance(item, Exchange):
                continue
            item.is_live = at == len(self.items) - 1
            seq = item.message.seq
            for slot in item.slots:
                if slot.results:
                    continue
                if item.is_live:
                    found.append(OpenCall(call_id=slot.call.id, seq=seq, name=slot.call.name))
                else:
                    self._notes.add("result-missing", seq, f"a placeholder answers the call {slot.call.id}")
        return found


def _joined(label: str, said: tuple[Part, ...]) -> tuple[Part, ...]:
    """Put a label before parts: into the text they begin with, or as a text of its own."""
    if said and isinstance(said[0], Text):
        return (Text(text=f"{label}\n{said[0].text}"), *said[1:])
    return (Text(text=label), *said)
