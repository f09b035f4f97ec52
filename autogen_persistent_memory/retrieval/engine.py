"""Remember, recall, forget, supersede, expire: one namespace of one store. Knows no AutoGen type."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from ..core.errors import PersistentMemoryError
from ..core.policy import RecallPolicy
from ..core.records import FACTS, MESSAGES, Clock, Draft, MemoryHit, MemoryRecord, Query, Selection, SessionInfo, listed
from ..runtime.background_task import Debounce, one_ahead
from ..runtime.deadlines import CLOSING_SECONDS, within
from ..runtime.lru import LeastRecentlyUsed
from ..runtime.reporting import Progress, notices, progress_of
from ..runtime.threads import in_thread
from ..storage.availability import automatic
from ..storage.protocol import TABLES, MemoryStore, RecordTable, Space, TableName, Values
from ..text.embeddings import Embedding, Vectors, embedded
from ..text.redaction import redacted
from ..text.speech_acts import is_trivial
from .conflicts import newest_of_each_key, resolve, successions
from .editing import Changes, edited, without_fact
from .namespace import NamespaceData
from .ranking import unasked
from .search import Search

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_BATCH = 64
_SAME_AMONG = 20
_MOST_AWAKE = 100
"""So many namespaces a process keeps in mind; the others are read again when they are used again."""
_TICK = timedelta(microseconds=1)


class Removed(NamedTuple):
    """How many records were deleted, or would be, and how many of them are captured messages."""

    records: int
    messages: int


class Chore(Protocol):
    """Something that others want done for the namespace whenever house is kept."""

    async def begin(self) -> None:
        """See that it is done in the background, as soon as it can be."""

    async def finish(self) -> None:
        """Do it now."""

    async def leave(self) -> None:
        """Stop doing it."""


class Hearer(Protocol):
    """Who hears what is said in the namespace, and stores it a moment later."""

    async def catch_up(self) -> None:
        """Store all that was heard."""

    async def look_again(self) -> None:
        """Something was forgotten: learn nothing from it any more."""


class Engine:
    """Everything a namespace can do. Opens its store on first use, and again after `close()`."""

    def __init__(
        self, namespace: str, store: MemoryStore, embedding: Embedding, policy: RecallPolicy, clock: Clock
    ) -> None:
        self.namespace = namespace
        self.store = store
        self.embedding = embedding
        self.policy = policy
        self.clock = clock
        self._namespace_data: NamespaceData | None = None
        self._used: Counter[str] = Counter()
        self._debounce = Debounce(self._keep_house)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._swept_at: datetime | None = None
        self._is_open = False
        self.prepared = False
        self.chores: list[Chore] = []
        self.hearers: list[Hearer] = []

    # Opening and closing

    @property
    def namespace_data(self) -> NamespaceData:
        """What the namespace holds, on a store that opens itself when it is used."""
        if self._namespace_data is None:
            self._namespace_data = NamespaceData(self.namespace, self.store.connect(), self.embedding.id, self._vectors)
        namespace_data = self._namespace_data
        _awake.used(self)
        return namespace_data

    def rest(self) -> bool:
        """Let go of what is known of the namespace, until it is used again, unless something is still to be written.

        Nothing is closed: whoever is at work with it goes on, and shares locks and numbers with whoever comes next.
        """
        if self._used or self._tasks or self._debounce.is_awaited:
            return False
        self._forget_holdings()
        return True

    async def open(self) -> None:
        """Open the store and load the embedding now, unless that was done; see `EngineMemory.open`."""
        if self._is_open:
            return
        is_mine, namespace_data = self._namespace_data is None, self.namespace_data
        try:
            with automatic():
                outcomes = await asyncio.gather(self._load_embedding(), self._open_store(namespace_data))
        except BaseException:
            if is_mine and self._namespace_data is namespace_data:
                self._forget_holdings()
                await namespace_data.connection.close()
            raise
        self._is_open = all(outcomes)

    async def _open_store(self, namespace_data: NamespaceData) -> bool:
        await namespace_data.connection.prepare()
        if namespace_data.connection.exclusive:
            await namespace_data.check()
            return True
        self._keep_house_soon()  # which delivers what waits for the server
        seconds = self.policy.deadline
        return await self._in_time(seconds, namespace_data.check(), f"its server did not answer within {seconds:g} s")

    async def _load_embedding(self) -> bool:
        seconds = self.policy.opening_deadline
        return await self._in_time(seconds, self.embedding.load(), f"its embedding is not loaded within {seconds:g} s")

    async def _in_time(self, seconds: float, work: Coroutine[Any, Any, None], late: str) -> bool:
        """Do a part of opening, unless it takes too long or fails in a way that may pass; whether it is done."""
        breaker = self.namespace_data.connection.breaker
        try:
            await within(seconds, work)
        except asyncio.TimeoutError:
            breaker.gave_up(seconds)
            reason = late
        except PersistentMemoryError as error:
            if error.needs_developer:
                raise
            reason = str(error)
        else:
            return True
        is_news = not breaker.is_open and notices.is_new(self.whose, reason)
        message = "The memory of %r cannot be used yet, and agents go on without it: %s"
        logger.log(logging.WARNING if is_news else logging.DEBUG, message, self.namespace, reason)
        return False

    @property
    def whose(self) -> tuple[str, str]:
        """Which namespace of which store this is, for `notices`."""
        return self.store.config.model_dump_json(), self.namespace

    def _forget_holdings(self) -> None:
        self._namespace_data = None
        self.prepared = self._is_open = False

    async def prepare(self) -> None:
        """Do the slow local part of opening: load the model, and open the store if it is on this machine."""
        await asyncio.gather(self.embedding.load(), self.namespace_data.prepare())
        self.prepared = True
        if self.namespace_data.outbox is not None:
            self._keep_house_soon()  # lest what waits is forgotten where nothing can be recalled, since the server is gone

    async def flush(self) -> None:
        """Write what is pending, delete what has expired, and wait for all of it."""
        if self._namespace_data is None:
            return
        await self._write_usage()
        await self._finish_chores()
        await self.sweep()
        self._debounce.call_off()
        await self.namespace_data.settle()
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(task for task in self._tasks if task.get_loop() is loop), return_exceptions=True)

    async def close(self) -> None:
        """Flush, and let go of the store."""
        namespace_data = self._namespace_data
        try:
            with automatic():
                await within(CLOSING_SECONDS, self.flush())
        except (PersistentMemoryError, asyncio.TimeoutError) as error:
            reason = str(error) or "it took too long"
            self.log_trouble("Memory could not do its housekeeping before closing: %s", reason)
        finally:
            for chore in self.chores:
                await chore.leave()
            if self._namespace_data is namespace_data:
                self._forget_holdings()
            if namespace_data is not None:
                await namespace_data.connection.close()

    async def _finish_chores(self) -> None:
        for chore in self.chores:
            await chore.finish()

    def log_trouble(self, message: str, reason: object) -> None:
        """Warn of what went wrong by itself; not each time while the store is known to be out of reach."""
        was_told = self.namespace_data.connection.breaker.is_unsteady
        logger.log(logging.DEBUG if was_told else logging.WARNING, message, reason)

    # Remembering

    async def remember(
        self, table: TableName, drafts: Sequence[Draft], progress: Progress = False
    ) -> list[MemoryRecord]:
        """Store drafts, merging restatements and superseding what they replace; one record for each, in order."""
        records: list[MemoryRecord] = []
        batches = (drafts[start : start + _BATCH] for start in range(0, len(drafts), _BATCH))
        async with (
            progress_of(len(drafts), "Remembering", progress) as done,
            aclosing(one_ahead(self._ready_to_store, batches)) as ready,
        ):
            async for batch, vectors in ready:
                records += await self._as_a_whole(partial(self._store_batch, table, batch, vectors))
                done(len(batch))
        self._keep_house_soon()
        return records

    async def _ready_to_store(self, drafts: Sequence[Draft]) -> tuple[Sequence[Draft], Vectors]:
        """The drafts as they may be stored, with their vectors."""
        if self.policy.redact:
            drafts = await in_thread(lambda: [redacted(draft) for draft in drafts])
        return drafts, await self._vectors(drafts)

    async def _vectors(self, items: Sequence[Draft] | Sequence[MemoryRecord]) -> Vectors:
        return await embedded(items, self.embedding)

    async def _as_a_whole(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a change under the namespace's lock; once it has begun to its end, even if whoever asked for it is cancelled."""
        begun = False

        async def begin() -> T:
            nonlocal begun
            begun = True
            return await change()

        task = asyncio.get_running_loop().create_task(self.namespace_data.as_a_whole(begin))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody may wait for it any more
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not begun:
                task.cancel()
            raise

    async def _store_batch(self, table: TableName, drafts: Sequence[Draft], vectors: Vectors) -> list[MemoryRecord]:
        now = self.clock()
        known = await self._related(table, drafts, vectors, now)
        told = {record.key: record.updated_at for record in sorted(known, key=_time_of)}
        newcomers = [await self._new_record(table, draft, now, after=told.get(draft.key)) for draft in drafts]
        pairs = list(zip(newcomers, drafts, strict=True))
        ends = {record.id: draft.ends for record, draft in pairs if draft.ends is not None}
        resolved = resolve(newcomers, known, now, ends)
        vector_of = {record.id: vector for record, vector in zip(newcomers, vectors, strict=True)}
        new_vectors = [vector_of[record.id] for record in resolved.new]
        await self.namespace_data.table(table).add(resolved.new, new_vectors)
        await self.namespace_data.table(table).amend(resolved.changed)
        await self.namespace_data.note(table, [*resolved.new, *resolved.changed], new_vectors)
        return resolved.outcome

    async def _related(
        self, table: TableName, drafts: Sequence[Draft], vectors: Vectors, now: datetime
    ) -> list[MemoryRecord]:
        """The records that the drafts might restate, supersede or end; of a key told late, all there ever was."""
        believed = Selection(current_at=now)
        mergeable = [vector for draft, vector in zip(drafts, vectors, strict=True) if draft.kind != "interaction"]
        told_late = any(draft.at is not None for draft in drafts)
        under_key = Selection() if told_late else believed
        keys = {draft.key for draft in drafts if draft.key is not None}
        near = await self.namespace_data.nearest(table, mergeable, believed, fetch=_SAME_AMONG, enough=1, certain=True)
        same_key = await asyncio.gather(
            *(self.namespace_data.table(table).select(under_key._replace(key=key)) for key in keys)
        )
        same_id = await self.namespace_data.records(table, [draft.id for draft in drafts if draft.id], certain=True)
        endable = await self.namespace_data.table(table).select(believed) if any(draft.ends for draft in drafts) else []
        return [record for group in (*(group for _, group in near), *same_key, same_id, endable) for record in group]

    async def _new_record(
        self, table: TableName, draft: Draft, now: datetime, *, after: datetime | None
    ) -> MemoryRecord:
        """A draft as a record. What is told now comes after all that was told before, whatever the clocks say."""
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
            sequence=None if draft.session is None else await self.namespace_data.next_number(table, draft.session),
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
        """Change a current memory in its place; None if there is none of that id."""
        corrected = await self._corrected(id, tables, change)
        if corrected is None:
            return None
        vectors = [] if change.content is None else await self._vectors([corrected[1]])
        return await self._as_a_whole(partial(self._store_edit, id, tables, change, vectors))

    async def _corrected(
        self, id: str, tables: Sequence[TableName], change: Changes
    ) -> tuple[TableName, MemoryRecord] | None:
        now, clean = self.clock(), redacted if self.policy.redact else lambda record: record
        for table in tables:
            for record in await self.namespace_data.table(table).get([id]):
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
        same_key = await self.namespace_data.table(table).select(Selection(key=record.key)) if change.key else []
        replaced = successions(record, same_key, self.clock())
        told = await self._told([record], ["session"]) if vectors else []
        outdated = [without_fact(message, id) for message in told if id in listed(message, FACTS)]
        if vectors:
            await self.namespace_data.table(table).put([record], vectors)
        await self.namespace_data.table(table).amend([*([] if vectors else [record]), *replaced])
        await self.namespace_data.table("session").amend(outdated)
        await self.namespace_data.note(table, [record, *replaced], vectors)
        await self.namespace_data.note("session", outdated)
        return record

    async def amend(
        self, table: TableName, id: str, change: Callable[[MemoryRecord], MemoryRecord]
    ) -> MemoryRecord | None:
        """Change fields of a record other than its content; None if there is none of that id."""

        async def amend() -> MemoryRecord | None:
            changed = [change(record) for record in await self.namespace_data.table(table).get([id])]
            await self.namespace_data.table(table).amend(changed)
            await self.namespace_data.note(table, changed)
            return changed[0] if changed else None

        return await self._as_a_whole(amend)

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
        unless: Callable[[MemoryRecord], bool] | None = None,
    ) -> list[MemoryHit]:
        """The memories that answer the query best, best first, as they were believed at that time.

        If asked, only those relevant enough to be injected. Those that `unless` accepts are passed over.
        """
        if not self.prepared:
            await self.prepare()
        now = at or self.clock()
        believed = selection._replace(current_at=None if at else now, believed_at=at)
        question = Query(query) if isinstance(query, str) else query
        search = Search(
            question, self.namespace_data, self.embedding, self.policy, limit=limit, only_relevant=only_relevant
        )
        hits = await search.run(tables, believed, now, unless)
        self._keep_house_soon()
        return hits

    async def browse(
        self, tables: Sequence[TableName], *, limit: int, selection: Selection, at: datetime | None = None
    ) -> list[MemoryHit]:
        """The newest and most used memories, best first, as they were believed at that time."""
        now = at or self.clock()
        believed = selection._replace(current_at=None if at else now, believed_at=at)
        found = await asyncio.gather(*(self.namespace_data.table(name).select(believed) for name in tables))
        records = newest_of_each_key([record for records in found for record in records if not is_trivial(record)])
        return unasked(records, now=now, policy=self.policy, limit=limit)

    def reinforce(self, hits: Iterable[MemoryHit]) -> None:
        """Count these memories as used. Written a moment after the turn, by one writer, in one batch."""
        self._used.update(hit.record.id for hit in hits)
        self._keep_house_soon()

    async def _write_usage(self) -> None:
        if self._used:
            await self._as_a_whole(self._count_uses)

    async def _count_uses(self) -> None:
        used, self._used, now = self._used, Counter(), self.clock()
        try:
            for name in TABLES:
                records = await self.namespace_data.table(name).get(list(used))
                touched = [replace(record, uses=record.uses + used[record.id], last_used_at=now) for record in records]
                await self.namespace_data.table(name).touch(touched)
                await self.namespace_data.note(name, touched)
                for record in touched:
                    del used[record.id]
        except BaseException:
            self._used.update(used)
            raise

    # Looking up

    async def find(self, ids: Sequence[str], tables: Sequence[TableName]) -> list[MemoryRecord]:
        """The records with these ids, current or not."""
        return await self.namespace_data.find(ids, tables)

    async def ids_beginning(self, prefix: str, tables: Sequence[TableName]) -> list[str]:
        """The ids that begin so, of records that are current or not."""
        known = await asyncio.gather(*(self.namespace_data.table(name).ids() for name in tables))
        return [id for ids in known for id in ids if id.startswith(prefix)]

    async def select(
        self, selection: Selection, tables: Sequence[TableName], *, history: bool = False
    ) -> list[MemoryRecord]:
        """The records the selection means, newest first; those no longer current only when history is asked for."""
        if not history:
            selection = selection._replace(current_at=self.clock())
        found = await asyncio.gather(*(self.namespace_data.table(name).select(selection) for name in tables))
        records = [record for records in found for record in records]
        return sorted(records if history else newest_of_each_key(records), key=_time_of, reverse=True)

    async def history(self, id_or_key: str, tables: Sequence[TableName]) -> list[MemoryRecord]:
        """A memory and all that it replaced or was replaced by, newest first."""
        start = await self.find([id_or_key], tables)
        key = start[0].key if start else id_or_key
        if key is not None:
            return await self.select(Selection(key=key), tables, history=True)
        chain = {record.id: record for record in start}
        unexplored = list(start)
        while unexplored:
            record = unexplored.pop()
            linked = await self.select(Selection(superseded_by=record.id), tables, history=True)
            if record.superseded_by is not None:
                linked += await self.find([record.superseded_by], tables)
            unexplored += [other for other in linked if other.id not in chain]
            chain |= {other.id: other for other in linked}
        return sorted(chain.values(), key=_time_of, reverse=True)

    async def sessions(self) -> list[SessionInfo]:
        """All conversations of the namespace, the one that was added to last first."""
        messages: defaultdict[str, list[MemoryRecord]] = defaultdict(list)
        for record in await self.namespace_data.messages(None, self.clock()):
            if record.session is not None:
                messages[record.session].append(record)
        saved = set(await self.values.names("state"))
        latest_first = sorted(messages, key=lambda name: messages[name][-1].created_at, reverse=True)
        silent = sorted(saved.difference(messages))
        return [_info(name, messages.get(name, []), saved) for name in (*latest_first, *silent)]

    @property
    def values(self) -> Values:
        """The named values of the namespace."""
        return self.namespace_data.values

    # Forgetting

    async def forget(
        self,
        selection: Selection,
        tables: Sequence[TableName],
        *,
        id: str | None = None,
        history: bool = False,
        dry_run: bool = False,
        beforehand: Callable[[list[MemoryRecord]], Awaitable[None]] | None = None,
    ) -> Removed:
        """Delete for good what the selection means, or what of it has this id.

        What is heard and not stored yet is forgotten as well.

        Args:
            selection: What is meant.
            tables: Where to look for it.
            id: Only the memory with this id.
            history: Also what is no longer current, and the messages that told it.
            dry_run: Only find it.
            beforehand: Called with the records before they are deleted. Agents do not wait for it.
        """

        async def forget() -> Removed:
            doomed = await self._doomed(selection, tables, id, history)
            messages = sum(record.kind == "interaction" for record in doomed)
            return Removed(len(doomed) if dry_run else await self._remove(doomed), messages)

        if not dry_run:
            for hearer in self.hearers:
                await hearer.catch_up()
        await self._finish_chores()  # what is still to come must not come back
        if beforehand is not None:
            await beforehand(await self._doomed(selection, tables, id, history))
        removed = await self._as_a_whole(forget)
        if not dry_run:
            for hearer in self.hearers:
                await hearer.look_again()
        return removed

    async def _doomed(
        self, selection: Selection, tables: Sequence[TableName], id: str | None, history: bool
    ) -> list[MemoryRecord]:
        """The records that are to be forgotten, each once."""
        if id is None:
            doomed = await self.select(selection, tables, history=history)
        else:
            doomed = await self.find([id], tables)
            if doomed and history:
                doomed = await self.history(id, tables)
            doomed = [record for record in doomed if selection.matches(record)]
        if history:
            doomed += await self._told(doomed, tables)
        return list({record.id: record for record in doomed}.values())

    async def _told(self, facts: Sequence[MemoryRecord], tables: Sequence[TableName]) -> list[MemoryRecord]:
        """The messages that told these facts."""
        ids = {fact.id for fact in facts}
        named = {id for fact in facts for id in listed(fact, MESSAGES)}
        messages = await self.select(Selection(kinds=("interaction",)), tables, history=True) if ids else []
        return [record for record in messages if record.id in named or not ids.isdisjoint(listed(record, FACTS))]

    async def sweep(self) -> int:
        """Delete what has expired, and the oldest messages where there are too many; how many."""
        now = self._swept_at = self.clock()

        async def sweep() -> int:
            doomed = await self.select(Selection(expired_at=now), TABLES, history=True)
            return await self._remove([*doomed, *await self._too_many()])

        return await self._as_a_whole(sweep)

    async def _too_many(self) -> list[MemoryRecord]:
        most = self.policy.max_interactions
        if most is None or await self.namespace_data.table("session").size() <= most:
            return []
        newest_first = await self.select(Selection(kinds=("interaction",)), ["session"])
        return [record for record in newest_first if not record.pinned][most:]

    async def clear_session(self, session: str) -> int:
        """Delete a conversation for good: its messages, and all that is kept about it; how many messages."""
        gone, _ = await self.forget(Selection(session=session), ["session"], history=True)
        for space in _OF_SESSIONS:
            await self.values.remove(space, session)
        return gone

    async def clear_profile(self) -> None:
        """Delete the profile for good: its records and values."""

        async def clear() -> None:
            await self.values.check()
            await self.namespace_data.table("profile").clear()
            await self.values.empty("value")
            await self.namespace_data.start_over()

        await self._finish_chores()
        await self._as_a_whole(clear)

    async def clear(self) -> None:
        """Delete the whole namespace for good."""

        async def clear() -> None:
            everything: list[RecordTable | Values] = [
                *(self.namespace_data.table(name) for name in TABLES),
                self.values,
            ]
            for part in everything:
                await part.check()
            for part in everything:
                await part.clear()
            await self.namespace_data.start_over()

        await self._finish_chores()
        await self._as_a_whole(clear)

    async def _remove(self, records: Sequence[MemoryRecord]) -> int:
        ids = [record.id for record in records]
        for session in {record.session for record in records if record.kind == "interaction" and record.session}:
            await self.values.remove("summary", session)  # it may tell what is to be forgotten
        removed = sum([await self.namespace_data.table(name).remove(ids) for name in TABLES])
        cache = await self.namespace_data.cache()
        await in_thread(lambda: cache.remove(ids))
        return removed

    # Maintaining

    async def reembed(self, progress: Progress) -> int:
        """Make the vectors of the whole namespace anew with this engine's embedding; how many."""
        return await self._rebuild("Embedding anew", progress)

    async def compact(self, progress: Progress) -> int:
        """Copy what the namespace holds, with its vectors, so that those of deleted records are gone; how many."""
        return await self._rebuild("Compacting", progress, keep=True)

    async def _rebuild(self, title: str, progress: Progress, *, keep: bool = False) -> int:
        async with self.namespace_data.lock():
            total = sum([await self.namespace_data.table(name).size() for name in TABLES])
            async with progress_of(total, title, progress) as done:
                for name in TABLES:
                    await self.namespace_data.table(name).rebuild(self._vectors, done, keep=keep)
            await self.namespace_data.start_over()
        return total

    async def verify(self, table: TableName, ids: Sequence[str]) -> bool:
        """Return whether a sample of these records has the vectors that this engine's embedding makes of them."""
        return await self.namespace_data.table(table).verify(ids, self._vectors)

    async def reindex(self, table: TableName, ids: Sequence[str]) -> None:
        """Make vectors anew for records that have none."""
        async with self.namespace_data.lock():
            await self.namespace_data.table(table).reindex(ids, self._vectors)
            await self.namespace_data.start_over()

    def _keep_house_soon(self) -> None:
        """Write counters and sweep a moment after the turn, when agents wait for their models."""
        if self._used or self._is_time_to_sweep():
            self._debounce.ask()

    def _keep_house(self) -> None:
        if self._namespace_data is not None:
            task = asyncio.get_running_loop().create_task(self._housekeeping())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _housekeeping(self) -> None:
        """Work that nobody waits for: what goes wrong must not be lost in silence, nor reach the agent."""
        try:
            with automatic():
                for chore in self.chores:
                    await chore.begin()
                await self._write_usage()
                if self._is_time_to_sweep():
                    await self.sweep()
        except PersistentMemoryError as error:
            self.log_trouble("Memory could not do its housekeeping, and will try again: %s", error)
        except Exception:
            logger.exception("Memory failed in its housekeeping; please report this.")

    def _is_time_to_sweep(self) -> bool:
        return self._swept_at is None or self.clock() - self._swept_at >= self.policy.sweep_interval


_awake = LeastRecentlyUsed(_MOST_AWAKE)
_OF_SESSIONS: tuple[Space, ...] = ("state", "mark", "summary")


def _info(name: str, messages: Sequence[MemoryRecord], saved: Container[str]) -> SessionInfo:
    return SessionInfo(
        name=name,
        started_at=messages[0].created_at if messages else None,
        ended_at=messages[-1].created_at if messages else None,
        speakers=tuple(dict.fromkeys(record.source for record in messages if record.source)),
        messages=len(messages),
        resumable=name in saved,
    )


def _time_of(record: MemoryRecord) -> tuple[datetime, int]:
    return record.updated_at, record.sequence or 0
