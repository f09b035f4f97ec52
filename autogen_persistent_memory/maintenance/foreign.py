"""Reading a Chroma folder that is not ours, and leaving it exactly as it is.

Chroma changes a folder by opening it: it converts what an older version wrote, and replays its log. So the database is
copied, and the copy is opened. Only where this process has the folder open already is that instance used, since
reading a database file beside the SQLite that has it open would drop its locks.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..core.errors import PersistentMemoryError, StoreUnavailableError
from ..runtime.threads import in_thread
from ..storage.chroma.collection import get_collection
from ..storage.chroma.rows import namespace_of
from ..storage.chroma.shared_client import import_chroma, is_failure
from ..storage.chroma.sources import open_folder
from ..storage.folder_lock import Ownership

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

T = TypeVar("T")
_DATABASE = "chroma.sqlite3"
_PAGE = 200
_ADDED = (
    "SELECT e.embedding_id, e.created_at FROM embeddings e JOIN segments s ON s.id = e.segment_id "
    "WHERE s.collection = ? AND e.embedding_id IN (%s)"
)


@dataclass(frozen=True, slots=True)
class ForeignRow:
    """A row of a foreign collection."""

    id: str
    document: str | None
    metadata: Mapping[str, Any]
    added_at: datetime | None
    """When Chroma stored it, where that can be known."""


class ForeignCollection:
    """A collection in a foreign folder. Its methods block, and are called in threads."""

    def __init__(self, path: str, name: str, is_ours: Callable[[Path], bool]) -> None:
        self._given = path
        self._name = name
        self._is_ours = is_ours
        self._one_at_a_time = threading.Lock()
        self._is_closed = False
        self._client: ClientAPI | None = None
        self._collection: Collection | None = None
        self._copy: Path | None = None

    def open(self) -> int:
        """Open the collection; how many rows it has.

        Raises:
            ValueError: There is no such folder, it is not Chroma's, it is the memory's own, or has no such collection.
            StoreLockedError: Another process has the folder as its embedded store.
            StoreUnavailableError: It cannot be read.
        """
        with self._one_at_a_time:
            folder = self._checked_folder()
            if self._is_closed:
                return 0
            return self._reading(folder, lambda: self._open(folder))

    def page(self, offset: int) -> list[ForeignRow]:
        """The next rows, in the order in which they were added."""
        with self._one_at_a_time:
            return self._reading(self._folder, lambda: self._page(offset))

    def close(self) -> None:
        """Let go of everything; a second time does nothing."""
        with self._one_at_a_time:
            self._is_closed = True
            client, self._client = self._client, None
            if client is not None:
                client.close()
            if self._copy is not None:
                shutil.rmtree(self._copy, ignore_errors=True)

    @property
    def _folder(self) -> Path:
        return Path(os.path.realpath(os.path.expanduser(self._given)))

    def _checked_folder(self) -> Path:
        folder = self._folder
        if not folder.exists():
            raise ValueError(
                f"There is no folder {folder}. Give the persistence_path of your ChromaDBVectorMemory; a relative one is "
                f"looked up in the current directory, {Path.cwd()}."
            )
        if not (folder / _DATABASE).is_file():
            raise ValueError(
                f"{folder} is not a Chroma folder: it holds no {_DATABASE}. Give the folder itself, not a file in it. "
                "Chroma before 0.4 wrote other files, which have to be converted with its tool chroma-migrate first."
            )
        if self._is_ours(folder):
            raise ValueError(
                f"{folder} is the store of this memory itself, which must not be opened twice. Import from a copy of the "
                "folder, or give this memory a store of its own: store=EmbeddedStore('another/folder')."
            )
        return folder

    def _reading(self, folder: Path, read: Callable[[], T]) -> T:
        try:
            return read()
        except (PersistentMemoryError, _NoSuchCollectionError):
            raise
        except BaseException as error:
            if not is_failure(error):
                raise
            raise StoreUnavailableError(
                f"The Chroma folder {folder} cannot be read: {error}. Nothing was changed in it. Check that it and the "
                f"temporary folder {tempfile.gettempdir()} can be used by this user, and that there is space for a copy "
                "of its database; if another version of chromadb wrote it, open it once with that version to see whether "
                "it is whole."
            ) from error

    def _open(self, folder: Path) -> int:
        import_chroma()
        self._client = _opened_by_this_process(folder) or self._open_copy(folder)
        found = get_collection(self._client, self._name)
        if found is None or not _is_theirs(found):
            there = sorted(other.name for other in self._client.list_collections() if _is_theirs(other))
            raise _NoSuchCollectionError(
                f"There is no collection {self._name!r} in {folder}. Collections there: "
                f"{', '.join(map(repr, there)) or 'none'}. Give the collection_name of your ChromaDBVectorMemory, "
                "'memory_store' if you gave it none."
            )
        self._collection = found
        return int(found.count())

    def _open_copy(self, folder: Path) -> ClientAPI:
        self._copy = Path(tempfile.mkdtemp(prefix="autogen-memory-import-"))
        with Ownership.of_existing(folder):
            before = _database_files(folder)
            for file in before:
                shutil.copyfile(file, self._copy / file.name)
            if _database_files(folder) != before:
                raise StoreUnavailableError(
                    f"The Chroma folder {folder} changed while it was read: another process writes to it. End that process "
                    "and try again; nothing was imported."
                )
        return open_folder(self._copy)

    def _page(self, offset: int) -> list[ForeignRow]:
        collection = self._collection
        if self._is_closed or collection is None:
            return []
        answer = collection.get(limit=_PAGE, offset=offset, include=["documents", "metadatas"])
        added = self._times(str(collection.id), answer["ids"])
        rows = zip(answer["ids"], answer["documents"] or [], answer["metadatas"] or [], strict=True)
        return [ForeignRow(id, document, metadata or {}, added.get(id)) for id, document, metadata in rows]

    def _times(self, collection: str, ids: list[str]) -> dict[str, datetime]:
        """When rows were added, which Chroma knows but does not tell; read from the copy, which is nobody else's."""
        if self._copy is None:
            return {}
        try:
            with closing(sqlite3.connect(self._copy / _DATABASE)) as database:
                found = database.execute(_ADDED % ",".join("?" * len(ids)), [collection, *ids]).fetchall()
            return {id: datetime.fromisoformat(time).replace(tzinfo=timezone.utc) for id, time in found}
        except (sqlite3.Error, ValueError, TypeError):  # another version's tables: there are no times then
            return {}


class _NoSuchCollectionError(ValueError):
    """A bad argument that shows only when Chroma has been asked."""


@asynccontextmanager
async def foreign_rows(
    path: str, collection: str, is_ours: Callable[[Path], bool]
) -> AsyncIterator[tuple[int, AsyncIterator[list[ForeignRow]]]]:
    """How many rows a foreign collection has, and these in pages; `is_ours` tells the memory's own folder.

    Raises:
        ValueError: As `ForeignCollection.open`.
        PersistentMemoryError: As `ForeignCollection.open`.
    """
    foreign = ForeignCollection(path, collection, is_ours)

    async def pages() -> AsyncIterator[list[ForeignRow]]:
        offset = 0
        while page := await in_thread(partial(foreign.page, offset)):
            offset += len(page)
            yield page

    try:
        yield await in_thread(foreign.open), pages()
    finally:
        await asyncio.shield(in_thread(foreign.close))


def _is_theirs(collection: Collection) -> bool:
    return namespace_of(collection.metadata) is None


def _opened_by_this_process(folder: Path) -> ClientAPI | None:
    """A client on the instance that the application has of this folder, if it has one."""
    from chromadb.api.client import Client
    from chromadb.api.shared_system_client import SharedSystemClient

    for system in list(SharedSystemClient._identifier_to_system.values()):
        settings = system.settings
        if settings.is_persistent and Path(os.path.realpath(settings.persist_directory)) == folder:
            return cast("ClientAPI", Client.from_system(system))
    return None


def _database_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """The files of Chroma's database, and what changes when they do. The index is not needed to read the rows."""
    files = sorted(folder.glob(f"{_DATABASE}*"))
    return {file: ((state := file.stat()).st_size, state.st_mtime_ns) for file in files}
