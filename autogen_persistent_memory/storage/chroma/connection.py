"""The connection of one memory to Chroma, over the client that all memories of the process share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..availability import CircuitBreaker
from ..outbox import Outbox
from ..protocol import ANY_EMBEDDING, Part, Stored, TableName
from .collection import NamespaceCollection, all_collections
from .embedded import Folder
from .record_rows import ChromaRecordTable
from .rows import stored_of
from .shared_client import CLOSING_SECONDS, ClientSource, SharedClient, closed_meanwhile, join_shared_client
from .values import ChromaValues

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

    from ..repair.inspect import Inspection
    from ..repair.startup_repair import VectorRepair

T = TypeVar("T")


class ChromaConnection:
    """A connection to Chroma. It joins the process's shared client on first use."""

    def __init__(self, source: ClientSource) -> None:
        self._source = source
        self._shared: SharedClient | None = None
        self._calls = 0
        self._is_closed = False

    # The store protocol

    def table(self, namespace: str, name: TableName, embedding_id: str) -> ChromaRecordTable:
        return ChromaRecordTable(self._call, namespace, name, embedding_id, self._repair)

    def values(self, namespace: str) -> ChromaValues:
        return ChromaValues(self._call, namespace)

    async def inventory(self) -> list[Stored]:
        found = await self._call(lambda client: [stored_of(found.metadata) for found in all_collections(client)])
        return sorted(filter(None, found), key=lambda stored: (stored.namespace, stored.table))

    async def drop(self, namespace: str, parts: Sequence[Part]) -> None:
        collections = [NamespaceCollection(self._call, namespace, part, ANY_EMBEDDING) for part in parts]

        def drop(client: ClientAPI) -> None:
            for collection in collections:
                collection.find(client)  # all of them first: a newer version may have written one
            for collection in collections:
                collection.drop(client)

        await self._call(drop, writes=True)

    async def close(self) -> None:
        """Leave the shared client, once no call of this connection is under way; later calls fail."""
        until = asyncio.get_running_loop().time() + CLOSING_SECONDS
        while self._calls and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110 (calls may be of other loops)
            await asyncio.sleep(0.005)
        self._is_closed = True
        shared, self._shared = self._shared, None
        if shared is not None:
            await shared.leave(self)

    # Its capabilities

    async def identity(self) -> tuple[str, ...]:
        return (await self._joined()).identity

    @property
    def exclusive(self) -> bool:
        return self._source.local

    async def prepare(self) -> None:
        await (await self._joined()).prepare(self)

    @property
    def breaker(self) -> CircuitBreaker:
        return self._source.breaker

    def outbox(self, namespace: str) -> Outbox | None:
        return self._source.outbox(namespace)

    # For maintenance

    def keeps_in(self, folder: Path) -> bool:
        """Return whether the store is in this folder, given by its real path. Blocks; call it in a thread."""
        return self._source.identity() == Folder(str(folder)).identity()

    async def alone(self, work: Callable[[], T]) -> T:
        """Run what blocks in a thread, while no call of this process to the store is under way; later ones wait."""
        await self.prepare()
        return await (await self._joined()).alone(work)

    async def examine(self) -> Inspection:
        """Inspect the collections: in the folder itself, or as far as they can be seen through Chroma."""
        from ..repair.inspect import survey

        shared = await self._joined()
        folder = shared.source
        if not isinstance(folder, Folder):
            return await self._call(survey)
        return await shared.while_closed(self, folder.examine)

    @property
    def is_in_folder(self) -> bool:
        """Whether the store is in a folder of this machine, so that `on_folder` works."""
        return isinstance(self._source, Folder)

    async def on_folder(self, work: Callable[[Path], T]) -> T:
        """Do work on the folder of an embedded store, in a thread, while no client has it open."""
        shared = await self._joined()
        folder = shared.source
        if not isinstance(folder, Folder):
            raise ValueError("The store is not in a folder of this machine. Use an EmbeddedStore.")
        return await shared.while_closed(self, partial(folder.work_on, work))

    async def delete_collection(self, name: str) -> None:
        """Delete a collection for good."""
        await self._call(lambda client: client.delete_collection(name), writes=True)

    async def _call(self, use: Callable[[ClientAPI], T], *, writes: bool = False) -> T:
        self._calls += 1
        try:
            return await (await self._joined()).call(self, use, writes=writes)
        finally:
            self._calls -= 1

    async def _repair(self) -> VectorRepair | None:
        await self.prepare()
        folder = (await self._joined()).source
        return folder.repair if isinstance(folder, Folder) else None

    async def _joined(self) -> SharedClient:
        if self._is_closed:
            raise closed_meanwhile()
        if self._shared is None:
            self._shared = await join_shared_client(self._source, self)
        return self._shared
