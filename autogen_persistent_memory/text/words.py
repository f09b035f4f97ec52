"""The words by which a text is found and compared: terms, names, times, and what it states. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
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
    """
    what which who whose when where why how does did is are were the of and with have their about would could should
    """.split()  # noqa: SIM905
)
"""Words that hardly occur in questions in other languages."""
_LONGEST_STEMMED = 64
"""Letters. Longer strings are not words of a language, and the time for stemming grows with the square of the length."""
_MOST_STEMMED = 20_000
"""Different words of a text. A megabyte of prose has fewer; data has more, which would take seconds."""
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
    """Return the words of a text that can tell memories apart, as the keyword index stores them.

    English words are stemmed, and function and question words dropped. Very long words and words with other letters stay as
    they are. Chinese, Japanese and Korean, which have no spaces between words, are split into pairs of characters.
    """
    return list(each_term(text))


def each_term(text: str) -> Iterator[str]:
    """Yield the terms one by one; see `terms`."""
    stems: dict[str, str] = {}
    for word in _words(text, _normal):
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
    """Return the words that begin with a capital: names, and the first words of sentences."""
    return {word for word in _words(text) if word[0].isupper() and len(word) > 1}


def names_within(text: str) -> set[str]:
    """Return the words with a capital that do not begin a sentence, and so are names."""
    return {found[0] for found in matches(_NAME_WITHIN, text)}


def mentions_time(text: str) -> bool:
    """Return whether the text holds an English word for a day, a month or a time, or a year."""
    return any(word in _TIMES or (len(word) == 4 and _YEAR.fullmatch(word)) for word in _words(text, str.casefold))


def has_terms(text: str) -> bool:
    """Return whether `terms` returns anything."""
    return any(not word.isascii() or word not in STOP_WORDS for word in _words(text, str.casefold))


def content_words(text: str) -> set[str]:
    """Return the terms of a text without fillers, and "not" if it negates: a text that says as much has all of them."""
    said = {term for term in terms(text) if term not in _FILLERS}
    return said | {"not"} if _NEGATION.search(text) else said


def is_name(word: str) -> bool:
    """Return whether a word is a name: it has a capital, and is not a function word such as "Will" or "A"."""
    return word[:1].isupper() and len(word) > 1 and word.casefold() not in STOP_WORDS


def is_english(text: str) -> bool:
    """Return whether a question seems to be English."""
    return any(word in _ENGLISH for word in _words(text, str.casefold))


def _words(text: str, change: Callable[[str], str] = str) -> Iterator[str]:
    for piece in pieces(text):
        yield from _WORD.findall(change(piece))


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


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
    """Return an English word, in lower case, without its ending; very long words and those with other letters unchanged."""
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
    """Return the statement that a text makes: equal for texts that differ only in spacing, "the", a final stop and the like.

    Deliberately strict: texts that differ in a number, a name, a negation or any other word or sign are different
    statements, since a memory that is merged wrongly is lost.
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
    """Write the first word of a sentence in lower case, unless its capitals seem to be its own."""
    first = words[0] if words else ""
    return [first.lower(), *words[1:]] if first[:1].isupper() and first[1:] == first[1:].lower() else words


def _spelled_out(word: str) -> list[str]:
    """Return a word with "n't" as a separate "not"."""
    if word.endswith("n't"):
        return [_SHORTENED.get(word, word[:-3]), "not"]
    return [word]
