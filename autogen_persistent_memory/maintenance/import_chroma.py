"""Reading a Chroma folder that is not ours, and leaving it exactly as it is.

Chroma changes a folder by opening it: it converts what an older version wrote, and replays its log. So the database is
copied, and the copy is opened. Only where this process has the folder open already is that instance used, since
reading a database file beside the SQLite that has it open would drop its locks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.checks import decode_json, encode_json
from ..core.errors import PersistentMemoryError, StoreUnavailableError
from ..core.records import MARKDOWN, TEXT, Draft, draft, stable_id
from ..retrieval.engine import Engine
from ..runtime.reporting import Progress, progress_of
from ..runtime.threads import in_thread
from ..storage.chroma.chroma_compat import client_of_process, is_failure, open_folder
from ..storage.chroma.collection import get_collection
from ..storage.chroma.connection import ChromaConnection
from ..storage.chroma.rows import namespace_of
from ..storage.chroma.shared_client import import_chroma
from ..storage.folder_lock import FolderLock

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
        self._client = client_of_process(folder) or self._open_copy(folder)
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
        with FolderLock.of_existing(folder):
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


def _database_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """The files of Chroma's database, and what changes when they do. The index is not needed to read the rows."""
    files = sorted(folder.glob(f"{_DATABASE}*"))
    return {file: ((state := file.stat()).st_size, state.st_mtime_ns) for file in files}


logger = logging.getLogger("autogen_persistent_memory")

_MIME_TYPES = {
    "MemoryMimeType.TEXT": TEXT,
    "MemoryMimeType.MARKDOWN": MARKDOWN,
    "MemoryMimeType.JSON": TEXT,  # it stored the dict as Python shows it, in lower case, which is no JSON
}
_TIME_NAMES = ("created_at", "timestamp")
_EARLIEST = datetime(2000, 1, 1, tzinfo=timezone.utc)
_IN_MILLISECONDS = 1e11
_TICK = timedelta(microseconds=1)
_SECOND = 1_000_000
_MOST_NAMED = 10


async def take_over(engine: Engine, path: str, collection: str, progress: Progress) -> int:
    """Store the memories of a foreign collection in the profile, those that are there already excepted; how many."""
    merged = await _merged_before(engine, collection)
    backend, now, taken, blank, start = engine.namespace_data.connection.backend, engine.clock(), 0, 0, 0
    keeps_in = backend.keeps_in if isinstance(backend, ChromaConnection) else lambda folder: False
    refused: dict[str, str] = {}
    newly_merged: dict[str, str] = {}
    async with (
        foreign_rows(path, collection, keeps_in) as (total, pages),
        progress_of(total, "Importing", progress) as done,
    ):
        async for page in pages:
            drafts, no_memories = _drafts(page, collection, start, total, now)
            refused |= no_memories
            known = await _known(engine, list(drafts), merged)
            new = {id: draft for id, draft in drafts.items() if id not in known}
            records = await engine.remember("profile", list(new.values()))
            newly_merged |= {id: record.id for id, record in zip(new, records, strict=True) if id != record.id}
            blank += len(page) - len(drafts) - len(no_memories)
            taken, start = taken + len(new), start + len(page)
            done(len(page))
    if newly_merged:
        await engine.values.put("import", collection, encode_json(merged | newly_merged, "merged ids"))
    if blank:
        logger.warning("%d memories of the collection %r are blank and were not imported.", blank, collection)
    if refused:
        logger.warning(
            "%d memories of the collection %r cannot be stored and were not imported; they stay where they are. By their ids "
            "there: %s",
            len(refused),
            collection,
            "; ".join(f"{id!r}: {reason}" for id, reason in islice(refused.items(), _MOST_NAMED)),
        )
    return taken


async def _merged_before(engine: Engine, collection: str) -> dict[str, str]:
    """The memories of the collection that only restated another, each with that other one's id."""
    text = await engine.values.get("import", collection)
    return {} if text is None else decode_json(text)


async def _known(engine: Engine, ids: Sequence[str], merged: Mapping[str, str]) -> set[str]:
    """Which of these memories are there, by themselves or as what they were merged into."""
    wanted = {*ids, *(merged[id] for id in ids if id in merged)}
    there = {record.id for record in await engine.find(list(wanted), ["profile"])}
    return {id for id in ids if id in there or merged.get(id) in there}


def _drafts(
    page: Sequence[ForeignRow], collection: str, start: int, total: int, now: datetime
) -> tuple[dict[str, Draft], dict[str, str]]:
    """Return the rows of a page as memories, by the id each is to have, and why rows cannot be one, by their own ids.

    Those without a text are left out. Where nothing tells their time they are of now, each a little later than the one
    before, so that their order stays.
    """
    drafts: dict[str, Draft] = {}
    refused: dict[str, str] = {}
    for number, row in enumerate(page, start=start):
        if not row.document or not row.document.strip():
            continue
        id, latest = stable_id("chroma", collection, row.id), now - max(total - number, 0) * _TICK
        try:
            drafts[id] = _draft(id, row, latest, number % _SECOND * _TICK)
        except ValueError as error:
            refused[row.id] = str(error)
    return drafts, refused


def _draft(id: str, row: ForeignRow, latest: datetime, offset: timedelta) -> Draft:
    """A row as a memory, of the time its metadata tells, else when it was added, which is known to the second.

    What `ChromaDBVectorMemory` put into the caller's metadata is taken out again.
    """
    metadata = dict(row.metadata)
    mime_type = _MIME_TYPES.get(str(metadata.get("mime_type")))
    if mime_type is not None:
        del metadata["mime_type"]
    added = latest if row.added_at is None else min(row.added_at + offset, latest)
    at = _told_time(metadata, latest) or added
    return draft(row.document, metadata=metadata, at=at, mime_type=mime_type or TEXT, id=id)


def _told_time(metadata: Mapping[str, Any], latest: datetime) -> datetime | None:
    """The time that the caller's own metadata tells, if it is one: ISO 8601, or seconds or milliseconds since 1970."""
    for name in _TIME_NAMES:
        time = _as_time(metadata.get(name))
        if time is not None and _EARLIEST <= time <= latest:
            return time
    return None


def _as_time(value: object) -> datetime | None:
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value.replace("Z", "+00:00"))
            return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > _IN_MILLISECONDS else value, timezone.utc)
    except (ValueError, OverflowError, OSError):
        pass
    return None
