"""A connection to any backend, with everything the package derives from the store protocol.

Connections to the same store share locks, caches, the circuit breaker and the outbox within the process; a backend
writes none of that.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from ..core.errors import PersistentMemoryError
from ..core.records import utc_now
from ..runtime.locks import CrossLoopLock
from ..runtime.threads import in_thread
from ..text.embeddings import Vector
from .availability import CircuitBreaker
from .outbox import Outbox
from .protocol import (
    PARTS,
    Countable,
    Embed,
    Entry,
    Exclusive,
    Identified,
    MemoryStore,
    Part,
    Preparable,
    Rebuildable,
    RecordTable,
    Remote,
    Space,
    Stored,
    TableName,
    ValueTable,
)

T = TypeVar("T")
_SAMPLE = 16
_SAME = 0.99
"""The least cosine of two vectors of the same text, also where an embedding answers slightly differently each time."""


class StoreConnection:
    """A connection to a store. Opens it on first use."""

    def __init__(self, store: MemoryStore) -> None:
        self.backend = store.connect()
        self._store = store
        self._shared: _Shared | None = None
        self.exclusive = isinstance(self.backend, Exclusive) and self.backend.exclusive
        """Whether only this process can write to the store."""
        self.breaker = self.backend.breaker if isinstance(self.backend, Remote) else CircuitBreaker()
        """Whether the store is reachable, as far as this process knows."""

    async def __aenter__(self) -> StoreConnection:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def prepare(self) -> None:
        """Do the part of opening that is slow the first time, without waiting for a server."""
        if isinstance(self.backend, Preparable):
            await self.backend.prepare()

    def table(self, namespace: str, name: TableName, embedding_id: str) -> RecordTable:
        """Return a table of a namespace, whose vectors are made by the embedding of that id."""
        return self.backend.table(namespace, name, embedding_id)

    def values(self, namespace: str) -> Values:
        """Return the values of a namespace."""
        return Values(self.backend.values(namespace), partial(self.lock, _values_of(namespace)))

    async def inventory(self) -> list[Stored]:
        """Return what the store holds, ordered by namespace and table."""
        return await self.backend.inventory()

    async def embeddings(self) -> dict[str, dict[TableName, str]]:
        """Return for every namespace that holds anything the ids of the embeddings that made the vectors of its tables."""
        found: dict[str, dict[TableName, str]] = {}
        for stored in await self.inventory():
            made_by = found.setdefault(stored.namespace, {})
            if stored.table != "values":
                made_by[stored.table] = stored.embedding
        return found

    async def drop(self, namespace: str, parts: Sequence[Part] = PARTS) -> None:
        """Delete parts of a namespace, by default all, for good. Hold the namespace's lock meanwhile.

        Raises:
            SchemaVersionError: A newer version wrote one of them. Nothing was deleted.
        """
        async with self.lock(_values_of(namespace)):
            await self.backend.drop(namespace, parts)

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Keep other tasks of this process, on the same store, from holding the lock of that name."""
        async with (await self._joined()).lock(name):
            yield

    async def shared(self, name: str, make: Callable[[], T]) -> T:
        """Return the object that all memories of this process on this store share under a name; make it on first use."""
        return (await self._joined()).object(name, make)

    def outbox(self, namespace: str) -> Outbox | None:
        """Return the queue for what cannot be stored now, if the store is not on this machine."""
        return self.backend.outbox(namespace) if isinstance(self.backend, Remote) else None

    async def close(self) -> None:
        """Close the connection. Closing it twice does nothing."""
        self._leave()  # before waiting, so that the next user of the store does not get what this one knows of it
        await self.backend.close()
        self._leave()  # calls that were under way may have joined again

    def _leave(self) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.leave(self)

    async def _joined(self) -> _Shared:
        shared = self._shared
        if shared is None:
            identity: Hashable = type(self._store), self._store.config.model_dump_json()
            if isinstance(self.backend, Identified):
                identity = await self.backend.identity()
            shared = self._shared = _shared_by_store.setdefault(identity, _Shared())
            with shared.mutex:
                shared.connections.add(self)
        return shared


class _Shared:
    """What the connections of this process to one store share. Serves any thread."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.connections: weakref.WeakSet[StoreConnection] = weakref.WeakSet()
        self._locks: weakref.WeakValueDictionary[str, CrossLoopLock] = weakref.WeakValueDictionary()
        self._objects: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def leave(self, connection: StoreConnection) -> None:
        """Remove a connection. After the last one another process may change the store, so nothing known of it is kept."""
        with self.mutex:
            self.connections.discard(connection)
            if not self.connections:
                self._objects.clear()

    def lock(self, name: str) -> CrossLoopLock:
        with self.mutex:
            return self._locks.setdefault(name, CrossLoopLock())

    def object(self, name: str, make: Callable[[], T]) -> T:
        with self.mutex:
            found: T | None = self._objects.get(name)
            if found is None:
                found = self._objects[name] = make()
            return found


_shared_by_store: dict[Hashable, _Shared] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared_by_store.clear)


def _values_of(namespace: str) -> str:
    """Return the name of the lock on a namespace's values."""
    return f"{namespace}\nvalues"


class Values:
    """The named texts of a namespace. Writers of this process take turns."""

    def __init__(self, table: ValueTable, lock: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._table = table
        self._lock = lock

    async def check(self) -> None:
        """Make sure that this version can use them.

        Raises:
            SchemaVersionError: A newer version wrote them.
        """
        await self._table.get("value", [])

    async def put(self, space: Space, name: str, text: str, at: datetime | None = None) -> None:
        """Store a text under a name, replacing the former one; as of a time, if not now."""
        async with self._lock():
            await self._table.put(space, name, Entry(text, at or utc_now()))

    async def revise(self, space: Space, name: str, change: Callable[[str], str | None]) -> None:
        """Replace a text by what `change`, called in a thread, returns for it; None leaves it as it is."""
        async with self._lock():
            text = await self.get(space, name)
            revised = None if text is None else await in_thread(partial(change, text))
            if revised is not None:
                await self._table.put(space, name, Entry(revised, utc_now()))

    async def entry(self, space: Space, name: str) -> Entry | None:
        """Return the text with that name, and when it was written."""
        return (await self._table.get(space, [name])).get(name)

    async def get(self, space: Space, name: str) -> str | None:
        """Return the text with that name."""
        entry = await self.entry(space, name)
        return None if entry is None else entry.text

    async def names(self, space: Space) -> list[str]:
        """Return the names in a space."""
        return await self._table.names(space)

    async def all(self, space: Space) -> dict[str, str]:
        """Return every text of a space, by name."""
        return {name: entry.text for name, entry in (await self._table.get(space)).items()}

    async def remove(self, space: Space, name: str) -> bool:
        """Delete the text with that name; return whether it existed."""
        async with self._lock():
            return await self._table.remove(space, name)

    async def clear(self, space: Space) -> None:
        """Delete everything in a space."""
        async with self._lock():
            await self._table.clear(space)


async def size_of(table: RecordTable) -> int:
    """Return how many records a table holds, including those that are no longer current."""
    return await table.size() if isinstance(table, Countable) else len(await table.ids())


async def verify(table: RecordTable, ids: Sequence[str], embed: Embed) -> bool:
    """Return whether a sample of these records has the vectors that the embedding makes of them."""
    sample = ids[:: len(ids) // _SAMPLE or 1]
    records, vectors = await table.get(sample), await table.vectors(sample)
    made = await embed(records)
    return all(
        record.id in vectors and cosine(vectors[record.id], vector) > _SAME for record, vector in zip(records, made)
    )


async def reindex(table: RecordTable, ids: Sequence[str], embed: Embed) -> None:
    """Make the vectors of these records again. Hold the namespace's lock meanwhile."""
    records = await table.get(ids)
    await table.put(records, await embed(records))


async def rebuild(table: RecordTable, embed: Embed, done: Callable[[int], None], *, keep: bool = False) -> None:
    """Make all vectors of a table again; with `keep` only the missing ones, dropping dead ones.

    Raises:
        PersistentMemoryError: The store cannot do that.
    """
    if not isinstance(table, Rebuildable):
        raise PersistentMemoryError(
            f"{type(table).__name__} cannot rebuild its vectors. Export the memories with export_memories() and import "
            "them into another namespace or store, with the embedding that you want."
        )
    await table.rebuild(embed, done, keep=keep)


async def mend(table: RecordTable, embed: Embed) -> int:
    """Make some of the vectors again that a table lost; return how many are still missing. Hold the namespace's lock."""
    return await table.mend(embed) if isinstance(table, Rebuildable) else 0


def cosine(one: Vector, other: Vector) -> float:
    import numpy as np

    return float(np.dot(one, other) / ((np.linalg.norm(one) * np.linalg.norm(other)) or 1))
