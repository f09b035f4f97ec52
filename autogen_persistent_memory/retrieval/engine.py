"""Remember, recall, look up, edit and forget: what one namespace of one store can do. Knows no AutoGen type."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial

from ..core.records import FACTS, MESSAGES, Draft, MemoryHit, MemoryRecord, Query, Selection, SessionInfo, listed
from ..runtime.background_task import prefetch
from ..runtime.reporting import Progress, progress_of
from ..runtime.threads import in_thread
from ..storage.protocol import Space, TableName
from ..text.embeddings import Vectors
from ..text.redaction import redacted
from ..text.sentences import is_trivial
from .conflicts import Changes, edited, newest_first, newest_of_each_key, resolve, successions, without_fact
from .ranking import unasked
from .search import Search
from .upkeep import NamespaceUpkeep

_BATCH = 64
_SAME_AMONG = 20
_TICK = timedelta(microseconds=1)
_SESSION_SPACES: tuple[Space, ...] = ("state", "mark", "summary")


class Engine(NamespaceUpkeep):
    """The operations on one namespace."""

    # Remembering

    async def remember(
        self, table: TableName, drafts: Sequence[Draft], progress: Progress = False
    ) -> list[MemoryRecord]:
        """Store drafts, merging restatements and superseding what they replace; return one record for each, in order."""
        records: list[MemoryRecord] = []
        batches = (drafts[start : start + _BATCH] for start in range(0, len(drafts), _BATCH))
        async with (
            progress_of(len(drafts), "Remembering", progress) as done,
            aclosing(prefetch(self._redacted_and_embedded, batches)) as ready,
        ):
            async for batch, vectors in ready:
                records += await self._change(partial(self._store_batch, table, batch, vectors))
                done(len(batch))
        self._keep_house_soon()
        return records

    async def _redacted_and_embedded(self, drafts: Sequence[Draft]) -> tuple[Sequence[Draft], Vectors]:
        if self.policy.redact:
            drafts = await in_thread(lambda: [redacted(draft) for draft in drafts])
        return drafts, await self._vectors(drafts)

    async def _store_batch(self, table: TableName, drafts: Sequence[Draft], vectors: Vectors) -> list[MemoryRecord]:
        now = self.clock()
        known = await self._related(table, drafts, vectors, now)
        told = {record.key: record.updated_at for record in reversed(newest_first(known))}
        newcomers = [await self._new_record(table, draft, now, after=told.get(draft.key)) for draft in drafts]
        pairs = list(zip(newcomers, drafts, strict=True))
        ends = {record.id: draft.ends for record, draft in pairs if draft.ends is not None}
        resolved = resolve(newcomers, known, now, ends)
        vector_of = {record.id: vector for record, vector in zip(newcomers, vectors, strict=True)}
        new_vectors = [vector_of[record.id] for record in resolved.new]
        await self.data.table(table).put(resolved.new, new_vectors, new=True)
        await self.data.table(table).amend(resolved.changed)
        await self.data.update_cache(table, [*resolved.new, *resolved.changed], new_vectors)
        return resolved.outcome

    async def _related(
        self, table: TableName, drafts: Sequence[Draft], vectors: Vectors, now: datetime
    ) -> list[MemoryRecord]:
        """Return the records that the drafts might restate, supersede or end; under a key told late, also past ones."""
        believed = Selection(current_at=now)
        mergeable = [vector for draft, vector in zip(drafts, vectors, strict=True) if draft.kind != "interaction"]
        told_late = any(draft.at is not None for draft in drafts)
        under_key = Selection() if told_late else believed
        keys = {draft.key for draft in drafts if draft.key is not None}
        near = await self.data.nearest(table, mergeable, believed, fetch=_SAME_AMONG, enough=1, certain=True)
        same_key = await asyncio.gather(*(self.data.table(table).select(under_key._replace(key=key)) for key in keys))
        same_id = await self.data.records(table, [draft.id for draft in drafts if draft.id], certain=True)
        endable = await self.data.table(table).select(believed) if any(draft.ends for draft in drafts) else []
        similar = [[record for record, _ in found] for found in near]
        return [record for group in (*similar, *same_key, same_id, endable) for record in group]

    async def _new_record(
        self, table: TableName, draft: Draft, now: datetime, *, after: datetime | None
    ) -> MemoryRecord:
        """Return a draft as a record. What is told now comes after what was told before, whatever the clocks say."""
        written = draft.at or (now if after is None or draft.key is None else max(now, after + _TICK))
        lifetime = draft.ttl or self.policy.lifetimes.get(draft.kind)
        return MemoryRecord(
            id=draft.id or uuid.uuid4().hex,
            namespace=self.namespace,
            content=draft.content,
            kind=draft.kind,
            tags=draft.tags,
            key=draft.key,
            source=draft.source,
            session=draft.session,
            sequence=None if draft.session is None else await self.data.next_number(table, draft.session),
            origin=draft.origin,
            created_at=written,
            updated_at=written,
            expires_at=None if draft.pinned or lifetime is None else written + lifetime,
            pinned=draft.pinned,
            mime_type=draft.mime_type,
            metadata=draft.metadata,
        )

    # Editing

    async def edit(self, id: str, tables: Sequence[TableName], change: Changes) -> MemoryRecord | None:
        """Change a current memory in its place; return None if there is none with that id."""
        corrected = await self._corrected(id, tables, change)
        if corrected is None:
            return None
        vectors = [] if change.content is None else await self._vectors([corrected[1]])
        return await self._change(partial(self._store_edit, id, tables, change, vectors))

    async def _corrected(
        self, id: str, tables: Sequence[TableName], change: Changes
    ) -> tuple[TableName, MemoryRecord] | None:
        now, clean = self.clock(), redacted if self.policy.redact else lambda record: record
        for table in tables:
            for record in await self.data.table(table).get([id]):
                if record.is_current(now):
                    changed = edited(record, change, now, self.policy.lifetimes)
                    return table, await in_thread(partial(clean, changed))
        return None

    async def _store_edit(
        self, id: str, tables: Sequence[TableName], change: Changes, vectors: Vectors
    ) -> MemoryRecord | None:
        corrected = await self._corrected(id, tables, change)
        if corrected is None:
            return None
        table, record = corrected
        same_key = await self.data.table(table).select(Selection(key=record.key)) if change.key else []
        replaced = successions(record, same_key, self.clock())
        told = await self._told([record], ["session"]) if vectors else []
        outdated = [without_fact(message, id) for message in told if id in listed(message, FACTS)]
        if vectors:
            await self.data.table(table).put([record], vectors)
        await self.data.table(table).amend([*([] if vectors else [record]), *replaced])
        await self.data.table("session").amend(outdated)
        await self.data.update_cache(table, [record, *replaced], vectors)
        await self.data.update_cache("session", outdated)
        return record

    async def amend(
        self, table: TableName, id: str, change: Callable[[MemoryRecord], MemoryRecord]
    ) -> MemoryRecord | None:
        """Change fields of a record other than its content; return None if there is none with that id."""

        async def amend() -> MemoryRecord | None:
            changed = [change(record) for record in await self.data.table(table).get([id])]
            await self.data.table(table).amend(changed)
            await self.data.update_cache(table, changed)
            return changed[0] if changed else None

        return await self._change(amend)

    # Recalling

    async def recall(
        self,
        query: str | Query,
        tables: Sequence[TableName],
        *,
        limit: int,
        selection: Selection = Selection(),
        at: datetime | None = None,
        only_relevant: bool = False,
        skip: Callable[[MemoryRecord], bool] | None = None,
    ) -> list[MemoryHit]:
        """Return the selected memories that answer a query best, best first, as they were believed at that time.

        With `only_relevant` only those that are relevant enough to be injected; without those that `skip` accepts.
        """
        if not self.prepared:
            await self.prepare()
        believed, now = self._believed(selection, at)
        search = Search(
            query=Query(query) if isinstance(query, str) else query,
            data=self.data,
            embedding=self.embedding,
            policy=self.policy,
            tables=tables,
            believed=believed,
            now=now,
            limit=limit,
            only_relevant=only_relevant,
            skip=skip,
        )
        hits = await search.run()
        self._keep_house_soon()
        return hits

    async def browse(
        self, tables: Sequence[TableName], *, limit: int, selection: Selection, at: datetime | None = None
    ) -> list[MemoryHit]:
        """Return the newest and most used memories, best first, as they were believed at that time."""
        believed, now = self._believed(selection, at)
        found = await self.data.select(believed, tables)
        records = newest_of_each_key([record for record in found if not is_trivial(record)])
        return unasked(records, now=now, policy=self.policy, limit=limit)

    def _believed(self, selection: Selection, at: datetime | None) -> tuple[Selection, datetime]:
        now = at or self.clock()
        return selection._replace(current_at=None if at else now, believed_at=at), now

    # Looking up

    async def find(self, ids: Sequence[str], tables: Sequence[TableName]) -> list[MemoryRecord]:
        """Return the records with these ids, current or not."""
        return await self.data.find(ids, tables)

    async def ids_beginning(self, prefix: str, tables: Sequence[TableName]) -> list[str]:
        """Return the ids that begin with this prefix, of records that are current or not."""
        known = await asyncio.gather(*(self.data.table(name).ids() for name in tables))
        return [id for ids in known for id in ids if id.startswith(prefix)]

    async def select(
        self, selection: Selection, tables: Sequence[TableName], *, history: bool = False
    ) -> list[MemoryRecord]:
        """Return the selected records, newest first; with `history` also those that are no longer current."""
        if history:
            return newest_first(await self.data.select(selection, tables))
        current = await self.data.select(selection._replace(current_at=self.clock()), tables)
        return newest_first(newest_of_each_key(current))

    async def history(self, id_or_key: str, tables: Sequence[TableName]) -> list[MemoryRecord]:
        """Return a memory and all that it replaced or was replaced by, newest first."""
        start = await self.find([id_or_key], tables)
        key = start[0].key if start else id_or_key
        if key is not None:
            return await self.select(Selection(key=key), tables, history=True)
        chain = {record.id: record for record in start}
        unexplored = list(start)
        while unexplored:
            record = unexplored.pop()
            linked = await self.data.select(Selection(superseded_by=record.id), tables)
            if record.superseded_by is not None:
                linked += await self.find([record.superseded_by], tables)
            unexplored += [other for other in linked if other.id not in chain]
            chain |= {other.id: other for other in linked}
        return newest_first(chain.values())

    async def sessions(self) -> list[SessionInfo]:
        """Return all conversations of the namespace, the one that was added to last first."""
        messages: defaultdict[str, list[MemoryRecord]] = defaultdict(list)
        for record in await self.data.messages(None, self.clock()):
            if record.session is not None:
                messages[record.session].append(record)
        saved = set(await self.values.names("state"))
        latest_first = sorted(messages, key=lambda name: messages[name][-1].created_at, reverse=True)
        without_messages = sorted(saved.difference(messages))
        return [_info(name, messages.get(name, []), name in saved) for name in (*latest_first, *without_messages)]

    # Forgetting

    async def forget(
        self, selection: Selection, tables: Sequence[TableName], *, id: str | None = None, history: bool = False
    ) -> list[MemoryRecord]:
        """Delete what `to_forget` returns for the same arguments, for good; return what was deleted."""

        async def forget() -> list[MemoryRecord]:
            records = await self.to_forget(selection, tables, id=id, history=history)
            await self._remove(records)
            return records

        return await self._change(forget)

    async def to_forget(
        self, selection: Selection, tables: Sequence[TableName], *, id: str | None = None, history: bool = False
    ) -> list[MemoryRecord]:
        """Return the records that `forget` would delete, each once: of the selected ones, only that with the `id` if given.

        With `history` also those that are no longer current, and the messages that told them.
        """
        if id is None:
            found = await self.select(selection, tables, history=history)
        else:
            found = await self.find([id], tables)
            if found and history:
                found = await self.history(id, tables)
            found = [record for record in found if selection.matches(record)]
        if history:
            found += await self._told(found, tables)
        return list({record.id: record for record in found}.values())

    async def _told(self, facts: Sequence[MemoryRecord], tables: Sequence[TableName]) -> list[MemoryRecord]:
        """Return the messages that told these facts."""
        ids = {fact.id for fact in facts}
        named = {id for fact in facts for id in listed(fact, MESSAGES)}
        messages = await self.data.select(Selection(kinds=("interaction",)), tables) if ids else []
        return [record for record in messages if record.id in named or not ids.isdisjoint(listed(record, FACTS))]

    async def clear_session(self, session: str) -> int:
        """Delete a conversation for good: its messages, and all that is kept about it; return how many messages."""
        gone = await self.forget(Selection(session=session), ["session"], history=True)
        for space in _SESSION_SPACES:
            await self.values.remove(space, session)
        return len(gone)

    async def clear(self, *, only_profile: bool = False) -> None:
        """Delete the whole namespace for good, or only the records and values of its profile."""

        async def clear() -> None:
            if only_profile:
                await self.values.check()
                await self.data.connection.drop(self.namespace, ["profile"])
                await self.values.clear("value")
            else:
                await self.data.connection.drop(self.namespace)
            await self.data.drop_cache()

        await self._change(clear)


def _info(name: str, messages: Sequence[MemoryRecord], resumable: bool) -> SessionInfo:
    return SessionInfo(
        name=name,
        started_at=messages[0].created_at if messages else None,
        ended_at=messages[-1].created_at if messages else None,
        speakers=tuple(dict.fromkeys(record.source for record in messages if record.source)),
        messages=len(messages),
        resumable=resumable,
    )
