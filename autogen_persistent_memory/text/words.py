"""The words of a text that matter for finding it: terms, names, times. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ..core.lazy_regex import lazy
from .pieces import matches, pieces

_WORD = lazy(r"\w+")
_NAME_WITHIN = lazy(r"(?<=[a-z0-9,;:] )[A-Z]\w+")
_NEGATION = lazy(r"\b(?:not|no|never|none|nobody|nothing|neither|nor|cannot|without)\b|n['’]t\b", re.IGNORECASE)
_FILLERS = frozenset(("realli", "actual", "definit", "absolut", "total", "quit", "also", "basic", "by", "way"))
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
_LONGEST_STEMMED = 64
"""Letters. Longer ones are not words of a language, and stemming takes a time that grows with their square."""
_MOST_STEMMED = 20_000
"""Different words of a text. More has no megabyte of prose, but data has; they would take seconds."""
CJK = lazy(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
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

    English words are stemmed, and function and question words dropped. Very long words and those with other letters stay;
    Chinese, Japanese and Korean, which put no spaces between words, are taken apart into pairs of characters.
    """
    return list(each_term(text))


def each_term(text: str) -> Iterator[str]:
    """The same one after the other."""
    stems: dict[str, str] = {}
    for word in _normal(text):
        if word.isascii():
            if word not in STOP_WORDS:
                if word not in stems and len(stems) < _MOST_STEMMED:
                    stems[word] = stem(word)
                yield stems.get(word, word)
        elif CJK.search(word):
            yield from _pairs(word)
        else:
            yield word


def capitalised(text: str) -> set[str]:
    """The words that begin with a capital: names, and the beginnings of sentences."""
    return {word for word in _words(text) if word[0].isupper() and len(word) > 1}


def names_within(text: str) -> set[str]:
    """The words with a capital that do not begin a sentence, which are names then."""
    return {found[0] for found in matches(_NAME_WITHIN, text)}


def says_when(text: str) -> bool:
    """Whether the text holds an English word for a day, a month or a time, or a year."""
    return any(word in _TIMES or (len(word) == 4 and _YEAR.fullmatch(word)) for word in _folded(text))


def has_terms(text: str) -> bool:
    """Whether `terms` finds anything."""
    return any(not word.isascii() or word not in STOP_WORDS for word in _folded(text))


def content_words(text: str) -> set[str]:
    """Return the terms of a text that say something, and "not" where it denies: what another text needs to say as much."""
    said = {term for term in terms(text) if term not in _FILLERS}
    return said | {"not"} if _NEGATION.search(text) else said


def is_name(word: str) -> bool:
    """Whether it can only be a name: with a capital, and no function word such as "Will" or "A"."""
    return word[:1].isupper() and len(word) > 1 and word.casefold() not in STOP_WORDS


def is_english(text: str) -> bool:
    """Whether a question seems to be English: it holds a word that questions in other languages hardly hold."""
    return any(word in _ENGLISH for word in _folded(text))


def _words(text: str) -> Iterator[str]:
    for piece in pieces(text):
        yield from _WORD.findall(piece)


def _folded(text: str) -> Iterator[str]:
    for piece in pieces(text):
        yield from _WORD.findall(piece.casefold())


def _normal(text: str) -> Iterator[str]:
    for piece in pieces(text):
        yield from _WORD.findall(unicodedata.normalize("NFKC", piece).casefold())


def _pairs(word: str) -> list[str]:
    parts: list[str] = []
    position = 0
    for run in CJK.finditer(word):
        if run.start() > position:
            parts.append(word[position : run.start()])
        characters = run.group()
        parts += [characters[at : at + 2] for at in range(len(characters) - 1)] or [characters]
        position = run.end()
    if position < len(word):
        parts.append(word[position:])
    return parts


def stem(word: str) -> str:
    """Return an English word, in lower case, without its ending: "smoke" for "smoking".

    Words with other letters and very long ones are returned as they are.
    """
    return _stem(word) if word.isascii() and len(word) <= _LONGEST_STEMMED else word


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    return str(_stemmer().stemWord(word))


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")


_APOSTROPHES = str.maketrans("\u2019\u2018\u02bc", "'''")
_SHORTENED = {"can't": "can", "won't": "will", "shan't": "shall"}
_FINAL = ".!。！"
_LONG = 10_000


def statement(text: str) -> tuple[str, ...]:
    """What a text states: equal for texts that differ only in spacing, articles, a final stop and the like.

    Deliberately strict: texts that differ in a number, a name, a negation or any other word or sign are two
    statements, since a memory merged wrongly is a memory lost.
    """
    return _stated(text) if len(text) <= _LONG else (text,)


@lru_cache(maxsize=2048)
def _stated(text: str) -> tuple[str, ...]:
    words = unicodedata.normalize("NFC", text).translate(_APOSTROPHES).split()
    if words and words[-1].rstrip(_FINAL)[-1:].isalnum():
        words[-1] = words[-1].rstrip(_FINAL)
    words = _lower_first(words)
    words = [word for spelled in words for word in _spelled_out(spelled)]
    stated = [word for word, following in zip(words, [*words[1:], ""]) if word != "the" or not following.isalpha()]
    return tuple(_lower_first(stated))  # again, for "The User ..." and "User ..."


def _lower_first(words: list[str]) -> list[str]:
    """A sentence's first word without its capital, unless that seems to be its own."""
    first = words[0] if words else ""
    return [first.lower(), *words[1:]] if first[:1].isupper() and first[1:] == first[1:].lower() else words


def _spelled_out(word: str) -> list[str]:
    """A word with its "not" as a word of its own."""
    if word.endswith("n't"):
        return [_SHORTENED.get(word, word[:-3]), "not"]
    return [word]
