"""What a process knows of a namespace: its current records and their words, shared by all its memories, kept in step."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import aclosing
from datetime import date
from functools import lru_cache, partial
from itertools import compress, islice
from typing import NamedTuple, Protocol, TypeVar

from ..core.checks import MAX_CONTENT
from ..core.records import MemoryRecord, Selection, told_facts, with_own_metadata
from ..runtime.background_task import one_ahead
from ..runtime.locks import LockTakenError, ReadWriteLock
from ..runtime.threads import hand_over, in_thread
from ..storage.protocol import Near, RecordTable, TableName
from ..text.embeddings import Vector, Vectors
from ..text.passages import without
from ..text.speech_acts import is_trivial
from .keyword_index import KeywordIndex, KeywordMatches, Words, words_of
from .ranking import ROW_OF, Candidates
from .vector_index import VectorIndex

_LOOK_EVERY = 1.5
_CLOSE_LOOK = 10
_PAGE = 500

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Found = tuple[Near, list[MemoryRecord]]
"""Records that were found, and how near each is."""


class Reading(Protocol[T_co]):
    """A method of the cache that reads it, with its arguments."""

    def __call__(self, *, wait: bool = True) -> T_co:
        """What it says; without waiting, LockTakenError if somebody writes."""


async def read_soon(read: Reading[T]) -> T:
    """Read the cache: right here where nobody writes to it just now, else in a thread that can wait for that."""
    try:
        return read(wait=False)
    except LockTakenError:
        return await in_thread(read)


class Asked(NamedTuple):
    """What a search asks for."""

    query: str
    tables: Sequence[TableName]
    meant: Selection
    fetch: int
    """How many that are near may answer, of each table."""
    matches: KeywordMatches
    by_words: Mapping[str, Sequence[int]]
    """The slots of those that hold its words best."""
    speakers: Set[str]
    """Those whom it names."""


class RecordCache:
    """The current records of a namespace with an index of their words and, if it has been told them, one of their vectors.

    It knows the ids of all rows.
    Where no other process can write, what it says is true. Where others can, it is a good guess: rows that came or went
    are noticed soon, rows that changed only when they are read.
    """

    def __init__(self) -> None:
        self._lock = ReadWriteLock()
        self._index = KeywordIndex()
        self._records: dict[str, MemoryRecord] = {}
        self._table_of: dict[str, TableName] = {}
        self._in_table: Counter[TableName] = Counter()
        self._telling: Counter[TableName] = Counter()  # those that are indexed: what is trivial is not
        self._in_slot: list[MemoryRecord | None] = []
        self._doubtful: set[int] = set()
        """Slots whose records expire some day, or are gone."""
        self._vectors: dict[TableName, VectorIndex] = {}
        self._looked_at = 0.0
        self._looks = 0
        self._emptying: Future[None] | None = None
        self.is_built = False

    def __len__(self) -> int:
        return len(self._records)

    async def build(self, tables: Mapping[TableName, RecordTable]) -> None:
        """Read everything from the store, once. Hold the namespace's lock meanwhile."""
        if self.is_built:
            return
        if self._emptying is not None:
            await asyncio.wrap_future(self._emptying)
        for name, table in tables.items():
            await table.settle()
            await self._read(name, table, await table.ids())
        self._looked_at = time.monotonic()
        self.is_built = True

    async def look(self, tables: Mapping[TableName, RecordTable]) -> None:
        """See whether another process added or deleted anything; cheap when it did not, and not done too often.

        Usually their number tells. As many may have come as went, so now and then the ids are compared.
        """
        if time.monotonic() - self._looked_at < _LOOK_EVERY:
            return
        self._looked_at = time.monotonic()
        self._looks += 1
        await asyncio.gather(*(self._catch_up(name, table) for name, table in tables.items()))

    async def _catch_up(self, name: TableName, table: RecordTable) -> None:
        if self._looks % _CLOSE_LOOK and await table.size() == self._in_table[name]:
            return
        there = await table.ids()
        known = await in_thread(partial(self._ids_on, name))
        gone = known.difference(there)
        await in_thread(lambda: self.remove(gone))
        await self._read(name, table, [id for id in there if id not in known])

    def _ids_on(self, table: TableName) -> set[str]:
        with self._lock.reading():
            return {id for id, on in self._table_of.items() if on == table}

    async def _read(self, name: TableName, table: RecordTable, ids: Sequence[str]) -> None:
        pages = (ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE))
        async with aclosing(one_ahead(table.get, pages)) as read:
            async for records in read:
                await in_thread(partial(self.put, name, records))

    def saw(self, table: TableName) -> bool:
        """Whether anything was seen on a table."""
        return self._in_table[table] > 0

    def put(self, table: TableName, records: Iterable[MemoryRecord]) -> None:
        """Take in records that were written."""
        for record in records:
            words = self._words_to_index(record)
            with self._lock.writing():  # for one at a time, so that a search never waits for a whole page
                self._in_table[table] += record.id not in self._table_of
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
        """The words of a record, unless it is known by them already; read while others use the index."""
        is_found = record.superseded_by is None and not is_trivial(record)
        return _words_of(record) if is_found and self._is_changed(record, self._records.get(record.id)) else None

    def _is_changed(self, record: MemoryRecord, known: MemoryRecord | None) -> bool:
        return record.id not in self._index.slots or known is None or _indexed(known) != _indexed(record)

    def _index_record(
        self, table: TableName, record: MemoryRecord, words: Words | None = None, known: MemoryRecord | None = None
    ) -> None:
        """Let a record be found that tells something; it may be known as it was before."""
        slots = self._index.slots
        if self._is_changed(record, known):
            self._telling[table] += record.id not in slots
            _index(self._index, table, record, words or _words_of(record))
        slot = slots[record.id]
        if slot == len(self._in_slot):
            self._in_slot.append(record)
        self._in_slot[slot] = record
        (self._doubtful.discard if record.expires_at is None else self._doubtful.add)(slot)

    def _unindex(self, table: TableName, id: str) -> None:
        slot = self._index.slots.get(id)
        if slot is None:
            return
        self._telling[table] -= 1
        self._doubtful.add(slot)
        self._in_slot[slot] = None
        self._index.remove(id)
        if table in self._vectors:
            self._vectors[table].remove(slot)

    def correct(self, changed: Mapping[str, MemoryRecord | None]) -> None:
        """Take in how records that are here were found to be in truth; None for those that are gone."""
        self.remove([id for id, record in changed.items() if record is None])
        for id, record in changed.items():
            table = self._table_of.get(id)
            if record is not None and table is not None:
                self.put(table, [record])

    def remove(self, ids: Iterable[str]) -> None:
        """Forget records that were deleted."""
        for id in ids:
            with self._lock.writing():
                table = self._table_of.pop(id, None)
                if table is not None:
                    self._in_table[table] -= 1
                    self._drop(table, id)
        if self._index.is_wasteful:
            self._reindex()

    def _drop(self, table: TableName, id: str) -> None:
        self._records.pop(id, None)
        self._unindex(table, id)

    def _reindex(self) -> None:
        with self._lock.writing():
            before, self._index = self._index, KeywordIndex()
            self._telling, self._doubtful, self._in_slot = Counter(), set(), []
            for record in self._records.values():
                if not is_trivial(record):
                    self._index_record(self._table_of[record.id], record)
            slot_of = {slot: self._index.slots.get(id) for id, slot in before.slots.items()}
            self._vectors = {name: vectors.renumbered(slot_of.get) for name, vectors in self._vectors.items()}

    def start_over(self) -> Future[None]:
        """Forget everything in a thread, until it is built again. Nobody has to wait for it: who builds it does."""
        self.is_built = False
        self._emptying = hand_over(self._forget_everything)
        return self._emptying

    def _forget_everything(self) -> None:
        with self._lock.writing():
            self._index = KeywordIndex()
            self._records, self._table_of, self._in_table = {}, {}, Counter()
            self._telling, self._doubtful, self._in_slot = Counter(), set(), []
            self._vectors = {}

    def place(self, table: TableName, embedding_id: str, vectors: Mapping[str, Vector]) -> None:
        """Take in the vectors of records that are here, made by that embedding."""
        for id, vector in vectors.items():
            with self._lock.writing():
                index = self._vectors.get(table)
                if index is None or index.embedding_id != embedding_id:
                    index = self._vectors[table] = VectorIndex(embedding_id)
                slot = self._index.slots.get(id)
                if not index.has_room_for(self._telling[table]):
                    index.clear()
                elif slot is not None and self._table_of[id] == table:
                    index.put(slot, vector)

    def lacks_vectors(self, table: TableName, embedding_id: str) -> bool:
        """Whether there are records on a table whose vectors should be here and are not."""
        index = self._vectors.get(table)
        if index is None or index.embedding_id != embedding_id:
            return self._telling[table] > 0
        return len(index) < self._telling[table] and index.has_room_for(self._telling[table])

    def without_vector(self, table: TableName, embedding_id: str, most: int) -> list[str]:
        """The ids of some records on a table whose vectors, made by that embedding, are not here."""
        with self._lock.reading():
            index = self._vectors.get(table)
            if index is None or index.embedding_id != embedding_id:
                index = VectorIndex(embedding_id)
            there = (id for id, slot in self._index.slots.items() if slot not in index)
            return list(islice((id for id in there if self._table_of[id] == table), most))

    def can_search(self, table: TableName, embedding_id: str, dimensions: int) -> bool:
        """Whether the vectors of all current records of a table that tell something are here, and can be compared to such ones."""
        index = self._vectors.get(table)
        return (
            index is not None
            and (index.embedding_id, index.dimensions) == (embedding_id, dimensions)
            and len(index) == self._telling[table]
        )

    def nearest(
        self,
        table: TableName,
        embedding_id: str,
        vectors: Vectors,
        meant: Selection,
        fetch: int,
        *,
        wait: bool = True,
    ) -> list[Found] | None:
        """For each vector the nearest current records of a table that are meant, and how near each is; None if it cannot say."""
        with self._lock.reading(wait=wait):
            if not self.can_search(table, embedding_id, len(vectors[0])):
                return None
            nearest = self._vectors[table].nearest(vectors, fetch, partial(self._are_meant, meant))
            found: list[Found] = []
            for slots, cosines in nearest:
                records = self._in(slots)
                ids = [record.id for record in records]
                found.append((dict(zip(ids, cosines.tolist(), strict=True)), records))
            return found

    def candidates(
        self,
        asked: Asked,
        vector: Vector,
        embedding_id: str,
        elsewhere: Mapping[TableName, Found],
        *,
        wait: bool = True,
    ) -> Candidates | None:
        """What may answer, near in meaning or with the words asked for, and everything that speaks for it.

        A memory found by its words alone is at most as near as the farthest found by its vector, unless it says just what
        is asked for: an approximate index misses one in some thousands.

        Args:
            asked: What is wanted.
            vector: The same as a vector.
            embedding_id: What made the vector.
            elsewhere: What the store found on the tables whose vectors are not all here.
            wait: Whether to wait for who writes.

        Returns:
            None if it cannot say, since what the words were searched in or the vectors were replaced since.

        Raises:
            LockTakenError: Somebody writes, and it was not to be waited for.
        """
        with self._lock.reading(wait=wait):
            here = [table for table in asked.tables if table not in elsewhere]
            can_search = all(self.can_search(table, embedding_id, len(vector)) for table in here)
            if not can_search or not asked.matches.are_of(self._index):
                return None
            known: dict[int, float] = {}
            strangers: list[tuple[MemoryRecord, float]] = []
            for table in asked.tables:
                if table in elsewhere:
                    near, records = elsewhere[table]
                    found = {slot: near[id] for id in near if (slot := self._index.slots.get(id)) is not None}
                    strangers += [(record, near[record.id]) for record in records if record.id not in self._index.slots]
                    farthest = min(near.values(), default=0.0)
                else:
                    ((slots, cosines),) = self._vectors[table].nearest(
                        [vector], asked.fetch, partial(self._are_meant, asked.meant)
                    )
                    found = dict(zip(slots.tolist(), cosines.tolist(), strict=True))
                    farthest = min(found.values(), default=0.0)
                missed = [slot for slot in asked.by_words[table] if slot not in found]
                are_meant = self._are_meant(asked.meant, missed)
                missed = missed if are_meant is None else list(compress(missed, are_meant))
                for slot, record in zip(missed, self._in(missed), strict=True):
                    found[slot] = 1.0 if record.content == asked.query else farthest
                known |= found
            return self._weighed(known, strangers, asked)

    def _weighed(
        self, known: Mapping[int, float], strangers: Sequence[tuple[MemoryRecord, float]], asked: Asked
    ) -> Candidates:
        import numpy as np

        cosines = np.array([*known.values(), *(cosine for _, cosine in strangers)])
        slots = np.fromiter(known, dtype=np.intp, count=len(known))
        signals = np.zeros((len(ROW_OF), len(cosines)))
        signals[ROW_OF["cosine"]] = np.maximum(cosines, 0)
        if known:
            nearness = cosines[: len(known)] - cosines.min()
            for name, values in self._index.signals(slots, nearness, asked.matches, asked.speakers).items():
                signals[ROW_OF[name], : len(known)] = values
        for column, (record, _) in enumerate(strangers, start=len(known)):
            signals[ROW_OF["speaker"], column] = record.source in asked.speakers
            signals[ROW_OF["question"], column] = record.content.rstrip().endswith("?")
        return Candidates([*self._in(known), *(record for record, _ in strangers)], signals)

    def _are_meant(self, meant: Selection, slots: Sequence[int]) -> list[bool] | None:
        """Which of the records in these slots are meant; None if all are."""
        if meant.is_all_that_is_current and self._doubtful.isdisjoint(slots):
            return None
        records = (self._in_slot[slot] for slot in slots)
        return [record is not None and meant.matches(record) for record in records]

    def _in(self, slots: Iterable[int]) -> list[MemoryRecord]:
        """The records in these slots; without those that are gone."""
        in_slot = self._in_slot
        return [record for slot in slots if (record := in_slot[slot]) is not None]

    def record(self, id: str) -> MemoryRecord | None:
        """The current record of that id."""
        return self._records.get(id)

    def messages(self, session: str | None = None) -> list[MemoryRecord]:
        """The current records of one session, or of all."""
        with self._lock.reading():
            records = [record for id, record in self._records.items() if self._table_of[id] == "session"]
        return [record for record in records if session is None or record.session == session]

    def __contains__(self, id: str) -> bool:
        return id in self._table_of

    def is_superseded(self, id: str) -> bool:
        """Whether there is a record of that id, but not a current one."""
        return id in self._table_of and id not in self._records

    def holding_part(self, record: MemoryRecord) -> str:
        """Return what of a memory still holds: of a message nothing that was superseded, ended or forgotten since."""
        told = told_facts(record) if self.is_built and record.kind == "interaction" else {}
        gone = [span for id, span in told.items() if id not in self._records]
        spans = [span for span in gone if span is not None]
        if len(spans) < len(gone):
            return ""  # nobody knows where in the message it stands
        return without(record.content, spans) if spans else record.content

    def ask(
        self,
        query: str,
        lead: str | None,
        tables: Sequence[TableName],
        meant: Selection,
        *,
        fetch: int,
        by_words: int,
        session_weight: float,
        wait: bool = True,
    ) -> Asked:
        """A question, with what holds its words.

        Args:
            query: The question.
            lead: The part of it whose words count by themselves.
            tables: Where to look.
            meant: What to look for.
            fetch: How many that are near may answer, of each table.
            by_words: How many that hold its words may answer, of each table.
            session_weight: What the words of a memory's session are worth, compared to its own.
            wait: Whether to wait for who writes.

        Raises:
            LockTakenError: Somebody writes, and it was not to be waited for.
        """
        with self._lock.reading(wait=wait):
            matches = self._index.search(query)
            if lead is not None:
                matches = matches.or_better(self._index.search(lead))
            best = matches.best(by_words, tables, session_weight)
            return Asked(query, tables, meant, fetch, matches, best, self._index.speakers_named(query))

    def as_said(self, query: str, *, wait: bool = True) -> str:
        """The query as the speakers it names would put it."""
        with self._lock.reading(wait=wait):
            return self._index.as_said(query)


def _words_of(record: MemoryRecord) -> Words:
    return words_of(record.content[:MAX_CONTENT], date=_in_words(record.created_at.date()), speaker=record.source)


def _index(index: KeywordIndex, table: TableName, record: MemoryRecord, words: Words) -> None:
    index.insert(
        record.id,
        words,
        table=table,
        is_message=record.kind == "interaction",
        speaker=record.source,
        session=record.session,
        order=(record.created_at, record.sequence or 0),
    )


@lru_cache(maxsize=1024)
def _in_words(day: date) -> str:
    return f"{day:%d %B %Y}"


def _indexed(record: MemoryRecord) -> tuple[object, ...]:
    return record.content, record.kind, record.source, record.session, record.created_at, record.sequence
