"""Open, close and maintain one namespace of one store: counters, sweeps, rebuilds, and the housekeeping after a turn."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from ..core.errors import PersistentMemoryError
from ..core.policy import RecallPolicy
from ..core.records import Clock, MemoryHit, MemoryRecord, Selection
from ..runtime.background_task import CLOSING_SECONDS, Debounce, in_background, within
from ..runtime.lru import LeastRecentlyUsed
from ..runtime.reporting import Progress, notices, progress_of
from ..runtime.threads import in_thread
from ..storage.availability import CircuitBreaker, automatic
from ..storage.connection import StoreConnection, Values, rebuild, reindex, size_of, verify
from ..storage.protocol import TABLES, MemoryStore, TableName
from ..text.embeddings import Embedding, embedded
from .conflicts import newest_first
from .namespace import NamespaceData

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_MOST_AWAKE = 100
"""How many namespaces a process keeps in RAM; the others are read again when they are used again."""


class NamespaceUpkeep:
    """A namespace that opens its store on first use, and again after `close()`, and cleans up in the background."""

    def __init__(
        self, namespace: str, store: MemoryStore, embedding: Embedding, policy: RecallPolicy, clock: Clock
    ) -> None:
        self.namespace = namespace
        self.store = store
        self.embedding = embedding
        self.policy = policy
        self.clock = clock
        self.prepared = False
        self._vectors = partial(embedded, embedding=embedding)
        self.before_housekeeping: Callable[[], Awaitable[None]] | None = None
        """Awaited in the background before the counters are written, a moment after a turn."""
        self._data: NamespaceData | None = None
        self._used: Counter[str] = Counter()
        self._debounce = Debounce(self._keep_house)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._swept_at: datetime | None = None
        self._is_open = False

    @property
    def data(self) -> NamespaceData:
        """What the namespace holds, on a connection that opens when it is first used."""
        if self._data is None:
            connection = StoreConnection(self.store)
            self._data = NamespaceData(self.namespace, connection, self.embedding.id, self._vectors)
        data = self._data
        _awake.touch(self)
        return data

    @property
    def values(self) -> Values:
        """The named values of the namespace."""
        return self.data.connection.values(self.namespace)

    @property
    def is_in_use(self) -> bool:
        """Whether the namespace was used since the engine was made, closed or evicted."""
        return self._data is not None

    @property
    def whose(self) -> tuple[str, str]:
        """The store and the namespace, as the key of `notices`."""
        return self.store.config.model_dump_json(), self.namespace

    @property
    def breaker(self) -> CircuitBreaker:
        return self.data.connection.breaker

    def log_trouble(self, message: str, reason: object) -> None:
        """Log a failure that no caller sees: as a warning, or for debugging while the store is known to be unreachable."""
        was_told = self.breaker.is_unstable
        logger.log(logging.DEBUG if was_told else logging.WARNING, f"%r: {message}", self.namespace, reason)

    # Opening and closing

    async def open(self) -> None:
        """Open the store and load the embedding now, unless that was done; see `EngineMemory.open`."""
        if self._is_open:
            return
        is_mine, data = not self.is_in_use, self.data
        try:
            with automatic():
                outcomes = await asyncio.gather(
                    self._in_time(self.policy.opening_deadline, self.embedding.load(), "its embedding did not load"),
                    self._open_store(data),
                )
        except BaseException:
            if is_mine and self._data is data:
                await self.close()
            raise
        self._is_open = all(outcomes)

    async def _open_store(self, data: NamespaceData) -> bool:
        await data.connection.prepare()
        if data.connection.exclusive:
            await data.check()
            return True
        self._keep_house_soon()  # which delivers the messages that are queued for the server
        return await self._in_time(self.policy.deadline, data.check(), "its server did not answer")

    async def _in_time(self, seconds: float, work: Coroutine[Any, Any, None], timeout: str) -> bool:
        """Do a part of opening; log a timeout or a failure that may pass, and return whether the part is done."""
        breaker = self.breaker
        try:
            await within(seconds, work)
        except asyncio.TimeoutError:
            breaker.gave_up(seconds)
            reason = f"{timeout} within {seconds:g} s"
        except PersistentMemoryError as error:
            if error.needs_developer:
                raise
            reason = str(error)
        else:
            return True
        is_news = not breaker.is_open and notices.is_new(self.whose, reason)
        message = "The memory of %r cannot be used yet, and agents continue without it: %s"
        logger.log(logging.WARNING if is_news else logging.DEBUG, message, self.namespace, reason)
        return False

    async def prepare(self) -> None:
        """Do the slow local part of opening: load the model, and open the store if it is on this machine."""
        await asyncio.gather(self.embedding.load(), self.data.prepare())
        self.prepared = True
        if self.data.outbox is not None:
            self._keep_house_soon()  # so that queued messages are still delivered when recall fails

    async def flush(self) -> None:
        """Write what is pending, delete what has expired, and wait for all of it."""
        if not self.is_in_use:
            return
        await self._write_usage()
        await self.sweep()
        self._debounce.cancel()
        await self.data.settle()
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(task for task in self._tasks if task.get_loop() is loop), return_exceptions=True)

    async def before_closing(self, work: Coroutine[Any, Any, None], failure: str) -> None:
        """Do a part of the work of closing within `CLOSING_SECONDS`; log with `failure` why it could not be done."""
        try:
            with automatic():
                await within(CLOSING_SECONDS, work)
        except (PersistentMemoryError, asyncio.TimeoutError) as error:
            self.log_trouble(failure, str(error) or "it took too long")

    async def close(self) -> None:
        """Close the connection to the store. What `flush()` did not write is written when the engine is used again."""
        data = self._data
        self._evict()
        if data is not None:
            await data.connection.close()

    def evict(self) -> bool:
        """Evict the namespace from RAM until it is used again, unless something is still to be written.

        Nothing is closed: work under way continues, and shares locks and numbers with the next use.
        """
        if self._used or self._tasks or self._debounce.is_pending:
            return False
        self._evict()
        return True

    def _evict(self) -> None:
        self._data = None
        self.prepared = self._is_open = False

    # Changing

    async def _change(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a change under the namespace's lock. Once begun it runs to its end, even if the caller is cancelled."""
        begun = False

        async def begin() -> T:
            nonlocal begun
            begun = True
            return await change()

        task = self._track(self.data.under_lock(begin))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not begun:
                task.cancel()
            raise

    def _track(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = in_background(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _remove(self, records: Sequence[MemoryRecord]) -> int:
        ids = [record.id for record in records]
        for session in {record.session for record in records if record.kind == "interaction" and record.session}:
            await self.values.remove("summary", session)  # it may tell what is to be forgotten
        removed = sum([await self.data.table(name).remove(ids) for name in TABLES])
        cache = await self.data.cache()
        await in_thread(lambda: cache.remove(ids))
        return removed

    # Housekeeping

    def reinforce(self, hits: Iterable[MemoryHit]) -> None:
        """Count these memories as used. Written a moment after the turn, by one writer, in one batch."""
        self._used.update(hit.record.id for hit in hits)
        self._keep_house_soon()

    def _keep_house_soon(self) -> None:
        """Write counters and sweep a moment after the turn, when agents wait for their models."""
        if self._used or self._is_time_to_sweep():
            self._debounce.ask()

    def _keep_house(self) -> None:
        if self.is_in_use:
            self._track(self._housekeeping())

    async def _housekeeping(self) -> None:
        """Do what no caller waits for. Failures are logged, and never reach the agent."""
        try:
            with automatic():
                if self.before_housekeeping is not None:
                    await self.before_housekeeping()
                await self._write_usage()
                if self._is_time_to_sweep():
                    await self.sweep()
        except PersistentMemoryError as error:
            self.log_trouble("Memory could not do its housekeeping, and will try again: %s", error)
        except Exception:
            logger.exception("The housekeeping of %r failed; please report this.", self.namespace)

    async def _write_usage(self) -> None:
        if self._used:
            await self._change(self._count_uses)

    async def _count_uses(self) -> None:
        used, self._used, now = self._used, Counter(), self.clock()
        try:
            for name in TABLES:
                records = await self.data.table(name).get(list(used))
                touched = [replace(record, uses=record.uses + used[record.id], last_used_at=now) for record in records]
                await self.data.table(name).amend(touched, usage_only=True)
                await self.data.update_cache(name, touched)
                for record in touched:
                    del used[record.id]
        except BaseException:
            self._used.update(used)
            raise

    def _is_time_to_sweep(self) -> bool:
        return self._swept_at is None or self.clock() - self._swept_at >= self.policy.sweep_interval

    async def sweep(self) -> int:
        """Delete expired memories, and the oldest messages beyond `policy.max_interactions`; return how many."""
        now = self._swept_at = self.clock()

        async def sweep() -> int:
            expired = await self.data.select(Selection(expired_at=now), TABLES)
            return await self._remove([*expired, *await self._too_many(now)])

        return await self._change(sweep)

    async def _too_many(self, now: datetime) -> list[MemoryRecord]:
        most = self.policy.max_interactions
        if most is None or await size_of(self.data.table("session")) <= most:
            return []
        messages = await self.data.select(Selection(kinds=("interaction",), current_at=now), ["session"])
        return [record for record in newest_first(messages) if not record.pinned][most:]

    # Rebuilding

    async def rebuild(self, progress: Progress, *, keep: bool) -> int:
        """Make all vectors of the namespace again; with `keep` copy them, without those of deleted records. Return how many."""
        async with self.data.lock():
            total = sum([await size_of(self.data.table(name)) for name in TABLES])
            async with progress_of(total, "Compacting" if keep else "Embedding again", progress) as done:
                for name in TABLES:
                    await rebuild(self.data.table(name), self._vectors, done, keep=keep)
            await self.data.drop_cache()
        return total

    async def verify(self, table: TableName, ids: Sequence[str]) -> bool:
        """Return whether a sample of these records has the vectors that this engine's embedding makes of them."""
        return await verify(self.data.table(table), ids, self._vectors)

    async def reindex(self, table: TableName, ids: Sequence[str]) -> None:
        """Make vectors for records that have none."""
        async with self.data.lock():
            await reindex(self.data.table(table), ids, self._vectors)
            await self.data.drop_cache()


_awake = LeastRecentlyUsed(_MOST_AWAKE)
