"""Recover a store whose documents are damaged: turn salvaged rows into memories, and write those into a new store."""

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
_PAGE = 64
_LEFTOVERS = "leftovers.jsonl"
_OTHERS = "other-embeddings.jsonl"


@dataclass
class TableContents:
    """The recovered memories of one table of a namespace."""

    namespace: str
    table: TableName
    embedding: str | None = None
    """The id of the embedding that made their vectors, if known."""
    records: dict[str, MemoryRecord] = field(default_factory=dict)


@dataclass
class Contents:
    """Everything that was recovered."""

    tables: list[TableContents] = field(default_factory=list)
    values: dict[str, dict[tuple[Space, str], Entry]] = field(default_factory=dict)
    """By namespace."""
    leftovers: list[dict[str, Any]] = field(default_factory=list)
    """Rows that can be read but are not memories of ours: foreign, without an owner, or incomplete."""
    missing: int = 0
    """How many more memories and values are known to have existed."""
    may_hold_deleted: bool = False
    """Whether some of them may have been deleted before."""

    @property
    def embeddings(self) -> list[str]:
        """The ids of the embeddings that made the vectors, as far as known."""
        return sorted({part.embedding for part in self.tables if part.embedding is not None})


def to_memories(salvage: Salvage) -> Contents:
    """Return salvaged rows as memories and values of their namespaces, or raise a SchemaVersionError."""
    found = Contents(leftovers=_leftovers(None, salvage.strays), may_hold_deleted=salvage.may_hold_deleted)
    tables: dict[tuple[str, TableName], TableContents] = {}
    for collection in salvage.collections:
        owner = _owner(collection)
        if collection.metadata.get("apm_unfinished"):
            continue  # a copy; the original is complete
        if owner is None:
            found.leftovers += _leftovers(collection, collection.rows.values())
            continue
        namespace, table = owner
        if "apm_schema" in collection.metadata:
            check_schema(collection.metadata, namespace)
        if table == _VALUES:
            _add_values(found, namespace, collection)
        else:
            name = cast(TableName, table)
            part = tables.setdefault((namespace, name), TableContents(namespace, name))
            _add_records(found, part, collection)
    found.tables = [part for part in tables.values() if part.records]
    return found


def _add_records(found: Contents, part: TableContents, collection: SalvagedCollection) -> None:
    part.embedding = part.embedding or collection.metadata.get("apm_embedding")
    for id, row in collection.rows.items():
        record = _record(part, row, collection)
        if record is not None:
            part.records[id] = record
        else:
            found.missing += 1
            found.leftovers += _leftovers(collection, [row])


def _add_values(found: Contents, namespace: str, collection: SalvagedCollection) -> None:
    entries, used = entries_of({id: row.metadata for id, row in collection.rows.items()})
    unused = {id: row for id, row in collection.rows.items() if id not in used}
    if entries:
        found.values.setdefault(namespace, {}).update(entries)
    found.missing += sum(map(is_head, unused))
    found.leftovers += _leftovers(collection, unused.values())


def _record(part: TableContents, row: SalvagedRow, collection: SalvagedCollection) -> MemoryRecord | None:
    """Return the memory of a row, if both its text and its fields are left."""
    if row.id is None or row.document is None or "record" not in row.metadata:
        return None
    try:
        metadata = up_to_date_row(row.metadata, collection.metadata, part.table)
        return to_record(part.namespace, row.id, row.document, metadata)
    except (KeyError, TypeError, ValueError):  # overwritten fields may still be text
        return None


def _owner(collection: SalvagedCollection) -> tuple[str, str] | None:
    """Return namespace and table of a collection of ours, else None."""
    namespace, table = namespace_of(collection.metadata), collection.metadata.get("apm_shelf")
    if namespace is None or table not in (*TABLES, _VALUES):
        return owner_by_name(collection.name or "")
    return namespace, table


def _leftovers(collection: SalvagedCollection | None, rows: Iterable[SalvagedRow]) -> list[dict[str, Any]]:
    """Return the rows that are not empty, as JSON."""
    place = {} if collection is None else {"collection": collection.name or collection.id, **collection.metadata}
    return [{**place, "id": row.id, "metadata": readable(row.metadata, row.document)} for row in rows if row.metadata]


@dataclass(frozen=True)
class Recovery:
    """What a recovery did, in sentences and numbers of memories and values, and where the damaged store is kept."""

    done: tuple[str, ...]
    recovered: int
    missing: int
    damaged: Path


async def recorded_embeddings(connection: ChromaConnection) -> list[str]:
    """Return the ids of the embeddings that a damaged store was written with, as far as it still says so."""
    collections = await connection.on_folder(salvage_collections)
    tables = [collection.metadata for collection in collections if collection.metadata.get("apm_shelf") in TABLES]
    return sorted({str(table["apm_embedding"]) for table in tables if "apm_embedding" in table})


async def recover(connection: ChromaConnection, embedding: Embedding, progress: Progress) -> Recovery | None:
    """Recover what is left of a damaged store. Return None if nothing is left; then nothing was changed.

    Raises:
        EmbeddingMismatchError: None of its memories was embedded with this embedding.
        SchemaVersionError: A newer version wrote it.
        StoreUnavailableError: It changed meanwhile, or the new store cannot be written.
    """
    purpose = embedding.id
    found, place = await connection.on_folder(lambda folder: (to_memories(salvage(folder)), workplace(folder, purpose)))
    if embedding.id not in (found.embeddings or [embedding.id]):
        raise EmbeddingMismatchError(
            f"The memories of the damaged store were embedded with {' and '.join(map(repr, found.embeddings))}, not with "
            f"{embedding.id!r}. Nothing was changed. Repair it with the embedding that its agents use."
        )
    if not (found.tables or found.values or found.leftovers):
        return None
    ours = [part for part in found.tables if part.embedding in (None, embedding.id)]
    others = [part for part in found.tables if part.embedding not in (None, embedding.id)]
    await _build(EmbeddedStore(place), ours, found.values, embedding, progress)
    damaged = await connection.on_folder(lambda folder: _swap(folder, place, purpose, found.leftovers, others))
    memories, values = sum(len(part.records) for part in ours), sum(map(len, found.values.values()))
    done = tuple(_account(found, memories, values, others, damaged))
    return Recovery(done, memories + values, found.missing, damaged)


async def _build(
    store: EmbeddedStore,
    tables: Sequence[TableContents],
    values: Mapping[str, Mapping[tuple[Space, str], Entry]],
    embedding: Embedding,
    progress: Progress,
) -> None:
    """Write memories and values into a new store, or continue an interrupted attempt."""
    total = sum(len(part.records) for part in tables) + sum(map(len, values.values()))
    async with StoreConnection(store) as connection, progress_of(total, "Recovering", progress) as done:
        await connection.prepare()
        for part in tables:
            table = connection.table(part.namespace, part.table, embedding.id)
            there = set(await table.ids())
            done(len(there))
            records = [record for id, record in part.records.items() if id not in there]
            for start in range(0, len(records), _PAGE):
                page = records[start : start + _PAGE]
                await table.put(page, await embedded(page, embedding), new=True)
                done(len(page))
        for namespace, entries in values.items():
            for (space, name), entry in entries.items():
                await connection.values(namespace).put(space, name, entry.text, entry.at)
                done(1)


def _swap(folder: Path, new: Path, purpose: str, leftovers: Sequence[object], others: Sequence[TableContents]) -> Path:
    if workplace(folder, purpose) != new:
        raise StoreUnavailableError(
            f"The damaged store {folder} was written to during the recovery. Nothing was changed; close the memories that use it, and "
            "run the repair again."
        )
    if leftovers:
        private_files.write(new / _LEFTOVERS, "".join(json.dumps(row) + "\n" for row in leftovers))
    if others:
        private_files.write(new / _OTHERS, "".join(map(to_line, _exported(others))))
    return replace_damaged(folder, new)


def _exported(tables: Sequence[TableContents]) -> Iterator[Line]:
    """Yield memories as lines of an export, which `import_memories` reads."""
    count = sum(len(part.records) for part in tables)
    yield Header(count)
    for part in tables:
        yield NamespaceLine(part.namespace, {part.table: str(part.embedding)})
        yield from (RecordLine(part.table, record) for record in part.records.values())
    yield End(count)


def _account(
    found: Contents, memories: int, values: int, others: Sequence[TableContents], damaged: Path
) -> Iterator[str]:
    """Yield what was done, in sentences."""
    lost = f"{found.missing} more are known to have existed." if found.missing else "None is known to be missing."
    yield f"Recovered {memories} memories and {values} values from the damaged store, and computed their vectors again. {lost}"
    if found.may_hold_deleted:
        yield "Some of them may have been deleted before; the damage makes that uncertain."
    if found.leftovers:
        yield f"The rest of {len(found.leftovers)} rows that could not be restored is in {damaged / _LEFTOVERS}."
    for part in others:
        yield (
            f"Left {len(part.records)} memories of {part.table} of {part.namespace!r}, which were embedded with "
            f"{part.embedding!r}, in {damaged / _OTHERS}: import that file with this embedding."
        )
