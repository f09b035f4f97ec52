"""Find what is wrong with a store, and repair it from the documents.

Opening a store already repairs what a killed process leaves behind (`storage.repair.startup_repair`). The doctor looks more
closely, and repairs what needs a decision or an embedding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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
from ..storage.protocol import TABLES, MemoryStore, TableName
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
"""The lock that repairs of a store share; no namespace can have this name."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a store."""

    problem: Problem
    where: str
    """The part of the store that has the problem."""
    what: str
    """What is wrong, and what that means for the user."""
    remedy: str
    """What to do about it."""
    repairable: bool
    """Whether `repair()` can do it."""
    namespace: str | None = None

    @property
    def is_harmless(self) -> bool:
        """Whether every memory is safe and can still be found."""
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
    """Return everything that is wrong with a store; change nothing.

    An embedded store is read file by file; memories of this process that use it wait meanwhile. Of a server, only problems
    that its API shows are found.

    Raises:
        StoreLockedError: Another process has the embedded store open.
        StoreUnavailableError: The store cannot be reached.
    """
    async with StoreConnection(store) as connection:
        return await _diagnose(_chroma(connection))


async def repair(store: MemoryStore, *, embedding: Embedding | None = None, progress: Progress = True) -> Report:
    """Repair what `diagnose` finds, as far as possible; documents are never deleted.

    If the documents themselves are damaged, the readable ones are recovered into a new store in the same place, and the
    damaged one is kept. Close the memories that use the store first.

    Args:
        store: The store.
        embedding: The embedding that the memories were written with, for lost vectors; by default MiniLM.
        progress: True for a progress bar on a terminal, or a function that is called with (done, total).

    Raises:
        EmbeddingMismatchError: Documents need recovery, and none of them was written with this embedding.
        SchemaVersionError: A newer version wrote them.
        StoreLockedError: Another process has the embedded store open.
        StoreUnavailableError: The store cannot be reached or written.
    """
    embedding = embedding or MiniLMEmbedding()
    async with StoreConnection(store) as shared, shared.lock(_ONE_AT_A_TIME):
        connection = _chroma(shared)
        try:
            before = await connection.examine()
        except DamagedStoreError as error:
            return await _recover(connection, _damaged_documents(error), embedding, progress)
        found = findings(before)
        if not any(finding.repairable for finding in found):
            return Report(tuple(found), (), tuple(found))
        work = _Repair(store, connection, embedding, progress)
        backup = await work.run(before)
        return Report(tuple(found), tuple(work.done), tuple(await _diagnose(connection)), backup)


async def surviving_embeddings(store: MemoryStore) -> list[str]:
    """Return the ids of the embeddings that a store with damaged documents was written with, as far as it still says so."""
    async with StoreConnection(store) as connection:
        return await recorded_embeddings(_chroma(connection))


def _chroma(connection: StoreConnection) -> ChromaConnection:
    if isinstance(connection.backend, ChromaConnection):
        return connection.backend
    backend = type(connection.backend).__name__
    raise ValueError(f"Only stores of this package can be examined, not one behind a {backend}.")


async def _diagnose(connection: ChromaConnection) -> list[Finding]:
    try:
        return findings(await connection.examine())
    except DamagedStoreError as error:
        return [_damaged_documents(error)]


def _damaged_documents(error: DamagedStoreError) -> Finding:
    recovers = "A repair recovers the documents that can still be read. " if error.is_recoverable else ""
    remedy = f"{recovers}If you have a backup of the whole folder, restore it."
    return Finding("damaged documents", "The store", error.reason, remedy, error.is_recoverable)


async def _recover(connection: ChromaConnection, damage: Finding, embedding: Embedding, progress: Progress) -> Report:
    recovery = await recover(connection, embedding, progress) if damage.repairable else None
    if recovery is None:
        return Report((damage,), ("The damaged store is unreadable, and nothing was changed.",), (damage,))
    left = tuple(await _diagnose(connection))
    return Report((damage,), recovery.done, left, recovery.damaged, recovery.recovered, recovery.missing)


def findings(inspection: Inspection) -> list[Finding]:
    """Return everything that is wrong according to an inspection."""
    found = [finding for collection in inspection.collections for finding in _of_collection(collection)]
    found += _mixed(inspection.collections)

    def add(problem: Problem, what: str, remedy: str, *, repairable: bool = False) -> None:
        found.append(Finding(problem, "The store's folder", what, remedy, repairable))

    if inspection.orphans:
        add(
            "orphaned index",
            f"{len(inspection.orphans)} indexes on disk belong to no collection and only take up space",
            "A repair deletes them.",
            repairable=True,
        )
    if inspection.abandoned_by:
        add(
            "stale lock",
            f"{inspection.abandoned_by} ended without closing the store; its lock was released",
            "Nothing to do, but close memories with await memory.close() where you can.",
        )
    if inspection.open_to_others:
        add(
            "open folder",
            f"its mode is {inspection.open_to_others}, so that other users of this machine can list it",
            "They cannot read the files in it. If nobody else needs the folder, close it as well, with chmod 700.",
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
            "reembed() or compact() started a copy and did not finish it; the original is complete",
            "A repair deletes the copy.",
        )
        return
    if _is_orphan(collection):
        yield finding(
            "orphaned collection",
            f"it does not say which namespace its {rows} rows belong to, so no memory reads them",
            "Inspect it with Chroma's own client; a repair leaves it alone.",
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
            f"Chroma cannot apply {f'a record with {most:,} tags' if most else 'the last writes'}, so the collection can neither be "
            "read nor written; all of it is still there",
            f"A repair cuts its tags to {MAX_TAGS}." if most else f"{HOW_TO_UNBLOCK}.",
            repairable=bool(most),
        )
        return
    if index.problem:
        yield finding(
            "unreadable index",
            f"{index.problem}; its {rows} documents are safe",
            "A repair, or opening the store, puts back the vectors that are left and computes the others again.",
        )
    elif collection.unindexed:
        yield finding(
            "missing vectors",
            f"{len(collection.unindexed)} of {rows} rows have no vector, so searches find them by their words only",
            f"A repair with the embedding {collection.metadata.get('apm_embedding')!r} computes them again.",
        )
    if not index.problem and index.dead > max(_MANY_DEAD, len(index.labels)):
        yield finding(
            "dead vectors",
            f"{index.dead} vectors of deleted rows outnumber the {len(index.labels)} live ones and slow down every search",
            "A repair, or await memory.compact(), removes them.",
        )


def _mixed(collections: Sequence[InspectedCollection]) -> list[Finding]:
    """Return the namespaces whose tables have different embeddings, as after an interrupted reembed()."""
    embeddings: dict[str, dict[str, str]] = defaultdict(dict)
    for collection in collections:
        if collection.table in TABLES and not _is_unfinished(collection) and not _is_orphan(collection):
            embeddings[collection.namespace][collection.table] = str(collection.metadata.get("apm_embedding"))
    return [
        Finding(
            "mixed embeddings",
            repr(namespace),
            "its parts were embedded differently: " + ", ".join(f"{part} with {id!r}" for part, id in parts.items()),
            "A repair with one of these embeddings computes the vectors of the other part again.",
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


@dataclass
class _Repair:
    """One repair of a store, and the sentences that say what it did."""

    store: MemoryStore
    connection: ChromaConnection
    embedding: Embedding
    progress: Progress
    done: list[str] = field(default_factory=list)

    async def run(self, before: Inspection) -> Path | None:
        """Repair everything that can be repaired; return the path of the backup."""
        backup = None
        if self.connection.is_in_folder:
            backup = await self.connection.on_folder(lambda folder: clean(folder, before.orphans))
        if before.orphans:
            self.done.append(f"Deleted {len(before.orphans)} indexes that belonged to no collection.")
        await self._unblock(before)
        await self.connection.prepare()  # repairs indexes from the vectors that are left
        for collection in filter(_is_unfinished, before.collections):
            await self.connection.delete_collection(collection.name)
            self.done.append(f"Deleted the unfinished copy of {where(collection)}.")
        after = await self.connection.examine()
        unindexed = {collection.name: collection.unindexed for collection in before.collections}
        for collection in after.collections:
            restored = sorted(unindexed.get(collection.name, frozenset()).difference(collection.unindexed))
            if restored:
                self.done.append(f"Put back {len(restored)} vectors of {where(collection)} from the files on disk.")
                await self._verify(collection, restored)
        for namespace in sorted({finding.namespace for finding in findings(after) if finding.namespace}):
            await self._repair_namespace(namespace, after)
        return backup

    async def _unblock(self, before: Inspection) -> None:
        blocked = [collection for collection in before.collections if collection.blocking]
        if blocked:
            await self.connection.on_folder(lambda folder: unblock(folder, blocked))
        self.done += [
            f"Cut the tags of the record {write.id!r} of {where(collection)} from {write.tags:,} to {MAX_TAGS}."
            for collection in blocked
            for write in collection.blocking
        ]

    @asynccontextmanager
    async def _engine_of(self, namespace: str) -> AsyncIterator[Engine]:
        engine = Engine(namespace, self.store, self.embedding, RecallPolicy(), utc_now)
        try:
            yield engine
        finally:
            await engine.close()

    async def _verify(self, part: InspectedCollection, ids: Sequence[str]) -> None:
        """Compute restored vectors again if they do not belong to their memories."""
        if part.table not in TABLES or part.metadata.get("apm_embedding") != self.embedding.id:
            return
        async with self._engine_of(part.namespace) as engine:
            if not await engine.verify(part.table, ids):
                await self._embed(engine, part.table, ids)
                self.done.append(f"They did not belong to their memories, so all {len(ids)} were computed again.")

    async def _repair_namespace(self, namespace: str, inspection: Inspection) -> None:
        parts = {part.table: part for part in inspection.collections if part.namespace == namespace}
        problems = {finding.problem for finding in findings(inspection) if finding.namespace == namespace}
        if "newer schema" in problems:
            return
        async with self._engine_of(namespace) as engine:
            if "mixed embeddings" in problems:
                await self._unmix(engine, parts)
            elif "missing vectors" in problems:
                for table in TABLES:
                    if table in parts and parts[table].unindexed:
                        await self._embed_missing(engine, table, parts[table])
            made_by = {parts[table].metadata.get("apm_embedding") for table in TABLES if table in parts}
            if "dead vectors" in problems and made_by <= {self.embedding.id}:
                count = await engine.rebuild(self.progress, keep=True)
                self.done.append(f"Compacted the {count} memories of {namespace!r}.")

    async def _unmix(self, engine: Engine, parts: dict[str, InspectedCollection]) -> None:
        known = {str(part.metadata.get("apm_embedding")) for part in parts.values()}
        if self.embedding.id in known:
            count = await engine.rebuild(self.progress, keep=False)
            self.done.append(f"Embedded the {count} memories of {engine.namespace!r} again.")
        else:
            self.done.append(f"Left {engine.namespace!r} unchanged: pass one of the embeddings {sorted(known)}.")

    async def _embed_missing(self, engine: Engine, table: TableName, part: InspectedCollection) -> None:
        stored, missing = part.metadata.get("apm_embedding"), sorted(part.unindexed)
        if stored == self.embedding.id:
            await self._embed(engine, table, missing)
            self.done.append(f"Computed {len(missing)} vectors of {where(part)} again.")
        else:
            self.done.append(
                f"Left {len(missing)} rows of {where(part)} without vectors: pass the embedding {stored!r}."
            )

    async def _embed(self, engine: Engine, table: TableName, ids: Sequence[str]) -> None:
        async with progress_of(len(ids), "Embedding lost vectors", self.progress) as done:
            for start in range(0, len(ids), _PAGE):
                page = ids[start : start + _PAGE]
                await engine.reindex(table, page)
                done(len(page))
