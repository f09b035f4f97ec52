"""Made-up memories and questions, always the same ones, and a cheap embedding for large numbers of them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np

DIMENSIONS = 384
VOCABULARY = 4000
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
PEOPLE = ["Ann", "Bob", "Carla", "Dmitri", "Elif", "Farid", "Grace", "Hiro", "Ines", "Jonas", "Kofi", "Lena"]
MONTHS = ["January", "March", "April", "June", "July", "September", "October", "December"]
MESSAGES = [
    "I was at the {0} with my {1} yesterday, and the {2} was really {3}.",
    "Last week {name} and I tried the {0} {1} that you told us about.",
    "We want to {0} the {1} before the {2} starts in {month}, so that nobody has to {3}.",
    "Oh, that sounds {0}! My {1} would love such a {2}.",
    "After the {0} I will {1} again; last time it took until {month}.",
    "{name} says the {0} is {1}, but I think a {2} {3} is what we need.",
]
FACTS = [
    "Prefers {0} over {1} for every {2}",
    "{name} works on the {0} {1} in {place}",
    "Decided to {0} the {1} because the {2} was too {3}",
    "Never {0} a {1} on the {2}: it broke the {3} in {month}",
    "The {0} of the {1} is {2} {3}",
    "Is learning to {0} the {1} since {month}",
]
QUESTIONS = [
    "What did {name} say about the {0} {1}?",
    "When will we {0} the {1}?",
    "Which {0} is better for a {1} {2}?",
    "Who works on the {0} {1}?",
]


class Writer:
    """Fills templates with words of which few are frequent and most are rare; the same seed writes the same texts."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        coined = Random(0)
        words = {"".join(coined.choices(SYLLABLES, k=coined.randint(2, 4))): None for _ in range(2 * VOCABULARY)}
        self._words = list(words)[:VOCABULARY]
        self._odds = np.cumsum(1 / np.arange(1, VOCABULARY + 1)).tolist()

    def fill(self, templates: Sequence[str]) -> str:
        words = self._random.choices(self._words, cum_weights=self._odds, k=4)
        return self._random.choice(templates).format(
            *words,
            name=self._random.choice(PEOPLE),
            month=self._random.choice(MONTHS),
            place=self._random.choice(self._words[:300]).capitalize(),
        )

    def texts(self, templates: Sequence[str], count: int) -> list[str]:
        return [self.fill(templates) for _ in range(count)]


@cache
def word_vector(word: str) -> Any:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSIONS, dtype=np.float32)


def word_vectors(texts: Sequence[str]) -> Any:
    """The mean of the vectors of a text's longer words, each word's drawn by its checksum."""
    words = [[word for word in text.lower().split() if len(word) > 3] or [text] for text in texts]
    starts = np.cumsum([0, *(len(of_text) for of_text in words[:-1])])
    sums = np.add.reduceat(np.array([word_vector(word) for of_text in words for word in of_text]), starts)
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)
