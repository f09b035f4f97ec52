"""Which hits say something that the ones before them do not. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ._ranking import relevance
from ._records import MemoryHit
from ._words import terms

_LIKENESS_COSTS = 0.2
"""What a hit loses if it has all its words in common with one chosen before: as much as what is clearly less relevant."""
_FILLERS = frozenset(
    terms("user really actually definitely absolutely totally quite lot please thanks hey hello ok yes oh")
)
_NEGATION = re.compile(r"\b(?:no|not|nor|none|nobody|nothing|cannot|without)\b|n['’]t\b", re.IGNORECASE)
_LONG = 2_000


def varied(hits: Iterable[MemoryHit]) -> list[MemoryHit]:
    """The hits, the most relevant first, without repetitions.

    One that is much like another comes after those that are nearly as relevant and say something else. It repeats the
    other if it is the same words in the same order, but for fillers, from the same speaker.
    """
    left = [_Saying.of(hit) for hit in hits]
    worth = [relevance(saying.hit) for saying in left]
    likeness = [0.0] * len(left)
    chosen: list[MemoryHit] = []
    while left:
        at = max(range(len(left)), key=lambda at: worth[at] - _LIKENESS_COSTS * likeness[at])
        best = left[at]
        chosen.append(best.hit)
        kept = [other for other in range(len(left)) if other != at and not left[other].repeats(best)]
        likeness = [max(likeness[other], left[other].likeness(best)) for other in kept]
        left, worth = [left[other] for other in kept], [worth[other] for other in kept]
    return chosen


@dataclass(frozen=True, slots=True)
class _Saying:
    """A hit, and the words that matter in it."""

    hit: MemoryHit
    words: tuple[str, ...]
    vocabulary: frozenset[str]
    negated: bool

    @classmethod
    def of(cls, hit: MemoryHit) -> _Saying:
        text = hit.record.content[:_LONG]
        words = tuple(word for word in terms(text) if word not in _FILLERS)
        return cls(hit, words, frozenset(words), _NEGATION.search(text) is not None)

    def repeats(self, other: _Saying) -> bool:
        speakers = {self.hit.record.source, other.hit.record.source} - {None}
        is_short = len(self.hit.record.content) <= _LONG
        return (
            is_short
            and bool(self.words)
            and self.words == other.words
            and self.negated == other.negated
            and len(speakers) < 2
        )

    def likeness(self, other: _Saying) -> float:
        """The share of their words that both have."""
        return len(self.vocabulary & other.vocabulary) / max(1, len(self.vocabulary | other.vocabulary))
