"""Which keys open the service, as a process knows it: all of them, looked at again every few seconds.

So no request costs a query, neither one with a good key nor one of a million with bad ones; that there is no key yet is
known for free; and what was revoked stops within ``_LONGEST_SECONDS`` (docs/decisions/0015-keys-and-tenants.md).
"""

import asyncio
import hmac
import time
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from app.domain.errors import Unavailable
from app.domain.key import PREFIX_CHARACTERS, Caller, Key, digest_of, is_key
from app.service import unfinished
from app.storage import keys as store
from app.storage.database import Database, Reader

# Older than this the keys are looked at again, beside the requests.
_GOOD_SECONDS: Final = 2.0
# Older than this no request relies on them: it waits for the new look, which has its own end.
_LONGEST_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 5.0
# So many at a time become objects here, which takes a few milliseconds.
_PAGE: Final = 2000
# How often the last use of a key is written down, by each process.
_USE_SECONDS: Final = 60.0
_NOBODY: Final = bytes(32)

log = structlog.get_logger("turnlog.keys")


class Keyring:
    """All keys, by prefix. Only one event loop uses it, and a lookup waits for nothing, so there is no lock."""

    def __init__(self, database: Database, tasks: set[asyncio.Task[Any]]) -> None:
        """``tasks`` are the tasks that end before the database is closed."""
        self._database = database
        self._unfinished = tasks
        self._keys: dict[str, tuple[Key, Caller]] = {}
        self._stamp: store.Stamp | None = None
        self._looked_at = float("-inf")
        self._look: asyncio.Task[None] | None = None
        # Once there was a key nobody is served without one, also when the table is emptied by hand or by a restore.
        self._was_empty = True
        self._written: dict[str, float] = {}
        self._to_write: set[str] = set()
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there has never been a key. One that has expired or was revoked is one."""
        return self._was_empty

    def is_current(self) -> bool:
        """Say whether the keys are known well enough to answer by; begins a new look when it is time for one."""
        age = time.monotonic() - self._looked_at
        if age > _GOOD_SECONDS and self._look is None:
            self._look = unfinished.begin(self._look_again(), self._unfinished)
            self._look.add_done_callback(self._looked)
        return age <= _LONGEST_SECONDS

    async def catch_up(self) -> None:
        """Wait until the keys are known well enough.

        Raises:
            Unavailable: the database cannot be asked.
        """
        while not self.is_current():
            look = self._look
            assert look is not None  # noqa: S101 - begun a line above
            await asyncio.wait({look})
            error = None if look.cancelled() else look.exception()
            if look.cancelled() or isinstance(error, Unavailable):
                # Each caller gets an error of its own.
                raise Unavailable from error
            if error is not None:
                raise error

    def caller(self, presented: str) -> Caller | None:
        """Return who holds a key, None when it opens nothing. Takes as long for a wrong key as for a right one."""
        if not is_key(presented):
            return None
        found = self._keys.get(presented[:PREFIX_CHARACTERS])
        is_right = hmac.compare_digest(found[0].digest if found else _NOBODY, digest_of(presented))
        if found is None or not is_right:
            return None
        key, caller = found
        if not key.opens(self._now()):
            return None
        self._note_use(key.prefix)
        return caller

    def _now(self) -> datetime:
        """Return the time by the database's clock, which is the one that gave a key its end."""
        assert self._stamp is not None  # noqa: S101 - where there are keys there is a stamp
        return self._stamp.clock + timedelta(seconds=time.monotonic() - self._looked_at)

    def _looked(self, look: asyncio.Task[None]) -> None:
        self._look = None
        if not look.cancelled() and (error := look.exception()) is not None:
            # Whoever needs it hears of it; asked for by nobody it is no more than this.
            log.debug("keys.unknown", fault=type(error).__name__)

    async def _look_again(self) -> None:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS), self._database.aside() as reader:
                stamp = await store.stamp(reader)
                if self._stamp is None or stamp[:2] != self._stamp[:2]:
                    self._keys = {key.prefix: (key, _caller(key)) for key in await _all(reader)}
                    self._written = {prefix: at for prefix, at in self._written.items() if prefix in self._keys}
        except TimeoutError as error:
            raise Unavailable from error
        self._stamp = stamp
        self._was_empty = self._was_empty and not self._keys
        # A key that was revoked after this moment may have been seen before.
        self._looked_at = begun

    def _note_use(self, prefix: str) -> None:
        now = time.monotonic()
        if now - self._written.get(prefix, float("-inf")) < _USE_SECONDS:
            return
        self._written[prefix] = now
        self._to_write.add(prefix)
        if self._writing is None:
            self._writing = unfinished.begin(self._write_uses(), self._unfinished)

    async def _write_uses(self) -> None:
        try:
            while prefixes := sorted(self._to_write):
                self._to_write.clear()
                async with asyncio.timeout(_PATIENCE_SECONDS), self._database.one_statement() as tx:
                    await store.used(tx, prefixes)
        except (Unavailable, TimeoutError) as error:
            # Nobody waits for it; the next minute's use is written again.
            log.debug("keys.use_not_written", fault=type(error).__name__)
        finally:
            self._writing = None


async def _all(reader: Reader) -> list[Key]:
    """Return all keys. Requests are served between one page and the next."""
    found: list[Key] = []
    while True:
        page = await store.page(reader, after=found[-1].prefix if found else "", limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found


def _caller(key: Key) -> Caller:
    return Caller(prefix=key.prefix, tenant=key.tenant, scopes=frozenset(key.scopes))
