"""The connection of one memory to Chroma, over the line that all memories of the process share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..availability import CircuitBreaker
from ..outbox import Outbox
from ..protocol import ANY_EMBEDDING, Part, Stored, TableName
from .collection import NamespaceCollection
from .embedded import Folder
from .record_rows import ChromaRecordTable
from .rows import stored_of
from .shared_client import ClientSource, SharedClient, closed_meanwhile, join_shared_client
from .values import ChromaValues

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

    from ..repair.inspect import Inspection
    from ..repair.startup_repair import VectorRepair

T = TypeVar("T")
_PAGE = 1000
_CLOSING_SECONDS = 5.0


class ChromaConnection:
    """A connection to Chroma that joins the process's line to its store on first use."""

    def __init__(self, source: ClientSource) -> None:
        self._source = source
        self._line: SharedClient | None = None
        self._calls = 0
        self._is_closed = False

    async def prepare(self) -> None:
        await (await self._joined()).prepare(self)

    def table(self, namespace: str, name: TableName, embedding_id: str) -> ChromaRecordTable:
        return ChromaRecordTable(self._call, namespace, name, embedding_id, self._repair)

    def values(self, namespace: str) -> ChromaValues:
        return ChromaValues(self._call, namespace)

    async def inventory(self) -> list[Stored]:
        found = await self._call(_metadata_of_collections)
        return sorted(filter(None, map(stored_of, found)), key=lambda stored: (stored.namespace, stored.table))

    async def drop(self, namespace: str, parts: Sequence[Part]) -> None:
        collections = [NamespaceCollection(self._call, namespace, part, ANY_EMBEDDING) for part in parts]

        def drop(client: ClientAPI) -> None:
            for collection in collections:
                collection.find(client)  # all of them first: a newer version may have written one
            for collection in collections:
                collection.drop(client)

        await self._call(drop, writes=True)

    async def alone(self, work: Callable[[], T]) -> T:
        await self.prepare()
        return await (await self._joined()).alone(work)

    async def examine(self) -> Inspection:
        """How the collections are: read from the folder itself, or as far as it can be seen through Chroma."""
        line = await self._joined()
        folder = line.source.folder
        return await self._call(_survey) if folder is None else await line.apart(self, folder, folder.examine)

    async def clean(self, orphans: Sequence[Path]) -> Path | None:
        """Before a repair: make a backup and delete those indexes, if this is a folder; where the backup is."""
        line = await self._joined()
        folder = line.source.folder
        return None if folder is None else await line.apart(self, folder, lambda: folder.clean(orphans))

    async def on_folder(self, work: Callable[[Path], T]) -> T:
        """Do work on the folder of an embedded store, in a thread, while nobody has it open."""
        line = await self._joined()
        folder = line.source.folder
        if folder is None:
            raise ValueError("This is no store in a folder.")
        return await line.apart(self, folder, lambda: folder.work_on(work))

    async def delete_collection(self, name: str) -> None:
        """Delete a collection for good."""
        await self._call(lambda client: client.delete_collection(name), writes=True)

    async def identity(self) -> tuple[str, ...]:
        return (await self._joined()).identity

    def keeps_in(self, folder: Path) -> bool:
        return self._source.identity() == Folder(str(folder)).identity()

    @property
    def exclusive(self) -> bool:
        return self._source.local

    @property
    def breaker(self) -> CircuitBreaker:
        return self._source.breaker

    def outbox(self, namespace: str) -> Outbox | None:
        return self._source.outbox(namespace)

    async def close(self) -> None:
        """Let go of the store, once no call is under way any more; whatever comes later fails."""
        until = asyncio.get_running_loop().time() + _CLOSING_SECONDS
        while self._calls and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110 (calls may be of other loops)
            await asyncio.sleep(0.005)
        self._is_closed = True
        line, self._line = self._line, None
        if line is not None:
            await line.leave(self)

    async def _call(self, use: Callable[[ClientAPI], T], *, writes: bool = False) -> T:
        self._calls += 1
        try:
            return await (await self._joined()).call(self, use, writes=writes)
        finally:
            self._calls -= 1

    async def _repair(self) -> VectorRepair | None:
        await self.prepare()
        folder = (await self._joined()).source.folder
        return None if folder is None else folder.repair

    async def _joined(self) -> SharedClient:
        if self._is_closed:
            raise closed_meanwhile()
        if self._line is None:
            self._line = await join_shared_client(self._source, self)
        return self._line


def _survey(client: ClientAPI) -> Inspection:
    from ..repair.inspect import survey

    return survey(client)


def _metadata_of_collections(client: ClientAPI) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    offset = 0
    while page := client.list_collections(limit=_PAGE, offset=offset):
        offset += len(page)
        found += [collection.metadata or {} for collection in page]
    return found
