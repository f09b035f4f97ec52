"""What a namespace holds: its tables on an open store, read through what this process knows of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import TypeVar

from ..core.errors import PersistentMemoryError
from ..core.records import MemoryRecord, Selection, in_order
from ..runtime.threads import in_thread
from ..storage.protocol import ANY_EMBEDDING, TABLES, Connection, Embed, RecordTable, TableName, Values
from ..text.embeddings import Vector, Vectors, lacks_meaning
from .cache import Found, RecordCache, read_soon

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_OPENING_PATIENCE = 5.0
PATIENCE = 0.5
"""Seconds an agent waits for what this process knows of a large namespace; until then it recalls by meaning alone."""
_MENDING_PATIENCE = 3.0
_VECTORS_AT_ONCE = 250


class NamespaceData:
    """The tables of one namespace, and the cache of them that all memories of the process share."""

    def __init__(
        self,
        namespace: str,
        connection: Connection,
        embedding_id: str,
        embed: Embed,
    ) -> None:
        self.connection = connection
        self._embedding_id = embedding_id
        self._embed = embed
        self.outbox = connection.outbox(namespace)
        self._namespace = namespace
        self._tables = {name: connection.table(namespace, name, embedding_id) for name in TABLES}
        self._cache: RecordCache | None = None
        self._numbers: _Numbers | None = None
        self._building: asyncio.Task[None] | None = None
        self._mending: asyncio.Task[None] | None = None
        self._gathering: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        """Do the slow part of opening, if it is work of this machine alone."""
        await self.connection.prepare()
        if self.connection.exclusive:
            await self.catalogue_in_step(patience=_OPENING_PATIENCE)

    async def check(self) -> None:
        """Open the store, and make sure that what it holds of the namespace can be used.

        Raises:
            PersistentMemoryError: It cannot.
        """
        await self.values.check()
        for name in TABLES:
            await self.table(name).check_fit()

    def table(self, name: TableName) -> RecordTable:
        """A table of the namespace."""
        return self._tables[name]

    @property
    def values(self) -> Values:
        """The named values of the namespace."""
        return self.connection.values(self._namespace)

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Keeps the writers of this process from interleaving."""
        return self.connection.lock(self._namespace)

    async def as_a_whole(self, change: Callable[[], Awaitable[T]]) -> T:
        """Make a change under the namespace's lock.

        After a failure nobody knows how much of it happened, so what the process knows is read anew.
        """
        cache = await self.cache()
        async with self.lock():
            try:
                return await change()
            except BaseException:  # also where the loop ends and nothing can be awaited any more
                cache.start_over()
                raise

    async def find(self, ids: Sequence[str], tables: Sequence[TableName]) -> list[MemoryRecord]:
        """The records with these ids, current or not."""
        found = await asyncio.gather(*(self.table(name).get(ids) for name in tables))
        return [record for records in found for record in records]

    async def select(self, selection: Selection, tables: Sequence[TableName]) -> list[MemoryRecord]:
        """Return the selected records of these tables, in no particular order."""
        found = await asyncio.gather(*(self.table(name).select(selection) for name in tables))
        return [record for records in found for record in records]

    async def nearest(
        self,
        table: TableName,
        vectors: Vectors,
        believed: Selection,
        *,
        fetch: int,
        enough: int,
        certain: bool = False,
        thorough: bool = False,
    ) -> list[Found]:
        """For each vector the nearest records that are meant, and how near each is.

        Where this process has their vectors, the nearest `fetch` that are meant. Elsewhere the nearest `fetch` rows are
        looked at, more only where fewer than `enough` of them are meant; what has to be `certain` is read from the store if
        other processes write there.
        """
        if not len(vectors):
            return []
        cache = await self.cache()
        if believed.current_at is not None and cache.can_search(table, self._embedding_id, len(vectors[0])):
            look = partial(cache.nearest, table, self._embedding_id, vectors, believed, fetch)
            # To look for one takes less time than to hand it over.
            here = await (read_soon if len(vectors) == 1 else in_thread)(look)
            if here is not None:
                return here
        nearest = await self.table(table).nearest(vectors, believed, fetch=fetch, thorough=thorough)
        ids = list({id for near in nearest for id in near})
        known = await self.records(table, ids, certain=certain, superseded=believed.current_at is None)
        meant = {record.id: record for record in known if believed.matches(record)}
        found: list[Found] = []
        for vector, near in zip(vectors, nearest, strict=True):
            among = {id: similarity for id, similarity in near.items() if id in meant}
            found.append((among, [meant[id] for id in among]))
            if len(among) < enough and len(near) == fetch:
                found[-1:] = await self.nearest(
                    table, [vector], believed, fetch=4 * fetch, enough=enough, certain=certain, thorough=True
                )
        return found

    async def records(
        self, table: TableName, ids: Sequence[str], *, certain: bool, superseded: bool = True
    ) -> list[MemoryRecord]:
        """The records with these ids, as this process knows them or as they are in the store; if asked, only current ones.

        What has to be `certain` is read from the store if other processes write there.
        """
        if certain and not self.connection.exclusive:
            return await self.table(table).get(ids)
        cache = await self.cache()
        known = {id: record for id in ids if (record := cache.record(id)) is not None}
        unknown = [id for id in ids if id not in known and (superseded or not cache.is_superseded(id))]
        return [*known.values(), *await self.table(table).get(unknown)]

    async def messages(self, session: str | None, now: datetime) -> list[MemoryRecord]:
        """The messages of one session, or of all, in order; from the store where this process does not know them yet."""
        cache = await self.catalogue_in_step(patience=PATIENCE)
        if cache.is_built:
            found = await in_thread(lambda: cache.messages(session))
        else:
            found = await self.table("session").select(Selection(session=session))
        return in_order(record for record in found if record.is_current(now))

    async def adopt(
        self, table: TableName, records: Sequence[MemoryRecord], vectors: Vectors, *, are_new: bool = False
    ) -> None:
        """Store records just as they are. Hold the namespace's lock meanwhile."""
        await (self.table(table).add if are_new else self.table(table).put)(records, vectors)
        numbers = await self._known_numbers()
        for record in records:
            if record.session is not None and (table, record.session) in numbers:
                numbers[table, record.session] = max(numbers[table, record.session], record.sequence or 0)
        if (await self.cache()).is_built:  # else whoever builds it will read them
            await self.note(table, records, vectors)

    async def note(self, table: TableName, records: Sequence[MemoryRecord], vectors: Vectors = ()) -> None:
        """Take in what was written: records, and the vectors of the first of them, as far as those are new."""
        cache = await self.cache()

        def take_in() -> None:
            cache.put(table, records)
            if self.connection.exclusive:
                vector_of = {record.id: vector for record, vector in zip(records, vectors)}
                cache.place(table, self._embedding_id, vector_of)

        await in_thread(take_in)

    def knows(self, id: str) -> bool:
        """Whether this process knows a record of that id, current or not."""
        return self._cache is not None and id in self._cache

    async def last_number(self, table: TableName, session: str) -> int:
        """The number of the last memory in a session; 0 if there is none."""
        return await self.next_number(table, session, step=0)

    async def next_number(self, table: TableName, session: str, *, step: int = 1) -> int:
        """The number of the next memory in a session."""
        numbers = await self._known_numbers()
        if (table, session) not in numbers:
            earlier = await self.table(table).select(Selection(session=session))
            numbers[table, session] = max((record.sequence or 0 for record in earlier), default=0)
        numbers[table, session] += step
        return numbers[table, session]

    async def _known_numbers(self) -> _Numbers:
        if self._numbers is None:
            self._numbers = await self.connection.shared(f"{self._namespace}\nsequences", _Numbers)
        return self._numbers

    async def cache(self) -> RecordCache:
        """What is known of the namespace, which all memories of the process share."""
        if self._cache is None:
            self._cache = await self.connection.shared(f"{self._namespace}\ncatalogue", RecordCache)
        return self._cache

    async def start_over(self) -> None:
        """Forget what the process knows of the namespace, since it was changed as a whole."""
        await asyncio.wrap_future((await self.cache()).start_over())

    async def catalogue_in_step(self, *, patience: float | None = None) -> RecordCache:
        """The cache, built if need be, and up to date with what other processes wrote.

        Reading a large namespace takes longer than an agent should wait: who waits only so many seconds gets the cache
        as far as it is, while it goes on being built.
        """
        cache = await self.cache()
        if not cache.is_built:
            loop = asyncio.get_running_loop()
            if self._building is None or self._building.done() or self._building.get_loop() is not loop:
                self._building = loop.create_task(self._build(cache))
                self._building.add_done_callback(lambda task: task.cancelled() or task.exception())
            building = self._building
            done, _ = await asyncio.wait({building}, timeout=patience)
            if done:
                await building
        elif not self.connection.exclusive:
            await cache.look(self._tables)
        if cache.is_built and self.connection.exclusive:
            self._gather_soon(cache)
        return cache

    async def _build(self, cache: RecordCache) -> None:
        async with self.lock():
            await cache.build(self._tables)
        if self.connection.exclusive and self._embedding_id != ANY_EMBEDDING:
            self._mending = asyncio.get_running_loop().create_task(self._mend())
            await asyncio.wait({self._mending}, timeout=_MENDING_PATIENCE)

    def _gather_soon(self, cache: RecordCache) -> None:
        if self._embedding_id == ANY_EMBEDDING:
            return
        loop = asyncio.get_running_loop()
        is_at_it = self._gathering is not None and self._gathering.get_loop() is loop and not self._gathering.done()
        if not is_at_it and any(cache.lacks_vectors(name, self._embedding_id) for name in TABLES):
            self._gathering = loop.create_task(self._gather(cache))

    async def _gather(self, cache: RecordCache) -> None:
        """Read the vectors, so that they can be searched without the store. Until all are here, they are searched there."""
        try:
            await self.settle()
            for name, table in self._tables.items():
                are_there = True
                while are_there and cache.lacks_vectors(name, self._embedding_id):
                    async with self.lock():
                        without = partial(cache.without_vector, name, self._embedding_id, _VECTORS_AT_ONCE)
                        ids = await in_thread(without)
                        vectors = await table.vectors(ids)
                        meaningless = await in_thread(partial(_without_meaning, cache, vectors))
                        if meaningless:
                            await table.reindex(meaningless, self._embed)
                            vectors |= await table.vectors(meaningless)
                        await in_thread(partial(cache.place, name, self._embedding_id, vectors))
                        are_there = 0 < len(ids) == len(vectors)
        except PersistentMemoryError as error:
            logger.debug("The vectors of %r stay in its store: %s", self._namespace, error)

    async def settle(self) -> None:
        """Wait until vectors that were lost are made anew, if that is under way."""
        if self._mending is not None and self._mending.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({self._mending})

    async def _mend(self) -> None:
        """Make vectors anew that were lost to a fault. Until then what they belong to is found by its words alone."""
        try:
            for table in self._tables.values():
                left = 1
                while left:
                    async with self.lock():
                        left = await table.mend(self._embed)
        except PersistentMemoryError as error:
            logger.warning(
                "Vectors of %r that were lost could not be made anew, and will be tried again when its store is next "
                "opened: %s",
                self._namespace,
                error,
            )


def _without_meaning(cache: RecordCache, vectors: Mapping[str, Vector]) -> list[str]:
    known = ((cache.record(id), vector) for id, vector in vectors.items())
    return [record.id for record, vector in known if record is not None and lacks_meaning(record, vector)]


class _Numbers(dict[tuple[TableName, str], int]):
    """The last sequence number given in each session."""
