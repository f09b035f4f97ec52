"""What was salvaged from a damaged database, as memories and values of their namespaces. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from ...core.records import MemoryRecord
from ...storage.chroma.migrations import check_schema, up_to_date_row
from ...storage.chroma.rows import namespace_of, owner_by_name, readable, to_record
from ...storage.chroma.values import entries_of, is_head
from ...storage.protocol import SHELVES, Entry, ShelfName, Space
from .salvage import Salvage, SalvagedCollection, SalvagedRow

_VALUES = "values"


@dataclass
class Find:
    """The memories on one shelf of a namespace."""

    namespace: str
    shelf: ShelfName
    embedding: str | None = None
    """The id of what made their vectors, if that is known."""
    records: dict[str, MemoryRecord] = field(default_factory=dict)


@dataclass
class Finds:
    """All that was found."""

    shelves: list[Find] = field(default_factory=list)
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
        return sorted({find.embedding for find in self.shelves if find.embedding is not None})


def sort_out(salvage: Salvage) -> Finds:
    """Tell what was salvaged apart.

    Raises:
        SchemaVersionError: Some of it was written by a newer version.
    """
    finds = Finds(leftovers=_leftovers(None, salvage.strays), may_hold_deleted=salvage.may_hold_deleted)
    shelves: dict[tuple[str, ShelfName], Find] = {}
    for collection in salvage.collections:
        owner = _owner(collection)
        if collection.metadata.get("apm_unfinished"):
            continue  # a copy; the original is complete
        if owner is None:
            finds.leftovers += _leftovers(collection, collection.rows.values())
            continue
        namespace, shelf = owner
        if "apm_schema" in collection.metadata:
            check_schema(collection.metadata, namespace)
        if shelf == _VALUES:
            _take_values(finds, namespace, collection)
        else:
            name = cast(ShelfName, shelf)
            find = shelves.setdefault((namespace, name), Find(namespace, name))
            _take_records(finds, find, collection)
    finds.shelves = [find for find in shelves.values() if find.records]
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
        metadata = up_to_date_row(row.metadata, collection.metadata, find.shelf)
        return to_record(find.namespace, row.id, row.document, metadata)
    except (KeyError, TypeError, ValueError):  # what was overwritten may still be text
        return None


def _owner(collection: SalvagedCollection) -> tuple[str, str] | None:
    """Namespace and shelf of a collection of ours."""
    namespace, shelf = namespace_of(collection.metadata), collection.metadata.get("apm_shelf")
    if namespace is None or shelf not in (*SHELVES, _VALUES):
        return owner_by_name(collection.name or "")
    return namespace, shelf


def _leftovers(collection: SalvagedCollection | None, rows: Iterable[SalvagedRow]) -> list[dict[str, Any]]:
    """Rows of which anything is left, as JSON."""
    place = {} if collection is None else {"collection": collection.name or collection.id, **collection.metadata}
    return [{**place, "id": row.id, "metadata": readable(row.metadata, row.document)} for row in rows if row.metadata]
