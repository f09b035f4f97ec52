"""What was salvaged from a damaged database, as memories and values of their namespaces. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ...core.errors import EmbeddingMismatchError, StoreUnavailableError
from ...core.records import MemoryRecord
from ...runtime import private_files
from ...runtime.reporting import Progress, progress_of
from ...storage.chroma.connection import ChromaConnection
from ...storage.chroma.migrations import check_schema, up_to_date_row
from ...storage.chroma.rows import namespace_of, owner_by_name, readable, to_record
from ...storage.chroma.values import entries_of, is_head
from ...storage.connection import StoreConnection
from ...storage.protocol import TABLES, Entry, Space, TableName
from ...storage.repair.startup_repair import replace_damaged, workplace
from ...storage.stores import EmbeddedStore
from ...text.embeddings import Embedding, embedded
from ..transfer.export_format import End, Header, Line, NamespaceLine, RecordLine, to_line
from .salvage import Salvage, SalvagedCollection, SalvagedRow, salvage, salvage_collections

_VALUES = "values"


@dataclass
class Find:
    """The memories on one table of a namespace."""

    namespace: str
    table: TableName
    embedding: str | None = None
    """The id of what made their vectors, if that is known."""
    records: dict[str, MemoryRecord] = field(default_factory=dict)


@dataclass
class Finds:
    """All that was found."""

    tables: list[Find] = field(default_factory=list)
    values: dict[str, dict[tuple[Space, str], Entry]] = field(default_factory=dict)
    """By namespace."""
    leftovers: list[dict[str, Any]] = field(default_factory=list)
    """Rows that can be read, but are no memories of ours: of others, of nobody, or without what makes a memory of them."""
    missing: int = 0
    """How many memories and values are known to have been there besides."""
    may_hold_deleted: bool = False
    """Whether it could not be told for certain what had been deleted."""

    @property
    def embeddings(self) -> list[str]:
        """The ids of what made the vectors, as far as they are known."""
        return sorted({find.embedding for find in self.tables if find.embedding is not None})


def sort_out(salvage: Salvage) -> Finds:
    """Tell what was salvaged apart.

    Raises:
        SchemaVersionError: Some of it was written by a newer version.
    """
    finds = Finds(leftovers=_leftovers(None, salvage.strays), may_hold_deleted=salvage.may_hold_deleted)
    tables: dict[tuple[str, TableName], Find] = {}
    for collection in salvage.collections:
        owner = _owner(collection)
        if collection.metadata.get("apm_unfinished"):
            continue  # a copy; the original is complete
        if owner is None:
            finds.leftovers += _leftovers(collection, collection.rows.values())
            continue
        namespace, table = owner
        if "apm_schema" in collection.metadata:
            check_schema(collection.metadata, namespace)
        if table == _VALUES:
            _take_values(finds, namespace, collection)
        else:
            name = cast(TableName, table)
            find = tables.setdefault((namespace, name), Find(namespace, name))
            _take_records(finds, find, collection)
    finds.tables = [find for find in tables.values() if find.records]
    return finds


def _take_records(finds: Finds, find: Find, collection: SalvagedCollection) -> None:
    find.embedding = find.embedding or collection.metadata.get("apm_embedding")
    for id, row in collection.rows.items():
        record = _record(find, row, collection)
        if record is not None:
            find.records[id] = record
        else:
            finds.missing += 1
            finds.leftovers += _leftovers(collection, [row])


def _take_values(finds: Finds, namespace: str, collection: SalvagedCollection) -> None:
    entries, used = entries_of({id: row.metadata for id, row in collection.rows.items()})
    unused = {id: row for id, row in collection.rows.items() if id not in used}
    if entries:
        finds.values.setdefault(namespace, {}).update(entries)
    finds.missing += sum(map(is_head, unused))
    finds.leftovers += _leftovers(collection, unused.values())


def _record(find: Find, row: SalvagedRow, collection: SalvagedCollection) -> MemoryRecord | None:
    """The memory of a row, if both its text and its fields are left."""
    if row.id is None or row.document is None or "record" not in row.metadata:
        return None
    try:
        metadata = up_to_date_row(row.metadata, collection.metadata, find.table)
        return to_record(find.namespace, row.id, row.document, metadata)
    except (KeyError, TypeError, ValueError):  # what was overwritten may still be text
        return None


def _owner(collection: SalvagedCollection) -> tuple[str, str] | None:
    """Namespace and table of a collection of ours."""
    namespace, table = namespace_of(collection.metadata), collection.metadata.get("apm_shelf")
    if namespace is None or table not in (*TABLES, _VALUES):
        return owner_by_name(collection.name or "")
    return namespace, table


def _leftovers(collection: SalvagedCollection | None, rows: Iterable[SalvagedRow]) -> list[dict[str, Any]]:
    """Rows of which anything is left, as JSON."""
    place = {} if collection is None else {"collection": collection.name or collection.id, **collection.metadata}
    return [{**place, "id": row.id, "metadata": readable(row.metadata, row.document)} for row in rows if row.metadata]


_PAGE = 64
_LEFTOVERS = "leftovers.jsonl"
_OTHERS = "other-embeddings.jsonl"


@dataclass(frozen=True)
class Recovery:
    """What a recovery did."""

    done: tuple[str, ...]
    """In sentences."""
    recovered: int
    """How many memories and values are in the new store."""
    missing: int
    """How many more are known to have been there."""
    damaged: Path
    """Where the damaged store is kept."""


async def recorded_embeddings(connection: ChromaConnection) -> list[str]:
    """The ids of the embeddings with which a damaged store was written, as far as it still says so."""
    collections = await connection.on_folder(salvage_collections)
    tables = [collection.metadata for collection in collections if collection.metadata.get("apm_shelf") in TABLES]
    return sorted({str(table["apm_embedding"]) for table in tables if "apm_embedding" in table})


async def recover(connection: ChromaConnection, embedding: Embedding, progress: Progress) -> Recovery | None:
    """Recover what can be of a damaged store. None if that is nothing; then nothing was changed.

    Raises:
        EmbeddingMismatchError: None of its memories was embedded with this embedding.
        SchemaVersionError: A newer version wrote it.
        StoreUnavailableError: It changed meanwhile, or the new store cannot be written.
    """
    purpose = embedding.id
    finds, place = await connection.on_folder(lambda folder: (sort_out(salvage(folder)), workplace(folder, purpose)))
    if embedding.id not in (finds.embeddings or [embedding.id]):
        raise EmbeddingMismatchError(
            f"The memories of the damaged store were embedded with {' and '.join(map(repr, finds.embeddings))}, not with "
            f"{embedding.id!r}. Nothing was changed. Repair it with the embedding that its agents use."
        )
    if not (finds.tables or finds.values or finds.leftovers):
        return None
    ours = [find for find in finds.tables if find.embedding in (None, embedding.id)]
    others = [find for find in finds.tables if find.embedding not in (None, embedding.id)]
    await _build(EmbeddedStore(place), ours, finds.values, embedding, progress)
    damaged = await connection.on_folder(lambda folder: _exchange(folder, place, purpose, finds.leftovers, others))
    recovered = sum(len(find.records) for find in ours) + sum(map(len, finds.values.values()))
    return Recovery(tuple(_account(finds, ours, others, damaged)), recovered, finds.missing, damaged)


async def _build(
    store: EmbeddedStore,
    tables: Sequence[Find],
    values: Mapping[str, Mapping[tuple[Space, str], Entry]],
    embedding: Embedding,
    progress: Progress,
) -> None:
    """Write what was found into a new store, or go on with that."""
    connection = StoreConnection(store)
    total = sum(len(find.records) for find in tables) + sum(map(len, values.values()))
    try:
        await connection.prepare()
        async with progress_of(total, "Recovering", progress) as done:
            for find in tables:
                table = connection.table(find.namespace, find.table, embedding.id)
                there = set(await table.ids())
                done(len(there))
                records = [record for id, record in find.records.items() if id not in there]
                for start in range(0, len(records), _PAGE):
                    page = records[start : start + _PAGE]
                    await table.put(page, await embedded(page, embedding), new=True)
                    done(len(page))
            for namespace, entries in values.items():
                for (space, name), entry in entries.items():
                    await connection.values(namespace).put(space, name, entry.text, entry.at)
                    done(1)
    finally:
        await connection.close()


def _exchange(folder: Path, new: Path, purpose: str, leftovers: Sequence[object], others: Sequence[Find]) -> Path:
    if workplace(folder, purpose) != new:
        raise StoreUnavailableError(
            f"The damaged store {folder} was written to while it was recovered. Nothing was changed; close its memories, and "
            "repair it again."
        )
    if leftovers:
        private_files.write(new / _LEFTOVERS, "".join(json.dumps(row) + "\n" for row in leftovers))
    if others:
        private_files.write(new / _OTHERS, "".join(map(to_line, _exported(others))))
    return replace_damaged(folder, new)


def _exported(tables: Sequence[Find]) -> Iterator[Line]:
    """Memories as `import_memories` takes them."""
    count = sum(len(find.records) for find in tables)
    yield Header(count)
    for find in tables:
        yield NamespaceLine(find.namespace, {find.table: str(find.embedding)})
        yield from (RecordLine(find.table, record) for record in find.records.values())
    yield End(count)


def _account(finds: Finds, ours: Sequence[Find], others: Sequence[Find], damaged: Path) -> Iterator[str]:
    """What was done, in sentences."""
    memories, values = sum(len(find.records) for find in ours), sum(map(len, finds.values.values()))
    lost = f"{finds.missing} more are known to have been there." if finds.missing else "None is known to be missing."
    yield f"Recovered {memories} memories and {values} values from the damaged store, with vectors made anew. {lost}"
    if finds.may_hold_deleted:
        yield "Some of them may have been deleted before; that could not be told for certain."
    if finds.leftovers:
        yield f"What is left of {len(finds.leftovers)} rows that could not be put back is in {damaged / _LEFTOVERS}."
    for find in others:
        yield (
            f"Left {len(find.records)} memories of {find.table} of {find.namespace!r}, which were embedded with "
            f"{find.embedding!r}, in {damaged / _OTHERS}: import that file with this embedding."
        )
