"""The views that were read last, kept in a process. Between two boundaries a view only grows at its end (rule 16).

Nothing here is ever taken for true: each read sends what is held along, and the database says, on the snapshot that it
answers from, whether the view of now begins with it (docs/decisions/0013-views-are-kept-and-asked-about.md).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from sys import getsizeof
from time import monotonic
from typing import Final
from uuid import UUID

from app.domain.event import StoredEvent
from app.storage.views import Found, Held

# What an event takes beside its texts: the object, its numbers and moments, its place in the view. Measured with
# tracemalloc: 357 bytes, and 105 more with a call, of which 57 are the call's own text.
EVENT_BYTES: Final = 400
# What an entry takes beside its events and answers, and an answer beside its bytes.
ENTRY_BYTES: Final = 1200
ANSWER_BYTES: Final = 150
PAIR_BYTES: Final = 130
CALL_BYTES: Final = 16
# What nobody has asked for in this time leaves: its session may have been deleted in another process.
IDLE_SECONDS: Final = 600.0


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """A session's newest view that was read here, and what was answered for exactly that version, by format.

    ``held_bytes`` is the memory that the view takes, ``size`` what its answers take too; ``used`` is when it was asked
    for last.
    """

    key: UUID
    held: Held
    held_bytes: int
    size: int
    answers: dict[str, bytes] = field(default_factory=dict)
    used: float = 0.0

    @property
    def age(self) -> tuple[datetime, int]:
        """Order the views of one id: by the session's birth, for an id may be used again, then by version."""
        return self.held.created_at, self.held.view.version


class ViewCache:
    """Entries by session. When they take more than ``limit`` bytes together, those that were used longest ago leave.

    Only one event loop uses it, and nothing here waits, so there is no lock. Yet reads of one session may overlap, and
    one that saw less may end after one that saw more.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = monotonic) -> None:
        """``limit`` 0 keeps nothing."""
        self._limit = limit
        self._clock = clock
        # One session must not drive out all others.
        self._largest = limit // 4
        self._entries: OrderedDict[UUID, Entry] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, key: UUID) -> Entry | None:
        """Return what is held of a session, to be sent along with a read."""
        self._make_room()
        entry = self._entries.get(key)
        if entry is not None:
            self._use(entry)
        return entry

    def forget(self, key: UUID) -> None:
        """Drop what is held of a session that is gone: nothing of it may be left anywhere."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= entry.size

    def take(self, key: UUID, found: Found[StoredEvent], sent: Entry | None) -> Entry | None:
        """Keep a view of now; ``sent`` was sent along with its read.

        Returns the entry that has this very view, None when there is none. An entry that is as new stays, and so does a
        newer one, unless it is the one that the database has just said is not right.
        """
        view = found.view
        if sent is not None and view is sent.held.view:
            return sent
        if self._limit == 0 or view is None or found.stamp is None:
            return None
        current = self._entries.get(key)
        refused = current is not None and current is sent and not found.is_held
        if current is not None and not refused and current.age >= (found.created_at, view.version):
            return current if _is_of(current.held, found) else None
        if sent is not None and found.is_held:
            held_bytes = sent.held_bytes + _bytes_of(view.events[len(sent.held.view.events) :])
        else:
            held_bytes = ENTRY_BYTES + PAIR_BYTES * len(view.covered.pairs) + _bytes_of(view.events)
        held = Held(created_at=found.created_at, stamp=found.stamp, view=view)
        return self._put(Entry(key=key, held=held, held_bytes=held_bytes, size=held_bytes))

    def keep(self, entry: Entry, output: str, answer: bytes) -> None:
        """Keep what was made of an entry's view, if the entry is still here and has room for it."""
        size = ANSWER_BYTES + len(answer)
        is_here = self._entries.get(entry.key) is entry
        if not is_here or output in entry.answers or entry.size + size > self._largest:
            return
        entry.answers[output] = answer
        entry.size += size
        self.bytes += size
        self._use(entry)
        self._make_room()

    def _put(self, entry: Entry) -> Entry | None:
        self.forget(entry.key)
        if entry.size > self._largest:
            return None
        self._entries[entry.key] = entry
        self.bytes += entry.size
        self._use(entry)
        self._make_room()
        return entry

    def _use(self, entry: Entry) -> None:
        entry.used = self._clock()
        self._entries.move_to_end(entry.key)

    def _make_room(self) -> None:
        idle = self._clock() - IDLE_SECONDS
        while self._entries and (self.bytes > self._limit or next(iter(self._entries.values())).used < idle):
            _, oldest = self._entries.popitem(last=False)
            self.bytes -= oldest.size


def _is_of(held: Held, found: Found[StoredEvent]) -> bool:
    """Say whether a held view is the one that was found, read twice at the same time."""
    return (held.created_at, held.view.version, held.stamp) == (found.created_at, found.version, found.stamp)


def _bytes_of(events: Iterable[StoredEvent]) -> int:
    return sum(
        EVENT_BYTES
        + getsizeof(event.body)
        + getsizeof(event.metadata)
        + getsizeof(event.event_id)
        + sum(CALL_BYTES + getsizeof(call) for call in event.calls)
        + (getsizeof(event.answers) if event.answers else 0)
        for event in events
    )
