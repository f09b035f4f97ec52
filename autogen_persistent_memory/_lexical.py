"""What can be told from the words of a text alone. Pure functions."""

from __future__ import annotations

import re
import unicodedata

_APOSTROPHES = str.maketrans("\u2019\u2018\u02bc\u2032", "''''")
_ARTICLES = frozenset({"a", "an", "the"})
_NOT = re.compile(r"(?:\bcan|n)'t\b")
# A word keeps what can tell it from another: C++ and C#, 3.5 and 35, -5 and 5, co-op, I'm, @ann, /etc/hosts, 5%.
_WORD = re.compile(r"[-+@#$€£~/\\]*\w+(?:[-+.'@#:/\\_,&*^=<>]+\w+)*(?:[+#%°]+)?|\S")


def statement(text: str) -> tuple[str, ...]:
    """What a text states: equal for texts that differ only in case, articles, spacing and punctuation.

    Deliberately strict: texts that differ in a number, a name, a negation or any other word are two statements, since
    a memory merged wrongly is a memory lost.
    """
    plain = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES).casefold()
    expanded = _NOT.sub(lambda match: "can not" if match.group().startswith("can") else " not", plain)
    words = tuple(word for word in _WORD.findall(expanded) if word not in _ARTICLES and not _is_punctuation(word))
    asks = ("?",) if plain.rstrip().endswith("?") else ()
    return words + asks if words else (text,)


def _is_punctuation(word: str) -> bool:
    return len(word) == 1 and unicodedata.category(word).startswith("P")
