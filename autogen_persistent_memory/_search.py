"""One search: candidates by meaning and by words, weighed, checked where others write, and ranked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from ._catalogue import Catalogue
from ._config import RecallPolicy
from ._embeddings import Embedding, Vector
from ._holdings import PATIENCE, Holdings
from ._lexical import KeywordMatches
from ._ranking import PARTS, Candidates, rank
from ._records import MemoryHit, MemoryRecord, Query, Selection, with_own_metadata
from ._resolution import newest_of_each_key
from ._store import Near, ShelfName
from ._threads import in_thread
from ._turnstile import one_at_a_time

_BY_WORDS = 50
_LOOKS = 3
_HEAD_START = 0.002
_FEW = 20_000
"""Of so many memories the words are searched in a millisecond or two, and not worth handing over to a thread."""
_LONGEST = 8_000
"""Characters of a query that count; an embedding reads far fewer."""


class Search:
    """A question put to the memories of a namespace."""

    def __init__(
        self,
        query: Query,
        holdings: Holdings,
        embedding: Embedding,
        policy: RecallPolicy,
        *,
        limit: int,
        only_relevant: bool,
    ) -> None:
        self._query = query.text[:_LONGEST]
        self._lead = None if query.lead is None else query.lead[:_LONGEST]
        self._holdings = holdings
        self._embedding = embedding
        self._policy = policy
        self._limit = limit
        self._only_relevant = only_relevant

    async def run(
        self,
        shelves: Sequence[ShelfName],
        believed: Selection,
        now: datetime,
        unless: Callable[[MemoryRecord], bool] | None = None,
    ) -> list[MemoryHit]:
        """The best of the records that are believed, best first, without those that `unless` accepts."""
        is_exclusive = self._holdings.connection.exclusive
        catalogue = await self._holdings.catalogue_in_step(patience=PATIENCE if self._only_relevant else None)
        shelves = [name for name in shelves if catalogue.saw(name) or not (is_exclusive and catalogue.is_built)]
        embedding = asyncio.ensure_future(self._embedding.embed_query(catalogue.as_said(self._query)))
        # By then a local model is at work without the interpreter's lock, which searching for words needs.
        await asyncio.wait({embedding}, timeout=_HEAD_START)
        if len(catalogue) <= _FEW:
            await one_at_a_time()
            matches, by_words = self._search_words(catalogue, shelves)
        else:
            matches, by_words = await in_thread(lambda: self._search_words(catalogue, shelves))
        vector = await embedding
        await one_at_a_time()
        found = await asyncio.gather(
            *(self._candidates(catalogue, name, vector, by_words[name], believed) for name in shelves)
        )
        near = {id: similarity for ids, _ in found for id, similarity in ids.items()}
        records = newest_of_each_key(record for _, records in found for record in records)

        def is_passed_over(record: MemoryRecord) -> bool:
            return (unless is not None and unless(record)) or (self._only_relevant and catalogue.is_outdated(record))

        candidates = self._weigh(catalogue, records, near, matches)
        choose = partial(
            rank,
            now=now,
            policy=self._policy,
            limit=self._limit,
            only_relevant=self._only_relevant,
            unless=is_passed_over,
        )
        if is_exclusive:
            hits = choose(candidates)
        else:
            filled = [name for name, (_, records) in zip(shelves, found, strict=True) if records]
            hits = await self._up_to_date(catalogue, candidates, filled, believed, choose)
        return [replace(hit, record=with_own_metadata(hit.record)) if hit.record.metadata else hit for hit in hits]

    def _search_words(
        self, catalogue: Catalogue, shelves: Sequence[ShelfName]
    ) -> tuple[KeywordMatches, dict[ShelfName, list[str]]]:
        """How well memories hold the words of the query, and the ids of those on each shelf that do so best."""
        matches = catalogue.search(self._query)
        if self._lead is not None:
            matches = matches.or_better(catalogue.search(self._lead))
        session_weight = self._policy.session_weight / max(self._policy.keyword_weight, 0.01)
        return matches, {name: catalogue.best(matches, _BY_WORDS, name, session_weight) for name in shelves}

    async def _candidates(
        self, catalogue: Catalogue, shelf: ShelfName, vector: Vector, by_words: Sequence[str], believed: Selection
    ) -> tuple[Near, list[MemoryRecord]]:
        """What a shelf holds that is near the vector or has the words, and how near each is.

        A memory found by its words alone is at most as near as the farthest found by its vector, unless it says just what
        is asked for: an approximate index misses one in some thousands.
        """
        fetch = max(self._limit, self._policy.candidates)
        ((near, records),) = await self._holdings.nearest(shelf, [vector], believed, fetch=fetch, enough=self._limit)
        more = [record for id in by_words if id not in near and (record := catalogue.record(id)) is not None]
        more = [record for record in more if believed.matches(record)]
        farthest = min(near.values(), default=0.0)
        missed = {record.id: 1.0 if record.content == self._query else farthest for record in more}
        return near | missed, records + more

    def _weigh(
        self, catalogue: Catalogue, records: Sequence[MemoryRecord], near: Near, matches: KeywordMatches
    ) -> Candidates:
        """The records with everything that speaks for them."""
        import numpy as np

        ids = [record.id for record in records]
        cosines = np.array([near[id] for id in ids])
        named = catalogue.speakers_named(self._query)
        keywords, session, neighbours, particulars = catalogue.weigh(ids, cosines, matches)
        parts = {
            "cosine": np.maximum(cosines, 0),
            "keywords": keywords,
            "session": session,
            "neighbours": neighbours,
            "particulars": np.where([record.kind == "interaction" for record in records], particulars, 0),
            "speaker": [record.source in named for record in records] if named else np.zeros(len(records)),
            "question": [record.content.rstrip().endswith("?") for record in records],
        }
        return Candidates(records, np.array([parts[part] for part in PARTS], dtype=np.float64))

    async def _up_to_date(
        self,
        catalogue: Catalogue,
        candidates: Candidates,
        shelves: Sequence[ShelfName],
        believed: Selection,
        choose: Callable[[Candidates], list[MemoryHit]],
    ) -> list[MemoryHit]:
        """The best of the candidates, without what another process superseded or deleted."""
        for look in range(_LOOKS):
            hits = choose(candidates)
            looked_at = {hit.record.id: hit.record for hit in hits}
            if look == _LOOKS - 1:  # much was changed, so all are looked at
                looked_at = {record.id: record for record in candidates.records}
            fresh = {record.id: record for record in await self._holdings.find(list(looked_at), shelves)}
            changed = {id: fresh.get(id) for id, record in looked_at.items() if fresh.get(id) != record}
            if not changed:
                return hits
            await in_thread(partial(catalogue.correct, changed))
            current = [changed.get(record.id, record) for record in candidates.records]
            candidates = candidates.revised(
                [record if record is not None and believed.matches(record) else None for record in current]
            )
        return choose(candidates)
