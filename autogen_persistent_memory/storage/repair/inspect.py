"""An embedded store's folder, read without Chroma: what it holds, and where index and documents do not agree.

Chroma keeps rows and documents in SQLite. It appends every write to a log there (`embeddings_queue`) and applies the log
to its tables; vectors stay in the log until it saves them, every thousand, to files beside the database. Only to be used
while no Chroma has the folder open. Blocks; call it in a thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.checks import MAX_TAGS
from ..chroma.chroma_compat import DATABASE, SEGMENT, bare_collection, is_blocked
from ..chroma.collection import all_collections, vectors_of
from ..chroma.rows import MOST_LISTED, is_ours, namespace_of
from .hnsw_files import IndexFiles, read_index

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

_PAGE = 500
_NO_ROW = "apm:no-such-row"
_LEAST_BYTES = 3 * MOST_LISTED
"""The least length of the JSON of a list that is too long, so that shorter ones need not be read."""


class UnreadableDatabaseError(Exception):
    """Chroma's database itself is damaged."""

    is_recoverable = True


class MissingDatabaseError(UnreadableDatabaseError):
    """The database is gone."""

    is_recoverable = False


class BlockingWrite(NamedTuple):
    """A write in the log that Chroma can never apply, because its list of tags is too long for one SQL statement.

    It fails each time Chroma opens or writes the collection, and blocks everything that was written after it.
    """

    number: int
    """Its number in the log."""
    id: str
    """The record that was written."""
    tags: int
    """How many tags it has."""


@dataclass(frozen=True)
class InspectedCollection:
    """One of our collections, and its condition."""

    name: str
    metadata: Mapping[str, Any]
    rows: frozenset[str]
    index: IndexFiles
    logged: frozenset[str] = frozenset()
    """The ids whose vectors are in the log, from which Chroma will read them."""
    is_blocked: bool = False
    """Whether Chroma cannot apply its log, so that nothing of it can be read or written."""
    blocking: tuple[BlockingWrite, ...] = ()
    """The writes that block it, where they can be seen."""

    @property
    def namespace(self) -> str:
        return namespace_of(self.metadata) or ""

    @property
    def table(self) -> str:
        """`profile`, `session` or `values`."""
        return str(self.metadata.get("apm_shelf"))

    @property
    def unindexed(self) -> frozenset[str]:
        """The rows that no search by meaning would find: all that are not logged, if the index cannot be loaded."""
        indexed = () if self.index.problem else self.index.labels
        return self.rows.difference(self.logged, indexed)


@dataclass(frozen=True)
class Inspection:
    """What was found in a folder."""

    collections: tuple[InspectedCollection, ...] = ()
    orphans: tuple[Path, ...] = ()
    """Folders of indexes that belong to no collection."""
    abandoned_by: str | None = None
    """The process that had the store last, if it ended without closing it."""
    open_to_others: str | None = None
    """The mode of the folder, if other users than its owner may read it."""


@dataclass
class _Segments:
    vectors: str = ""
    rows: str = ""
    position: int = 0
    """The last number of the log whose vectors are saved."""
    applied: int = 0
    """The last number of the log whose rows are written."""
    metadata: dict[str, Any] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)
    """The ids whose vectors Chroma will read from its log when it opens the collection."""
    blocking: list[BlockingWrite] = field(default_factory=list)


def segment_folders(folder: Path) -> list[Path]:
    """Return the folders of Chroma's indexes."""
    return sorted(path for path in folder.iterdir() if SEGMENT.fullmatch(path.name) and path.is_dir())


def inspect_folder(folder: Path, *, thorough: bool = False) -> Inspection:
    """Inspect everything of ours in a folder; when `thorough`, every page of the database, too.

    Raises:
        UnreadableDatabaseError: The database is damaged.
        MissingDatabaseError: It is gone, while indexes are there.
        sqlite3.OperationalError: It cannot be read, or is of a Chroma that this version does not know.
    """
    segments = segment_folders(folder)
    if not (folder / DATABASE).exists() or (folder / DATABASE).stat().st_size == 0:
        if segments:
            raise MissingDatabaseError(f"{DATABASE} is gone or empty, though {len(segments)} indexes are there")
        return Inspection()
    with read_database(folder / DATABASE) as database:
        if thorough:
            (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise UnreadableDatabaseError(f"{DATABASE} is damaged: {verdict}")
        return _inspect(folder, segments, database)


@contextmanager
def read_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database, rolling back what a killed process left unfinished, as Chroma would."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=1.0)) as database:
            yield database
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        raise UnreadableDatabaseError(f"{path.name} is damaged: {error}") from error


def _inspect(folder: Path, segments: list[Path], database: sqlite3.Connection) -> Inspection:
    parts = _parts(database)
    _read_log(database, parts)
    collections: list[InspectedCollection] = []
    for id, name, dimensions in database.execute("SELECT id, name, dimension FROM collections ORDER BY name"):
        part = parts[id]
        if not is_ours(name, part.metadata):
            continue
        rows = database.execute("SELECT embedding_id FROM embeddings WHERE segment_id = ?", (part.rows,))
        collections.append(
            InspectedCollection(
                name=name,
                metadata=part.metadata,
                rows=frozenset(row for (row,) in rows),
                index=read_index(folder / part.vectors, dimensions or 0),
                logged=frozenset(part.logged),
                is_blocked=bool(part.blocking),
                blocking=tuple(part.blocking),
            )
        )
    known = {id for (id,) in database.execute("SELECT id FROM segments")}
    orphans = tuple(path for path in segments if path.name not in known)
    return Inspection(tuple(collections), orphans)


def _parts(database: sqlite3.Connection) -> dict[str, _Segments]:
    parts: dict[str, _Segments] = defaultdict(_Segments)
    positions = dict(database.execute("SELECT segment_id, seq_id FROM max_seq_id"))
    for segment, scope, collection in database.execute("SELECT id, scope, collection FROM segments"):
        if scope == "VECTOR":
            parts[collection].vectors, parts[collection].position = segment, int(positions.get(segment) or 0)
        elif scope == "METADATA":
            parts[collection].rows, parts[collection].applied = segment, int(positions.get(segment) or 0)
    for collection, key, *values in database.execute(
        "SELECT collection_id, key, str_value, int_value, float_value, bool_value FROM collection_metadata"
    ):
        parts[collection].metadata[key] = next((value for value in values if value is not None), None)
    return parts


def _read_log(database: sqlite3.Connection, parts: dict[str, _Segments]) -> None:
    """Note for each collection which vectors are in the log, and which writes cannot be applied."""
    first = min((part.position for part in parts.values()), default=0)
    for topic, number, id in database.execute(
        "SELECT topic, seq_id, id FROM embeddings_queue WHERE seq_id > ? AND vector IS NOT NULL", (first,)
    ):
        part = parts[topic.rpartition("/")[2]]
        if number > part.position:
            part.logged.add(id)
    for topic, number, id, metadata in database.execute(
        "SELECT topic, seq_id, id, metadata FROM embeddings_queue WHERE length(metadata) > ? ORDER BY seq_id",
        (_LEAST_BYTES,),
    ):
        part, tags = parts[topic.rpartition("/")[2]], _tags(json.loads(metadata))
        if number > part.applied and len(tags) > MOST_LISTED:
            part.blocking.append(BlockingWrite(number, id, len(tags)))


def unblock(folder: Path, collections: Iterable[InspectedCollection]) -> None:
    """Cut the tags of blocking writes to as many as a record may have, so that Chroma can apply its log."""
    with read_database(folder / DATABASE) as database, database:
        for write in [write for collection in collections for write in collection.blocking]:
            (text,) = database.execute(
                "SELECT metadata FROM embeddings_queue WHERE seq_id = ?", (write.number,)
            ).fetchone()
            metadata = json.loads(text)
            kept = _tags(metadata)[:MAX_TAGS]
            record = json.dumps(json.loads(metadata["record"]) | {"tags": kept})
            database.execute(
                "UPDATE embeddings_queue SET metadata = ? WHERE seq_id = ?",
                (json.dumps(metadata | {"tags": kept, "record": record}, ensure_ascii=False), write.number),
            )


def _tags(metadata: Mapping[str, Any]) -> list[Any]:
    """Return the tags of a row; only rows of ours have a text `record` beside them."""
    tags = metadata.get("tags")
    return tags if isinstance(tags, list) and "record" in metadata else []


def survey(client: ClientAPI) -> Inspection:
    """Inspect every collection of ours through Chroma: whether it works, and whether each of its rows has a vector."""
    ours = [found.name for found in all_collections(client) if is_ours(found.name, found.metadata)]
    return Inspection(tuple(_survey(bare_collection(client, name)) for name in ours))


def _survey(collection: Collection) -> InspectedCollection:
    problem, blocked = None, False
    rows: list[str] = []
    indexed: list[str] = []
    try:
        rows = list(collection.get(include=[])["ids"])
        for start in range(0, len(rows), _PAGE):
            indexed += vectors_of(collection, rows[start : start + _PAGE])
        _try_to_write(collection)
    except Exception as error:  # Chroma raises all sorts of errors for an index that it cannot read
        blocked = is_blocked(error)
        problem = None if blocked else f"Chroma cannot read it ({error})"
    return InspectedCollection(
        name=collection.name,
        metadata=dict(collection.metadata or {}),
        rows=frozenset(rows),
        is_blocked=blocked,
        index=IndexFiles(Path(), 0, problem=problem, labels=dict.fromkeys(indexed, 0)),
    )


def _try_to_write(collection: Collection) -> None:
    """Delete a row that does not exist: a server that cannot apply its log fails, even if it still reads from RAM."""
    try:
        collection.delete(ids=[_NO_ROW])
    except Exception as error:
        if is_blocked(error):
            raise
