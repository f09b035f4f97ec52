"""The documents of a damaged store, recovered into a new one that takes its place.

What can still be read is written in the ordinary way into a store inside the damaged one's folder, with vectors made anew;
when it is complete the two change places. A recovery that is interrupted goes on when it is called again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import EmbeddingMismatchError, StoreUnavailableError
from ...runtime import private_files
from ...runtime.progress import Progress, progress_of
from ...storage.chroma.connection import ChromaConnection
from ...storage.protocol import SHELVES, Entry, Space
from ...storage.repair.swap_store import replace_damaged, workplace
from ...storage.stores import EmbeddedStore
from ...text.embeddings import Embedding
from ...text.record_vectors import embedded
from ..transfer.export_format import End, Header, Line, NamespaceLine, RecordLine, to_line
from .finds import Find, Finds, sort_out
from .salvage import salvage, salvage_collections

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
    shelves = [collection.metadata for collection in collections if collection.metadata.get("apm_shelf") in SHELVES]
    return sorted({str(shelf["apm_embedding"]) for shelf in shelves if "apm_embedding" in shelf})


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
    if not (finds.shelves or finds.values or finds.leftovers):
        return None
    ours = [find for find in finds.shelves if find.embedding in (None, embedding.id)]
    others = [find for find in finds.shelves if find.embedding not in (None, embedding.id)]
    await _build(EmbeddedStore(place), ours, finds.values, embedding, progress)
    damaged = await connection.on_folder(lambda folder: _exchange(folder, place, purpose, finds.leftovers, others))
    recovered = sum(len(find.records) for find in ours) + sum(map(len, finds.values.values()))
    return Recovery(tuple(_account(finds, ours, others, damaged)), recovered, finds.missing, damaged)


async def _build(
    store: EmbeddedStore,
    shelves: Sequence[Find],
    values: Mapping[str, Mapping[tuple[Space, str], Entry]],
    embedding: Embedding,
    progress: Progress,
) -> None:
    """Write what was found into a new store, or go on with that."""
    connection = store.connect()
    total = sum(len(find.records) for find in shelves) + sum(map(len, values.values()))
    try:
        await connection.prepare()
        async with progress_of(total, "Recovering", progress) as done:
            for find in shelves:
                shelf = connection.shelf(find.namespace, find.shelf, embedding.id)
                there = set(await shelf.ids())
                done(len(there))
                records = [record for id, record in find.records.items() if id not in there]
                for start in range(0, len(records), _PAGE):
                    page = records[start : start + _PAGE]
                    await shelf.add(page, await embedded(page, embedding))
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


def _exported(shelves: Sequence[Find]) -> Iterator[Line]:
    """Memories as `import_memories` takes them."""
    count = sum(len(find.records) for find in shelves)
    yield Header(count)
    for find in shelves:
        yield NamespaceLine(find.namespace, {find.shelf: str(find.embedding)})
        yield from (RecordLine(find.shelf, record) for record in find.records.values())
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
            f"Left {len(find.records)} memories of {find.shelf} of {find.namespace!r}, which were embedded with "
            f"{find.embedding!r}, in {damaged / _OTHERS}: import that file with this embedding."
        )
