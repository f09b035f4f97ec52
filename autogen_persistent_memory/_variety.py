"""Which hits say something that the ones before them do not. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

from ._ranking import relevance
from ._records import FACTS, MemoryHit, listed
from ._statements import statement
from ._words import terms

_LIKENESS_COSTS = 0.2
"""What a hit loses if it has all its words in common with one chosen before: as much as what is clearly less relevant."""
_LONG = 2_000
_COMPARED = 60
_FILLERS = frozenset(("really", "actually", "definitely", "absolutely", "totally", "quite", "also"))
_SAME_PERSON = {"the": "", "i": "", "user": "", "my": "", "user's": "", "am": "is", "have": "has"}


def varied(hits: Iterable[MemoryHit], wanted: int) -> list[MemoryHit]:
    """The hits, the most relevant first, without repetitions.

    Among twice as many as are wanted, one that is much like another comes after those that are nearly as relevant and say
    something else. It repeats the other if it is the same statement, but for who is called what and for fillers, from the
    same speaker.
    """
    left = _distinct(sorted(hits, key=relevance, reverse=True))
    worth = [relevance(hit) for hit in left]
    vocabularies = [_vocabulary(hit.record.content[:_LONG]) for hit in left[:_COMPARED]]
    likeness = [0.0] * len(vocabularies)
    chosen: list[MemoryHit] = []
    remaining = list(range(len(vocabularies)))
    while remaining and len(chosen) < 2 * wanted:
        best = max(remaining, key=lambda at: worth[at] - _LIKENESS_COSTS * likeness[at])
        remaining.remove(best)
        chosen.append(left[best])
        for other in remaining:
            likeness[other] = max(likeness[other], _likeness(vocabularies[other], vocabularies[best]))
    return chosen + [left[at] for at in remaining] + left[_COMPARED:]


def _distinct(hits: Iterable[MemoryHit]) -> list[MemoryHit]:
    """The hits without those that state what one before them does, and without messages whose facts are among them."""
    hits = list(hits)
    ids = {hit.record.id for hit in hits}
    hits = [hit for hit in hits if ids.isdisjoint(listed(hit.record, FACTS))]
    kept: list[MemoryHit] = []
    speakers: defaultdict[tuple[str, ...], set[str | None]] = defaultdict(set)
    for hit in hits:
        content, source = hit.record.content, hit.record.source
        said = _said(content) if len(content) <= _LONG else ()
        if not said or not (speakers[said] and (source is None or None in speakers[said] or source in speakers[said])):
            kept.append(hit)
        speakers[said].add(source)
    return kept


@lru_cache(maxsize=2048)
def _vocabulary(text: str) -> frozenset[str]:
    return frozenset(terms(text))


@lru_cache(maxsize=2048)
def _said(content: str) -> tuple[str, ...]:
    """What a text states of the user or of who speaks, in whichever person."""
    words = [_SAME_PERSON.get(word.lower(), word) for word in statement(content)]
    words = [word for word in words if word and word.lower() not in _FILLERS]
    if words and words[0].endswith("s") and words[0].islower():
        words[0] = words[0][:-1]  # "loves", as "love"
    return tuple(words)


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of their words that both have."""
    common = len(one & other)
    return common / max(1, len(one) + len(other) - common)
