"""The collection of one part of a namespace: looked up on first use, checked, and looked up again after it was dropped."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from ...core.errors import EmbeddingMismatchError
from ...text.embeddings import as_options
from ..protocol import ANY_EMBEDDING
from .chroma_compat import bare, bare_collection
from .migrations import Metadata, check_schema, migrated
from .rows import collection_metadata, collection_name
from .shared_client import collections_used

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.collection_configuration import CreateHNSWConfiguration
    from chromadb.api.models.Collection import Collection

T = TypeVar("T")
_PAGE = 1000
_INDEX: CreateHNSWConfiguration = {"space": "cosine", "max_neighbors": 48}
"""With Chroma's 16 neighbours one in a thousand similar memories cannot be reached from any other, and is never found by
meaning; with 48 hardly any. They take 256 bytes per memory and no measurable time."""


class Caller(Protocol):
    """Runs a function with the Chroma client, in a thread."""

    async def __call__(self, use: Callable[[ClientAPI], T], *, writes: bool = False) -> T:
        """Return the result of `use(client)`."""


class NamespaceCollection:
    """The collection of one part of a namespace, in cosine space. Its metadata says which version and embedding wrote it."""

    def __init__(self, call: Caller, namespace: str, table: str, embedding_id: str) -> None:
        self._call = call
        self._namespace = namespace
        self._identity = collection_metadata(namespace, table, embedding_id)
        self._name = collection_name(namespace, table)
        self._rebuilt_name = f"{self._name}.rebuilt"
        self._found: Collection | None = None
        self._found_by: ClientAPI | None = None

    async def read(self, use: Callable[[Collection], T], default: T) -> T:
        """Use the collection if it exists, else return the default."""
        return await self._call(lambda client: self._use(client, use, default))

    async def write(self, use: Callable[[Collection], T], *default: T) -> T:
        """Use the collection to change rows. If it does not exist, return the default, or without one create it."""
        return await self._call(lambda client: self._use(client, use, *default), writes=True)

    def drop(self, client: ClientAPI) -> None:
        """Delete the collection and everything in it, dead vectors included."""
        self._found = None
        for name in (self._name, self._rebuilt_name):
            if get_collection(client, name) is not None:
                client.delete_collection(name)

    def _use(self, client: ClientAPI, use: Callable[[Collection], T], *default: T, any_embedding: bool = False) -> T:
        from chromadb.errors import NotFoundError

        while True:
            known = self._found is not None
            collection = self.find(client) or (None if default else self._create(client, self._name, self._identity))
            if collection is None:
                return default[0]
            if not any_embedding:
                self._check_embedding(collection)
                self._found = collection
            try:
                return use(collection)
            except NotFoundError:
                self._found = None
                if not known:
                    raise

    def find(self, client: ClientAPI) -> Collection | None:
        """Return the collection, with all migrations made, if there is one.

        Raises:
            SchemaVersionError: A newer version wrote it.
        """
        if self._found_by is not client:  # the client was reopened, and the collection belongs to the old one
            self._found, self._found_by = None, client
            collections_used(client).add(self._name)
        if self._found is not None:
            return self._found
        found = get_collection(client, self._name)
        if found is None:
            rebuilt = get_collection(client, self._rebuilt_name)
            if rebuilt is not None and not (rebuilt.metadata or {}).get("apm_unfinished"):
                rebuilt.modify(name=self._name)  # a rebuild was interrupted just before its last step
                found = rebuilt
            elif rebuilt is None:
                found = get_collection(client, self._name)  # the copy may have replaced it between the two lookups
        if found is None:
            return None
        check_schema(found.metadata, self._namespace)
        return migrated(client, found, self._identity["apm_shelf"])

    def _create(self, client: ClientAPI, name: str, metadata: Metadata) -> Collection:
        if metadata["apm_embedding"] == ANY_EMBEDDING:
            raise EmbeddingMismatchError(
                f"The memories of {self._namespace!r} were opened for reading, without an embedding. Nothing was changed. "
                "Name the embedding to write with."
            )
        return bare(
            client.get_or_create_collection(
                name, configuration={"hnsw": _INDEX}, metadata=metadata, embedding_function=None
            )
        )

    def _check_embedding(self, collection: Collection) -> None:
        stored, ours = (collection.metadata or {}).get("apm_embedding"), self._identity["apm_embedding"]
        if ours not in (stored, ANY_EMBEDDING):
            raise EmbeddingMismatchError(
                f"The memories of {self._namespace!r} were embedded with {stored!r}, this memory uses {ours!r}; their "
                "vectors cannot be compared. Nothing was changed. Use the former embedding, or make all vectors again with the "
                "new one: await memory.reembed() before any open() or async with, or `autogen-memory reembed --namespace "
                f"{shlex.quote(self._namespace)} {as_options(ours)}`, with --path FOLDER or --server HOST:PORT unless it is in "
                "the default store."
            )


def all_collections(client: ClientAPI) -> Iterator[Collection]:
    """Yield every collection of a client, ours and others."""
    offset = 0
    while page := client.list_collections(limit=_PAGE, offset=offset):
        offset += len(page)
        yield from page


def get_collection(client: ClientAPI, name: str) -> Collection | None:
    """Return the collection of that name, if it exists."""
    from chromadb.errors import NotFoundError

    try:
        return bare_collection(client, name)
    except NotFoundError:
        return None


def vectors_of(collection: Collection, ids: Sequence[str]) -> dict[str, Any]:
    """Return the vectors of these rows that have one: Chroma fails for all of them if one has none."""
    from chromadb.errors import InternalError

    if not ids:
        return {}
    try:
        answer = collection.get(ids=list(ids), include=["embeddings"])
    except InternalError:
        if len(ids) == 1:
            return {}
        middle = len(ids) // 2
        return vectors_of(collection, ids[:middle]) | vectors_of(collection, ids[middle:])
    return dict(zip(answer["ids"], cast(Any, answer["embeddings"]), strict=True))


def delete_rows(collection: Collection, ids: Sequence[str]) -> int:
    """Delete rows by id; return how many existed. Chroma counts missing ids, too, so they are looked up first."""
    there = collection.get(ids=list(ids), include=[])["ids"]
    if there:
        collection.delete(ids=there)
    return len(there)
