"""One search: candidates by meaning and by words, weighed, checked where others write, and ranked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from ..core.policy import RecallPolicy
from ..core.records import MemoryHit, MemoryRecord, Query, Selection, with_own_metadata
from ..runtime.locks import LockTakenError, Meanwhile, one_at_a_time
from ..runtime.threads import in_thread, in_thread_if_long
from ..storage.protocol import TableName
from ..text.embeddings import Embedding, Vector
from ..text.sentences import could_answer
from ..text.speech_acts import is_trivial
from .cache import Asked, Found, RecordCache, read_soon
from .conflicts import newest_of_each_key
from .namespace import PATIENCE, NamespaceData
from .ranking import Candidates, rank

_BY_WORDS = 50
_LOOKS = 3
_HEAD_START = 0.002
_FEW = 20_000
"""Of so many memories the words are searched in a millisecond or two, and not worth handing over to a thread."""
_SHORT = 1_000
"""Likewise the words of a query of this length."""
_LONGEST = 8_000
"""Characters of a query that count; an embedding reads far fewer."""


class Search:
    """A question put to the memories of a namespace."""

    def __init__(
        self,
        query: Query,
        namespace_data: NamespaceData,
        embedding: Embedding,
        policy: RecallPolicy,
        *,
        limit: int,
        only_relevant: bool,
    ) -> None:
        self._query = query.text[:_LONGEST]
        self._lead = None if query.lead is None else query.lead[:_LONGEST]
        self._namespace_data = namespace_data
        self._embedding = embedding
        self._policy = policy
        self._limit = limit
        self._only_relevant = only_relevant

    async def run(
        self,
        tables: Sequence[TableName],
        believed: Selection,
        now: datetime,
        unless: Callable[[MemoryRecord], bool] | None = None,
    ) -> list[MemoryHit]:
        """The best of the records that are believed, best first, without those that `unless` accepts."""
        is_exclusive = self._namespace_data.connection.exclusive
        cache = await self._namespace_data.catalogue_in_step(patience=PATIENCE if self._only_relevant else None)
        tables = [name for name in tables if cache.saw(name) or not (is_exclusive and cache.is_built)]
        candidates, filled = await self._candidates(cache, tables, believed)

        is_now = believed.believed_at is None

        def is_passed_over(record: MemoryRecord) -> bool:
            if is_trivial(record) or (unless is not None and unless(record)):
                return True
            part = cache.holding_part(record) if is_now else record.content
            return part is not record.content and not could_answer(part)

        async def choose(candidates: Candidates) -> list[MemoryHit]:
            ranking = partial(
                rank,
                candidates,
                now=now,
                policy=self._policy,
                limit=self._limit,
                only_relevant=self._only_relevant,
                unless=is_passed_over,
            )
            return await in_thread_if_long(sum(len(record.content) for record in candidates.records), ranking)

        if is_exclusive:
            hits = await choose(candidates)
        else:
            hits = await self._up_to_date(cache, candidates, filled, believed, choose)
        return [_as_it_holds(hit, cache) if is_now else _own(hit) for hit in hits]

    async def _candidates(
        self, cache: RecordCache, tables: Sequence[TableName], believed: Selection
    ) -> tuple[Candidates, list[TableName]]:
        """What the tables hold that is near in meaning or has the words, of each key the newest, and which hold anything."""
        ask = partial(
            cache.ask,
            self._query,
            self._lead,
            tables,
            believed,
            fetch=self._fetch,
            by_words=_BY_WORDS,
            session_weight=self._policy.session_weight / max(self._policy.keyword_weight, 0.01),
        )
        while True:  # until nothing that is needed was replaced meanwhile
            said = await read_soon(partial(cache.as_said, self._query))
            embedding = self._embedding.embed_query(said)
            if len(cache) <= _FEW and len(self._query) <= _SHORT:
                vector, asked = await self._while_embedding(embedding, ask)
            else:
                vector, asked = await asyncio.gather(embedding, in_thread(ask))
            elsewhere = await self._elsewhere(cache, tables, vector, believed)
            await one_at_a_time()
            candidates = await read_soon(partial(cache.candidates, asked, vector, self._embedding.id, elsewhere))
            if candidates is not None:
                newest = newest_of_each_key(candidates.records)
                if len(newest) < len(candidates.records):
                    candidates = candidates.among(newest)
                filled = {name for name, (_, records) in elsewhere.items() if records}
                return candidates, [name for name in tables if name in filled or asked.by_words[name]]

    async def _while_embedding(self, embedding: Awaitable[Vector], ask: Callable[..., Asked]) -> tuple[Vector, Asked]:
        """Search for words on the event loop while a local model is at work without the interpreter's lock."""
        by_words = Meanwhile(partial(ask, wait=False), _HEAD_START)
        try:
            vector = await embedding
        finally:
            by_words.call_off()
        try:
            return vector, await by_words.result()
        except LockTakenError:
            return vector, await in_thread(ask)

    async def _elsewhere(
        self, cache: RecordCache, tables: Sequence[TableName], vector: Vector, believed: Selection
    ) -> dict[TableName, Found]:
        """What is near the vector on the tables whose vectors are not all in RAM."""
        is_past = believed.current_at is None
        there = [name for name in tables if is_past or not cache.can_search(name, self._embedding.id, len(vector))]
        look = partial(
            self._namespace_data.nearest, vectors=[vector], believed=believed, fetch=self._fetch, enough=self._limit
        )
        found = await asyncio.gather(*(look(name) for name in there)) if there else []
        return {name: nearest for name, (nearest,) in zip(there, found, strict=True)}

    @property
    def _fetch(self) -> int:
        return max(self._limit, self._policy.candidates)

    async def _up_to_date(
        self,
        cache: RecordCache,
        candidates: Candidates,
        tables: Sequence[TableName],
        believed: Selection,
        choose: Callable[[Candidates], Awaitable[list[MemoryHit]]],
    ) -> list[MemoryHit]:
        """The best of the candidates, without what another process superseded or deleted."""
        for look in range(_LOOKS):
            hits = await choose(candidates)
            looked_at = {hit.record.id: hit.record for hit in hits}
            if look == _LOOKS - 1:  # much was changed, so all are looked at
                looked_at = {record.id: record for record in candidates.records}
            fresh = {record.id: record for record in await self._namespace_data.find(list(looked_at), tables)}
            changed = {id: fresh.get(id) for id, record in looked_at.items() if fresh.get(id) != record}
            if not changed:
                return hits
            await in_thread(partial(cache.correct, changed))
            current = [changed.get(record.id, record) for record in candidates.records]
            candidates = candidates.revised(
                [record if record is not None and believed.matches(record) else None for record in current]
            )
        return await choose(candidates)


def _as_it_holds(hit: MemoryHit, cache: RecordCache) -> MemoryHit:
    part = cache.holding_part(hit.record)
    return _own(hit) if part is hit.record.content else replace(_own(hit), excerpt=part)


def _own(hit: MemoryHit) -> MemoryHit:
    return replace(hit, record=with_own_metadata(hit.record)) if hit.record.metadata else hit
