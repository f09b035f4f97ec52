"""The gist of a conversation, in sentences that were said in it. Pure functions, no model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..core.records import FACTS, MemoryRecord, listed
from ..text.passages import could_answer
from ..text.sentences import sentences
from ..text.words import names_within, says_when, terms

_SHORTEST = 4
"""Terms that a sentence needs to say anything."""
_OF_USER = 1.5
_WITH_FACTS = 2.0
_MOST_READ = 2_000
_MOST_CHARACTERS = 300_000
"""So much is read of a conversation, in equal shares of its messages: an agent waits for it."""


class Sentence(NamedTuple):
    """Something that was said."""

    source: str
    text: str


def gist(messages: Sequence[MemoryRecord], most: int) -> list[Sentence]:
    """The sentences that tell most of what a conversation was about, in their order.

    After SumBasic (Nenkova and Vanderwende, 2005): a sentence is worth the mean frequency of its terms; those of a sentence
    that is chosen count for less afterwards, so that each one adds something. What the user says counts more, and what
    facts were drawn from most.

    Args:
        messages: The conversation, in order. Of a very long one only the end is read, of very long messages their
            beginnings.
        most: How many sentences.
    """
    said: list[tuple[Sentence, list[str], float]] = []
    read = messages[-_MOST_READ:]
    for record in read:
        weight = _WITH_FACTS if listed(record, FACTS) else _OF_USER if record.origin == "user" else 1.0
        for text in _beginning(record.content, _MOST_CHARACTERS // len(read)):
            words = terms(text)
            if len(set(words)) >= _SHORTEST and could_answer(text) and not text.endswith("!"):
                worth = weight * (1 + bool(names_within(text)) + says_when(text))
                said.append((Sentence(record.source or "", text), words, worth))
    counts = Counter(word for _, words, _ in said for word in words)
    total = sum(counts.values())
    share = {word: count / total for word, count in counts.items()}
    left, chosen = list(range(len(said))), list[int]()
    while left and len(chosen) < most:
        best = max(left, key=lambda at: said[at][2] * sum(share[word] for word in said[at][1]) / len(said[at][1]))
        left.remove(best)
        chosen.append(best)
        for word in said[best][1]:
            share[word] **= 2
    return [said[at][0] for at in sorted(chosen)]


def _beginning(text: str, longest: int) -> list[str]:
    """The first sentences of a text; of one that is too long, only whole ones."""
    return sentences(text) if len(text) <= longest else sentences(text[:longest])[:-1]
