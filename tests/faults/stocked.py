"""Stores with many memories, filled quickly, and checks of a healthy store."""

from __future__ import annotations

import asyncio
import operator
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from toys import NOW, word_vectors, words

from autogen_persistent_memory import EmbeddedStore, MemoryRecord, PersistentMemory
from autogen_persistent_memory.storage.chroma import collection
from autogen_persistent_memory.storage.chroma.record_rows import ChromaRecordTable
from autogen_persistent_memory.storage.chroma.rows import whole_text
from autogen_persistent_memory.storage.repair.inspect import inspect_folder
from autogen_persistent_memory.storage.repair.startup_repair import is_damaged

NAMESPACE = "ann"


def told(number: int) -> str:
    return f"The box {number} holds thing {number * 7919 % 100_003}"


async def stock(path: Path, count: int, *, saved_every: int = 1000, namespace: str = NAMESPACE) -> None:
    """Write memories directly to the table, many at a time, which is faster than `remember`.

    The store creates the collection as usual. Chroma saves an index after a thousand rows; a test may lower that number.
    """
    page_size = min(100, saved_every)
    records = [
        MemoryRecord(
            id=f"{namespace}-{number}",
            namespace=namespace,
            content=told(number),
            created_at=NOW + timedelta(seconds=number),
            updated_at=NOW + timedelta(seconds=number),
        )
        for number in range(count)
    ]
    sooner = {"sync_threshold": saved_every, "batch_size": page_size}
    with patch.dict(collection._INDEX, sooner):
        async with open_memory(path, namespace) as memory:
            for page in range(0, count, page_size):
                part = records[page : page + page_size]
                vectors = await asyncio.to_thread(word_vectors, [record.content for record in part])
                await _table(memory).put(part, vectors, new=True)


def open_memory(path: Path, namespace: str = NAMESPACE) -> PersistentMemory:
    return PersistentMemory(namespace, session="today", store=EmbeddedStore(path), embedding=words())


def damages(path: Path) -> list[str]:
    """Return the damages of a closed store."""
    return [f"{found.name}: {found.index.problem}" for found in inspect_folder(path).collections if is_damaged(found)]


def swap_vectors(index: Path) -> None:
    """Give each memory the vector of the one before, as if a file was read with a wrong layout."""
    elements = index / "data_level0.bin"
    (size,) = struct.unpack_from("<Q", (index / "header.bin").read_bytes(), 28)
    data = elements.read_bytes()
    labels = [data[end - 8 : end] for end in range(size, len(data) + 1, size)]
    rows = [data[start : start + size - 8] for start in range(0, len(data), size)]
    elements.write_bytes(b"".join(map(operator.add, rows, [*labels[1:], labels[0]])))


async def without_vector(memory: PersistentMemory, texts: list[str]) -> list[str]:
    """Return the texts whose memory has another vector."""

    def vectors(collection: Any) -> dict[str, Any]:
        answer = collection.get(include=["documents", "embeddings", "metadatas"])
        contents = map(whole_text, answer["documents"], answer["metadatas"])
        return dict(zip(contents, answer["embeddings"], strict=True))

    stored = await _table(memory).read(vectors, {})
    right = await asyncio.to_thread(word_vectors, texts)
    return [text for text, vector in zip(texts, right) if abs(float(stored[text] @ vector) - 1) > 0.001]


def _table(memory: PersistentMemory) -> ChromaRecordTable:
    table = memory._engine.data.table("profile")
    assert isinstance(table, ChromaRecordTable)
    return table
