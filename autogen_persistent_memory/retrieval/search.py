"""One search: find candidates by meaning and by words, check them where other processes write, and rank them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from ..core.policy import RecallPolicy
from ..core.records import MemoryHit, MemoryRecord, Query, Selection, with_own_metadata
from ..runtime.locks import IdleWork, LockTakenError, one_at_a_time
from ..runtime.threads import in_thread, in_thread_if_long
from ..storage.protocol import TableName
from ..text.embeddings import Embedding, Vector
from ..text.sentences import could_answer, is_trivial
from .cache import Asked, Found, RecordCache
from .conflicts import newest_of_each_key
from .namespace import PATIENCE, NamespaceData
from .ranking import Candidates, rank

_BY_WORDS = 50
_LOOKS = 3
_HEAD_START = 0.002
_FEW = 20_000
"""Up to this many memories, searching their words takes a millisecond or two: not worth handing over to a thread."""
_SHORT = 1_000
"""The same for the characters of a query."""
_LONGEST = 8_000
"""Characters of a query that count; an embedding reads far fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A question put to the memories of a namespace; see `Engine.recall`."""

    query: Query
    data: NamespaceData
    embedding: Embedding
    policy: RecallPolicy
    tables: Sequence[TableName]
    believed: Selection
    """Which memories may answer."""
    now: datetime
    limit: int
    only_relevant: bool
    skip: Callable[[MemoryRecord], bool] | None

    async def run(self) -> list[MemoryHit]:
        """Return the memories that answer best, best first."""
        is_exclusive = self.data.connection.exclusive
        cache = await (self.data.synced_cache(patience=PATIENCE) if self.only_relevant else self.data.synced_cache())
        tables = [name for name in self.tables if cache.rows_in[name] or not (is_exclusive and cache.is_built)]
        candidates, filled = await self._candidates(cache, tables)
        if is_exclusive:
            hits = await self._ranked(cache, candidates)
        else:
            hits = await self._checked(cache, candidates, filled)
        return [self._valid(hit, cache) for hit in hits]

    async def _candidates(self, cache: RecordCache, tables: Sequence[TableName]) -> tuple[Candidates, list[TableName]]:
        """Return what is near in meaning or has the words, the newest of each key, and which tables have any of it."""
        query = self.query.text[:_LONGEST]
        ask = partial(
            cache.ask,
            query,
            None if self.query.lead is None else self.query.lead[:_LONGEST],
            tables,
            self.believed,
            fetch=self._fetch,
            by_words=_BY_WORDS,
            session_weight=self.policy.session_weight / max(self.policy.keyword_weight, 0.01),
        )
        while True:  # until nothing that is needed was replaced meanwhile
            said = await cache.read(partial(cache.as_said, query))
            embedding = self.embedding.embed_query(said)
            if len(cache) <= _FEW and len(query) <= _SHORT:
                vector, asked = await _while_embedding(embedding, partial(cache.read_now, ask))
            else:
                vector, asked = await asyncio.gather(embedding, in_thread(partial(cache.read_now, ask)))
            from_store = await self._from_store(cache, tables, vector)
            await one_at_a_time()
            candidates = await cache.read(partial(cache.candidates, asked, vector, self.embedding.id, from_store))
            if candidates is not None:
                newest = newest_of_each_key(candidates.records)
                if len(newest) < len(candidates.records):
                    candidates = candidates.among(newest)
                return candidates, [name for name in tables if from_store.get(name) or asked.by_words[name]]

    async def _from_store(
        self, cache: RecordCache, tables: Sequence[TableName], vector: Vector
    ) -> dict[TableName, Found]:
        """Return what is near the vector in the tables whose vectors are not all in RAM."""
        is_past = self.believed.current_at is None
        there = [name for name in tables if is_past or not cache.can_search(name, self.embedding.id, len(vector))]
        look = partial(
            self.data.nearest, vectors=[vector], believed=self.believed, fetch=self._fetch, enough=self.limit
        )
        found = await asyncio.gather(*(look(name) for name in there)) if there else []
        return {name: nearest for name, (nearest,) in zip(there, found, strict=True)}

    @property
    def _fetch(self) -> int:
        return max(self.limit, self.policy.candidates)

    async def _ranked(self, cache: RecordCache, candidates: Candidates) -> list[MemoryHit]:
        def skip(record: MemoryRecord) -> bool:
            if is_trivial(record) or (self.skip is not None and self.skip(record)):
                return True
            part = self._valid_part(cache, record)
            return part is not record.content and not could_answer(part)

        ranking = partial(
            rank,
            candidates,
            now=self.now,
            policy=self.policy,
            limit=self.limit,
            only_relevant=self.only_relevant,
            skip=skip,
        )
        return await in_thread_if_long(sum(len(record.content) for record in candidates.records), ranking)

    async def _checked(
        self, cache: RecordCache, candidates: Candidates, tables: Sequence[TableName]
    ) -> list[MemoryHit]:
        """Rank the candidates, without what another process superseded or deleted."""
        for look in range(_LOOKS):
            hits = await self._ranked(cache, candidates)
            looked_at = {hit.record.id: hit.record for hit in hits}
            if look == _LOOKS - 1:  # much was changed, so all are looked at
                looked_at = {record.id: record for record in candidates.records}
            fresh = {record.id: record for record in await self.data.find(list(looked_at), tables)}
            changed = {id: fresh.get(id) for id, record in looked_at.items() if fresh.get(id) != record}
            if not changed:
                return hits
            await in_thread(partial(cache.correct, changed))
            current = [changed.get(record.id, record) for record in candidates.records]
            candidates = candidates.revised(
                [record if record is not None and self.believed.matches(record) else None for record in current]
            )
        return await self._ranked(cache, candidates)

    def _valid_part(self, cache: RecordCache, record: MemoryRecord) -> str:
        return cache.valid_part(record) if self.believed.believed_at is None else record.content

    def _valid(self, hit: MemoryHit, cache: RecordCache) -> MemoryHit:
        """Return a hit with metadata of its own, and of a message only what still holds."""
        part = self._valid_part(cache, hit.record)
        if hit.record.metadata:
            hit = replace(hit, record=with_own_metadata(hit.record))
        return hit if part is hit.record.content else replace(hit, excerpt=part)


async def _while_embedding(embedding: Awaitable[Vector], ask: Callable[..., Asked]) -> tuple[Vector, Asked]:
    """Search for words on the event loop while a local model computes without the interpreter's lock."""
    by_words = IdleWork(partial(ask, wait=False), _HEAD_START)
    try:
        vector = await embedding
    finally:
        by_words.cancel()
    try:
        return vector, await by_words.result()
    except LockTakenError:
        return vector, await in_thread(ask)
