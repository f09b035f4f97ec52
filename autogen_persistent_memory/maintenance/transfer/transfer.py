"""Memories out of a store into a file, and from a file into a store: everything, page by page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import get_args

from ...core.checks import check_flag, check_namespace
from ...core.errors import PersistentMemoryError
from ...runtime.reporting import Progress, progress_of
from ...runtime.threads import in_thread
from ...storage.connection import StoreConnection, size_of
from ...storage.protocol import MemoryStore, Space, TableName
from ...text.embeddings import Embedding, MiniLMEmbedding
from .export_format import End, Header, Line, NamespaceLine, RecordLine, ValueLine, from_line, to_line
from .importer import Importer
from .streams import File, pages_of_lines, writing_lines

_SPACES: tuple[Space, ...] = get_args(Space)
_READ_PAGE = 500
_ROUNDS = 3


async def export_memories(
    store: MemoryStore,
    file: File,
    *,
    namespaces: Sequence[str] | None = None,
    vectors: bool = False,
    progress: Progress = True,
) -> int:
    """Write all that a store holds to a file: memories with their history, values, saved states. One JSON object a line.

    The store may be in use. Writers of this process wait while their namespace is read, so that it is exported as it was at
    one moment; of what other processes write to a server meanwhile, some may be missing. A file appears when it is
    complete: after an interruption run it again.

    Args:
        store: From where.
        file: A path, or an open stream, binary or text.
        namespaces: Only these; one that ends with a slash means all below it. By default all.
        vectors: Whether to write vectors, too, so that the same embedding need not make them again.
        progress: True for a progress bar on a terminal, or a function that is given (done, total).

    Returns:
        How many memories and values were written.

    Raises:
        ValueError: An argument is no good.
        PersistentMemoryError: The store could not be read, has no such namespace, or the file could not be written.
    """
    wanted = None if namespaces is None else [check_pattern(name) for name in namespaces]
    with_vectors = check_flag(vectors, "vectors")
    connection = StoreConnection(store)
    try:
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
    finally:
        await connection.close()


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
        for _ in range(1 if connection.exclusive else _ROUNDS):  # what other processes add may replace what was read
            ids = [id for id in await table.ids() if id not in seen]
            seen.update(ids)
            for start in range(0, len(ids), _READ_PAGE):  # by ids: pages by offset get slower and slower
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
    """Take over what `export_memories` wrote, with ids, times and history as they were.

    A memory that is there already is replaced only if the one in the file changed later; so is a value, and one whose time
    nobody knows stays. Hence an import that was interrupted, or failed at some line, is simply run again. Memories of this
    process that are open on the same namespaces notice at once.

    Args:
        store: To where.
        file: A path, or an open stream, binary or text.
        rename: New names of namespaces: `{"ann": "anna"}` for one, `{"prod/": "staging/"}` for all below a path.
        embedding: How text becomes vectors here; by default `MiniLMEmbedding`. Vectors in the file are used if the same
            embedding made them.
        progress: True for a progress bar on a terminal, or a function that is given (done, total).

    Returns:
        How many memories and values were written; those that were there already are not counted.

    Raises:
        ValueError: An argument is no good.
        SchemaVersionError: A newer version wrote the file.
        EmbeddingMismatchError: The store's namespace uses another embedding.
        PersistentMemoryError: A line is no good, or the store could not be written.
    """
    renamed = renaming(rename or {})
    connection = StoreConnection(store)
    try:
        async with aclosing(pages_of_lines(file)) as pages:
            page: Sequence[str | bytes] = await anext(pages, [])
            header = await in_thread(partial(_header_of, page))
            async with progress_of(header.count, "Importing", progress) as done:
                work = Importer(connection, embedding or MiniLMEmbedding(), renamed, done)
                number = 0
                while page:
                    await work.take_page(page, number)
                    number += len(page)
                    page = await anext(pages, [])
                await work.finish_batch()
        if not work.has_ended:
            raise PersistentMemoryError(
                f"The export was cut off after line {number}. All its lines were imported. Export again and import that: "
                "what is there already is not written twice."
            )
        return work.written
    finally:
        await connection.close()


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


def _chosen(
    embeddings: Mapping[str, Mapping[TableName, str]], wanted: Sequence[str] | None
) -> dict[str, Mapping[TableName, str]]:
    for pattern in wanted or ():
        if not any(is_meant(namespace, pattern) for namespace in embeddings):
            raise PersistentMemoryError(
                f"The store has no namespace {pattern!r}. It has {', '.join(sorted(embeddings)[:20]) or 'none'}. "
                "Nothing was exported."
            )
    return {
        namespace: embeddings[namespace]
        for namespace in sorted(embeddings)
        if wanted is None or any(is_meant(namespace, pattern) for pattern in wanted)
    }


def is_meant(namespace: str, pattern: str) -> bool:
    """Whether it is the namespace that is named, or one below the path that ends with a slash."""
    return namespace == pattern or (pattern.endswith("/") and namespace.startswith(pattern))


def check_pattern(pattern: object) -> str:
    """A namespace, or one with a slash at its end, which means all below it.

    Raises:
        NamespaceError: It is neither.
    """
    if isinstance(pattern, str) and pattern.endswith("/"):
        return check_namespace(pattern[:-1]) + "/"
    return check_namespace(pattern)


def renaming(rename: Mapping[str, str]) -> Callable[[str], str]:
    """A function from old to new names. Of several that apply, the longest counts.

    Raises:
        ValueError: What is wrong with them.
    """
    pairs = {check_pattern(old): check_pattern(new) for old, new in rename.items()}
    for old, new in pairs.items():
        if old.endswith("/") != new.endswith("/"):
            raise ValueError(
                f"rename={{{old!r}: {new!r}}} mixes a namespace and a path; end both with a slash, or neither."
            )

    def renamed(namespace: str) -> str:
        applicable = [old for old in pairs if is_meant(namespace, old)]
        if not applicable:
            return namespace
        old = max(applicable, key=len)
        return pairs[old] + namespace[len(old) :]

    return renamed
