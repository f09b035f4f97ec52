"""The current records of a namespace in RAM, with indexes of their words and vectors, shared by all memories of a process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from itertools import compress, islice
from typing import NamedTuple, TypeVar

from ..core.checks import MAX_CONTENT
from ..core.records import MemoryRecord, Selection, told_facts, with_own_metadata
from ..runtime.background_task import prefetch
from ..runtime.locks import LockTakenError, ReadWriteLock
from ..runtime.threads import in_thread, start_in_thread
from ..storage.connection import size_of
from ..storage.protocol import RecordTable, TableName
from ..text.embeddings import Vector, Vectors
from ..text.sentences import is_trivial, without
from .keyword_index import KeywordIndex, KeywordMatches, Words, words_of
from .ranking import ROW_OF, Candidates
from .vector_index import VectorIndex

_LOOK_EVERY = 1.5
_CLOSE_LOOK = 10
_PAGE = 500

T = TypeVar("T")
Found = list[tuple[MemoryRecord, float]]
"""Records that a vector search found, with their cosine similarities."""


class Asked(NamedTuple):
    """A question, with the memories that hold its words."""

    query: str
    tables: Sequence[TableName]
    selection: Selection
    fetch: int
    """How many near memories may answer, of each table."""
    matches: KeywordMatches
    by_words: Mapping[str, Sequence[int]]
    """The slots of those that hold its words best, by table."""
    speakers: Set[str]
    """The speakers whom it names."""


class RecordCache:
    """The current records of a namespace, an index of their words and, as far as they were put in, one of their vectors.

    It has the ids of all rows. If no other process can write to the store, it is always right. Otherwise added and deleted
    rows are noticed soon, changed rows only when they are read.
    """

    def __init__(self) -> None:
        self._lock = ReadWriteLock()
        self._looked_at = 0.0
        self._looks = 0
        self._emptying: Future[None] | None = None
        self.is_built = False
        self.numbers: dict[tuple[TableName, str], int] = {}
        """The last sequence number given in each session."""
        self._clear()

    def _clear(self) -> None:
        self._records: dict[str, MemoryRecord] = {}
        self._table_of: dict[str, TableName] = {}
        self.rows_in: Counter[TableName] = Counter()
        self._vectors: dict[TableName, VectorIndex] = {}
        self._clear_index()

    def _clear_index(self) -> None:
        self._index = KeywordIndex()
        self._indexed_in: Counter[TableName] = Counter()  # trivial records are not indexed
        self._in_slot: list[MemoryRecord | None] = []
        self._doubtful: set[int] = set()
        """Slots whose records have an expiry, or were removed."""

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, id: str) -> bool:
        return id in self._table_of

    # In step with the store

    async def build(self, tables: Mapping[TableName, RecordTable]) -> None:
        """Read everything from the store, once. Hold the namespace's lock meanwhile."""
        if self.is_built:
            return
        if self._emptying is not None:
            await asyncio.wrap_future(self._emptying)
        for name, table in tables.items():
            await self._read(name, table, await table.ids())
        self._looked_at = time.monotonic()
        self.is_built = True

    async def sync(self, tables: Mapping[TableName, RecordTable]) -> None:
        """Read what other processes added, and remove what they deleted; cheap if nothing changed, and rate-limited.

        Usually the number of rows tells. As many may have been added as deleted, so every tenth time the ids are compared.
        """
        if time.monotonic() - self._looked_at < _LOOK_EVERY:
            return
        self._looked_at = time.monotonic()
        self._looks += 1
        await asyncio.gather(*(self._sync_table(name, table) for name, table in tables.items()))

    async def _sync_table(self, name: TableName, table: RecordTable) -> None:
        if self._looks % _CLOSE_LOOK and await size_of(table) == self.rows_in[name]:
            return
        there = await table.ids()
        ids = partial(self.read_now, lambda: {id for id, table_of in self._table_of.items() if table_of == name})
        known = await in_thread(ids)
        gone = known.difference(there)
        await in_thread(lambda: self.remove(gone))
        await self._read(name, table, [id for id in there if id not in known])

    async def _read(self, name: TableName, table: RecordTable, ids: Sequence[str]) -> None:
        pages = (ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE))
        async with aclosing(prefetch(table.get, pages)) as read:
            async for records in read:
                await in_thread(partial(self.put, name, records))

    def start_over(self) -> Future[None]:
        """Empty the cache in a thread, until it is built again. `build` waits for that; nothing else has to."""
        self.is_built = False
        self._emptying = start_in_thread(self._forget_everything)
        return self._emptying

    def _forget_everything(self) -> None:
        with self._lock.writing():
            self._clear()

    # Writing

    def put(self, table: TableName, records: Iterable[MemoryRecord]) -> None:
        """Add or replace records that were written to a table."""
        for record in records:
            words = self._words_to_index(record)
            with self._lock.writing():  # for one at a time, so that a search never waits for a whole page
                self.rows_in[table] += record.id not in self._table_of
                self._table_of[record.id] = table
                if record.superseded_by is not None:
                    self._drop(table, record.id)
                    continue
                known = self._records.get(record.id)
                record = self._records[record.id] = with_own_metadata(record)
                if is_trivial(record):
                    self._unindex(table, record.id)
                else:
                    self._index_record(table, record, words, known)

    def _words_to_index(self, record: MemoryRecord) -> Words | None:
        """Return the words of a record unless they are indexed already. Needs no lock, and may take long."""
        is_found = record.superseded_by is None and not is_trivial(record)
        return _words_of(record) if is_found and self._is_changed(record, self._records.get(record.id)) else None

    def _is_changed(self, record: MemoryRecord, known: MemoryRecord | None) -> bool:
        return record.id not in self._index.slots or known is None or _indexed(known) != _indexed(record)

    def _index_record(
        self, table: TableName, record: MemoryRecord, words: Words | None = None, known: MemoryRecord | None = None
    ) -> None:
        """Index a record that is not trivial; `known` is the record as it was indexed before."""
        slots = self._index.slots
        if self._is_changed(record, known):
            self._indexed_in[table] += record.id not in slots
            self._index.insert(
                record.id,
                words or _words_of(record),
                table=table,
                is_message=record.kind == "interaction",
                is_assistant=record.kind == "interaction" and record.origin == "agent",
                is_user=record.origin == "user",
                speaker=record.source,
                session=record.session,
                order=(record.created_at, record.sequence or 0),
            )
        slot = slots[record.id]
        if slot == len(self._in_slot):
            self._in_slot.append(record)
        self._in_slot[slot] = record
        (self._doubtful.discard if record.expires_at is None else self._doubtful.add)(slot)

    def _unindex(self, table: TableName, id: str) -> None:
        slot = self._index.slots.get(id)
        if slot is None:
            return
        self._indexed_in[table] -= 1
        self._doubtful.add(slot)
        self._in_slot[slot] = None
        self._index.remove(id)
        if table in self._vectors:
            self._vectors[table].remove(slot)

    def correct(self, changed: Mapping[str, MemoryRecord | None]) -> None:
        """Replace records by what the store says of them; None for those that it no longer has."""
        self.remove([id for id, record in changed.items() if record is None])
        for id, record in changed.items():
            table = self._table_of.get(id)
            if record is not None and table is not None:
                self.put(table, [record])

    def remove(self, ids: Iterable[str]) -> None:
        """Remove records that were deleted."""
        for id in ids:
            with self._lock.writing():
                table = self._table_of.pop(id, None)
                if table is not None:
                    self.rows_in[table] -= 1
                    self._drop(table, id)
        if self._index.is_wasteful:
            self._reindex()

    def _drop(self, table: TableName, id: str) -> None:
        self._records.pop(id, None)
        self._unindex(table, id)

    def _reindex(self) -> None:
        with self._lock.writing():
            before = self._index.slots
            self._clear_index()
            for record in self._records.values():
                if not is_trivial(record):
                    self._index_record(self._table_of[record.id], record)
            slot_of = {slot: self._index.slots.get(id) for id, slot in before.items()}
            self._vectors = {name: vectors.renumbered(slot_of.get) for name, vectors in self._vectors.items()}

    # Vectors

    def put_vectors(self, table: TableName, embedding_id: str, vectors: Mapping[str, Vector]) -> None:
        """Add the vectors of records that are here, made by that embedding."""
        for id, vector in vectors.items():
            with self._lock.writing():
                index = self._vectors[table] = self._vectors_of(table, embedding_id)
                slot = self._index.slots.get(id)
                if not index.has_room_for(self._indexed_in[table]):
                    index.clear()
                elif slot is not None and self._table_of[id] == table:
                    index.put(slot, vector)

    def _vectors_of(self, table: TableName, embedding_id: str) -> VectorIndex:
        """Return the vectors of a table; an empty index if there are none by that embedding."""
        index = self._vectors.get(table)
        return VectorIndex(embedding_id) if index is None or index.embedding_id != embedding_id else index

    def lacks_vectors(self, table: TableName, embedding_id: str) -> bool:
        """Return whether a table has records whose vectors would fit in here and are not here."""
        index, count = self._vectors_of(table, embedding_id), self._indexed_in[table]
        return len(index) < count and index.has_room_for(count)

    def without_vector(self, table: TableName, embedding_id: str, most: int) -> list[str]:
        """Return the ids of some records of a table whose vectors are not here."""
        with self._lock.reading():
            index = self._vectors_of(table, embedding_id)
            lacking = (id for id, slot in self._index.slots.items() if slot not in index)
            return list(islice((id for id in lacking if self._table_of[id] == table), most))

    def can_search(self, table: TableName, embedding_id: str, dimensions: int) -> bool:
        """Return whether the vectors of all indexed records of a table are here, by that embedding and of that length."""
        index = self._vectors.get(table)
        return (
            index is not None
            and (index.embedding_id, index.dimensions) == (embedding_id, dimensions)
            and len(index) == self._indexed_in[table]
        )

    # Searching: call these methods through `read` or `read_now`

    async def read(self, look: Callable[[], T]) -> T:
        """Call a method that searches: on the event loop, or in a thread while the cache is being written."""
        try:
            return self.read_now(look, wait=False)
        except LockTakenError:
            return await in_thread(partial(self.read_now, look))

    def read_now(self, look: Callable[[], T], *, wait: bool = True) -> T:
        """Call a method that searches, while nothing is written.

        Raises:
            LockTakenError: The cache is being written, and `wait` is False.
        """
        with self._lock.reading(wait=wait):
            return look()

    def nearest(
        self, table: TableName, embedding_id: str, vectors: Vectors, selection: Selection, fetch: int
    ) -> list[Found] | None:
        """Return for each vector the nearest selected records of a table; None if their vectors are not all here."""
        if not self.can_search(table, embedding_id, len(vectors[0])):
            return None
        found = self._vectors[table].nearest(vectors, fetch, partial(self._selected, selection))
        return [list(zip(self._in(slots), cosines.tolist(), strict=True)) for slots, cosines in found]

    def as_said(self, query: str) -> str:
        """Return the query in the words of the speakers whom it names."""
        return self._index.as_said(query)

    def ask(
        self,
        query: str,
        lead: str | None,
        tables: Sequence[TableName],
        selection: Selection,
        *,
        fetch: int,
        by_words: int,
        session_weight: float,
    ) -> Asked:
        """Search for the words of a question, and by themselves for those of its `lead`, in each of the tables.

        `by_words` is how many memories that hold them may answer, `fetch` how many near ones, and `session_weight` the
        weight of the words of a memory's session, compared to its own.
        """
        matches = self._index.search(query)
        if lead is not None:
            matches = matches.or_better(self._index.search(lead))
        best = matches.best(by_words, tables, session_weight)
        return Asked(query, tables, selection, fetch, matches, best, self._index.speakers_named(query))

    def candidates(
        self, asked: Asked, vector: Vector, embedding_id: str, from_store: Mapping[TableName, Found]
    ) -> Candidates | None:
        """Return the memories that are near in meaning or hold the words of a question, with their signals.

        A memory found by its words alone is at most as near as the farthest found by its vector, unless it has the very
        words of the question: an approximate index misses one in some thousands. `from_store` is what the store found in
        the tables whose vectors are not all here. Returns None if the word index or the vectors were replaced since the
        question was asked: ask again.
        """
        in_ram = [table for table in asked.tables if table not in from_store]
        can_search = all(self.can_search(table, embedding_id, len(vector)) for table in in_ram)
        if not can_search or asked.matches.index is not self._index:
            return None
        slot_of = self._index.slots
        known: dict[int, float] = {}
        uncached: Found = []
        for table in asked.tables:
            if table in from_store:
                near = from_store[table]
                found = {slot_of[record.id]: cosine for record, cosine in near if record.id in slot_of}
                uncached += [(record, cosine) for record, cosine in near if record.id not in slot_of]
                farthest = min((cosine for _, cosine in near), default=0.0)
            else:
                selected = partial(self._selected, asked.selection)
                ((slots, cosines),) = self._vectors[table].nearest([vector], asked.fetch, selected)
                found = dict(zip(slots.tolist(), cosines.tolist(), strict=True))
                farthest = min(found.values(), default=0.0)
            missed = [slot for slot in asked.by_words[table] if slot not in found]
            are_selected = self._selected(asked.selection, missed)
            missed = missed if are_selected is None else list(compress(missed, are_selected))
            for slot, record in zip(missed, self._in(missed), strict=True):
                found[slot] = 1.0 if record.content == asked.query else farthest
            known |= found
        return self._with_signals(known, uncached, asked)

    def _with_signals(self, known: Mapping[int, float], uncached: Found, asked: Asked) -> Candidates:
        import numpy as np

        cosines = np.array([*known.values(), *(cosine for _, cosine in uncached)])
        slots = np.fromiter(known, dtype=np.intp, count=len(known))
        signals = np.zeros((len(ROW_OF), len(cosines)))
        signals[ROW_OF["cosine"]] = np.maximum(cosines, 0)
        if known:
            nearness = cosines[: len(known)] - cosines.min()
            for name, values in self._index.signals(slots, nearness, asked.matches, asked.speakers).items():
                signals[ROW_OF[name], : len(known)] = values
        for column, (record, _) in enumerate(uncached, start=len(known)):
            signals[ROW_OF["speaker"], column] = record.source in asked.speakers
            signals[ROW_OF["question"], column] = record.content.rstrip().endswith("?")
        return Candidates([*self._in(known), *(record for record, _ in uncached)], signals)

    def _selected(self, selection: Selection, slots: Sequence[int]) -> list[bool] | None:
        """Return which of the records in these slots are selected; None if all are."""
        if selection.is_everything_current and self._doubtful.isdisjoint(slots):
            return None
        records = (self._in_slot[slot] for slot in slots)
        return [record is not None and selection.matches(record) for record in records]

    def _in(self, slots: Iterable[int]) -> list[MemoryRecord]:
        """Return the records in these slots, without those that were removed."""
        in_slot = self._in_slot
        return [record for slot in slots if (record := in_slot[slot]) is not None]

    # Looking up

    def record(self, id: str) -> MemoryRecord | None:
        """Return the current record with that id."""
        return self._records.get(id)

    def messages(self, session: str | None = None) -> list[MemoryRecord]:
        """Return the current messages of one session, or of all."""
        with self._lock.reading():
            records = [record for id, record in self._records.items() if self._table_of[id] == "session"]
        return [record for record in records if session is None or record.session == session]

    def valid_part(self, record: MemoryRecord) -> str:
        """Return what of a memory still holds: a message without what was superseded, ended or forgotten since."""
        told = told_facts(record) if self.is_built and record.kind == "interaction" else {}
        gone = [span for id, span in told.items() if id not in self._records]
        spans = [span for span in gone if span is not None]
        if len(spans) < len(gone):
            return ""  # it is not known where in the message it stands
        return without(record.content, spans) if spans else record.content


def _words_of(record: MemoryRecord) -> Words:
    return words_of(record.content[:MAX_CONTENT], date=f"{record.created_at:%d %B %Y}", speaker=record.source)


def _indexed(record: MemoryRecord) -> tuple[object, ...]:
    return record.content, record.kind, record.origin, record.source, record.session, record.created_at, record.sequence
