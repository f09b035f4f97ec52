"""When two texts say the same. A pure function."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

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
