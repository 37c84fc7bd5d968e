"""Appends of one process, coalesced: those that arrive while a statement is in flight leave together in the next one.

An optimisation and nothing else: ``events.append`` does the same for one batch, and every batch that anything is the
matter with goes that way, by itself (docs/decisions/0012-appends-leave-together.md).
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from app.domain.errors import Unavailable
from app.domain.event import Draft
from app.service import unfinished
from app.storage import events, flights
from app.storage.database import Database
from app.storage.flights import Batch, Flight

# So many statements with one batch each may be in flight beside the flight: a few callers gain nothing by waiting.
_MOST_ALONE: Final = 2
# A larger batch would make everybody aboard wait for it, and gains nothing.
_LARGE_EVENTS: Final = 100
_LARGE_CHARACTERS: Final = 256 * 1024
# A flight waits for no row lock. One that is longer on its way has met a database that does not answer, and everybody
# else's appends wait for it to come home.
_FLIGHT_SECONDS: Final = 5.0


class Appends:
    """The way of a process's appends to the database.

    One of a few callers runs a statement of his own, at once. One of many waits for the next flight: one statement for
    many batches, one flight at a time. While a statement of this process writes to a session, no flight takes that
    session aboard, for it would find its row locked.
    """

    def __init__(self, database: Database, tasks: set[asyncio.Task[Any]]) -> None:
        """``tasks`` are the tasks that end before the database is closed."""
        self._database = database
        self._unfinished = tasks
        self._alone: Counter[UUID] = Counter()
        self._waiting: dict[UUID, deque[Batch]] = {}
        self._flying = False

    async def append(self, key: UUID, drafts: Sequence[Draft], *, expected_version: int | None) -> int | None:
        """Append a batch as ``events.append`` does, with the same answers. It is durable when this returns.

        Raises:
            UniqueViolation: of ``events.EVENT_ID_CONSTRAINT``, as there.
        """
        characters = sum(len(draft.body) + len(draft.metadata) for draft in drafts)
        large = len(drafts) > _LARGE_EVENTS or characters > _LARGE_CHARACTERS
        if (large and key not in self._alone) or self._may_go_alone(key):
            self._set_apart(key)
            return await self._by_itself(key, drafts, expected_version)
        batch = flights.Batch(key=key, drafts=drafts, expected_version=expected_version, characters=characters)
        self._waiting.setdefault(key, deque()).append(batch)
        self._depart()
        try:
            return await batch.answer
        except asyncio.CancelledError:
            self._forget(batch)
            raise

    def _forget(self, batch: Batch) -> None:
        queue = self._waiting.get(batch.key, deque())
        if batch in queue:
            queue.remove(batch)
            if not queue:
                del self._waiting[batch.key]

    def _may_go_alone(self, key: UUID) -> bool:
        return key not in self._alone and len(self._alone) < _MOST_ALONE and not self._may_fly()

    def _may_fly(self) -> bool:
        """Somebody waits whose session nobody writes to alone."""
        return any(key not in self._alone for key in self._waiting)

    def _set_apart(self, key: UUID) -> None:
        """Take a session aboard no flight, until ``_by_itself`` has written to it."""
        self._alone[key] += 1

    async def _by_itself(self, key: UUID, drafts: Sequence[Draft], expected_version: int | None) -> int | None:
        try:
            async with self._database.one_statement() as tx:
                return await events.append(tx, key, drafts, expected_version=expected_version)
        except Unavailable as error:
            # Who waits behind one that had no answer in time would only begin to wait as long.
            _fail(self._waiting.pop(key, ()), error)
            raise
        finally:
            self._alone[key] -= 1
            if not self._alone[key]:
                del self._alone[key]
            self._depart()

    def _depart(self) -> None:
        """Start a flight, unless there is one or nobody to take aboard."""
        if not self._flying and self._may_fly():
            self._flying = True
            unfinished.begin(self._fly(), self._unfinished)

    async def _fly(self) -> None:
        """Carry those who wait, one flight after the other, while there are any."""
        try:
            while flight := self._board():
                await self._carry(flight)
        finally:
            self._flying = False

    def _board(self) -> Flight:
        """Take aboard those who have waited longest, as far as there is room."""
        flight: dict[UUID, Sequence[Batch]] = {}
        room = flights.Room()
        for key in [key for key in self._waiting if key not in self._alone]:
            queue = self._waiting[key]
            group = flights.group(queue, room)
            if queue and not group:
                break
            del self._waiting[key]
            if queue:
                # The others come first next time.
                self._waiting[key] = queue
            if group:
                flight[key] = group
        return flight

    async def _carry(self, flight: Flight) -> None:
        everyone = [batch for group in flight.values() for batch in group]
        try:
            async with asyncio.timeout(_FLIGHT_SECONDS), self._database.one_statement() as tx:
                found = await flights.append(tx, flight)
        except (Unavailable, TimeoutError) as error:
            # Who waits for the next flight would begin to wait for the same only then.
            waiting, self._waiting = self._waiting, {}
            _fail([*everyone, *(batch for queue in waiting.values() for batch in queue)], error)
        except asyncio.CancelledError:
            _fail(everyone, Unavailable())
            raise
        except Exception:  # noqa: BLE001 - one batch's fault, such as an id that is stored already, but whose?
            for batch in everyone:
                self._send_alone(batch)
        else:
            for key, group in flight.items():
                self._answer(key, group, *found[key])

    def _answer(self, key: UUID, group: Sequence[Batch], base: int | None, held: bool) -> None:  # noqa: FBT001
        """Tell the batches of one session where they are stored. When its row was locked, one waits for it, for all."""
        if held:
            first, *others = group
            if others:
                self._waiting[key] = deque([*others, *self._waiting.pop(key, ())])
            self._send_alone(first)
            return
        for batch in group:
            batch.tell(base)
            base = None if base is None else base + len(batch.drafts)

    def _send_alone(self, batch: Batch) -> None:
        self._set_apart(batch.key)
        task = unfinished.begin(self._answer_alone(batch), self._unfinished)
        # One that is stopped has told nobody, perhaps not even begun.
        task.add_done_callback(lambda done: batch.fail(Unavailable()) if done.cancelled() else None)

    async def _answer_alone(self, batch: Batch) -> None:
        try:
            batch.tell(await self._by_itself(batch.key, batch.drafts, batch.expected_version))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is for the caller
            batch.fail(error)


def _fail(batches: Iterable[Batch], error: Exception) -> None:
    """Tell callers that the database was away, each with an error of his own that says what was the matter with it."""
    for batch in batches:
        told = type(error)() if isinstance(error, Unavailable) else Unavailable()
        told.__cause__ = error.__cause__ or error
        batch.fail(told)
