"""Ranking as pure functions: what a memory's age and use are worth, which memories get in, and in what order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from ._config import RecallPolicy
from ._records import MemoryHit, MemoryRecord

_MIDPOINT_DAYS = 30
_WIDTH_DAYS = 10
_USES_WORTH_HALF = 5
_COMPARABLE = 0.05
"""Memories whose similarity differs by less are comparably relevant: recency and frequency may decide between them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that a search brought up, and how similar it is to what was asked."""

    record: MemoryRecord
    similarity: float


def recency(age: timedelta) -> float:
    """1 for a fresh memory, one half after thirty days, 0 in the long run."""
    exponent = (age / timedelta(days=1) - _MIDPOINT_DAYS) / _WIDTH_DAYS
    return 1 / (1 + math.exp(min(exponent, 500)))


def frequency(uses: int) -> float:
    """0 for a memory never used since it was stored, one half after five uses, towards 1 with more."""
    return uses / (uses + _USES_WORTH_HALF)


def rank(
    candidates: Iterable[Candidate], *, now: datetime, policy: RecallPolicy, limit: int, min_similarity: float = 0.0
) -> list[MemoryHit]:
    """The best candidates, best first.

    Relevance decides what gets in: the most similar ones, where recency and frequency only tip the balance between
    those that are comparably similar. Confidence then orders them.
    """
    hits = [_score(candidate, now, policy) for candidate in candidates]
    relevant = [hit for hit in hits if hit.similarity >= min_similarity]
    admitted = sorted(relevant, key=_relevance, reverse=True)[:limit]
    return sorted(admitted, key=lambda hit: (hit.score + hit.kind_bonus, hit.record.created_at), reverse=True)


def _score(candidate: Candidate, now: datetime, policy: RecallPolicy) -> MemoryHit:
    record = candidate.record
    similarity = min(1.0, max(0.0, candidate.similarity))
    last_touch = max(time for time in (record.created_at, record.updated_at, record.last_used_at) if time)
    how_recent = recency(now - last_touch)
    how_frequent = frequency(record.uses)
    score = (
        policy.similarity_weight * similarity
        + policy.recency_weight * how_recent
        + policy.frequency_weight * how_frequent
    )
    return MemoryHit(
        record=record,
        score=min(1.0, score),
        similarity=similarity,
        recency=how_recent,
        frequency=how_frequent,
        kind_bonus=policy.kind_bonus.get(record.kind, 0.0),
    )


def _relevance(hit: MemoryHit) -> float:
    return hit.similarity + _COMPARABLE * (hit.recency + hit.frequency) / 2 + hit.kind_bonus
