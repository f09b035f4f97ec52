"""Finds what is wrong with a store, and repairs it from the documents, which are what matters.

What a killed process leaves behind is repaired by itself when a store is opened (see `storage.repair.startup_repair`); this is for looking
closer, and for what needs a decision or an embedding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..core.checks import MAX_TAGS
from ..core.policy import RecallPolicy
from ..core.records import utc_now
from ..retrieval.engine import Engine
from ..runtime.reporting import Progress, progress_of
from ..storage.chroma.connection import ChromaConnection
from ..storage.chroma.migrations import is_newer, schema_version
from ..storage.chroma.rows import collection_name
from ..storage.chroma.server import HOW_TO_UNBLOCK
from ..storage.connection import StoreConnection
from ..storage.protocol import TABLES, Connection, MemoryStore, TableName
from ..storage.repair.inspect import InspectedCollection, Inspection, unblock
from ..storage.repair.startup_repair import DamagedStoreError, clean, where
from ..text.embeddings import Embedding, MiniLMEmbedding
from .salvage.recovery import recorded_embeddings, recover

Problem = Literal[
    "damaged documents",
    "blocked log",
    "unreadable index",
    "missing vectors",
    "dead vectors",
    "mixed embeddings",
    "newer schema",
    "orphaned collection",
    "unfinished rebuild",
    "orphaned index",
    "stale lock",
    "open folder",
]
_REBUILT = ".rebuilt"
_MANY_DEAD = 100
_PAGE = 100
_ONE_AT_A_TIME = "\nrepair"
"""No namespace can have this name."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a store."""

    problem: Problem
    where: str
    """The part of the store, in words."""
    what: str
    """What is wrong with it, and what that means for its user."""
    remedy: str
    """What to do about it."""
    repairable: bool
    """Whether `repair()` can do it."""
    namespace: str | None = None

    @property
    def is_harmless(self) -> bool:
        """Whether every memory is safe, and found, in spite of it."""
        return self.problem in ("orphaned index", "stale lock", "open folder")

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.remedy}"


@dataclass(frozen=True)
class Report:
    """What a repair did."""

    findings: tuple[Finding, ...]
    """What was wrong before."""
    done: tuple[str, ...]
    """What was done, in sentences."""
    left: tuple[Finding, ...]
    """What is still wrong."""
    backup: Path | None = None
    """Where what was changed is kept as it was, if the store is a folder."""
    recovered: int = 0
    """How many memories and values were recovered from damaged documents."""
    missing: int = 0
    """How many more are known to have been there."""


async def diagnose(store: MemoryStore) -> list[Finding]:
    """Everything that is wrong with a store; changes nothing.

    An embedded store is looked at thoroughly: its memories in this process wait meanwhile. Of a server only what can be
    seen from outside is known.

    Raises:
        StoreLockedError: Another process has the embedded store open.
        StoreUnavailableError: The store cannot be reached.
    """
    connection = _chroma(store.connect())
    try:
        return await _diagnose(connection)
    finally:
        await connection.close()


async def repair(store: MemoryStore, *, embedding: Embedding | None = None, progress: Progress = True) -> Report:
    """Repair what `diagnose` finds, as far as that is possible; documents are never deleted.

    If the documents themselves are damaged, those that can still be read are recovered into a new store in the same place,
    and the damaged one is kept. Close the memories that use it before.

    Args:
        store: The store.
        embedding: Makes vectors that are lost. Must be the one the memories were written with; by default MiniLM.
        progress: True for a progress bar on a terminal, or a function that is given (done, total).

    Raises:
        EmbeddingMismatchError: Documents would have to be recovered, and none of them was written with this embedding.
        SchemaVersionError: They were written by a newer version.
        StoreLockedError: Another process has the embedded store open.
        StoreUnavailableError: The store cannot be reached or written.
    """
    connection = StoreConnection(store)
    try:
        async with connection.lock(_ONE_AT_A_TIME):
            return await _repair(store, _chroma(connection.backend), embedding or MiniLMEmbedding(), progress)
    finally:
        await connection.close()


async def _repair(store: MemoryStore, connection: ChromaConnection, embedding: Embedding, progress: Progress) -> Report:
    try:
        before = await connection.examine()
    except DamagedStoreError as error:
        return await _recover(connection, _damaged_documents(error), embedding, progress)
    found = findings(before)
    if not any(finding.repairable for finding in found):
        return Report(tuple(found), (), tuple(found))
    surgeon = _Surgeon(store, connection, embedding, progress)
    backup = await surgeon.operate(before)
    return Report(tuple(found), tuple(surgeon.done), tuple(await _diagnose(connection)), backup)


def _chroma(connection: Connection) -> ChromaConnection:
    if isinstance(connection, ChromaConnection):
        return connection
    raise ValueError(f"Only stores of this package can be examined, not one behind a {type(connection).__name__}.")


async def _diagnose(connection: ChromaConnection) -> list[Finding]:
    try:
        return findings(await connection.examine())
    except DamagedStoreError as error:
        return [_damaged_documents(error)]


def _damaged_documents(error: DamagedStoreError) -> Finding:
    recovers = "A repair recovers the documents that can still be read. " if error.is_recoverable else ""
    remedy = f"{recovers}If there is a backup of the whole folder, put that in its place."
    return Finding("damaged documents", "The store", error.reason, remedy, error.is_recoverable)


async def _recover(connection: ChromaConnection, damage: Finding, embedding: Embedding, progress: Progress) -> Report:
    recovery = await recover(connection, embedding, progress) if damage.repairable else None
    if recovery is None:
        return Report((damage,), ("Nothing of the damaged store could be read, and nothing was changed.",), (damage,))
    left = tuple(await _diagnose(connection))
    return Report((damage,), recovery.done, left, recovery.damaged, recovery.recovered, recovery.missing)


async def surviving_embeddings(store: MemoryStore) -> list[str]:
    """The ids of the embeddings with which a store was written whose documents are damaged, as far as it still says so."""
    connection = _chroma(store.connect())
    try:
        return await recorded_embeddings(connection)
    finally:
        await connection.close()


def findings(inspection: Inspection) -> list[Finding]:
    """What is wrong, told from what was seen."""
    found = [finding for collection in inspection.collections for finding in _of_collection(collection)]
    found += _mixed(inspection.collections)
    if inspection.orphans:
        found.append(
            Finding(
                "orphaned index",
                "The store's folder",
                f"{len(inspection.orphans)} indexes on disk belong to no collection any more and only take up space",
                "A repair deletes them.",
                repairable=True,
            )
        )
    if inspection.abandoned_by:
        found.append(
            Finding(
                "stale lock",
                "The store's folder",
                f"{inspection.abandoned_by} ended without closing the store; its lock went with it",
                "Nothing to do, but close memories with await memory.close() where you can.",
                repairable=False,
            )
        )
    if inspection.open_to_others:
        found.append(
            Finding(
                "open folder",
                "The store's folder",
                f"its mode is {inspection.open_to_others}, so that other users of this machine can look into it",
                "The files in it are closed to them. If nobody else needs the folder, close it, too, with chmod 700.",
                repairable=False,
            )
        )
    return found


def _of_collection(collection: InspectedCollection) -> Iterable[Finding]:
    def finding(problem: Problem, what: str, remedy: str, *, repairable: bool = True) -> Finding:
        return Finding(problem, place, what, remedy, repairable, collection.namespace or None)

    place = where(collection) if collection.namespace else f"The collection {collection.name}"
    schema = collection.metadata.get("apm_schema")
    index, rows = collection.index, len(collection.rows)
    if _is_unfinished(collection):
        yield finding(
            "unfinished rebuild",
            "a copy was begun by reembed() or compact() and never finished; the original is complete",
            "A repair deletes the copy.",
        )
        return
    if _is_orphan(collection):
        yield finding(
            "orphaned collection",
            f"its {rows} rows belong to no namespace that can be told from it, so that no memory reads them",
            "Look at it with Chroma's own client; nothing is done about it here.",
            repairable=False,
        )
        return
    if is_newer(collection.metadata):
        yield finding(
            "newer schema",
            f"it was written with schema {schema}, this version reads up to {schema_version()}",
            "Upgrade with: pip install --upgrade autogen-persistent-memory",
            repairable=False,
        )
        return
    if collection.is_blocked:
        most = max((write.tags for write in collection.blocking), default=0)
        yield finding(
            "blocked log",
            f"Chroma cannot take in {f'a record with {most:,} tags' if most else 'what was written last'}, and so nothing of it "
            "can be read or written; all of it is still there",
            f"A repair cuts its tags to {MAX_TAGS}." if most else f"{HOW_TO_UNBLOCK}.",
            repairable=bool(most),
        )
        return
    if index.problem:
        yield finding(
            "unreadable index",
            f"{index.problem}; its {rows} documents are safe",
            "A repair, or simply opening the store, puts back the vectors that are left and makes the others anew.",
        )
    elif collection.unindexed:
        yield finding(
            "missing vectors",
            f"{len(collection.unindexed)} of {rows} rows have no vector, so that they are found by their words alone",
            f"A repair with the embedding {collection.metadata.get('apm_embedding')!r} makes them anew.",
        )
    if not index.problem and index.dead > max(_MANY_DEAD, len(index.labels)):
        yield finding(
            "dead vectors",
            f"{index.dead} vectors of deleted rows outnumber the {len(index.labels)} live ones, and slow every search down",
            "A repair, or await memory.compact(), drops them.",
        )


def _mixed(collections: Sequence[InspectedCollection]) -> list[Finding]:
    """Namespaces whose profile and sessions were embedded differently, as by a reembed() that was interrupted."""
    embeddings: dict[str, dict[str, str]] = defaultdict(dict)
    for collection in collections:
        if collection.table in TABLES and not _is_unfinished(collection) and not _is_orphan(collection):
            embeddings[collection.namespace][collection.table] = str(collection.metadata.get("apm_embedding"))
    return [
        Finding(
            "mixed embeddings",
            repr(namespace),
            "its parts were embedded differently: " + ", ".join(f"{part} with {id!r}" for part, id in parts.items()),
            "A repair with one of these embeddings makes the vectors of the other part anew.",
            repairable=True,
            namespace=namespace,
        )
        for namespace, parts in embeddings.items()
        if len(set(parts.values())) > 1
    ]


def _is_unfinished(collection: InspectedCollection) -> bool:
    return collection.name.endswith(_REBUILT) and bool(collection.metadata.get("apm_unfinished"))


def _is_orphan(collection: InspectedCollection) -> bool:
    name = collection.name.removesuffix(_REBUILT)
    return not collection.namespace or name != collection_name(collection.namespace, collection.table)


class _Surgeon:
    """Carries out one repair, and keeps account of it."""

    def __init__(
        self, store: MemoryStore, connection: ChromaConnection, embedding: Embedding, progress: Progress
    ) -> None:
        self.done: list[str] = []
        self._store = store
        self._connection = connection
        self._embedding = embedding
        self._progress = progress

    async def operate(self, before: Inspection) -> Path | None:
        """Repair everything that can be; where the backup is."""
        backup = None
        if self._connection.is_in_folder:
            backup = await self._connection.on_folder(lambda folder: clean(folder, before.orphans))
        if before.orphans:
            self.done.append(f"Deleted {len(before.orphans)} indexes that belonged to nothing.")
        await self._unblock(before)
        await self._connection.prepare()  # which repairs indexes from what is left of them
        for collection in filter(_is_unfinished, before.collections):
            await self._connection.delete_collection(collection.name)
            self.done.append(f"Deleted the unfinished copy of {where(collection)}.")
        after = await self._connection.examine()
        ailing = {collection.name: collection.unindexed for collection in before.collections}
        for collection in after.collections:
            restored = sorted(ailing.get(collection.name, frozenset()).difference(collection.unindexed))
            if restored:
                self.done.append(f"Put back {len(restored)} vectors of {where(collection)} from what was left on disk.")
                await self._verify(collection, restored)
        for namespace in sorted({finding.namespace for finding in findings(after) if finding.namespace}):
            await self._repair_namespace(namespace, after)
        return backup

    async def _unblock(self, before: Inspection) -> None:
        blocked = [collection for collection in before.collections if collection.blocking]
        if blocked:
            await self._connection.on_folder(lambda folder: unblock(folder, blocked))
        for collection in blocked:
            for write in collection.blocking:
                self.done.append(
                    f"Cut the tags of the record {write.id!r} of {where(collection)} from {write.tags:,} to {MAX_TAGS}."
                )

    @asynccontextmanager
    async def _engine_of(self, namespace: str) -> AsyncIterator[Engine]:
        engine = Engine(namespace, self._store, self._embedding, RecallPolicy(), utc_now)
        try:
            yield engine
        finally:
            await engine.close()

    async def _verify(self, part: InspectedCollection, ids: Sequence[str]) -> None:
        """Make the vectors again that were put back, if they are not those of their memories."""
        if part.table not in TABLES or part.metadata.get("apm_embedding") != self._embedding.id:
            return
        async with self._engine_of(part.namespace) as engine:
            if not await engine.verify(part.table, ids):
                await self._embed(engine, part.table, ids)
                self.done.append(f"They were not those of their memories, and all {len(ids)} were made again.")

    async def _repair_namespace(self, namespace: str, inspection: Inspection) -> None:
        parts = {part.table: part for part in inspection.collections if part.namespace == namespace}
        ailing = {finding.problem for finding in findings(inspection) if finding.namespace == namespace}
        if "newer schema" in ailing:
            return
        async with self._engine_of(namespace) as engine:
            if "mixed embeddings" in ailing:
                await self._unmix(engine, parts)
            elif "missing vectors" in ailing:
                for table in TABLES:
                    if table in parts and parts[table].unindexed:
                        await self._embed_lost(engine, table, parts[table])
            if "dead vectors" in ailing and self._may_embed(parts):
                count = await engine.compact(self._progress)
                self.done.append(f"Compacted the {count} memories of {namespace!r}.")

    async def _unmix(self, engine: Engine, parts: dict[str, InspectedCollection]) -> None:
        known = {str(part.metadata.get("apm_embedding")) for part in parts.values()}
        if self._embedding.id in known:
            count = await engine.reembed(self._progress)
            self.done.append(f"Embedded the {count} memories of {engine.namespace!r} anew.")
        else:
            self.done.append(f"Left {engine.namespace!r} as it is: pass one of the embeddings {sorted(known)}.")

    async def _embed_lost(self, engine: Engine, table: TableName, part: InspectedCollection) -> None:
        stored = part.metadata.get("apm_embedding")
        lost = sorted(part.unindexed)
        if stored != self._embedding.id:
            self.done.append(f"Left {len(lost)} rows of {where(part)} without vectors: pass the embedding {stored!r}.")
            return
        await self._embed(engine, table, lost)
        self.done.append(f"Made {len(lost)} vectors of {where(part)} anew.")

    async def _embed(self, engine: Engine, table: TableName, ids: Sequence[str]) -> None:
        async with progress_of(len(ids), "Embedding what was lost", self._progress) as done:
            for start in range(0, len(ids), _PAGE):
                page = ids[start : start + _PAGE]
                await engine.reindex(table, page)
                done(len(page))

    def _may_embed(self, parts: dict[str, InspectedCollection]) -> bool:
        return all(
            parts[table].metadata.get("apm_embedding") == self._embedding.id for table in TABLES if table in parts
        )
