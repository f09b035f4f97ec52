"""Drop and defer hits that repeat the ones before them. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from ..core.records import MemoryHit, told_facts
from ..text.sentences import is_covered
from ..text.words import statement, terms
from .conflicts import may_be_same
from .ranking import relevance

_LIKENESS_COSTS = 0.2
"""What a hit loses if it has all its words in common with one chosen before: then a clearly less relevant one is preferred."""
_LONG = 2_000
_COMPARED = 60
_FILLERS = frozenset(("really", "actually", "definitely", "absolutely", "totally", "quite", "also"))
_SAME_PERSON = {"the": "", "i": "", "user": "", "my": "", "user's": "", "am": "is", "have": "has"}


def varied(hits: Iterable[MemoryHit], wanted: int) -> list[MemoryHit]:
    """Return the hits, the most relevant first, without repetitions.

    Among the first 2 * `wanted`, a hit that is much like another comes after those that are nearly as relevant and say
    something else. A repetition is the same statement by the same speaker, apart from grammatical person and fillers.
    """
    left = _distinct(sorted(hits, key=relevance, reverse=True))
    worth = [relevance(hit) for hit in left]
    vocabularies = [_vocabulary(hit.content[:_LONG]) for hit in left[:_COMPARED]]
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


def told_once(hits: Sequence[MemoryHit]) -> list[MemoryHit]:
    """Return the hits without messages that facts among them cover, and without facts that a remaining message tells.

    A message that stays takes the place of the best of its facts.
    """
    place = {hit.record.id: number for number, hit in enumerate(hits)}
    gone: set[str] = set()
    for hit in hits:
        facts = [id for id in told_facts(hit.record) if id in place]
        if not facts:
            continue
        if is_covered(hit.content, [hits[place[id]].content for id in facts]):
            gone.add(hit.record.id)
        else:
            told = [id for id in facts if _still_tells(hit, id)]
            gone.update(told)
            place[hit.record.id] = min(place[id] for id in (hit.record.id, *told))
    return sorted((hit for hit in hits if hit.record.id not in gone), key=lambda hit: place[hit.record.id])


def _still_tells(message: MemoryHit, fact: str) -> bool:
    if message.excerpt is None:
        return True
    start, end = told_facts(message.record)[fact] or (0, 0)
    return message.record.content[start:end] in message.excerpt


def first_told_once(hits: Sequence[MemoryHit], wanted: int) -> Sequence[MemoryHit]:
    """Return as many of the first hits as it takes for `told_once` to leave the wanted number."""
    size = fitting = min(wanted, len(hits))
    while True:
        left = len(told_once(hits[:size]))
        fitting = size if left <= wanted else fitting
        if left >= wanted or size == len(hits):
            return hits[:fitting]
        size = min(size + wanted - left, len(hits))


def _distinct(hits: Iterable[MemoryHit]) -> list[MemoryHit]:
    """Return the hits without those that state what an earlier one does; a fact takes the place of such a message."""
    kept: list[MemoryHit] = []
    stating: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for hit in hits:
        said = in_any_person(hit.content) if len(hit.content) <= _LONG else ()
        same = next(
            (at for at in stating[said] if said and may_be_same(kept[at].record.source, hit.record.source)), None
        )
        if same is None:
            stating[said].append(len(kept))
            kept.append(hit)
        elif kept[same].record.kind == "interaction" and hit.record.kind != "interaction":
            kept[same] = hit
    return kept


@lru_cache(maxsize=2048)
def _vocabulary(text: str) -> frozenset[str]:
    return frozenset(terms(text))


@lru_cache(maxsize=2048)
def in_any_person(content: str) -> tuple[str, ...]:
    """Return what a text states of the user, the same in the first and the third person."""
    words = [_SAME_PERSON.get(word.lower(), word) for word in statement(content)]
    words = [word for word in words if word and word.lower() not in _FILLERS]
    if words and words[0].endswith("s") and words[0].islower():
        words[0] = words[0][:-1]  # "loves", as "love"
    return tuple(words)


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of their words that both have."""
    common = len(one & other)
    return common / max(1, len(one) + len(other) - common)
