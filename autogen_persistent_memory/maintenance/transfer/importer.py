"""The lines of an export, taken into a store in batches: what is new there, or changed later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from ...core.errors import PersistentMemoryError
from ...core.records import MemoryRecord
from ...retrieval.namespace import NamespaceData
from ...runtime.threads import in_thread
from ...storage.connection import StoreConnection
from ...storage.protocol import TableName
from ...text.embeddings import Embedding, Vectors, embedded
from .export_format import End, Line, NamespaceLine, RecordLine, ValueLine, from_line

_WRITE_BATCH = 64
_REMEDY = (
    "All lines before it were imported. Mend or delete that line and import the file again: what is there already is not "
    "written twice."
)


class Importer:
    """What is being imported, in batches of one table."""

    def __init__(
        self,
        connection: StoreConnection,
        embedding: Embedding,
        renamed: Callable[[str], str],
        done: Callable[[int], None],
    ) -> None:
        self.written = 0
        self.has_ended = False
        self._connection = connection
        self._embedding = embedding
        self._renamed = renamed
        self._done = done
        self._came_from: dict[str, str] = {}
        self._made_by: dict[str, Mapping[TableName, str]] = {}
        self._batch: list[RecordLine] = []
        self._namespace_data: tuple[str, NamespaceData] | None = None

    async def take_page(self, page: Sequence[str | bytes], before: int) -> None:
        """Take in lines of the file, of which so many came before. If one is no good, those before it are stored."""
        lines, trouble = await in_thread(partial(_parsed, page, before))
        try:
            for number, line in lines:
                await self._take(number, line)
            if trouble is not None:
                raise trouble
        except BadLineError:
            await self.finish_batch()
            raise

    async def _take(self, number: int, line: Line) -> None:
        self.has_ended = isinstance(line, End)
        if isinstance(line, NamespaceLine):
            self._made_by[self._place(number, line.namespace)] = line.embeddings
        elif isinstance(line, RecordLine):
            record = replace(line.record, namespace=self._place(number, line.record.namespace))
            if len(self._batch) == _WRITE_BATCH or (
                self._batch and not _belong_together(self._batch[0], line.table, record)
            ):
                await self.finish_batch()
            self._batch.append(replace(line, record=record))
        elif isinstance(line, ValueLine):
            await self._store_value(replace(line, namespace=self._place(number, line.namespace)))

    async def finish_batch(self) -> None:
        """Store what is waiting."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        namespace, table = batch[0].record.namespace, batch[0].table
        namespace_data = self._holdings_of(namespace)
        latest: dict[str, RecordLine] = {}
        for line in batch:
            if _is_later(line.record, latest[line.record.id].record if line.record.id in latest else None):
                latest[line.record.id] = line
        lines = [line for group in await _news(namespace_data, table, latest.values()) for line in group]
        vectors = await self._vectors(lines)
        vector_of = {line.record.id: vector for line, vector in zip(lines, vectors, strict=True)}

        async def store() -> int:
            missing, changed = await _news(namespace_data, table, lines)
            for news, are_new in ((missing, True), (changed, False)):
                records = [line.record for line in news]
                await namespace_data.adopt(
                    table, records, [vector_of[record.id] for record in records], are_new=are_new
                )
            return len(missing) + len(changed)

        if lines:
            self.written += await namespace_data.as_a_whole(store)
        self._done(len(batch))

    async def _vectors(self, lines: Sequence[RecordLine]) -> Vectors:
        """The vectors in the file where our embedding made them, else new ones."""

        def is_ours(line: RecordLine) -> bool:
            made_by = self._made_by.get(line.record.namespace, {}).get(line.table)
            return line.vector is not None and made_by == self._embedding.id

        new = iter(await embedded([line.record for line in lines if not is_ours(line)], self._embedding))
        return [line.vector if line.vector is not None and is_ours(line) else next(new) for line in lines]

    async def _store_value(self, line: ValueLine) -> None:
        values = self._connection.values(line.namespace)
        there = await values.entry(line.space, line.name)
        if there is None or (line.entry.at is not None and (there.at is None or there.at < line.entry.at)):
            await values.put(line.space, line.name, line.entry.text, line.entry.at)
            self.written += 1
        self._done(1)

    def _place(self, number: int, namespace: str) -> str:
        place = self._renamed(namespace)
        came_from = self._came_from.setdefault(place, namespace)
        if came_from != namespace:
            raise BadLineError(
                number, f"{came_from!r} and {namespace!r} would be mixed in {place!r}; rename one of them"
            )
        return place

    def _holdings_of(self, namespace: str) -> NamespaceData:
        if self._namespace_data is None or self._namespace_data[0] != namespace:
            embed = partial(embedded, embedding=self._embedding)
            self._namespace_data = namespace, NamespaceData(namespace, self._connection, self._embedding.id, embed)
        return self._namespace_data[1]


async def _news(
    namespace_data: NamespaceData, table: TableName, lines: Iterable[RecordLine]
) -> tuple[list[RecordLine], list[RecordLine]]:
    """Those that are not there, and those that changed later than what is."""
    by_id = {line.record.id: line for line in lines}
    there = {record.id: record for record in await namespace_data.table(table).get(list(by_id))}
    missing = [line for id, line in by_id.items() if id not in there]
    return missing, [by_id[id] for id, record in there.items() if _is_later(by_id[id].record, record)]


def _is_later(record: MemoryRecord, than: MemoryRecord | None) -> bool:
    return than is None or _changed(record) > _changed(than)


def _changed(record: MemoryRecord) -> tuple[datetime, bool, int]:
    times = (record.updated_at, record.superseded_at, record.last_used_at)
    return max(time for time in times if time is not None), record.superseded_by is not None, record.uses


def _belong_together(line: RecordLine, table: TableName, record: MemoryRecord) -> bool:
    return line.table == table and line.record.namespace == record.namespace


def _parsed(page: Sequence[str | bytes], before: int) -> tuple[list[tuple[int, Line]], BadLineError | None]:
    """The numbered lines of a page up to the first that is no good, and what is wrong with that."""
    lines: list[tuple[int, Line]] = []
    for number, text in enumerate(page, start=before + 1):
        if not text.strip():
            continue
        try:
            lines.append((number, from_line(text)))
        except ValueError as error:
            return lines, BadLineError(number, str(error))
    return lines, None


class BadLineError(PersistentMemoryError):
    """A line of an export that cannot be imported."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"Line {number} of the export cannot be imported: {reason.rstrip('.')}. {_REMEDY}")
