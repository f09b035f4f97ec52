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
_SHORT = 200
"""Characters beyond which a text tells something, whatever its words are."""
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

PLEASANTRIES = frozenset(
    """
    absolutely agreed agree ah aha alright amazing appreciated awesome aye brilliant bye certainly cheers cool correct
    damn definitely done exactly excellent fab fair fantastic fine glad good goodbye goodnight gosh gotcha great haha
    hello hey hi hiya hmm hooray huh indeed k kk lol lovely nah nice nope noted oh ok okay ooh oops perfect please pls
    really right roger sorry splendid sup super sure ta thank thanks thankyou thx totally true tysm understood welcome
    well wonderful wow yay yea yeah yep yes yo yup
    bitte dank danke einverstanden genau gerne gern gut hallo ja jawohl klar moin nein prima schön sehr servus stimmt
    tschüss verstanden vielen
    acuerdo adiós bien bueno claro entendido gracias hola muchas perfecto sí vale
    accord adieu beaucoup bonjour bonsoir compris entendu merci non oui parfait plaît salut svp très
    certo entendi obrigada obrigado olá oi sim tchau
    """.split()  # noqa: SIM905
)
"""Words of greetings, thanks and assent: a message of nothing else tells nothing."""
_SET_PHRASE = lazy(
    r"\b(?:(?:good|have a (?:nice|good|great|lovely)|enjoy your) (?:morning|afternoon|evening|night|day|weekend|one)|good luck"
    r"|(?:a lot|so much|see you(?: later)?|no problem|no worries|of course|my pleasure|you bet|wait)"
    r"|(?:that |it )?(?:helps(?: a lot)?|works(?: for me)?|makes sense|sounds good)|got it|i (?:see|appreciate it)"
    r"|guten (?:morgen|tag|abend)|gute nacht|alles klar|buenos días|buenas (?:tardes|noches)|por favor|de acuerdo|muito bem"
    r"|bom dia|boa (?:tarde|noite)|bonne (?:nuit|journée|soirée)|s'il (?:vous|te) plaît|d'accord)\b",
    re.IGNORECASE,
)
_SPACELESS_PLEASANTRY = lazy(
    "ありがとう(?:ございま(?:す|した))?|お願いします|おねがいします|おはよう(?:ございます)?|こんにちは|こんばんは|さようなら"
    "|すみません|ごめん(?:なさい)?|わかりました|分かりました|了解(?:です|しました)?|はい|いいえ|うん|そうです|いいです"
    "|谢谢(?:你|您)?|謝謝(?:你|您)?|不客气|你好|您好|早上好|晚上好|晚安|再见|好的|可以|没问题|沒問題|知道了|明白(?:了)?|是的|好"
    "|안녕(?:하세요|히)?|감사(?:합니다|해요)?|고마워(?:요)?|네|예|아니(?:요|오)?|좋아(?:요)?|알겠(?:습니다|어요)"
    "|[はねよわかなのです啊呀吧哦嗯啦嘛呢了吗요]"
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
                if word not in stems and len(word) <= _LONGEST_STEMMED and len(stems) < _MOST_STEMMED:
                    stems[word] = _stem(word)
                yield stems.get(word, word)
        elif _CJK.search(word):
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


def tells(text: str) -> bool:
    """Return whether a text holds anything beyond function words, greetings and assent: a content word, a number, a name."""
    return _beyond_pleasantries(text) if len(text) <= _SHORT else True


def content_words(text: str) -> set[str]:
    """Return the terms of a text that say something, and "not" where it denies: what another text needs to say as much."""
    said = {term for term in terms(text) if term not in _FILLERS}
    return said | {"not"} if _NEGATION.search(text) else said


@lru_cache(maxsize=4096)
def _beyond_pleasantries(text: str) -> bool:
    text = _SET_PHRASE.sub(" ", unicodedata.normalize("NFKC", text))
    for word in _WORD.findall(text.casefold()):
        if _CJK.search(word):
            word = _SPACELESS_PLEASANTRY.sub("", word)
        if word and word not in STOP_WORDS and word not in PLEASANTRIES:
            return True
    return any(name.casefold() not in PLEASANTRIES for name in names_within(text))


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
