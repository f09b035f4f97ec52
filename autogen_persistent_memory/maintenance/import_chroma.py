"""Import the memories of AutoGen's `ChromaDBVectorMemory` from its Chroma folder, which stays unchanged.

Opening a folder changes it: Chroma converts what an older version wrote, and replays its log. So the database is copied,
and the copy is opened. If this process has the folder open already, that instance is used instead, because reading a
database file beside the SQLite that has it open would drop its locks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

logger = logging.getLogger("autogen_persistent_memory")

_DATABASE = "chroma.sqlite3"
_PAGE = 200
_ADDED = (
    "SELECT e.embedding_id, e.created_at FROM embeddings e JOIN segments s ON s.id = e.segment_id "
    "WHERE s.collection = ? AND e.embedding_id IN (%s)"
)
_MIME_TYPES = {
    "MemoryMimeType.TEXT": TEXT,
    "MemoryMimeType.MARKDOWN": MARKDOWN,
    "MemoryMimeType.JSON": TEXT,  # it stored the dict as Python prints it, in lower case, which is not JSON
}
_TIME_NAMES = ("created_at", "timestamp")
_EARLIEST = datetime(2000, 1, 1, tzinfo=timezone.utc)
_IN_MILLISECONDS = 1e11
_TICK = timedelta(microseconds=1)
_SECOND = 1_000_000
_MOST_NAMED = 10


async def take_over(engine: Engine, path: str, collection: str, progress: Progress) -> int:
    """Store the memories of a foreign collection in the profile, except those imported before; return how many.

    Raises:
        ValueError: There is no such folder, it is not Chroma's, it is the memory's own, or has no such collection.
        StoreLockedError: Another process has the folder open as its embedded store.
        StoreUnavailableError: The folder cannot be read.
    """
    # the ids of memories that an earlier import merged into others, each with the id of the other
    merged: dict[str, str] = decode_json(await engine.values.get("import", collection) or "{}")
    backend, now, imported, blank, start = engine.data.connection.backend, engine.clock(), 0, 0, 0
    keeps_in = backend.keeps_in if isinstance(backend, ChromaConnection) else lambda folder: False
    refused: dict[str, str] = {}
    newly_merged: dict[str, str] = {}
    async with (
        _foreign_rows(path, collection, keeps_in) as (total, pages),
        progress_of(total, "Importing", progress) as done,
    ):
        async for page in pages:
            drafts, invalid = _drafts(page, collection, start, total, now)
            refused |= invalid
            known = await _known(engine, list(drafts), merged)
            new = {id: draft for id, draft in drafts.items() if id not in known}
            records = await engine.remember("profile", list(new.values()))
            newly_merged |= {id: record.id for id, record in zip(new, records, strict=True) if id != record.id}
            blank += len(page) - len(drafts) - len(invalid)
            imported, start = imported + len(new), start + len(page)
            done(len(page))
    if newly_merged:
        await engine.values.put("import", collection, encode_json(merged | newly_merged, "merged ids"))
    if blank:
        logger.warning("%d memories of the collection %r are blank and were not imported.", blank, collection)
    if refused:
        logger.warning(
            "%d memories of the collection %r cannot be stored and were not imported; they stay in that collection. Their ids "
            "there: %s",
            len(refused),
            collection,
            "; ".join(f"{id!r}: {reason}" for id, reason in islice(refused.items(), _MOST_NAMED)),
        )
    return imported


async def _known(engine: Engine, ids: Sequence[str], merged: Mapping[str, str]) -> set[str]:
    """Return which of these memories are stored, by themselves or merged into another."""
    wanted = {*ids, *(merged[id] for id in ids if id in merged)}
    there = {record.id for record in await engine.find(list(wanted), ["profile"])}
    return {id for id in ids if id in there or merged.get(id) in there}


def _drafts(
    page: Sequence[_Row], collection: str, start: int, total: int, now: datetime
) -> tuple[dict[str, Draft], dict[str, str]]:
    """Return the rows of a page as memories by their new ids, and the reasons why rows are invalid by their own ids.

    Rows without a text are left out. Rows without a time get the current one, each a little later than the one before, so
    that they stay in order.
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


def _draft(id: str, row: _Row, latest: datetime, offset: timedelta) -> Draft:
    """Return a row as a memory, with the time in its metadata, else the second in which Chroma added it.

    The metadata that `ChromaDBVectorMemory` added to the caller's is removed.
    """
    metadata = dict(row.metadata)
    mime_type = _MIME_TYPES.get(str(metadata.get("mime_type")))
    if mime_type is not None:
        del metadata["mime_type"]
    added = latest if row.added_at is None else min(row.added_at + offset, latest)
    at = _time_in(metadata, latest) or added
    return draft(row.document, metadata=metadata, at=at, mime_type=mime_type or TEXT, id=id)


def _time_in(metadata: Mapping[str, Any], latest: datetime) -> datetime | None:
    """Return the time in the caller's metadata, if there is one: ISO 8601, or seconds or milliseconds since 1970."""
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


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    document: str | None
    metadata: Mapping[str, Any]
    added_at: datetime | None
    """When Chroma stored it, if that is known."""


@asynccontextmanager
async def _foreign_rows(
    path: str, collection: str, is_ours: Callable[[Path], bool]
) -> AsyncIterator[tuple[int, AsyncIterator[list[_Row]]]]:
    """Open a foreign collection: how many rows it has, and the rows in pages. `is_ours` recognises the memory's own folder."""
    foreign = _ForeignCollection(path, collection, is_ours)

    async def pages() -> AsyncIterator[list[_Row]]:
        offset = 0
        while page := await in_thread(partial(foreign.page, offset)):
            offset += len(page)
            yield page

    try:
        yield await in_thread(foreign.open), pages()
    finally:
        await asyncio.shield(in_thread(foreign.close))


class _ForeignCollection:
    """A collection in a foreign folder. Its methods block, so they are called in threads, also after `close()`."""

    def __init__(self, path: str, name: str, is_ours: Callable[[Path], bool]) -> None:
        self._path = path
        self._name = name
        self._is_ours = is_ours
        self._lock = threading.Lock()
        self._is_closed = False
        self._client: ClientAPI | None = None
        self._collection: Collection | None = None
        self._copy: Path | None = None

    def open(self) -> int:
        """Open the collection, and return how many rows it has. Raises what `take_over` says."""
        with self._lock:
            folder = _checked_folder(self._path, self._is_ours)
            if self._is_closed:
                return 0
            with _reading(folder):
                import_chroma()
                self._client = client_of_process(folder) or self._open_copy(folder)
                self._collection = _find_collection(self._client, self._name, folder)
                return int(self._collection.count())

    def page(self, offset: int) -> list[_Row]:
        """Return the next rows, in the order in which they were added."""
        with self._lock:
            collection = self._collection
            if self._is_closed or collection is None:
                return []
            with _reading(_resolved(self._path)):
                answer = collection.get(limit=_PAGE, offset=offset, include=["documents", "metadatas"])
                added = self._times(str(collection.id), answer["ids"])
                rows = zip(answer["ids"], answer["documents"] or [], answer["metadatas"] or [], strict=True)
                return [_Row(id, document, metadata or {}, added.get(id)) for id, document, metadata in rows]

    def close(self) -> None:
        """Close the client and delete the copy. May be called twice."""
        with self._lock:
            self._is_closed = True
            client, self._client = self._client, None
            if client is not None:
                client.close()
            if self._copy is not None:
                shutil.rmtree(self._copy, ignore_errors=True)

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

    def _times(self, collection: str, ids: list[str]) -> dict[str, datetime]:
        """Return when rows were added, which Chroma stores but does not return; read from our copy of its database."""
        if self._copy is None:
            return {}
        try:
            with closing(sqlite3.connect(self._copy / _DATABASE)) as database:
                found = database.execute(_ADDED % ",".join("?" * len(ids)), [collection, *ids]).fetchall()
            return {id: datetime.fromisoformat(time).replace(tzinfo=timezone.utc) for id, time in found}
        except (sqlite3.Error, ValueError, TypeError):  # the tables of another Chroma version
            return {}


class _NoSuchCollectionError(ValueError):
    """A bad argument that shows only after Chroma was opened."""


def _resolved(path: str) -> Path:
    return Path(os.path.realpath(os.path.expanduser(path)))


def _checked_folder(path: str, is_ours: Callable[[Path], bool]) -> Path:
    folder = _resolved(path)
    if not folder.exists():
        raise ValueError(
            f"There is no folder {folder}. Give the persistence_path of your ChromaDBVectorMemory; a relative path starts at "
            f"the current directory, {Path.cwd()}."
        )
    if not (folder / _DATABASE).is_file():
        raise ValueError(
            f"{folder} is not a Chroma folder: it holds no {_DATABASE}. Give the folder itself, not a file in it. "
            "Chroma before 0.4 wrote other files; convert them with its tool chroma-migrate first."
        )
    if is_ours(folder):
        raise ValueError(
            f"{folder} is the store of this memory itself, which must not be opened twice. Import from a copy of the "
            "folder, or give this memory a store of its own: store=EmbeddedStore('another/folder')."
        )
    return folder


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn failures of Chroma and of the file system into a StoreUnavailableError."""
    try:
        yield
    except (PersistentMemoryError, _NoSuchCollectionError):
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        raise StoreUnavailableError(
            f"The Chroma folder {folder} cannot be read: {error}. Nothing was changed in it. Check that this user may read it "
            f"and write to the temporary folder {tempfile.gettempdir()}, and that there is space for a copy of its database; "
            "if another version of chromadb wrote it, open it with that version to see whether it is intact."
        ) from error


def _find_collection(client: ClientAPI, name: str, folder: Path) -> Collection:
    found = get_collection(client, name)
    if found is None or not _is_foreign(found):
        there = sorted(other.name for other in client.list_collections() if _is_foreign(other))
        raise _NoSuchCollectionError(
            f"There is no collection {name!r} in {folder}. Collections there: {', '.join(map(repr, there)) or 'none'}. Give "
            "the collection_name of your ChromaDBVectorMemory; by default it is 'memory_store'."
        )
    return found


def _is_foreign(collection: Collection) -> bool:
    return namespace_of(collection.metadata) is None


def _database_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the files of Chroma's database with their sizes and times. The index is not needed to read the rows."""
    files = sorted(folder.glob(f"{_DATABASE}*"))
    return {file: ((state := file.stat()).st_size, state.st_mtime_ns) for file in files}
