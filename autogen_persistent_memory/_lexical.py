"""What can be told from the words of a text alone. Pure functions."""

from __future__ import annotations

import unicodedata

_APOSTROPHES = str.maketrans("\u2019\u2018\u02bc", "'''")
_ARTICLES = frozenset({"a", "an", "the"})
_SHORT_NOT = {"can't": "can not", "won't": "will not", "shan't": "shall not"}
_FINAL = ".!。！"
_LONG = 10_000


def statement(text: str) -> tuple[str, ...]:
    """What a text states: equal for texts that differ only in spacing, articles, a final stop and the like.

    Deliberately strict: texts that differ in a number, a name, a negation or any other word or sign are two
    statements, since a memory merged wrongly is a memory lost.
    """
    if len(text) > _LONG:
        return (text,)
    words = unicodedata.normalize("NFC", text).translate(_APOSTROPHES).split()
    if words and words[-1].rstrip(_FINAL)[-1:].isalnum():
        words[-1] = words[-1].rstrip(_FINAL)
    words = [word for spelled in words for word in _plain(spelled).split()]
    if words and words[0].istitle():
        words[0] = words[0].lower()
    stated = [
        word for word, following in zip(words, [*words[1:], ""]) if not (word in _ARTICLES and following.isalpha())
    ]
    if stated and stated[0].istitle():  # "The User ..." and "User ..."
        stated[0] = stated[0].lower()
    return tuple(stated)


def _plain(word: str) -> str:
    """A word without the comma or semicolon behind it, and with its "not" spelled out."""
    if word[-1] in ",;" and word[:-1].isalpha():
        word = word[:-1]
    if word.endswith("n't"):
        return _SHORT_NOT.get(word, f"{word[:-3]} not")
    return word
