"""A store in RAM, written in an afternoon: dicts and numpy. It shows how little a backend has to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import BaseModel

from autogen_persistent_memory import EmbeddingMismatchError
from autogen_persistent_memory.core.records import MemoryRecord, Selection
from autogen_persistent_memory.storage.protocol import ANY_EMBEDDING, Entry, Near, Part, Space, Stored, TableName

Row = tuple[MemoryRecord, Any]
_data: dict[str, dict[tuple[str, Part], dict[Any, Any]]] = {}
_made_by: dict[tuple[str, str, Part], str] = {}


class ToyConfig(BaseModel):
    name: str


class ToyStore:
    """What has the same name has the same data, as long as the process lives."""

    def __init__(self, name: str) -> None:
        self.config = ToyConfig(name=name)

    def connect(self) -> ToyConnection:
        return ToyConnection(self.config.name)


class ToyConnection:
    def __init__(self, name: str) -> None:
        self.name = name
        self.parts = _data.setdefault(name, {})

    def table(self, namespace: str, name: TableName, embedding_id: str) -> ToyTable:
        return ToyTable(self, (namespace, name), embedding_id)

    def values(self, namespace: str) -> ToyValues:
        return ToyValues(self, (namespace, "values"))

    async def inventory(self) -> list[Stored]:
        return [Stored(*part, _made_by.get((self.name, *part), "none"), 1) for part in sorted(self.parts)]

    async def drop(self, namespace: str, parts: Sequence[Part]) -> None:
        for part in parts:
            self.parts.pop((namespace, part), None)
            _made_by.pop((self.name, namespace, part), None)

    async def close(self) -> None:
        pass


class ToyTable:
    def __init__(self, connection: ToyConnection, part: tuple[str, Part], embedding_id: str) -> None:
        self.connection, self.part, self.embedding_id = connection, part, embedding_id

    def rows(self, *, write: bool = False) -> dict[str, Row]:
        key = (self.connection.name, *self.part)
        if self.embedding_id == ANY_EMBEDDING:
            if write:
                raise EmbeddingMismatchError("Name an embedding to write with.")
        elif _made_by.get(key, self.embedding_id) != self.embedding_id:
            raise EmbeddingMismatchError(f"The vectors were made by {_made_by[key]!r}. Use that embedding.")
        elif write:
            _made_by[key] = self.embedding_id
        return self.connection.parts.setdefault(self.part, {}) if write else self.connection.parts.get(self.part, {})

    async def put(self, records: Sequence[MemoryRecord], vectors: Any, *, new: bool = False) -> None:
        for record, vector in zip(records, vectors, strict=True):
            self.rows(write=True)[record.id] = record, np.asarray(vector) / np.linalg.norm(vector)

    async def amend(self, records: Sequence[MemoryRecord], *, usage_only: bool = False) -> None:
        rows = self.rows()
        for record in records:
            if record.id in rows:
                old, vector = rows[record.id]
                used = replace(old, uses=record.uses, last_used_at=record.last_used_at)
                rows[record.id] = (used if usage_only else replace(record, content=old.content)), vector

    async def get(self, ids: Sequence[str]) -> list[MemoryRecord]:
        rows = self.rows()
        return [rows[id][0] for id in ids if id in rows]

    async def select(self, selection: Selection) -> list[MemoryRecord]:
        return [record for record, _ in self.rows().values() if selection.matches(record)]

    async def nearest(self, vectors: Any, selection: Selection, *, fetch: int, thorough: bool = False) -> list[Near]:
        rows = [row for row in self.rows().values() if selection.matches(row[0])]
        found: list[Near] = []
        for query in vectors:
            cosines = {record.id: float(vector @ query / np.linalg.norm(query)) for record, vector in rows}
            best = sorted(cosines, key=cosines.__getitem__, reverse=True)[:fetch]
            found.append({id: cosines[id] for id in best})
        return found

    async def vectors(self, ids: Sequence[str]) -> dict[str, Any]:
        rows = self.rows()
        return {id: rows[id][1] for id in ids if id in rows}

    async def remove(self, ids: Sequence[str]) -> int:
        rows = self.rows()
        return sum(rows.pop(id, None) is not None for id in ids)

    async def ids(self) -> list[str]:
        return list(self.rows())


class ToyValues:
    def __init__(self, connection: ToyConnection, part: tuple[str, Part]) -> None:
        self.connection, self.part = connection, part

    @property
    def entries(self) -> dict[tuple[Space, str], Entry]:
        return self.connection.parts.get(self.part, {})

    async def put(self, space: Space, name: str, entry: Entry) -> None:
        self.connection.parts.setdefault(self.part, {})[space, name] = entry

    async def get(self, space: Space, names: Sequence[str] | None = None) -> dict[str, Entry]:
        chosen = await self.names(space) if names is None else names
        return {name: self.entries[space, name] for name in chosen if (space, name) in self.entries}

    async def names(self, space: Space) -> list[str]:
        return [name for within, name in self.entries if within == space]

    async def remove(self, space: Space, name: str) -> bool:
        return self.entries.pop((space, name), None) is not None

    async def clear(self, space: Space) -> None:
        for name in await self.names(space):
            del self.entries[space, name]
