"""Named texts of any size, as rows of a collection without meaningful vectors.

The texts are metadata, not documents, since Chroma indexes documents for full-text search: ten megabytes would take
three seconds. Long texts are split into several rows, so that writing one does not block the event loop.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast, get_args

from ...core.errors import StoreUnavailableError
from ..protocol import Entry, Space
from .collection import Caller, NamespaceCollection, delete_rows
from .migrations import Metadata

_CHUNK = 1024 * 1024
_NO_EMBEDDING = "none"
PLACEHOLDER = [1.0]
"""The vector of every row: values are not searched by meaning."""
_READ_TRIES = 5


class ChromaValues(NamespaceCollection):
    """The values of a namespace. A head row holds the first chunk and names the version of the others."""

    def __init__(self, call: Caller, namespace: str) -> None:
        super().__init__(call, namespace, "values", _NO_EMBEDDING)

    async def put(self, space: Space, name: str, entry: Entry) -> None:
        text, at = entry
        chunks = [text[start : start + _CHUNK] for start in range(0, max(1, len(text)), _CHUNK)]
        version = secrets.token_hex(4)
        before = await self._head(space, name)
        for number, chunk in enumerate(chunks[1:], start=1):
            part = {"part_of": space, "text": chunk}
            await self._write(_part_id(space, name, version, number), part)
        head = {"space": space, "name": name, "text": chunks[0], "parts": len(chunks), "version": version}
        await self._write(_head_id(space, name), head | ({} if at is None else {"at": at.isoformat()}))
        await self._delete(_part_ids(before))

    async def get(self, space: Space, names: Sequence[str] | None = None) -> dict[str, Entry]:
        ids = None if names is None else [_head_id(space, name) for name in names]
        heads = await self._rows(ids=ids, where={"space": space} if ids is None else None)
        entries = {head["name"]: await self._entry(head) for head in heads.values()}
        return {name: entry for name, entry in entries.items() if entry is not None}

    async def _entry(self, head: Metadata | None) -> Entry | None:
        name = None if head is None else head["name"]
        for _ in range(_READ_TRIES):
            if head is None:
                return None
            parts = _part_ids(head)
            entry = _joined(head, await self._rows(ids=parts) if parts else {})
            if entry is not None:
                return entry
            head = await self._head(head["space"], head["name"])  # it was replaced between the two reads
        raise StoreUnavailableError(
            f"The value {name!r} cannot be read: parts of it are missing, or it changes all the time. Try again, or set or "
            "delete it."
        )

    async def names(self, space: Space) -> list[str]:
        prefix = _head_id(space, "")
        ids: list[str] = await self.read(
            lambda collection: list(collection.get(where={"space": space}, include=[])["ids"]), []
        )
        return [id.removeprefix(prefix) for id in ids]

    async def remove(self, space: Space, name: str) -> bool:
        head = await self._head(space, name)
        if head is None:
            return False
        await self._delete([_head_id(space, name), *_part_ids(head)])
        return True

    async def clear(self, space: Space) -> None:
        heads, parts = await self._rows(where={"space": space}), await self._rows(where={"part_of": space})
        await self._delete([*heads, *parts])

    async def _head(self, space: Space, name: str) -> Metadata | None:
        id = _head_id(space, name)
        return (await self._rows(ids=[id])).get(id)

    async def _rows(self, *, ids: list[str] | None = None, where: Metadata | None = None) -> dict[str, Metadata]:
        if ids == []:
            await self.read(lambda collection: None, None)  # which makes sure that this version can use the collection
            return {}
        answer = await self.read(
            lambda collection: cast(Any, collection.get(ids=ids, where=where, include=["metadatas"])), None
        )
        return dict(zip(answer["ids"], answer["metadatas"], strict=True)) if answer else {}

    async def _write(self, id: str, metadata: Metadata) -> None:
        await self.write(lambda collection: collection.upsert(ids=[id], embeddings=[PLACEHOLDER], metadatas=[metadata]))

    async def _delete(self, ids: list[str]) -> None:
        if ids:
            await self.write(partial(delete_rows, ids=ids), 0)


def entries_of(rows: Mapping[str, Metadata]) -> tuple[dict[tuple[Space, str], Entry], set[str]]:
    """Return the entries that rows of a collection make up, by space and name, and the ids of those rows."""
    entries: dict[tuple[Space, str], Entry] = {}
    used: set[str] = set()
    for id, row in rows.items():
        entry = _joined(row, rows) if is_head(id) else None
        if entry is not None:
            space, _, name = id.partition(":")
            entries[cast(Space, space), name] = entry
            used.update((id, *_part_ids(row)))
    return entries, used


def is_head(id: str) -> bool:
    """Return whether the row of that id is an entry, or the first part of one."""
    return id.partition(":")[0] in get_args(Space)


def _joined(head: Metadata, rows: Mapping[str, Metadata]) -> Entry | None:
    """Return the entry that has this head, if all its parts are among these rows."""
    try:
        texts = head["text"], *(rows[id]["text"] for id in _part_ids(head))
    except KeyError:
        return None
    return Entry("".join(texts), datetime.fromisoformat(head["at"]) if "at" in head else None)


def _head_id(space: Space, name: str) -> str:
    return f"{space}:{name}"


def _part_id(space: Space, name: str, version: str, number: int) -> str:
    return f"part:{version}:{number}:{space}:{name}"


def _part_ids(head: Metadata | None) -> list[str]:
    if head is None:
        return []
    return [_part_id(head["space"], head["name"], head["version"], number) for number in range(1, head["parts"])]
