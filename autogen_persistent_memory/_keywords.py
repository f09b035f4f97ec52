"""The keyword index of a namespace: shared by all memories of the process, built on first use, kept in step."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ._lexical import KeywordIndex, KeywordMatches
from ._records import MemoryRecord
from ._store import Shelf, ShelfName
from ._threads import in_thread

_LOOK_EVERY = 1.5
_PAGE = 500


class Keywords:
    """An index over the current records on the shelves, and the ids of all rows there, by which changes are noticed."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._index = KeywordIndex()
        self._rows: dict[str, ShelfName] = {}
        self._on_shelf: Counter[ShelfName] = Counter()
        self._looked_at = 0.0
        self.is_built = False

    async def build(self, shelves: Mapping[ShelfName, Shelf]) -> None:
        """Read everything from the store, once. Hold the namespace's lock meanwhile."""
        if self.is_built:
            return
        for name, shelf in shelves.items():
            ids = await shelf.ids()
            for start in range(0, len(ids), _PAGE):
                records = await shelf.get(ids[start : start + _PAGE])
                await in_thread(lambda name=name, records=records: self.put(name, records))  # type: ignore[misc]
        self._looked_at = time.monotonic()
        self.is_built = True

    async def look(self, shelves: Mapping[ShelfName, Shelf]) -> None:
        """See whether another process added or deleted anything; cheap when it did not, and not done too often."""
        if time.monotonic() - self._looked_at < _LOOK_EVERY:
            return
        self._looked_at = time.monotonic()
        await asyncio.gather(*(self._catch_up(name, shelf) for name, shelf in shelves.items()))

    async def _catch_up(self, name: ShelfName, shelf: Shelf) -> None:
        if await shelf.size() == self._on_shelf[name]:
            return
        known = {id for id, on in self._rows.items() if on == name}
        there = await shelf.ids()
        self.remove(known.difference(there))
        new = [id for id in there if id not in known]
        for start in range(0, len(new), _PAGE):
            self.put(name, await shelf.get(new[start : start + _PAGE]))

    def saw(self, shelf: ShelfName) -> bool:
        """Whether anything was seen on a shelf."""
        return self._on_shelf[shelf] > 0

    def put(self, shelf: ShelfName, records: Iterable[MemoryRecord]) -> None:
        """Take in records that were written."""
        for record in records:
            with self._mutex:  # for one at a time, so that a search never waits for a whole page
                self._on_shelf[shelf] += record.id not in self._rows
                self._rows[record.id] = shelf
                if record.superseded_by is None:
                    self._index.put(
                        record.id,
                        f"{record.created_at:%d %B %Y} {record.content}",
                        shelf=shelf,
                        speaker=record.source,
                        session=record.session,
                        order=(record.created_at, record.sequence or 0),
                    )
                else:
                    self._index.remove(record.id)

    def remove(self, ids: Iterable[str]) -> None:
        """Forget records that were deleted."""
        with self._mutex:
            for id in ids:
                shelf = self._rows.pop(id, None)
                if shelf is not None:
                    self._on_shelf[shelf] -= 1
                self._index.remove(id)

    def clear(self, shelf: ShelfName) -> None:
        """Forget all records of a shelf."""
        self.remove([id for id, on in self._rows.items() if on == shelf])

    def search(self, query: str) -> KeywordMatches:
        """How well each memory holds the words of a query."""
        with self._mutex:
            return self._index.search(query)

    def best(self, matches: KeywordMatches, count: int, shelf: ShelfName, session_weight: float) -> list[str]:
        """The ids of the best matches on a shelf."""
        with self._mutex:
            return matches.best(count, [shelf], session_weight)

    def without_names(self, query: str) -> str:
        """The query without names that say nothing in this namespace."""
        return self._index.without_names(query)

    def speakers_named(self, query: str) -> set[str]:
        """The known speakers whose names stand in the query."""
        return self._index.speakers_named(query)

    def neighbours(self, id: str) -> Sequence[str]:
        """The ids of the memories right before and after one in its session."""
        return self._index.neighbours(id)
