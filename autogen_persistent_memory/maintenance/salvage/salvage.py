"""Read the rows of a damaged Chroma database, as far as possible. Blocks, so it is called in threads.

Chroma stores most things more than once: a text is in its table, in an index of that table, in the full-text index, and for
a while in the log of writes. A value that is lost in one place is taken from another.
"""

from __future__ import annotations

import json
import mmap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...storage.chroma.chroma_compat import DATABASE, SEGMENT
from ...storage.repair.hnsw_files import read_index
from .damaged_sqlite import DamagedDatabase, Lost, Row

Metadata = dict[str, Any]
_DOCUMENT = "chroma:document"
_ROWS, _VECTORS = "METADATA", "VECTOR"
_LOG = "embeddings_queue"
_DELETE = 3
_SHAPES = {
    "collections": "t t in t tn tn",
    "collection_metadata": "t t tn in fin in",
    "segments": "t t t t",
    "embeddings": "n t t ib t",
    "sqlite_autoindex_embeddings_1": "t t i",
    "embedding_metadata": "i t tn in fin in",
    "sqlite_autoindex_embedding_metadata_1": "i t i",
    "embedding_metadata_string_value": "t t i",
    "embedding_metadata_int_value": "t i i",
    "embedding_metadata_float_value": "t fi i",
    "embedding_fulltext_search_content": "n t",
    _LOG: "n t i t t bn tn tn",
}


@dataclass
class SalvagedRow:
    """A row, or what is left of it."""

    id: str | None
    metadata: Metadata = field(default_factory=dict)
    """Includes the document, as Chroma stores it."""
    write: int = 0
    """The number of the last write applied to it, or 0 if unknown."""

    @property
    def document(self) -> str | None:
        return self.metadata.get(_DOCUMENT)


@dataclass
class SalvagedCollection:
    """A collection with all rows that are known to have been in it, even if nothing is left of them."""

    id: str
    name: str | None = None
    metadata: Metadata = field(default_factory=dict)
    rows: dict[str, SalvagedRow] = field(default_factory=dict)


@dataclass(frozen=True)
class Salvage:
    """The contents of a damaged database."""

    collections: tuple[SalvagedCollection, ...]
    strays: tuple[SalvagedRow, ...]
    """Rows whose collection is unknown."""
    may_hold_deleted: bool
    """Whether some of the rows may have been deleted before."""


@dataclass(frozen=True)
class _Write:
    collection: str
    id: str
    is_deletion: bool
    metadata: Metadata


def salvage(folder: Path) -> Salvage:
    """Read the database in a folder that no Chroma client has open."""
    with _open_damaged(folder) as database:
        collections = _collections(database)
        segments, log = _segments(database), _log(database)
        contents, identities = _contents(database), _identities(database)
        owners = _owners(database, segments, identities.values())
        strays: list[SalvagedRow] = []
        for key, (segment, id, number) in identities.items():
            row = SalvagedRow(id, contents.pop(key, {}), number)
            if segment in owners:
                collections[owners[segment]].rows[id] = row
            else:
                strays.append(row)
        strays += [SalvagedRow(None, content) for content in contents.values()]
        deleted = _replay(log, collections)
        for (segment, scope), collection in segments.items():
            if scope == _VECTORS:
                for id in read_index(folder / segment, 0).labels.keys() - deleted[collection]:
                    collections[collection].rows.setdefault(id, SalvagedRow(id))
        return Salvage(tuple(collections.values()), tuple(strays), not database.knows_what_was_deleted)


def salvage_collections(folder: Path) -> tuple[SalvagedCollection, ...]:
    """Return the collections without their rows, which takes far less time."""
    with _open_damaged(folder) as database:
        return tuple(_collections(database).values())


@contextmanager
def _open_damaged(folder: Path) -> Iterator[DamagedDatabase]:
    with (folder / DATABASE).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield DamagedDatabase(data, {name: shape.split() for name, shape in _SHAPES.items()})


class _Collections(dict[str, SalvagedCollection]):
    """Collections by id; a collection of which only the id is known is added on access."""

    def __missing__(self, id: str) -> SalvagedCollection:
        self[id] = collection = SalvagedCollection(id)
        return collection


def _collections(database: DamagedDatabase) -> _Collections:
    found = _Collections()
    for id, name, *_ in _known(database.table("collections").rows.values(), 2):
        found[id].name = name
    for id, key, *values in _known(database.table("collection_metadata").rows.values(), 6):
        found[id].metadata[key] = _stored(*values)
    return found


def _segments(database: DamagedDatabase) -> dict[tuple[str, str], str]:
    """Return the collections that segments belong to, by the id and scope of the segment."""
    return {(id, scope): collection for id, _, scope, collection in _known(database.table("segments").rows.values(), 4)}


def _identities(database: DamagedDatabase) -> dict[int, tuple[str, str, int]]:
    """Return for every row, by its number: its segment, its id, and the number of its last write."""
    table = database.table("embeddings")
    found = {
        number: (segment, id, write if isinstance(write, int) else int.from_bytes(write, "big"))
        for number, (_, segment, id, write, _) in table.rows.items()
        if Lost.LOST not in (segment, id, write)
    }
    for segment, id, number in _known(database.index("sqlite_autoindex_embeddings_1"), 3):
        if number not in found and table.lacks(number) and SEGMENT.fullmatch(segment):
            found[number] = segment, id, 0
    return found


def _owners(
    database: DamagedDatabase, segments: Mapping[tuple[str, str], str], identities: Collection[tuple[str, str, int]]
) -> dict[str, str]:
    """Return the collections that segments of rows belong to, by their own table or else by the log, deleted entries included."""
    owners = {segment: collection for (segment, scope), collection in segments.items() if scope == _ROWS}
    unowned = {segment for segment, _, _ in identities if segment not in owners}
    if not unowned:
        return owners
    log = database.table(_LOG, strays=False).rows.items()
    topics = {(number, row[4]): row[3] for number, row in (*database.remnants(_LOG), *log)}
    for segment, id, number in identities:
        if segment in unowned and isinstance(topic := topics.get((number, id)), str):
            owners[segment] = topic.rpartition("/")[2]
    collections = database.table("collections")
    vacant = {row[0] for row in collections.rows.values()}.difference(owners.values())
    if len(rest := unowned.difference(owners)) == len(vacant) == 1 and not collections.gaps:
        owners[rest.pop()] = vacant.pop()
    return owners


def _contents(database: DamagedDatabase) -> dict[int, Metadata]:
    """Return metadata and documents, by the number of their row."""
    found: dict[int, Metadata] = defaultdict(dict)
    table = database.table("embedding_metadata")
    for number, key, *values in _known(table.rows.values(), 6):
        found[number][key] = _stored(*values)
    owners = {
        (entry, key): number
        for number, key, entry in _known(database.index("sqlite_autoindex_embedding_metadata_1"), 3)
        if table.lacks(entry)
    }
    for kind in ("string", "int", "float"):
        for key, value, entry in _known(database.index(f"embedding_metadata_{kind}_value"), 3):
            if (entry, key) in owners:
                found[owners[entry, key]].setdefault(key, value)
    for number, (_, text) in database.table("embedding_fulltext_search_content").rows.items():
        if text is not Lost.LOST:
            found[number].setdefault(_DOCUMENT, text)
    return found


def _log(database: DamagedDatabase) -> dict[int, _Write]:
    """Return the last writes, in order. Strays are left out: later writes that are lost may have replaced them."""
    log: dict[int, _Write] = {}
    rows = database.table(_LOG, strays=False).rows
    for number, (_, _, operation, topic, id, _, _, metadata) in sorted(rows.items()):
        if Lost.LOST in (operation, topic, id, metadata):
            continue
        try:
            content = json.loads(metadata or "{}")
        except ValueError:
            continue
        log[number] = _Write(topic.rpartition("/")[2], id, operation == _DELETE, content)
    return log


def _replay(log: Mapping[int, _Write], collections: _Collections) -> dict[str, set[str]]:
    """Apply the log to the rows, as Chroma does; return the ids of deleted rows, by collection."""
    deleted: dict[str, set[str]] = defaultdict(set)
    for number, write in log.items():
        rows, gone = collections[write.collection].rows, deleted[write.collection]
        row = rows.pop(write.id, SalvagedRow(write.id))
        gone.discard(write.id)
        if row.write < number:
            merged = row.metadata | write.metadata
            row = SalvagedRow(write.id, {key: value for key, value in merged.items() if value is not None}, number)
            if write.is_deletion:
                gone.add(write.id)
                continue
        rows[write.id] = row
    return deleted


def _known(rows: Iterable[Row], count: int) -> Iterator[Any]:
    """Yield the rows whose first values could be read."""
    return (row for row in rows if Lost.LOST not in row[:count])


def _stored(text: str | None, whole: int | None, real: float | None, flag: int | None) -> Any:
    """Return the value that one of these columns holds."""
    if flag is not None:
        return bool(flag)
    return next((value for value in (text, whole, real) if value is not None), None)
