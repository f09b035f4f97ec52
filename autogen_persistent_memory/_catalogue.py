"""What a process knows of a namespace: its current records and their words, shared by all its memories, kept in step."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import date
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING

from ._ahead import one_ahead
from ._embeddings import Vector, Vectors
from ._lexical import KeywordIndex, KeywordMatches
from ._locks import ReadWriteLock
from ._nearest import VectorIndex
from ._records import FACTS, MemoryRecord, Selection, listed, with_own_metadata
from ._store import Near, Shelf, ShelfName
from ._threads import in_thread

if TYPE_CHECKING:
    from ._lexical import Floats

_LOOK_EVERY = 1.5
_CLOSE_LOOK = 10
_PAGE = 500


class Catalogue:
    """The current records of a namespace with an index of their words and, if it has been told them, one of their vectors.

    It knows the ids of all rows.
    Where no other process can write, what it says is true. Where others can, it is a good guess: rows that came or went
    are noticed soon, rows that changed only when they are read.
    """

    def __init__(self) -> None:
        self._lock = ReadWriteLock()
        self._index = KeywordIndex()
        self._records: dict[str, MemoryRecord] = {}
        self._shelf_of: dict[str, ShelfName] = {}
        self._on_shelf: Counter[ShelfName] = Counter()
        self._current: Counter[ShelfName] = Counter()
        self._vectors: dict[ShelfName, VectorIndex] = {}
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
        pages = (ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE))
        async with aclosing(one_ahead(shelf.get, pages)) as read:
            async for records in read:
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
                    self._drop(shelf, record.id)
                    continue
                known = self._records.get(record.id)
                self._current[shelf] += known is None
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
                    self._drop(shelf, id)
        if self._index.is_wasteful:
            self._reindex()

    def _drop(self, shelf: ShelfName, id: str) -> None:
        self._current[shelf] -= self._records.pop(id, None) is not None
        self._index.remove(id)
        if shelf in self._vectors:
            self._vectors[shelf].remove(id)

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
            self._current, self._vectors = Counter(), {}
            self.is_built = False

    def place(self, shelf: ShelfName, embedding_id: str, vectors: Mapping[str, Vector]) -> None:
        """Take in the vectors of records that are here, made by that embedding."""
        for id, vector in vectors.items():
            with self._lock.writing():
                index = self._vectors.get(shelf)
                if index is None or index.embedding_id != embedding_id:
                    index = self._vectors[shelf] = VectorIndex(embedding_id)
                if not index.has_room_for(self._current[shelf]):
                    index.clear()
                elif id in self._records and self._shelf_of[id] == shelf:
                    index.put(id, vector)

    def lacks_vectors(self, shelf: ShelfName, embedding_id: str) -> bool:
        """Whether there are records on a shelf whose vectors should be here and are not."""
        index = self._vectors.get(shelf)
        if index is None or index.embedding_id != embedding_id:
            return self._current[shelf] > 0
        return len(index) < self._current[shelf] and index.has_room_for(self._current[shelf])

    def without_vector(self, shelf: ShelfName, embedding_id: str, most: int) -> list[str]:
        """The ids of some records on a shelf whose vectors, made by that embedding, are not here."""
        with self._lock.reading():
            index = self._vectors.get(shelf)
            if index is None or index.embedding_id != embedding_id:
                index = VectorIndex(embedding_id)
            there = (id for id in self._records if self._shelf_of[id] == shelf)
            return list(islice((id for id in there if id not in index), most))

    def can_search(self, shelf: ShelfName, embedding_id: str, dimensions: int) -> bool:
        """Whether the vectors of all current records of a shelf are here, and can be compared to such ones."""
        index = self._vectors.get(shelf)
        return (
            index is not None
            and (index.embedding_id, index.dimensions) == (embedding_id, dimensions)
            and len(index) == self._current[shelf]
        )

    def nearest(
        self, shelf: ShelfName, embedding_id: str, vectors: Vectors, meant: Selection, fetch: int
    ) -> list[tuple[Near, list[MemoryRecord]]] | None:
        """For each vector the nearest current records of a shelf that are meant, and how near each is; None if it cannot say."""
        with self._lock.reading():
            if not self.can_search(shelf, embedding_id, len(vectors[0])):
                return None
            records = self._records
            nearest = self._vectors[shelf].nearest(vectors, fetch, lambda found: meant.matches(records[found]))
            return [(near, [records[id] for id in near]) for near in nearest]

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

    def speakers_named(self, query: str) -> set[str]:
        """The known speakers whose names stand in the query."""
        with self._lock.reading():
            return self._index.speakers_named(query)

    def weigh(self, ids: Iterable[str], cosines: Floats, matches: KeywordMatches) -> Floats:
        """As `KeywordIndex.weigh`."""
        with self._lock.reading():
            return self._index.weigh(ids, cosines, matches)


def _index(index: KeywordIndex, shelf: ShelfName, record: MemoryRecord) -> None:
    index.put(
        record.id,
        record.content,
        shelf=shelf,
        date=_in_words(record.created_at.date()),
        speaker=record.source,
        session=record.session,
        order=(record.created_at, record.sequence or 0),
    )


@lru_cache(maxsize=1024)
def _in_words(day: date) -> str:
    return f"{day:%d %B %Y}"


def _indexed(record: MemoryRecord) -> tuple[object, ...]:
    return record.content, record.source, record.session, record.created_at, record.sequence
