"""Ranking as pure functions: what a memory's age and use are worth, which memories get in, and in what order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from heapq import nlargest
from operator import itemgetter
from typing import NamedTuple

from ._config import RecallPolicy
from ._records import MemoryHit, MemoryRecord

_DAY = 86_400
_MIDPOINT_DAYS = 30
_WIDTH_DAYS = 10
_USES_WORTH_HALF = 5
_LINEAR = 0.8
_COMPARABLE = 0.05
"""Memories whose similarity differs by less are comparably relevant: recency and frequency may decide between them."""


class Candidate(NamedTuple):
    """A memory that a search brought up, and what speaks for it, each from 0 to about 1."""

    record: MemoryRecord
    cosine: float
    keywords: float = 0.0
    session: float = 0.0
    neighbours: float = 0.0
    particulars: int = 0
    is_by_named_speaker: bool = False
    asks: bool = False


def recency(age: timedelta) -> float:
    """1 for a fresh memory, one half after thirty days, 0 in the long run."""
    exponent = (age.total_seconds() / _DAY - _MIDPOINT_DAYS) / _WIDTH_DAYS
    return 1 / (1 + math.exp(min(exponent, 500)))


def frequency(uses: int) -> float:
    """0 for a memory never used since it was stored, one half after five uses, towards 1 with more."""
    return uses / (uses + _USES_WORTH_HALF)


def similarities(candidates: Iterable[Candidate], policy: RecallPolicy) -> list[float]:
    """How relevant each is: all that speaks for it in one figure from 0 to 1, which means the same for every question."""
    by_keywords, by_session, by_neighbours = policy.keyword_weight, policy.session_weight, policy.neighbour_weight
    by_particulars, by_speaker, by_asking = policy.particulars_weight, policy.speaker_weight, policy.question_weight
    return [
        _bounded(
            max(0.0, cosine)
            + by_keywords * keywords
            + by_session * session
            + by_neighbours * neighbours
            + by_particulars * particulars
            + by_speaker * is_by_named_speaker
            - by_asking * asks
        )
        for _, cosine, keywords, session, neighbours, particulars, is_by_named_speaker, asks in candidates
    ]


def contenders(
    candidates: Sequence[Candidate],
    *,
    policy: RecallPolicy,
    limit: int,
    only_relevant: bool = False,
    unless: Callable[[MemoryRecord], bool] | None = None,
) -> list[tuple[float, Candidate]]:
    """Those that can be among the best, whatever their age and use, each with its similarity.

    If asked, only those relevant enough to be injected. Those that `unless` accepts are passed over; only those that would
    get in otherwise are asked about.
    """
    weighed = zip(similarities(candidates, policy), candidates, strict=True)
    worth = [
        (similarity + _bonus(candidate.record, policy), similarity, candidate) for similarity, candidate in weighed
    ]
    least = -math.inf
    chosen: list[tuple[float, Candidate]] = []
    for value, similarity, candidate in sorted(worth, key=itemgetter(0), reverse=True):
        if value < least:
            break
        if only_relevant and similarity < policy.least_similarity(candidate.record.kind):
            continue
        if unless is not None and unless(candidate.record):
            continue
        chosen.append((similarity, candidate))
        if len(chosen) == limit:
            least = value - _COMPARABLE
    return chosen


def rank(
    chosen: Iterable[tuple[float, Candidate]], *, now: datetime, policy: RecallPolicy, limit: int
) -> list[MemoryHit]:
    """The best of the contenders, best first.

    Relevance decides what gets in: the most similar ones, where recency and frequency only tip the balance between
    those that are comparably similar. Confidence then orders them.
    """
    weighed = [
        (_relevance(similarity, *_life(candidate.record, now), _bonus(candidate.record, policy)), similarity, candidate)
        for similarity, candidate in chosen
    ]
    admitted = nlargest(limit, weighed, key=itemgetter(0))
    return in_order(_score(similarity, candidate, now, policy) for _, similarity, candidate in admitted)


def in_order(hits: Iterable[MemoryHit]) -> list[MemoryHit]:
    """The hits by confidence, best first; of equally good ones the newer first."""
    return sorted(hits, key=lambda hit: (hit.score + hit.kind_bonus, hit.record.created_at), reverse=True)


def _score(similarity: float, candidate: Candidate, now: datetime, policy: RecallPolicy) -> MemoryHit:
    record = candidate.record
    how_recent, how_frequent = _life(record, now)
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
        cosine=max(0.0, candidate.cosine),
        keywords=policy.keyword_weight * candidate.keywords,
        session=policy.session_weight * candidate.session,
        neighbours=policy.neighbour_weight * candidate.neighbours,
        particulars=policy.particulars_weight * candidate.particulars,
        speaker=policy.speaker_weight * candidate.is_by_named_speaker,
        question=-policy.question_weight * candidate.asks,
        kind_bonus=_bonus(record, policy),
    )


def _life(record: MemoryRecord, now: datetime) -> tuple[float, float]:
    """How recently and how frequently a memory was needed."""
    last_touch = max(record.created_at, record.updated_at, record.last_used_at or record.created_at)
    return recency(now - last_touch), frequency(record.uses)


def _bonus(record: MemoryRecord, policy: RecallPolicy) -> float:
    return policy.kind_bonus.get(record.kind, 0.0)


def _bounded(relevance: float) -> float:
    """Relevance as a share: as it is up to 0.8, and towards 1 beyond, so that the better of two stays the better."""
    if relevance <= _LINEAR:
        return max(0.0, relevance)
    return 1 - (1 - _LINEAR) * math.exp((_LINEAR - relevance) / (1 - _LINEAR))


def relevance(hit: MemoryHit) -> float:
    """By what a hit is admitted: its similarity, and to decide between comparable ones its age, use and kind."""
    return _relevance(hit.similarity, hit.recency, hit.frequency, hit.kind_bonus)


def _relevance(similarity: float, how_recent: float, how_frequent: float, bonus: float) -> float:
    return similarity + _COMPARABLE * (how_recent + how_frequent) / 2 + bonus
