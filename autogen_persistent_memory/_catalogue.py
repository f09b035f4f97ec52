"""What a process knows of a namespace: its current records and their words, shared by all its memories, kept in step."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from ._lexical import KeywordIndex, KeywordMatches
from ._locks import ReadWriteLock
from ._records import FACTS, MemoryRecord, listed, with_own_metadata
from ._store import Shelf, ShelfName
from ._threads import in_thread

_LOOK_EVERY = 1.5
_CLOSE_LOOK = 10
_PAGE = 500


class Catalogue:
    """The current records of a namespace with an index of their words, and the ids of all its rows.

    Where no other process can write, what it says is true. Where others can, it is a good guess: rows that came or went
    are noticed soon, rows that changed only when they are read.
    """

    def __init__(self) -> None:
        self._lock = ReadWriteLock()
        self._index = KeywordIndex()
        self._records: dict[str, MemoryRecord] = {}
        self._shelf_of: dict[str, ShelfName] = {}
        self._on_shelf: Counter[ShelfName] = Counter()
        self._looked_at = 0.0
        self._looks = 0
        self.is_built = False

    def __len__(self) -> int:
        return len(self._records)

    async def build(self, shelves: Mapping[ShelfName, Shelf]) -> None:
        """Read everything from the store, once. Hold the namespace's lock meanwhile."""
        if self.is_built:
            return
        for name, shelf in shelves.items():
            await shelf.settle()
            await self._read(name, shelf, await shelf.ids())
        self._looked_at = time.monotonic()
        self.is_built = True

    async def look(self, shelves: Mapping[ShelfName, Shelf]) -> None:
        """See whether another process added or deleted anything; cheap when it did not, and not done too often.

        Usually their number tells. As many may have come as went, so now and then the ids are compared.
        """
        if time.monotonic() - self._looked_at < _LOOK_EVERY:
            return
        self._looked_at = time.monotonic()
        self._looks += 1
        await asyncio.gather(*(self._catch_up(name, shelf) for name, shelf in shelves.items()))

    async def _catch_up(self, name: ShelfName, shelf: Shelf) -> None:
        if self._looks % _CLOSE_LOOK and await shelf.size() == self._on_shelf[name]:
            return
        there = await shelf.ids()
        with self._lock.reading():
            known = {id for id, on in self._shelf_of.items() if on == name}
        gone = known.difference(there)
        await in_thread(lambda: self.remove(gone))
        await self._read(name, shelf, [id for id in there if id not in known])

    async def _read(self, name: ShelfName, shelf: Shelf, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), _PAGE):
            records = await shelf.get(ids[start : start + _PAGE])
            await in_thread(partial(self.put, name, records))

    def saw(self, shelf: ShelfName) -> bool:
        """Whether anything was seen on a shelf."""
        return self._on_shelf[shelf] > 0

    def put(self, shelf: ShelfName, records: Iterable[MemoryRecord]) -> None:
        """Take in records that were written."""
        for record in records:
            with self._lock.writing():  # for one at a time, so that a search never waits for a whole page
                self._on_shelf[shelf] += record.id not in self._shelf_of
                self._shelf_of[record.id] = shelf
                if record.superseded_by is not None:
                    self._records.pop(record.id, None)
                    self._index.remove(record.id)
                    continue
                known = self._records.get(record.id)
                self._records[record.id] = with_own_metadata(record)
                if not record.is_trivial and (known is None or _indexed(known) != _indexed(record)):
                    _index(self._index, shelf, record)

    def correct(self, changed: Mapping[str, MemoryRecord | None]) -> None:
        """Take in how records that are here were found to be in truth; None for those that are gone."""
        self.remove([id for id, record in changed.items() if record is None])
        for id, record in changed.items():
            shelf = self._shelf_of.get(id)
            if record is not None and shelf is not None:
                self.put(shelf, [record])

    def remove(self, ids: Iterable[str]) -> None:
        """Forget records that were deleted."""
        for id in ids:
            with self._lock.writing():
                shelf = self._shelf_of.pop(id, None)
                if shelf is not None:
                    self._on_shelf[shelf] -= 1
                self._records.pop(id, None)
                self._index.remove(id)
        if self._index.is_wasteful:
            self._reindex()

    def _reindex(self) -> None:
        index = KeywordIndex()
        with self._lock.writing():
            for record in self._records.values():
                if not record.is_trivial:
                    _index(index, self._shelf_of[record.id], record)
            self._index = index

    def start_over(self) -> None:
        """Forget everything, until it is built anew."""
        with self._lock.writing():
            self._index = KeywordIndex()
            self._records, self._shelf_of, self._on_shelf = {}, {}, Counter()
            self.is_built = False

    def record(self, id: str) -> MemoryRecord | None:
        """The current record of that id."""
        return self._records.get(id)

    def messages(self, session: str | None = None) -> list[MemoryRecord]:
        """The current records of one session, or of all."""
        with self._lock.reading():
            records = [record for id, record in self._records.items() if self._shelf_of[id] == "session"]
        return [record for record in records if session is None or record.session == session]

    def __contains__(self, id: str) -> bool:
        return id in self._shelf_of

    def is_superseded(self, id: str) -> bool:
        """Whether there is a record of that id, but not a current one."""
        return id in self._shelf_of and id not in self._records

    def is_outdated(self, record: MemoryRecord) -> bool:
        """Whether it is a message, and something that it told was superseded, ended or forgotten since."""
        return self.is_built and any(id not in self._records for id in listed(record, FACTS))

    def search(self, query: str) -> KeywordMatches:
        """How well each memory holds the words of a query."""
        with self._lock.reading():
            return self._index.search(query)

    def best(self, matches: KeywordMatches, count: int, shelf: ShelfName, session_weight: float) -> list[str]:
        """The ids of the best matches on a shelf."""
        with self._lock.reading():
            return matches.best(count, shelf, session_weight)

    def as_said(self, query: str) -> str:
        """The query as the speakers it names would put it."""
        with self._lock.reading():
            return self._index.as_said(query)

    def particulars(self, ids: Iterable[str]) -> list[int]:
        """Of each of these memories how many particulars it tells."""
        with self._lock.reading():
            return self._index.particulars(ids)

    def speakers_named(self, query: str) -> set[str]:
        """The known speakers whose names stand in the query."""
        with self._lock.reading():
            return self._index.speakers_named(query)

    def beside(self, worth: Mapping[str, float]) -> list[float]:
        """For each of these memories what those right before and after it in its session are worth together."""
        with self._lock.reading():
            return self._index.beside(worth)


def _index(index: KeywordIndex, shelf: ShelfName, record: MemoryRecord) -> None:
    index.put(
        record.id,
        record.content,
        shelf=shelf,
        date=f"{record.created_at:%d %B %Y}",
        speaker=record.source,
        session=record.session,
        order=(record.created_at, record.sequence or 0),
    )


def _indexed(record: MemoryRecord) -> tuple[object, ...]:
    return record.content, record.source, record.session, record.created_at, record.sequence
