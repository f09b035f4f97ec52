"""The words of a text that matter for finding it: terms, names, times. Pure functions."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

from ._patterns import lazy

_WORD = lazy(r"\w+")
_NAME_WITHIN = lazy(r"(?<=[a-z0-9,;:] )[A-Z]\w+")
_YEAR = lazy(r"(?:19|20)\d\d")
_TIMES = frozenset(
    """
    yesterday today tonight tomorrow ago last next weekend since recently just monday tuesday wednesday thursday
    friday saturday sunday january february march april june july august september october november december
    """.split()  # noqa: SIM905
)
_ENGLISH = frozenset(
    [
        "what",
        "which",
        "who",
        "whose",
        "when",
        "where",
        "why",
        "how",
        "does",
        "did",
        "is",
        "are",
        "were",
        "the",
        "of",
        "and",
        "with",
        "have",
        "their",
        "about",
        "would",
        "could",
        "should",
    ]
)
_CJK = lazy(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any are aren as at be because been before being below
    between both but by can could couldn d did didn do does doesn doing don down during each few for from further
    get go going got had hadn has hasn have haven having he her here hers herself him himself his how i if in into
    is isn it its itself just kind let like ll m many may me might more most much must my myself no nor not now o
    of off on once only or other our ours ourselves out over own re s same she should so some sort such t than
    that the their theirs them themselves then there these they this those through to too type under until up ve
    very was wasn we were weren what when where which while who whom whose why will with won would wouldn you your
    yours yourself yourselves
    """.split()  # noqa: SIM905
)


def terms(text: str) -> list[str]:
    """The words of a text that can tell memories apart, as the index knows them.

    English words are stemmed, and function and question words dropped. Words with other letters stay as they are;
    Chinese, Japanese and Korean, which put no spaces between words, are taken apart into pairs of characters.
    """
    found: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if word.isascii():
            if word not in STOP_WORDS:
                found.append(_stem(word))
        elif _CJK.search(word):
            found += _pairs(word)
        else:
            found.append(word)
    return found


def capitalised(text: str) -> set[str]:
    """The words that begin with a capital: names, and the beginnings of sentences."""
    return {word for word in _WORD.findall(text) if word[0].isupper() and len(word) > 1}


def names_within(text: str) -> set[str]:
    """The words with a capital that do not begin a sentence, which are names then."""
    return set(_NAME_WITHIN.findall(text))


def says_when(text: str) -> bool:
    """Whether the text holds an English word for a day, a month or a time, or a year."""
    return any(word in _TIMES or (len(word) == 4 and _YEAR.fullmatch(word)) for word in _WORD.findall(text.casefold()))


def has_terms(text: str) -> bool:
    """Whether `terms` finds anything."""
    return any(not word.isascii() or word not in STOP_WORDS for word in _WORD.findall(text.casefold()))


def is_name(word: str) -> bool:
    """Whether it can only be a name: with a capital, and no function word such as "Will" or "A"."""
    return word[:1].isupper() and len(word) > 1 and word.casefold() not in STOP_WORDS


def is_english(text: str) -> bool:
    """Whether a question seems to be English: it holds a word that questions in other languages hardly hold."""
    return any(word in _ENGLISH for word in _WORD.findall(text.casefold()))


def _pairs(word: str) -> list[str]:
    parts: list[str] = []
    position = 0
    for run in _CJK.finditer(word):
        if run.start() > position:
            parts.append(word[position : run.start()])
        characters = run.group()
        parts += [characters[at : at + 2] for at in range(len(characters) - 1)] or [characters]
        position = run.end()
    if position < len(word):
        parts.append(word[position:])
    return parts


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    return str(_stemmer().stemWord(word))


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")
