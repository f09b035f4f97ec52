"""The connection of one memory to Chroma, over the line that all memories of the process share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from ._client import ClientLine, ClientSource, join_line
from ._rows import namespace_of
from ._shelf import ChromaShelf
from ._store import ShelfName
from ._values import ChromaValues

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

T = TypeVar("T")
_PAGE = 1000


class ChromaConnection:
    """A connection to Chroma that joins the process's line to its store on first use."""

    def __init__(self, source: ClientSource) -> None:
        self._source = source
        self._line: ClientLine | None = None

    async def prepare(self) -> None:
        await (await self._joined()).prepare()

    def shelf(self, namespace: str, name: ShelfName, embedding_id: str) -> ChromaShelf:
        return ChromaShelf(self._call, namespace, name, embedding_id)

    def values(self, namespace: str) -> ChromaValues:
        return ChromaValues(self._call, namespace, self.lock)

    async def namespaces(self) -> list[str]:
        def names(client: ClientAPI) -> set[str]:
            found: set[str] = set()
            offset = 0
            while page := client.list_collections(limit=_PAGE, offset=offset):
                offset += len(page)
                found.update(namespace for collection in page if (namespace := namespace_of(collection.metadata)))
            return found

        return sorted(await self._call(names))

    @asynccontextmanager
    async def lock(self, namespace: str) -> AsyncIterator[None]:
        async with (await self._joined()).lock(namespace):
            yield

    async def counters(self) -> dict[tuple[str, ...], int]:
        return (await self._joined()).counters

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.leave(self)

    async def _call(self, use: Callable[[ClientAPI], T], *, writes: bool = False) -> T:
        return await (await self._joined()).call(use, writes=writes)

    async def _joined(self) -> ClientLine:
        if self._line is None:
            self._line = await join_line(self._source, self)
        return self._line
