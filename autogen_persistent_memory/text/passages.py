"""Parts of a message: its sentences and clauses, which of them told a fact, and what is left without some. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from ..core.lazy_regex import lazy
from .speech_acts import tells
from .words import content_words, names_within, terms

Span = tuple[int, int]
"""Where a part of a text begins and ends."""

ELLIPSIS = "…"
_LONGEST = 20_000
"""Characters of a message that are taken apart; what stands behind them is one part."""
# Whatever these look for starts at one place of a run only, so that they take no longer than the text is long.
_SENTENCE_END = lazy(r"(?<![.!?…])[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+|\n+")
_ABBREVIATION = lazy(r"(?:^|[\s(])(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|approx|No|e\.g|i\.e|a\.m|p\.m)\.$")
_SUBJECT = (
    r"(?:I|we|you|he|she|it|they|there|my|our|your|his|her|its|their|the|a|an|this|please|can|could|would|will|do|does|did"
    r"|is|are|was|what|which|who|where|when|why|how|keep|remember|let)\b"
)
_CLAUSE_END = lazy(
    rf"[;:]\s+|\s[-–—]\s|,\s+(?={_SUBJECT})"
    rf"|(?:,|(?<![\s,]))\s+(?=(?:and|but|so|because|since|although|though|while|or|also|then)\s+{_SUBJECT})",
    re.IGNORECASE,
)
_LONG = 5_000
"""Characters beyond which a message tells something."""
_LONGEST_SENTENCE = 1_000
"""Characters beyond which a sentence is not taken apart to find a fact in it."""
_WORD = lazy(r"\w+")
_DIGIT = lazy(r"\d")
_WISH = lazy(
    r"\W*(?:(?:please|now|then|and|ok|okay|so|hey|hi|hello)\W+)*"
    r"(?:(?:tell|show|give|remind|ask|send)\s+(?:me|us)|let\s+(?:me|us)\s+know|explain|describe|list|repeat)\b",
    re.IGNORECASE,
)
_PARTICULAR = 2.0
"""What a name or a number counts, beside another word, in finding the sentence that tells a fact."""


def sentences(text: str) -> list[Span]:
    """Return where the sentences of a text begin and end."""
    return list(_pieces(text, 0, min(len(text), _LONGEST), _SENTENCE_END, len(text)))


def clauses(text: str) -> list[Span]:
    """Return where the clauses of a text begin and end: its sentences, taken apart where a new subject begins.

    >>> [text[start:end] for text in ["Hi, I'm Ann, and my order is late. Why?"] for start, end in clauses(text)]
    ['Hi,', "I'm Ann,", 'and my order is late.', 'Why?']
    """
    return [clause for sentence in sentences(text) for clause in _clauses_within(sentence, text)]


def _clauses_within(sentence: Span, text: str) -> list[Span]:
    start, end = sentence
    return list(_pieces(text, start, min(end, _LONGEST), _CLAUSE_END, end))


def _pieces(text: str, start: int, end: int, boundary: re.Pattern[str], last: int) -> Iterator[Span]:
    for found in boundary.finditer(text, start, end):
        if not _ABBREVIATION.search(text, max(start, found.end() - 8), found.end()):
            yield from _trimmed(text, start, found.end())
            start = found.end()
    yield from _trimmed(text, start, last)


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    piece = text[start:end]
    if piece.strip():
        yield start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def could_answer(text: str, asked: str = "") -> bool:
    """Return whether anything in a message could ever answer a question, or this one.

    Greetings, thanks and assent cannot. A question, or a wish to be told something, can only by the names and numbers in
    it, and not where others are asked about.

    >>> could_answer("What is my order number?"), could_answer("Has my order 4471 arrived?", "What is my order number?")
    (False, True)
    >>> could_answer("Has my order 4471 arrived?", "Has my order 4472 arrived?")
    False
    """
    if len(text) > _LONG:
        return True
    tells_something, particulars = _told(text)
    wanted = _particulars(asked) if particulars else None
    return tells_something or bool(particulars and (not wanted or wanted & particulars))


@lru_cache(maxsize=2048)
def _told(text: str) -> tuple[bool, frozenset[str]]:
    """Return whether a text tells anything, and the particulars in what it asks."""
    said = [text[start:end] for start, end in sentences(text)]
    asking = [sentence for sentence in said if _asks(sentence)]
    tells_something = len(asking) < len(said) and any(tells(sentence) for sentence in said if sentence not in asking)
    return tells_something, _particulars(" ".join(asking))


def _asks(sentence: str) -> bool:
    return sentence.endswith(("?", "？")) or _WISH.match(sentence) is not None


@lru_cache(maxsize=2048)
def _particulars(text: str) -> frozenset[str]:
    numbers = (word for word in _WORD.findall(text) if _DIGIT.search(word))
    return frozenset(word.casefold() for word in (*numbers, *names_within(text)))


def locate(said: Sequence[str], text: str) -> list[Span]:
    """Return where a message says each of these: the clauses of one sentence that hold its words; all of it if none does.

    >>> text = "Hi, I'm Ann. My order #4471 hasn't arrived."
    >>> [text[start:end] for start, end in locate(["The user's name is Ann."], text)]
    ["I'm Ann."]
    """
    held = {(start, end): set(terms(text[start : min(end, _LONGEST)])) for start, end in sentences(text)}
    return [_place_of(quote, held, text) for quote in said]


def _place_of(quote: str, held: Mapping[Span, set[str]], text: str) -> Span:
    weights = dict.fromkeys(terms(quote), 1.0)
    weights |= {term: _PARTICULAR for word in _particulars(quote) for term in terms(word)}
    found = {sentence: weights.keys() & words for sentence, words in held.items()}
    best = max(found, key=lambda sentence: sum(weights[term] for term in found[sentence]), default=(0, len(text)))
    return _narrowed(best, found[best], text) if found.get(best) else (0, len(text))


def _narrowed(sentence: Span, found: set[str], text: str) -> Span:
    """Return the fewest clauses of a sentence, one after the other, that hold all these terms."""
    if sentence[1] - sentence[0] > _LONGEST_SENTENCE:
        return sentence
    parts = _clauses_within(sentence, text)
    held = [found & set(terms(text[start:end])) for start, end in parts]
    runs = [
        (last - first, parts[first][0], parts[last][1])
        for first in range(len(parts))
        for last in range(first, len(parts))
        if found.issubset(set().union(*held[first : last + 1]))
    ]
    _, start, end = min(runs, default=(0, *sentence))
    return start, end


def without(text: str, gone: Iterable[Span]) -> str:
    """Return what a text tells beside these parts of it, with an ellipsis where something is left out; empty if nothing.

    >>> without("I prefer tea, but my flight is LH440.", [(0, 13)])
    '… but my flight is LH440.'
    """
    kept: list[str] = []
    position = 0
    for start, end in sorted({*gone, (len(text), len(text))}):
        piece = text[position:start].strip()
        if tells(piece):
            kept += [*([ELLIPSIS] if position else []), piece]
        position = max(position, end)
    if kept and position and not text.rstrip().endswith(kept[-1]):
        kept.append(ELLIPSIS)
    return " ".join(kept)


def is_covered(text: str, facts: Sequence[str]) -> bool:
    """Return whether facts say all that a message tells, down to its numbers, names, paths and dates."""
    if len(text) > _LONG:
        return False
    told = set[str]().union(*(content_words(fact) for fact in facts))
    said = [sentence for sentence in sentences(text) if could_answer(text[slice(*sentence)])]
    parts = [text[start:end] for sentence in said for start, end in _clauses_within(sentence, text)]
    return all(content_words(part) <= told for part in parts if tells(part))
