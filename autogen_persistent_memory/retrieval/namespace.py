"""The data of one namespace: its tables on a connection, read through a cache that all memories of the process share."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import TypeVar

from ..core.errors import PersistentMemoryError
from ..core.records import MemoryRecord, Selection, in_order
from ..runtime.background_task import BackgroundTask
from ..runtime.threads import in_thread
from ..storage.connection import StoreConnection, mend, reindex
from ..storage.protocol import ANY_EMBEDDING, TABLES, Embed, RecordTable, TableName
from ..text.embeddings import Vectors, has_random_vector
from .cache import Found, RecordCache

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_OPENING_PATIENCE = 5.0
PATIENCE = 0.5
"""Seconds an agent waits for the cache of a large namespace to be built; until then it recalls by meaning alone."""
_MENDING_PATIENCE = 3.0
_VECTORS_AT_ONCE = 250


class NamespaceData:
    """The tables and values of one namespace, and the cache of its records."""

    def __init__(self, namespace: str, connection: StoreConnection, embedding_id: str, embed: Embed) -> None:
        self.connection = connection
        self._embedding_id = embedding_id
        self._embed = embed
        self.outbox = connection.outbox(namespace)
        self._namespace = namespace
        self._tables = {name: connection.table(namespace, name, embedding_id) for name in TABLES}
        self._cache: RecordCache | None = None
        self._building = BackgroundTask(self._build)
        self._mending = BackgroundTask(self._mend)
        self._gathering = BackgroundTask(self._gather)

    async def prepare(self) -> None:
        """Do the slow part of opening, if it is work of this machine alone."""
        await self.connection.prepare()
        if self.connection.exclusive:
            await self.synced_cache(patience=_OPENING_PATIENCE)

    async def check(self) -> None:
        """Open the store, and make sure that this version and this embedding can use the namespace.

        Raises:
            PersistentMemoryError: They cannot.
        """
        await self.connection.values(self._namespace).check()
        for table in self._tables.values():
            await table.vectors([])  # raises where another embedding made the stored vectors

    def table(self, name: TableName) -> RecordTable:
        """Return a table of the namespace."""
        return self._tables[name]

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Return the lock that keeps the writers of this process from interleaving."""
        return self.connection.lock(self._namespace)

    async def under_lock(self, change: Callable[[], Awaitable[T]]) -> T:
        """Make a change under the namespace's lock. If it fails, drop the cache: the change may have been made in part."""
        cache = await self.cache()
        async with self.lock():
            try:
                return await change()
            except BaseException:  # also where the loop ends and nothing can be awaited any more
                cache.start_over()
                raise

    async def find(self, ids: Sequence[str], tables: Sequence[TableName]) -> list[MemoryRecord]:
        """Return the records with these ids, current or not."""
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
        """Return for each vector the nearest selected records, with the cosine similarity of each.

        Where the cache has their vectors, these are the `fetch` nearest. Otherwise the store looks at the `fetch` nearest
        rows, and at more only where fewer than `enough` of them are selected. With `certain`, records are read from the
        store if other processes can write to it.
        """
        if not len(vectors):
            return []
        cache = await self.cache()
        if believed.current_at is not None and cache.can_search(table, self._embedding_id, len(vectors[0])):
            look = partial(cache.nearest, table, self._embedding_id, vectors, believed, fetch)
            if len(vectors) == 1:  # which takes less time than handing it to a thread
                in_ram = await cache.read(look)
            else:
                in_ram = await in_thread(partial(cache.read_now, look))
            if in_ram is not None:
                return in_ram
        nearest = await self.table(table).nearest(vectors, believed, fetch=fetch, thorough=thorough)
        ids = list({id for near in nearest for id in near})
        known = await self.records(table, ids, certain=certain, superseded=believed.current_at is None)
        selected = {record.id: record for record in known if believed.matches(record)}
        found: list[Found] = []
        for vector, near in zip(vectors, nearest, strict=True):
            found.append([(selected[id], cosine) for id, cosine in near.items() if id in selected])
            if len(found[-1]) < enough and len(near) == fetch:
                found[-1:] = await self.nearest(
                    table, [vector], believed, fetch=4 * fetch, enough=enough, certain=certain, thorough=True
                )
        return found

    async def records(
        self, table: TableName, ids: Sequence[str], *, certain: bool, superseded: bool = True
    ) -> list[MemoryRecord]:
        """Return the records with these ids, from the cache as far as it has them.

        With `certain` they are read from the store if other processes can write to it. Without `superseded`, those that
        the cache knows to be superseded are left out.
        """
        if certain and not self.connection.exclusive:
            return await self.table(table).get(ids)
        cache = await self.cache()
        known = {id: record for id in ids if (record := cache.record(id)) is not None}
        unknown = [id for id in ids if id not in known and (superseded or id not in cache)]
        return [*known.values(), *await self.table(table).get(unknown)]

    async def messages(self, session: str | None, now: datetime) -> list[MemoryRecord]:
        """Return the current messages of one session, or of all, in order; from the store while the cache is not built."""
        cache = await self.synced_cache(patience=PATIENCE)
        if cache.is_built:
            found = await in_thread(lambda: cache.messages(session))
        else:
            found = await self.table("session").select(Selection(session=session))
        return in_order(record for record in found if record.is_current(now))

    async def adopt(
        self, table: TableName, records: Sequence[MemoryRecord], vectors: Vectors, *, are_new: bool = False
    ) -> None:
        """Store records just as they are. Hold the namespace's lock meanwhile."""
        await self.table(table).put(records, vectors, new=are_new)
        cache = await self.cache()
        for record in records:
            if record.session is not None and (table, record.session) in cache.numbers:
                last = cache.numbers[table, record.session]
                cache.numbers[table, record.session] = max(last, record.sequence or 0)
        if cache.is_built:  # otherwise they are read when it is built
            await self.update_cache(table, records, vectors)

    async def update_cache(self, table: TableName, records: Sequence[MemoryRecord], vectors: Vectors = ()) -> None:
        """Put records that were written into the cache, and vectors, as far as they are new, of the first of them."""
        cache = await self.cache()

        def update() -> None:
            cache.put(table, records)
            if self.connection.exclusive:
                vector_of = {record.id: vector for record, vector in zip(records, vectors)}
                cache.put_vectors(table, self._embedding_id, vector_of)

        await in_thread(update)

    def knows(self, id: str) -> bool:
        """Return whether the cache has a row with that id, current or not."""
        return self._cache is not None and id in self._cache

    async def last_number(self, table: TableName, session: str) -> int:
        """Return the number of the last memory in a session; 0 if there is none."""
        return await self.next_number(table, session, step=0)

    async def next_number(self, table: TableName, session: str, *, step: int = 1) -> int:
        """Return the number of the next memory in a session."""
        numbers = (await self.cache()).numbers
        if (table, session) not in numbers:
            earlier = await self.table(table).select(Selection(session=session))
            numbers[table, session] = max((record.sequence or 0 for record in earlier), default=0)
        numbers[table, session] += step
        return numbers[table, session]

    async def cache(self) -> RecordCache:
        """Return the cache as it is, which all memories of the process share."""
        if self._cache is None:
            self._cache = await self.connection.shared(f"{self._namespace}\ncache", RecordCache)
        return self._cache

    async def drop_cache(self) -> None:
        """Empty the cache, since the namespace was changed as a whole."""
        await asyncio.wrap_future((await self.cache()).start_over())

    async def synced_cache(self, *, patience: float = math.inf) -> RecordCache:
        """Return the cache, built if need be, and updated with what other processes wrote.

        Reading a large namespace takes longer than an agent should wait: after `patience` seconds the cache is returned as
        far as it is, while it continues to be built.
        """
        cache = await self.cache()
        if not cache.is_built:
            building = self._building.start()
            if await self._building.wait(patience):
                await building
        elif not self.connection.exclusive:
            await cache.sync(self._tables)
        is_mine = self.connection.exclusive and self._embedding_id != ANY_EMBEDDING
        if cache.is_built and is_mine and any(cache.lacks_vectors(name, self._embedding_id) for name in TABLES):
            self._gathering.start()
        return cache

    async def _build(self) -> None:
        cache = await self.cache()
        async with self.lock():
            await cache.build(self._tables)
        if self.connection.exclusive and self._embedding_id != ANY_EMBEDDING:
            self._mending.start()
            await self._mending.wait(_MENDING_PATIENCE)

    async def _gather(self) -> None:
        """Read the vectors into the cache. Until all are there, the store searches them."""
        try:
            cache = await self.cache()
            await self.settle()
            for name in TABLES:
                while cache.lacks_vectors(name, self._embedding_id) and await self._gather_some(cache, name):
                    pass
        except PersistentMemoryError as error:
            logger.debug("The vectors of %r stay in its store: %s", self._namespace, error)

    async def _gather_some(self, cache: RecordCache, name: TableName) -> bool:
        """Read some of the vectors that the cache lacks; return whether the store had all of them."""
        table = self.table(name)
        async with self.lock():
            ids = await in_thread(partial(cache.without_vector, name, self._embedding_id, _VECTORS_AT_ONCE))
            vectors = await table.vectors(ids)
            known = [(record, vectors[id]) for id in vectors if (record := cache.record(id)) is not None]
            unusable = await in_thread(
                lambda: [record.id for record, vector in known if has_random_vector(record, vector)]
            )
            if unusable:
                await reindex(table, unusable, self._embed)
                vectors |= await table.vectors(unusable)
            await in_thread(partial(cache.put_vectors, name, self._embedding_id, vectors))
            return 0 < len(ids) == len(vectors)

    async def settle(self) -> None:
        """Wait until lost vectors are made again, if that is under way."""
        await self._mending.wait()

    async def _mend(self) -> None:
        """Make vectors again that were lost to a fault. Until then their records are found by their words alone."""
        try:
            for table in self._tables.values():
                left = 1
                while left:
                    async with self.lock():
                        left = await mend(table, self._embed)
        except PersistentMemoryError as error:
            message = "Lost vectors of %r could not be made again; the next opening of its store retries: %s"
            logger.warning(message, self._namespace, error)
