"""Records with their vectors, as rows of a collection.

All writes are made in small chunks: an embedded Chroma holds the interpreter's lock while it writes, so a thread alone would
not keep the event loop responsive.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.errors import StoreUnavailableError
from ...core.records import MemoryRecord, Selection
from ...text.embeddings import Vector, Vectors
from ..connection import reindex, verify
from ..protocol import Embed, Near, TableName
from .chroma_compat import bare_collection
from .collection import Caller, NamespaceCollection, delete_rows, get_collection, vectors_of
from .migrations import Metadata
from .rows import to_metadata, to_record, to_row, to_usage, to_where

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

    from ..repair.startup_repair import VectorRepair

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_WRITE_CHUNK = 64
"""Rows per write: Chroma holds the interpreter's lock for all of them, but hardly longer than for ten."""
_WRITE_CHARACTERS = 100_000
_READ_PAGE = 1000
_REBUILD_PAGE = 100
_REBUILD_ROUNDS = 20


class ChromaRecordTable(NamespaceCollection):
    """The records of a namespace, profile or sessions, in a collection of their own."""

    def __init__(
        self,
        call: Caller,
        namespace: str,
        name: TableName,
        embedding_id: str,
        repair: Callable[[], Awaitable[VectorRepair | None]],
    ) -> None:
        super().__init__(call, namespace, name, embedding_id)
        self._repair = repair

    async def put(self, records: Sequence[MemoryRecord], vectors: Vectors, *, new: bool = False) -> None:
        for part in _chunks(records):
            await self.write(partial(_upsert, records=records[part], vectors=vectors[part], new=new))

    async def amend(self, records: Sequence[MemoryRecord], *, usage_only: bool = False) -> None:
        metadata = to_usage if usage_only else to_metadata
        for part in _chunks(records):
            await self.write(partial(_update, records=records[part], metadata=metadata), None)

    async def get(self, ids: Sequence[str]) -> list[MemoryRecord]:
        return await self.read(partial(self._get_from, ids=ids), []) if ids else []

    async def select(self, selection: Selection) -> list[MemoryRecord]:
        where = to_where(selection)

        def pages(collection: Collection) -> list[MemoryRecord]:
            found: list[MemoryRecord] = []
            offset = 0
            while True:
                page = self._records(collection.get(where=where, limit=_READ_PAGE, offset=offset))
                found += filter(selection.matches, page)
                offset += len(page)
                if len(page) < _READ_PAGE:
                    return found

        return await self.read(pages, [])

    async def nearest(
        self, vectors: Vectors, selection: Selection, *, fetch: int, thorough: bool = False
    ) -> list[Near]:
        where = to_where(selection, thorough=thorough)

        def search(collection: Collection) -> list[Near]:
            answer: Any = collection.query(
                query_embeddings=list(vectors), n_results=fetch, where=where, include=["distances"]
            )
            rows = zip(answer["ids"], answer["distances"], strict=True)
            return [{id: 1.0 - distance for id, distance in zip(*row, strict=True)} for row in rows]

        return await self.read(search, [{} for _ in vectors]) if len(vectors) else []

    async def remove(self, ids: Sequence[str]) -> int:
        return sum([await self.write(partial(delete_rows, ids=ids[part]), 0) for part in _chunks(ids)])

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        return await self.read(partial(vectors_of, ids=ids), {})

    async def mend(self, embed: Embed) -> int:
        repair = await self._repair()
        if repair is None or self._name not in repair.lost:
            return 0
        lost, restored = repair.lost[self._name], repair.restored[self._name]
        if not await verify(self, sorted(restored), embed):
            logger.warning(
                "%d vectors of %r that were restored from a damaged index do not belong to their memories. All are made again.",
                len(restored),
                self._namespace,
            )
            lost |= restored
        restored.clear()
        page = list(islice(lost, _REBUILD_PAGE))
        await reindex(self, page, embed)
        lost.difference_update(page)
        return len(lost)

    async def ids(self) -> list[str]:
        await self._call(lambda client: None, writes=True)  # queued behind the writes of cancelled tasks
        return await self.read(lambda collection: list(collection.get(include=[])["ids"]), [])

    async def size(self) -> int:
        return await self._call(
            lambda client: self._use(client, lambda collection: collection.count(), 0, any_embedding=True)
        )

    async def rebuild(self, embed: Embed, done: Callable[[int], None], *, keep: bool = False) -> None:
        """Copy everything into a new collection until both hold the same, then replace the old one by it.

        Another process may write meanwhile: each round copies what changed since the one before.
        """
        is_there = await self._call(
            lambda client: self._use(client, lambda collection: collection.count() >= 0, False, any_embedding=not keep)
        )
        if not is_there:
            return
        await self._call(self._begin_copy, writes=True)
        copied: dict[str, str] = {}
        for _ in range(_REBUILD_ROUNDS):
            present = await self._old(_fingerprints)
            changed = [id for id, fingerprint in present.items() if copied.get(id) != fingerprint]
            gone = [id for id in copied if id not in present]
            if not changed and not gone:
                break
            for start in range(0, len(changed), _REBUILD_PAGE):
                ids = changed[start : start + _REBUILD_PAGE]
                page = await self._old(partial(self._get_from, ids=ids))
                vectors = await (self._kept(page, embed) if keep else embed(page))
                for part in _chunks(page):
                    await self._new(partial(_upsert, records=page[part], vectors=vectors[part], new=not copied))
                done(len([id for id in ids if id not in copied]))
            for part in _chunks(gone):
                await self._new(partial(delete_rows, ids=gone[part]))
            copied = present
        else:
            raise StoreUnavailableError(
                f"The memories of {self._namespace!r} change faster than they can be copied. Nothing was changed; "
                "try again when fewer processes write to them."
            )
        await self._call(self._replace_by_copy, writes=True)

    async def _old(self, use: Callable[[Collection], T]) -> T:
        """Use the collection that is being rebuilt. It is looked up each time, since the client may have been reopened."""
        return await self._call(lambda client: use(bare_collection(client, self._name)))

    async def _new(self, use: Callable[[Collection], T]) -> T:
        """Use the copy that is being built."""
        return await self._call(lambda client: use(bare_collection(client, self._rebuilt_name)), writes=True)

    async def _kept(self, page: Sequence[MemoryRecord], embed: Embed) -> Vectors:
        """Return the vectors of these records, and make those that are lost."""
        ids = [record.id for record in page]
        there = await self._old(partial(vectors_of, ids=ids))
        lost = [record for record in page if record.id not in there]
        made = dict(zip([record.id for record in lost], await embed(lost), strict=True))
        return [there[id] if id in there else made[id] for id in ids]

    def _begin_copy(self, client: ClientAPI) -> None:
        if get_collection(client, self._rebuilt_name) is not None:
            client.delete_collection(self._rebuilt_name)
        self._create(client, self._rebuilt_name, self._identity | {"apm_unfinished": True})

    def _replace_by_copy(self, client: ClientAPI) -> None:
        """Give the finished copy the name of the old collection. `find` completes this if it is interrupted."""
        new = bare_collection(client, self._rebuilt_name)
        new.modify(metadata=self._identity)
        client.delete_collection(self._name)
        new.modify(name=self._name)
        self._found = None

    def _get_from(self, collection: Collection, ids: Sequence[str]) -> list[MemoryRecord]:
        return self._records(collection.get(ids=list(ids)))

    def _records(self, answer: Any) -> list[MemoryRecord]:
        rows = zip(answer["ids"], answer["documents"] or [], answer["metadatas"] or [], strict=True)
        return [to_record(self._namespace, id, document, metadata) for id, document, metadata in rows]


def _chunks(items: Sequence[MemoryRecord] | Sequence[str]) -> Iterator[slice]:
    """Return the slices of records or ids to write at a time."""
    lengths = [len(item.content) if isinstance(item, MemoryRecord) else 0 for item in items]
    start = 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or end - start == _WRITE_CHUNK or sum(lengths[start : end + 1]) > _WRITE_CHARACTERS:
            yield slice(start, end)
            start = end


def _upsert(collection: Collection, records: Sequence[MemoryRecord], vectors: Vectors, new: bool) -> None:
    import numpy as np

    rows = [to_row(record, new=new) for record in records]
    collection.upsert(
        ids=[record.id for record in records],
        embeddings=np.asarray(vectors, dtype=np.float32),
        documents=[document for document, _ in rows],
        metadatas=[metadata for _, metadata in rows],
    )


def _update(
    collection: Collection, records: Sequence[MemoryRecord], metadata: Callable[[MemoryRecord], Metadata]
) -> None:
    collection.update(ids=[record.id for record in records], metadatas=[metadata(record) for record in records])


def _fingerprints(collection: Collection) -> dict[str, str]:
    """Return for every row its metadata, which changes with it: when its content does, so does its time."""
    answer = collection.get(include=["metadatas"])
    return {id: repr(sorted(metadata.items())) for id, metadata in zip(answer["ids"], answer["metadatas"], strict=True)}
