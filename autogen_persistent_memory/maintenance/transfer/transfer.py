"""Export a whole store to a file, and import such a file into a store, page by page.

The lines of the file are described in `export_format`; `streams` reads and writes them without ever holding a whole file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import get_args

from ...core.checks import check_flag, check_namespace
from ...core.errors import PersistentMemoryError
from ...core.records import MemoryRecord
from ...retrieval.namespace import NamespaceData
from ...runtime.reporting import Progress, progress_of
from ...runtime.threads import in_thread
from ...storage.connection import StoreConnection, size_of
from ...storage.protocol import MemoryStore, Space, TableName
from ...text.embeddings import Embedding, MiniLMEmbedding, Vectors, embedded
from .export_format import End, Header, Line, NamespaceLine, RecordLine, ValueLine, from_line, to_line
from .streams import File, pages_of_lines, writing_lines

_SPACES: tuple[Space, ...] = get_args(Space)
_READ_PAGE = 500
_WRITE_BATCH = 64
_ROUNDS = 3
"""How often the ids of a table are listed again, to find what other processes added meanwhile."""


async def export_memories(
    store: MemoryStore,
    file: File,
    *,
    namespaces: Sequence[str] | None = None,
    vectors: bool = False,
    progress: Progress = True,
) -> int:
    """Write everything a store holds to a file: memories with their history, values, saved states. One JSON object a line.

    The store may be in use. Writers in this process wait while their namespace is read, so each namespace is exported as it
    was at one moment; records that other processes write to a server during the export may be missing. The file appears
    when it is complete: after an interruption, run the export again.

    Args:
        store: The store to read.
        file: A path, or an open stream, binary or text.
        namespaces: Export only these; a name that ends with a slash means all namespaces below it. By default all.
        vectors: Whether to write vectors as well, so that the same embedding need not compute them again.
        progress: True for a progress bar on a terminal, or a function that is called with (done, total).

    Returns:
        How many memories and values were written.

    Raises:
        ValueError: An argument is invalid.
        PersistentMemoryError: The store could not be read, has no such namespace, or the file could not be written.
    """
    wanted = None if namespaces is None else [_check_pattern(name) for name in namespaces]
    with_vectors = check_flag(vectors, "vectors")
    async with StoreConnection(store) as connection:
        embeddings = _chosen(await connection.embeddings(), wanted)
        total = 0
        for namespace, made_by in embeddings.items():
            total += sum([len(await connection.values(namespace).names(space)) for space in _SPACES])
            total += sum([await size_of(connection.table(namespace, name, id)) for name, id in made_by.items()])
        async with progress_of(total, "Exporting", progress) as done, writing_lines(file) as write_lines:
            count = 0

            async def write(lines: Iterable[Line]) -> None:
                nonlocal count
                lines = list(lines)
                await write_lines(map(to_line, lines))
                memories = sum(isinstance(line, (RecordLine, ValueLine)) for line in lines)
                count += memories
                done(memories)

            await write([Header(total)])
            for namespace, made_by in embeddings.items():
                async with connection.lock(namespace):
                    await _export_namespace(connection, NamespaceLine(namespace, made_by), with_vectors, write)
            await write([End(count)])
        return count


async def _export_namespace(
    connection: StoreConnection,
    described: NamespaceLine,
    with_vectors: bool,
    write: Callable[[Iterable[Line]], Awaitable[None]],
) -> None:
    await write([described])
    for name, embedding_id in described.embeddings.items():
        table = connection.table(described.namespace, name, embedding_id)
        seen: set[str] = set()
        for _ in range(1 if connection.exclusive else _ROUNDS):
            ids = [id for id in await table.ids() if id not in seen]
            seen.update(ids)
            for start in range(0, len(ids), _READ_PAGE):  # by id: paging by offset gets slower with every page
                page = ids[start : start + _READ_PAGE]
                records = await table.get(page)
                vector_of = await table.vectors(page) if with_vectors else {}
                await write(RecordLine(name, record, vector_of.get(record.id)) for record in records)
    values = connection.values(described.namespace)
    for space in _SPACES:
        for key in sorted(await values.names(space)):
            entry = await values.entry(space, key)
            if entry is not None:
                await write([ValueLine(described.namespace, space, key, entry)])


async def import_memories(
    store: MemoryStore,
    file: File,
    *,
    rename: Mapping[str, str] | None = None,
    embedding: Embedding | None = None,
    progress: Progress = True,
) -> int:
    """Import what `export_memories` wrote, with the same ids, times and history.

    A memory or value that the store already holds is replaced only if the one in the file changed later; a value without a
    time never replaces another. An import that was interrupted, or failed at some line, can simply be run again. Memories
    of this process that are open on the same namespaces see the imported records at once.

    Args:
        store: The store to write.
        file: A path, or an open stream, binary or text.
        rename: New names of namespaces: `{"ann": "anna"}` for one, `{"prod/": "staging/"}` for all below a path.
        embedding: How text becomes vectors here; by default `MiniLMEmbedding`. Vectors in the file are used if the same
            embedding made them.
        progress: True for a progress bar on a terminal, or a function that is called with (done, total).

    Returns:
        How many memories and values were written; those that were there already are not counted.

    Raises:
        ValueError: An argument is invalid.
        SchemaVersionError: A newer version wrote the file.
        EmbeddingMismatchError: The store's namespace uses another embedding.
        PersistentMemoryError: A line is invalid, or the store could not be written.
    """
    renamed = _renaming(rename or {})
    async with StoreConnection(store) as connection:
        async with aclosing(pages_of_lines(file)) as pages:
            page: Sequence[str | bytes] = await anext(pages, [])
            header = await in_thread(partial(_header_of, page))
            async with progress_of(header.count, "Importing", progress) as done:
                importer = _Importer(connection, embedding or MiniLMEmbedding(), renamed, done)
                number = 0
                while page:
                    await importer.import_page(page, number)
                    number += len(page)
                    page = await anext(pages, [])
                await importer.store_batch()
        if not importer.has_ended:
            raise PersistentMemoryError(
                f"The export was cut off after line {number}. All its lines were imported. Export again and import that file: "
                "records that are there already are not written twice."
            )
        return importer.written


def _header_of(page: Sequence[str | bytes]) -> Header:
    try:
        header = from_line(page[0] if page else "")
    except ValueError as error:
        raise PersistentMemoryError(
            f"This is not an export: of its first line, {error}. Nothing was imported."
        ) from None
    if not isinstance(header, Header):
        raise PersistentMemoryError(
            "This is not an export, or its first line, the header, is missing. Nothing was imported. Add the header again."
        )
    return header


class _InvalidLineError(PersistentMemoryError):
    def __init__(self, number: int, reason: str) -> None:
        super().__init__(
            f"Line {number} of the export cannot be imported: {reason.rstrip('.')}. All lines before it were imported. Correct "
            "or delete that line and import the file again: records that are there already are not written twice."
        )


@dataclass
class _Importer:
    """Stores the lines of an export, in batches that belong to one table of one namespace."""

    connection: StoreConnection
    embedding: Embedding
    renamed: Callable[[str], str]
    done: Callable[[int], None]
    written: int = 0
    has_ended: bool = False
    _came_from: dict[str, str] = field(default_factory=dict)
    _made_by: dict[str, Mapping[TableName, str]] = field(default_factory=dict)
    _batch: list[RecordLine] = field(default_factory=list)
    _opened: tuple[str, NamespaceData] | None = None

    async def import_page(self, page: Sequence[str | bytes], before: int) -> None:
        """Import a page, before which the file has `before` lines. If a line is invalid, those before it are stored."""
        lines, error = await in_thread(partial(_parsed, page, before))
        try:
            for number, line in lines:
                await self._import(number, line)
            if error is not None:
                raise error
        except _InvalidLineError:
            await self.store_batch()
            raise

    async def _import(self, number: int, line: Line) -> None:
        self.has_ended = isinstance(line, End)
        if isinstance(line, NamespaceLine):
            self._made_by[self._target(number, line.namespace)] = line.embeddings
        elif isinstance(line, RecordLine):
            line = replace(line, record=replace(line.record, namespace=self._target(number, line.record.namespace)))
            if len(self._batch) == _WRITE_BATCH or (self._batch and _table_of(self._batch[0]) != _table_of(line)):
                await self.store_batch()
            self._batch.append(line)
        elif isinstance(line, ValueLine):
            await self._store_value(replace(line, namespace=self._target(number, line.namespace)))

    async def store_batch(self) -> None:
        """Store the records of the current batch that are new, or changed later than those that are there."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        namespace, table = _table_of(batch[0])
        data = self._data(namespace)
        latest: dict[str, RecordLine] = {}
        for line in batch:
            if line.record.id not in latest or _changed(line.record) > _changed(latest[line.record.id].record):
                latest[line.record.id] = line
        missing, changed = await _to_write(data, table, latest.values())
        lines = [*missing, *changed]
        vectors = await self._vectors(lines)
        vector_of = {line.record.id: vector for line, vector in zip(lines, vectors, strict=True)}

        async def store() -> int:
            missing, changed = await _to_write(data, table, lines)
            for group, are_new in ((missing, True), (changed, False)):
                records = [line.record for line in group]
                await data.adopt(table, records, [vector_of[record.id] for record in records], are_new=are_new)
            return len(missing) + len(changed)

        if lines:
            self.written += await data.under_lock(store)
        self.done(len(batch))

    async def _vectors(self, lines: Sequence[RecordLine]) -> Vectors:
        """Return the vectors in the file where the same embedding made them, else new ones."""

        def is_ours(line: RecordLine) -> bool:
            made_by = self._made_by.get(line.record.namespace, {}).get(line.table)
            return line.vector is not None and made_by == self.embedding.id

        new = iter(await embedded([line.record for line in lines if not is_ours(line)], self.embedding))
        return [line.vector if line.vector is not None and is_ours(line) else next(new) for line in lines]

    async def _store_value(self, line: ValueLine) -> None:
        values = self.connection.values(line.namespace)
        there = await values.entry(line.space, line.name)
        if there is None or (line.entry.at is not None and (there.at is None or there.at < line.entry.at)):
            await values.put(line.space, line.name, line.entry.text, line.entry.at)
            self.written += 1
        self.done(1)

    def _target(self, number: int, namespace: str) -> str:
        """Return the namespace to write to; two of the file must not end up in one."""
        target = self.renamed(namespace)
        came_from = self._came_from.setdefault(target, namespace)
        if came_from != namespace:
            raise _InvalidLineError(
                number, f"{came_from!r} and {namespace!r} would be mixed in {target!r}; rename one of them"
            )
        return target

    def _data(self, namespace: str) -> NamespaceData:
        if self._opened is None or self._opened[0] != namespace:
            embed = partial(embedded, embedding=self.embedding)
            self._opened = namespace, NamespaceData(namespace, self.connection, self.embedding.id, embed)
        return self._opened[1]


def _parsed(page: Sequence[str | bytes], before: int) -> tuple[list[tuple[int, Line]], _InvalidLineError | None]:
    """Return the numbered lines of a page up to the first invalid one, and what is wrong with that one."""
    lines: list[tuple[int, Line]] = []
    for number, text in enumerate(page, start=before + 1):
        if not text.strip():
            continue
        try:
            lines.append((number, from_line(text)))
        except ValueError as error:
            return lines, _InvalidLineError(number, str(error))
    return lines, None


async def _to_write(
    data: NamespaceData, table: TableName, lines: Iterable[RecordLine]
) -> tuple[list[RecordLine], list[RecordLine]]:
    """Return the lines whose records are missing in the store, and those that changed later than the stored ones."""
    by_id = {line.record.id: line for line in lines}
    there = {record.id: record for record in await data.table(table).get(list(by_id))}
    missing = [line for id, line in by_id.items() if id not in there]
    return missing, [by_id[id] for id, record in there.items() if _changed(by_id[id].record) > _changed(record)]


def _changed(record: MemoryRecord) -> tuple[datetime, bool, int]:
    """Return when a record changed last, to compare two versions of it."""
    times = (record.updated_at, record.superseded_at, record.last_used_at)
    return max(time for time in times if time is not None), record.superseded_by is not None, record.uses


def _table_of(line: RecordLine) -> tuple[str, TableName]:
    return line.record.namespace, line.table


def _chosen(
    embeddings: Mapping[str, Mapping[TableName, str]], wanted: Sequence[str] | None
) -> dict[str, Mapping[TableName, str]]:
    for pattern in wanted or ():
        if not any(_matches(namespace, pattern) for namespace in embeddings):
            raise PersistentMemoryError(
                f"The store has no namespace {pattern!r}. It has {', '.join(sorted(embeddings)[:20]) or 'none'}. "
                "Nothing was exported."
            )
    return {
        namespace: embeddings[namespace]
        for namespace in sorted(embeddings)
        if wanted is None or any(_matches(namespace, pattern) for pattern in wanted)
    }


def _matches(namespace: str, pattern: str) -> bool:
    """Return whether a pattern names this namespace, or a path above it by ending with a slash."""
    return namespace == pattern or (pattern.endswith("/") and namespace.startswith(pattern))


def _check_pattern(pattern: object) -> str:
    """Return a namespace, or a path with a slash at its end, which means all namespaces below it."""
    if isinstance(pattern, str) and pattern.endswith("/"):
        return check_namespace(pattern[:-1]) + "/"
    return check_namespace(pattern)


def _renaming(rename: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function from old to new names. If several entries apply, the longest wins."""
    pairs = {_check_pattern(old): _check_pattern(new) for old, new in rename.items()}
    for old, new in pairs.items():
        if old.endswith("/") != new.endswith("/"):
            raise ValueError(
                f"rename={{{old!r}: {new!r}}} mixes a namespace and a path; end both with a slash, or neither."
            )

    def renamed(namespace: str) -> str:
        old = max((old for old in pairs if _matches(namespace, old)), key=len, default="")
        return pairs[old] + namespace[len(old) :] if old else namespace

    return renamed
