"""Ranking as pure functions: which memories get in, by their signals, and in what order, by their score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from heapq import heappush, heapreplace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.policy import RecallPolicy
from ..core.records import SIGNALS, MemoryHit, MemoryRecord

if TYPE_CHECKING:
    from .vector_index import Floats

ROW_OF = {signal.name: row for row, signal in enumerate(SIGNALS)}
"""The row of each signal in `Candidates.signals`."""
_DAY = 86_400
_MIDPOINT_DAYS = 30
_WIDTH_DAYS = 10
_USES_WORTH_HALF = 5
_LINEAR = 0.8
_COMPARABLE = 0.05
"""Memories whose similarity differs by less than this are comparably relevant: recency and frequency may decide."""

_Life = tuple[float, float]
"""The recency and the frequency of a memory."""


class Candidates(NamedTuple):
    """The memories that a search found, with their signals."""

    records: Sequence[MemoryRecord]
    signals: Floats
    """A row for each of `SIGNALS`, a column for each record; each value is from 0 to about 1."""

    def among(self, records: Iterable[MemoryRecord]) -> Candidates:
        """Return the candidates that are among these records."""
        ids = {record.id for record in records}
        return self.revised([record if record.id in ids else None for record in self.records])

    def revised(self, records: Sequence[MemoryRecord | None]) -> Candidates:
        """Return the candidates with these records in their places, without those that are None."""
        kept = [index for index, record in enumerate(records) if record is not None]
        return Candidates([record for record in records if record is not None], self.signals[:, kept])


def recency(age: timedelta) -> float:
    """Return 1 for a fresh memory, one half after thirty days, 0 in the long run."""
    exponent = (age.total_seconds() / _DAY - _MIDPOINT_DAYS) / _WIDTH_DAYS
    return 1 / (1 + math.exp(min(exponent, 500)))


def frequency(uses: int) -> float:
    """Return 0 for a memory never used since it was stored, one half after five uses, towards 1 with more."""
    return uses / (uses + _USES_WORTH_HALF)


def rank(
    candidates: Candidates,
    *,
    now: datetime,
    policy: RecallPolicy,
    limit: int,
    only_relevant: bool = False,
    skip: Callable[[MemoryRecord], bool] | None = None,
) -> list[MemoryHit]:
    """Return the best of the candidates, best first.

    Relevance decides what gets in: recency and frequency only decide between those that are comparably similar. The score
    then orders them. With `only_relevant` only those that are relevant enough to be injected. Memories that `skip` accepts
    are left out; it is called for hardly any that would not get in.
    """
    import numpy as np

    records = candidates.records
    weights = [signal.sign * (1.0 if signal.weight is None else getattr(policy, signal.weight)) for signal in SIGNALS]
    weighed = candidates.signals * np.array(weights)[:, None]
    similarities = _bounded(weighed.sum(axis=0))
    of_each = [record.kind for record in records]
    kinds = {kind: number for number, kind in enumerate(set(of_each))}
    kind_of = np.array([kinds[kind] for kind in of_each], dtype=np.intp)
    worth = similarities + np.array([policy.kind_bonus.get(kind, 0.0) for kind in kinds])[kind_of]
    best_first = np.argsort(-worth, kind="stable")
    if only_relevant:
        least = np.array([policy.least_similarity(kind) for kind in kinds])[kind_of]
        best_first = best_first[(similarities >= least)[best_first]]
    admitted: list[tuple[float, int, int, _Life]] = []  # a heap by relevance; of equals the first
    for place, (index, value) in enumerate(zip(best_first.tolist(), worth[best_first].tolist(), strict=True)):
        is_full = len(admitted) == limit
        if is_full and value + _COMPARABLE <= admitted[0][0]:
            break
        life = _life(records[index], now)
        relevance = value + _COMPARABLE * sum(life) / 2
        if (is_full and relevance <= admitted[0][0]) or (skip is not None and skip(records[index])):
            continue
        (heapreplace if is_full else heappush)(admitted, (relevance, -place, index, life))
    chosen = [index for *_, index, _ in admitted]
    signals = dict(zip(chosen, weighed[:, chosen].T.tolist(), strict=True))
    return in_order(
        _hit(records[index], float(similarities[index]), signals[index], life, policy)
        for *_, index, life in sorted(admitted, reverse=True)
    )


def unasked(records: Iterable[MemoryRecord], *, now: datetime, policy: RecallPolicy, limit: int) -> list[MemoryHit]:
    """Return the newest and most used of the records, best first: the answer to a blank query."""
    nothing = (0.0,) * len(SIGNALS)
    return in_order(_hit(record, 0.0, nothing, _life(record, now), policy) for record in records)[:limit]


def in_order(hits: Iterable[MemoryHit]) -> list[MemoryHit]:
    """Return the hits by score, best first; of equally good ones the newer first."""
    return sorted(hits, key=lambda hit: (hit.score + hit.kind_bonus, hit.record.created_at), reverse=True)


def _hit(
    record: MemoryRecord, similarity: float, signals: Sequence[float], life: _Life, policy: RecallPolicy
) -> MemoryHit:
    how_recent, how_frequent = life
    score = (
        policy.similarity_weight * similarity
        + policy.recency_weight * how_recent
        + policy.frequency_weight * how_frequent
    )
    explained: dict[str, Any] = dict(zip(ROW_OF, signals, strict=True))
    return MemoryHit(
        record=record,
        score=min(1.0, score),
        similarity=similarity,
        recency=how_recent,
        frequency=how_frequent,
        kind_bonus=policy.kind_bonus.get(record.kind, 0.0),
        **explained,
    )


def _life(record: MemoryRecord, now: datetime) -> _Life:
    last_touch = max(record.created_at, record.updated_at, record.last_used_at or record.created_at)
    return recency(now - last_touch), frequency(record.uses)


def _bounded(relevance: Floats) -> Floats:
    """Return relevance as a share: unchanged up to 0.8, and towards 1 beyond, which keeps the order."""
    import numpy as np

    beyond = np.maximum(relevance - _LINEAR, 0)
    share: Floats = np.maximum(relevance - beyond, 0) + (1 - _LINEAR) * -np.expm1(-beyond / (1 - _LINEAR))
    return share


def relevance(hit: MemoryHit) -> float:
    """Return what a hit is admitted by: its similarity, and between comparable ones its age, use and kind."""
    return hit.similarity + hit.kind_bonus + _COMPARABLE * (hit.recency + hit.frequency) / 2
