"""Shelves and values as Chroma collections.

Every namespace has collections of its own, in cosine space, which say in their metadata what wrote them. All writes go
in small chunks: an embedded Chroma holds the interpreter's lock while it writes, so a thread alone would not keep the
event loop alive.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ._client import ClientLine, ClientSource, join_line
from ._embeddings import Vectors
from ._errors import EmbeddingMismatchError, SchemaVersionError
from ._records import MemoryRecord, Selection
from ._rows import (
    SCHEMA_VERSION,
    Metadata,
    collection_metadata,
    collection_name,
    namespace_of,
    to_metadata,
    to_record,
    to_usage,
    to_where,
)
from ._store import ShelfName, Space

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

T = TypeVar("T")
_WRITE_CHUNK = 10
_READ_PAGE = 1000
_REBUILD_PAGE = 100
_TEXT_CHUNK = 256 * 1024
_NO_EMBEDDING = "none"
_PLACEHOLDER_VECTOR = [1.0]


class ChromaConnection:
    """A connection to Chroma that joins the process's line to its store on first use."""

    def __init__(self, source: ClientSource) -> None:
        self._source = source
        self._line: ClientLine | None = None

    async def open(self) -> None:
        await self.call(lambda client: None)

    async def call(self, use: Callable[[ClientAPI], T], *, writes: bool = False) -> T:
        """Run `use` with the client, in a thread."""
        return await (await self.line()).call(use, writes=writes)

    async def line(self) -> ClientLine:
        """The line to the store, joined if need be."""
        if self._line is None:
            self._line = await join_line(self._source, self)
        return self._line

    def shelf(self, namespace: str, name: ShelfName, embedding_id: str) -> ChromaShelf:
        return ChromaShelf(self, namespace, name, embedding_id)

    def values(self, namespace: str) -> ChromaValues:
        return ChromaValues(self, namespace)

    async def namespaces(self) -> list[str]:
        def names(client: ClientAPI) -> set[str]:
            found: set[str] = set()
            offset = 0
            while page := client.list_collections(limit=_READ_PAGE, offset=offset):
                offset += len(page)
                found.update(namespace for collection in page if (namespace := namespace_of(collection.metadata)))
            return found

        return sorted(await self.call(names))

    @asynccontextmanager
    async def lock(self, namespace: str) -> AsyncIterator[None]:
        async with (await self.line()).lock(namespace):
            yield

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.leave(self)


class _CollectionHandle:
    """A collection that is looked up lazily, checked once, and found again when somebody dropped it meanwhile."""

    def __init__(self, connection: ChromaConnection, namespace: str, shelf: str, embedding_id: str) -> None:
        self._connection = connection
        self._namespace = namespace
        self._shelf = shelf
        self._embedding_id = embedding_id
        self._name = collection_name(namespace, shelf)
        self._found: Collection | None = None

    async def read(self, use: Callable[[Collection], T], default: T) -> T:
        """Use the collection if there is one, else answer the default."""
        return await self._connection.call(lambda client: self._use(client, use, default))

    async def write(self, use: Callable[[Collection], T]) -> T:
        """Use the collection, creating it if need be."""
        return await self._connection.call(lambda client: self._use(client, use), writes=True)

    async def change(self, use: Callable[[Collection], T], default: T) -> T:
        """Use the collection to change what is there; where nothing is, answer the default."""
        return await self._connection.call(lambda client: self._use(client, use, default), writes=True)

    async def drop(self) -> None:
        """Delete the collection and everything in it."""

        def delete(client: ClientAPI) -> None:
            from chromadb.errors import NotFoundError

            self._found = None
            for name in (self._name, self._rebuilt_name):
                try:
                    client.delete_collection(name)
                except NotFoundError:
                    continue

        await self._connection.call(delete, writes=True)

    def _use(self, client: ClientAPI, use: Callable[[Collection], T], *default: T) -> T:
        from chromadb.errors import NotFoundError

        while True:
            known = self._found is not None
            collection = self._find(client) or (None if default else self._create(client))
            if collection is None:
                return default[0]
            self._check(collection.metadata or {})
            self._found = collection
            try:
                return use(collection)
            except NotFoundError:
                self._found = None
                if not known:
                    raise

    def _find(self, client: ClientAPI) -> Collection | None:
        if self._found is not None:
            return self._found
        found = _get_collection(client, self._name)
        if found is None:
            rebuilt = _get_collection(client, self._rebuilt_name)
            if rebuilt is not None and not (rebuilt.metadata or {}).get("apm_unfinished"):
                rebuilt.modify(name=self._name)  # a rebuild was interrupted just before its last step
                found = rebuilt
        return found

    def _create(self, client: ClientAPI) -> Collection:
        return self._create_as(client, self._name, collection_metadata(*self._identity))

    def _create_as(self, client: ClientAPI, name: str, metadata: Metadata) -> Collection:
        return client.get_or_create_collection(
            name, configuration={"hnsw": {"space": "cosine"}}, metadata=metadata, embedding_function=None
        )

    def _check(self, metadata: Any) -> None:
        schema = metadata.get("apm_schema")
        if schema is None or schema > SCHEMA_VERSION:
            raise SchemaVersionError(
                f"The memories of {self._namespace!r} were written with schema {schema}; this version of "
                f"autogen-persistent-memory reads up to {SCHEMA_VERSION}. Nothing was changed. Upgrade it with: "
                "pip install --upgrade autogen-persistent-memory"
            )
        stored = metadata.get("apm_embedding")
        if stored != self._embedding_id:
            raise EmbeddingMismatchError(
                f"The memories of {self._namespace!r} were embedded with {stored!r}, this memory uses "
                f"{self._embedding_id!r}; their vectors cannot be compared. Nothing was changed. Use the former "
                "embedding, or make all vectors anew with the new one: await memory.reembed()"
            )

    @property
    def _identity(self) -> tuple[str, str, str]:
        return self._namespace, self._shelf, self._embedding_id

    @property
    def _rebuilt_name(self) -> str:
        return f"{self._name}.rebuilt"


class ChromaShelf(_CollectionHandle):
    """The records of a namespace in a collection of their own."""

    async def put(self, records: Sequence[MemoryRecord], vectors: Vectors) -> None:
        for part in _chunks(len(records)):
            await self.write(partial(_upsert, records=records[part], vectors=vectors[part]))

    async def amend(self, records: Sequence[MemoryRecord]) -> None:
        for part in _chunks(len(records)):
            await self.change(partial(_update, records=records[part], metadata=to_metadata), None)

    async def touch(self, records: Sequence[MemoryRecord]) -> None:
        for part in _chunks(len(records)):
            await self.change(partial(_update, records=records[part], metadata=to_usage), None)

    async def get(self, ids: Sequence[str]) -> list[MemoryRecord]:
        if not ids:
            return []
        return await self.read(lambda collection: self._records(collection.get(ids=list(ids))), [])

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
        self, vectors: Vectors, selection: Selection, *, fetch: int, enough: int
    ) -> list[list[tuple[MemoryRecord, float]]]:
        def search(collection: Collection) -> list[list[tuple[MemoryRecord, float]]]:
            return [self._nearest(collection, vector, selection, fetch, enough) for vector in vectors]

        return await self.read(search, [[] for _ in vectors])

    def _nearest(
        self, collection: Collection, vector: Sequence[float], selection: Selection, fetch: int, enough: int
    ) -> list[tuple[MemoryRecord, float]]:
        where = to_where(selection, thorough=False)
        while True:
            answer = collection.query(
                query_embeddings=[vector],
                n_results=fetch,
                where=where,
                include=["documents", "metadatas", "distances"],
            )
            columns = (cast(list[list[Any]], answer[name]) for name in ("ids", "documents", "metadatas", "distances"))
            rows = list(zip(*(column[0] for column in columns), strict=True))
            found = [
                (record, 1.0 - distance)
                for id, document, metadata, distance in rows
                if selection.matches(record := to_record(self._namespace, id, document, metadata))
            ]
            if len(found) >= enough or len(rows) < fetch:
                return found
            where, fetch = to_where(selection), fetch * 4

    async def remove(self, ids: Sequence[str]) -> int:
        return sum([await self.change(partial(_delete, ids=ids[part]), 0) for part in _chunks(len(ids))])

    async def clear(self) -> None:
        await self.drop()

    async def size(self) -> int:
        collection = await self._connection.call(self._find)
        return 0 if collection is None else await self._connection.call(lambda client: collection.count())

    async def rebuild(
        self, embed: Callable[[Sequence[MemoryRecord]], Awaitable[Vectors]], done: Callable[[int], None]
    ) -> None:
        old = await self._connection.call(self._find)
        if old is None:
            return
        unfinished = collection_metadata(*self._identity) | {"apm_unfinished": True}
        new = await self._connection.call(lambda client: self._start_over(client, unfinished), writes=True)
        offset = 0
        while page := await self._connection.call(partial(self._page, old, offset)):
            vectors = await embed(page)
            for part in _chunks(len(page)):
                write = partial(_upsert, new, page[part], vectors[part])
                await self._connection.call(lambda client, write=write: write(), writes=True)  # type: ignore[misc]
            offset += len(page)
            done(len(page))
        await self._connection.call(lambda client: self._take_place(client, new), writes=True)

    def _page(self, collection: Collection, offset: int, client: ClientAPI) -> list[MemoryRecord]:
        return self._records(collection.get(limit=_REBUILD_PAGE, offset=offset))

    def _start_over(self, client: ClientAPI, metadata: Metadata) -> Collection:
        if _get_collection(client, self._rebuilt_name) is not None:
            client.delete_collection(self._rebuilt_name)
        return self._create_as(client, self._rebuilt_name, metadata)

    def _take_place(self, client: ClientAPI, new: Collection) -> None:
        """Let the finished collection take the old one's name. `_find` ends this if it is interrupted."""
        new.modify(metadata=collection_metadata(*self._identity))
        client.delete_collection(self._name)
        new.modify(name=self._name)
        self._found = None

    def _records(self, answer: Any) -> list[MemoryRecord]:
        rows = zip(answer["ids"], answer["documents"] or [], answer["metadatas"] or [], strict=True)
        return [to_record(self._namespace, id, document, metadata) for id, document, metadata in rows]


class ChromaValues(_CollectionHandle):
    """Texts by name, in a collection without meaningful vectors. Long texts are spread over several rows.

    The texts are metadata, not documents, since Chroma indexes documents for full-text search: ten megabytes would
    take three seconds.
    """

    def __init__(self, connection: ChromaConnection, namespace: str) -> None:
        super().__init__(connection, namespace, "values", _NO_EMBEDDING)

    async def put(self, space: Space, name: str, text: str) -> None:
        chunks = [text[start : start + _TEXT_CHUNK] for start in range(0, len(text), _TEXT_CHUNK)]
        version = secrets.token_hex(4)
        before = await self._head(space, name)
        for number, chunk in enumerate(chunks[1:], start=1):
            await self._write(_part_id(space, name, version, number), {"text": chunk})
        head = {"space": space, "name": name, "text": chunks[0], "parts": len(chunks), "version": version}
        await self._write(_head_id(space, name), head)
        await self._remove_parts(space, name, before)

    async def get(self, space: Space, name: str) -> str | None:
        head = await self._head(space, name)
        return None if head is None else await self._whole(head)

    async def all(self, space: Space) -> dict[str, str]:
        answer = await self.read(lambda collection: cast(Any, collection.get(where={"space": space})), None)
        heads = answer["metadatas"] if answer else []
        return {head["name"]: await self._whole(head) for head in heads}

    async def remove(self, space: Space, name: str) -> bool:
        before = await self._head(space, name)
        if before is None:
            return False
        removed = await self.change(lambda collection: _delete(collection, [_head_id(space, name)]), 0)
        await self._remove_parts(space, name, before)
        return removed > 0

    async def clear(self, space: Space) -> None:
        for name in await self.all(space):
            await self.remove(space, name)

    async def _head(self, space: Space, name: str) -> Metadata | None:
        answer = await self.read(lambda collection: cast(Any, collection.get(ids=[_head_id(space, name)])), None)
        return answer["metadatas"][0] if answer and answer["metadatas"] else None

    async def _whole(self, head: Metadata) -> str:
        ids = [_part_id(head["space"], head["name"], head["version"], number) for number in range(1, head["parts"])]
        if not ids:
            return str(head["text"])
        answer = await self.read(lambda collection: cast(Any, collection.get(ids=ids)), None)
        parts = dict(zip(answer["ids"], answer["metadatas"], strict=True))
        return "".join([head["text"], *(parts[id]["text"] for id in ids)])

    async def _write(self, id: str, metadata: Metadata) -> None:
        await self.write(
            lambda collection: collection.upsert(ids=[id], embeddings=[_PLACEHOLDER_VECTOR], metadatas=[metadata])
        )

    async def _remove_parts(self, space: Space, name: str, head: Metadata | None) -> None:
        if head is not None and head["parts"] > 1:
            ids = [_part_id(space, name, head["version"], number) for number in range(1, head["parts"])]
            await self.change(lambda collection: _delete(collection, ids), 0)


def _get_collection(client: ClientAPI, name: str) -> Collection | None:
    from chromadb.errors import NotFoundError

    try:
        return client.get_collection(name, embedding_function=None)
    except NotFoundError:
        return None


def _chunks(count: int) -> list[slice]:
    return [slice(start, start + _WRITE_CHUNK) for start in range(0, count, _WRITE_CHUNK)]


def _upsert(collection: Collection, records: Sequence[MemoryRecord], vectors: Vectors) -> None:
    collection.upsert(
        ids=[record.id for record in records],
        embeddings=list(vectors),
        documents=[record.content for record in records],
        metadatas=[to_metadata(record) for record in records],
    )


def _update(
    collection: Collection, records: Sequence[MemoryRecord], metadata: Callable[[MemoryRecord], Metadata]
) -> None:
    collection.update(ids=[record.id for record in records], metadatas=[metadata(record) for record in records])


def _delete(collection: Collection, ids: Sequence[str]) -> int:
    """Delete what is there of these ids. Chroma counts ids that are missing, too, so it is asked first."""
    there = collection.get(ids=list(ids), include=[])["ids"]
    if there:
        collection.delete(ids=there)
    return len(there)


def _head_id(space: Space, name: str) -> str:
    return f"{space}:{name}"


def _part_id(space: Space, name: str, version: str, number: int) -> str:
    return f"part:{version}:{number}:{space}:{name}"
