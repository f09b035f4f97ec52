"""The sentences of a message: where they are, which of them are the writer's own words, and which tell something.

Pure functions, linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from ..core.lazy_regex import lazy
from ..core.records import Draft, MemoryRecord
from .words import CJK, STOP_WORDS, content_words, names_within, terms

Span = tuple[int, int]
"""Where a part of a text begins and ends."""

# Sentences and clauses

_LONGEST_SPLIT = 20_000
"""Characters of a message that are split; the rest is one part."""
# Each run of signs matches at one place only, so that searching takes time linear in the length of the text.
_SENTENCE_END = lazy(r"(?<![.!?…])[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+|\n+")
_ABBREVIATION = lazy(
    r"(?<![^\s(])(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Inc|Ltd|Co|Corp|vs|etc|approx|No|Mt|Ft"
    r"|e\.g|i\.e|a\.m|p\.m|U\.S|U\.K)\.[\"'”’)\]]*\Z"
)
_SUBJECT = (
    r"(?:I|we|you|he|she|it|they|there|my|our|your|his|her|its|their|the|a|an|this|please|can|could|would|will|do|does|did"
    r"|is|are|was|what|which|who|where|when|why|how|keep|remember|let)\b"
)
_CLAUSE_END = lazy(
    rf"[;:]\s+|\s[-–—]\s|,\s+(?={_SUBJECT})"
    rf"|(?:,|(?<![\s,]))\s+(?=(?:and|but|so|because|since|although|though|while|or|also|then)\s+{_SUBJECT})",
    re.IGNORECASE,
)


def sentences(text: str) -> list[Span]:
    """Return where the sentences of a text begin and end."""
    return list(_split(text, (0, len(text)), _SENTENCE_END))


def clauses(text: str) -> list[Span]:
    """Return where the clauses of a text begin and end: its sentences, split where a new subject begins.

    >>> [text[start:end] for text in ["Hi, I'm Ann, and my order is late. Why?"] for start, end in clauses(text)]
    ['Hi,', "I'm Ann,", 'and my order is late.', 'Why?']
    """
    return [clause for sentence in sentences(text) for clause in _split(text, sentence, _CLAUSE_END)]


def _split(text: str, span: Span, boundary: re.Pattern[str]) -> Iterator[Span]:
    start, last = span
    ends = (found.end() for found in boundary.finditer(text, start, min(last, _LONGEST_SPLIT)))
    for end in (*ends, last):
        if end == last or not _ABBREVIATION.search(text, max(start, end - 10), end):
            part = text[start:end]
            if part.strip():
                yield start + len(part) - len(part.lstrip()), start + len(part.rstrip())
            start = end


# The writer's own words

_LONGEST_OWN_TEXT = 16_000
"""Characters of a message that are read for them: people talk about themselves early."""
_LONGEST_OWN_SENTENCE = 400
"""Longer sentences are pasted, or too tangled for rules."""
_QUOTED = "\ufffc"
"""Replaces a quotation; a sentence that holds it is not the writer's own."""
_TYPED = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"', "\u00a0": " "})

_FENCE = lazy(r"\s{0,3}(```|~~~)")
_BULLET = lazy(r"\s*(?:[-*•–]|\d{1,2}[.)])\s+")
_PASTED = lazy(
    r"""
      \s*>                                                                    # a quoted line, or a Python prompt
    | (?:\t|[ ]{4})                                                           # an indented block
    | \s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d | \s*\[?\d\d:\d\d:\d\d               # a log line
    | \s*\[?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\b
    | \s*(?:Traceback[ ]\(|File[ ]"|at[ ][\w.$]+\(|[\w.]*(?:Error|Exception)\b:)
    | \s*\[\w+[ ][0-9a-f]{7,}\]                                               # output of git
    | \s*(?:[$%]|\w+@\w+)[ ]                                                  # a shell prompt
    | \s*(?:\#|//|/\*|<!--|</?\w+[^>]{0,80}>)
    | \s*(?:def|class|import|const|let|var|function|return|public|private|static|struct|elif|print|SELECT|INSERT|UPDATE)
        \b.*[({=;:]
    | \s*from[ ][\w.]+[ ]import\b | \s*\#include
    | \s*[{\[}\]"][^.!?]*[}\],:]\s*$                                          # JSON
    | .*(?:;|\{|\}|=>|\)\s*:)\s*$
    | .*(?:[^=!<>]==[^=]|!=|\(\);|\w\(\)|=\s*['"])
    """,
    re.VERBOSE,
)
_BACKTICKS = lazy(r"`([^`\n]{1,200})`")
_QUOTATION = lazy(r"\"([^\"\n]{1,400})\"|(?<![\w'])'([^'\n]{1,200}(?:'\w[^'\n]{0,200}){0,8})'(?!\w)")
_FIRST_PERSON = lazy(r"\b(?:i|my|me|we|our)\b", re.IGNORECASE)

_QUOTING = lazy(
    r"""\b(?:translate|rewrite|rephrase|paraphrase|proofread|correct|summari[sz]e|improve|edit|polish|shorten|grammar
    |spelling|wrote|writes|said|says|read|reads|replied|asked|posted|tweeted|answered|goes|sentence|text|e?mail|message
    |paragraph|quote|letter|post|essay|tweet|review|log|output|error|comment|lyrics|poem|headline|prompt|example|following
    |snippet|transcript|classify|sentiment|analy[sz]e|parse|tagline|caption|bio|template|dialogue|conversation)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_OWN_LABEL = lazy(
    r"(?:decision|notes?|remember|reminder|facts?|fyi|ps|p\.s|update|context|background|lessons?|preferences?|tl;dr|todo"
    r"|important|btw|remember this|about me|constraints?|requirements?)$",
    re.IGNORECASE,
)
_SPEAKER_LABEL = lazy(r"[A-Z][\w.]*(?: [A-Z][\w.]*)?$")
_LABEL = lazy(r"([^:]{1,120}):(?:\s+|$)")


def own_sentences(text: str) -> list[str]:
    """Return the sentences of a message in its writer's own words, each on one line: no code, logs or quotations."""
    own: list[str] = []
    prose = _prose(text[:_LONGEST_OWN_TEXT].translate(_TYPED))
    for start, end in sentences(prose):
        sentence = " ".join(prose[start:end].split())
        label = _LABEL.match(sentence)
        if label is not None and _introduces_quotation(label[1]):
            break  # all that follows "Translate this:" belongs to it
        if _QUOTED not in sentence and 2 < len(sentence) <= _LONGEST_OWN_SENTENCE:
            own.append(sentence)
    return own


def _introduces_quotation(label: str) -> bool:
    if _OWN_LABEL.match(label.strip()):
        return False
    return _QUOTING.search(label) is not None or _SPEAKER_LABEL.match(label) is not None


def _prose(text: str) -> str:
    """Return the text without code, logs and quoted lines, and with a mark for each quotation."""
    kept: list[str] = []
    fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
            kept.append("")
        elif not fenced:
            bullet = _BULLET.match(line)
            item = line[bullet.end() :] if bullet else line
            if _PASTED.match(item):
                kept.append("")
            elif kept and kept[-1] and not bullet and _continues(kept[-1], item):
                kept[-1] = f"{kept[-1]} {item.strip()}"
            else:
                kept.append(item.strip())
    return _QUOTATION.sub(_quotation, _BACKTICKS.sub(_inline_code, "\n".join(kept)))


def _continues(line: str, following: str) -> bool:
    """Return whether a line was only broken to fit a width."""
    return (
        len(line) < _LONGEST_OWN_SENTENCE
        and line[-1:] not in ".!?:;"
        and following.lstrip()[:1].islower()
        and len(line) > 40
    )


def _inline_code(found: re.Match[str]) -> str:
    return found[1] if len(found[1].split()) <= 3 else _QUOTED


def _quotation(found: re.Match[str]) -> str:
    """Keep a quoted title, and replace a quoted statement."""
    said = found[1] or found[2]
    return _QUOTED if len(said.split()) > 5 or _FIRST_PERSON.search(said) else found[0]


# Whether a text tells something, or only greets, thanks and agrees

_WORD = lazy(r"\w+")
_SHORT = 200
"""Characters beyond which a text is taken to tell something, whatever its words are."""
_PLEASANTRIES = frozenset(
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
"""Words of greetings, thanks and assent: a message of only these tells nothing."""
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


def tells(text: str) -> bool:
    """Return whether a text holds a content word, a number or a name apart from function words, greetings and assent."""
    return len(text) > _SHORT or _beyond_pleasantries(text)


def is_trivial(item: Draft | MemoryRecord) -> bool:
    """Return whether a captured message tells nothing: it stays in its session, but is never recalled."""
    return item.kind == "interaction" and item.origin in ("user", "agent") and not tells(item.content)


@lru_cache(maxsize=4096)
def _beyond_pleasantries(text: str) -> bool:
    text = _SET_PHRASE.sub(" ", unicodedata.normalize("NFKC", text))
    for word in _WORD.findall(text.casefold()):
        if CJK.search(word):
            word = _SPACELESS_PLEASANTRY.sub("", word)
        if word and word not in STOP_WORDS and word not in _PLEASANTRIES:
            return True
    return any(name.casefold() not in _PLEASANTRIES for name in names_within(text))


# What sentences tell

ELLIPSIS = "…"
_LONG_MESSAGE = 5_000
"""Characters beyond which a message is taken to tell something, without reading it."""
_LONGEST_NARROWED = 1_000
"""Characters up to which a sentence is split into clauses to find a fact in it."""
_PARTICULAR = 2.0
"""Weight of a name or a number in finding the sentence that tells a fact; other words weigh 1."""
_DIGIT = lazy(r"\d")
_WISH = lazy(
    r"\W*(?:(?:please|now|then|and|ok|okay|so|hey|hi|hello)\W+)*"
    r"(?:(?:tell|show|give|remind|ask|send)\s+(?:me|us)|let\s+(?:me|us)\s+know|explain|describe|list|repeat)\b",
    re.IGNORECASE,
)


def could_answer(text: str, asked: str = "") -> bool:
    """Return whether a message could answer any question, or this one.

    Greetings, thanks and assent cannot. A question or a request for information can only by the names and numbers in it,
    and not if `asked` has other ones.

    >>> could_answer("What is my order number?"), could_answer("Has my order 4471 arrived?", "What is my order number?")
    (False, True)
    >>> could_answer("Has my order 4471 arrived?", "Has my order 4472 arrived?")
    False
    """
    if len(text) > _LONG_MESSAGE:
        return True
    tells_something, particulars = _read(text)
    wanted = _particulars(asked) if particulars else None
    return tells_something or bool(particulars and (not wanted or wanted & particulars))


@lru_cache(maxsize=2048)
def _read(text: str) -> tuple[bool, frozenset[str]]:
    """Return whether a text tells anything, and the names and numbers in what it asks."""
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


def locate(facts: Sequence[str], text: str) -> list[Span]:
    """Return where a message tells each fact: the clauses of one sentence that hold its words, or all of it if none does.

    >>> text = "Hi, I'm Ann. My order #4471 hasn't arrived."
    >>> [text[start:end] for start, end in locate(["The user's name is Ann."], text)]
    ["I'm Ann."]
    """
    held = {(start, end): set(terms(text[start : min(end, _LONGEST_SPLIT)])) for start, end in sentences(text)}
    return [_place_of(fact, held, text) for fact in facts]


def _place_of(fact: str, held: Mapping[Span, set[str]], text: str) -> Span:
    weights = dict.fromkeys(terms(fact), 1.0)
    weights |= {term: _PARTICULAR for word in _particulars(fact) for term in terms(word)}
    found = {sentence: weights.keys() & words for sentence, words in held.items()}
    best = max(found, key=lambda sentence: sum(weights[term] for term in found[sentence]), default=(0, len(text)))
    return _narrowed(best, found[best], text) if found.get(best) else (0, len(text))


def _narrowed(sentence: Span, found: set[str], text: str) -> Span:
    """Return the shortest run of clauses of a sentence that holds all these terms."""
    if sentence[1] - sentence[0] > _LONGEST_NARROWED:
        return sentence
    parts = list(_split(text, sentence, _CLAUSE_END))
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
    """Return a text without some parts, with an ellipsis for each; empty if the rest tells nothing.

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
    """Return whether facts repeat everything that a message tells, down to numbers, names, paths and dates."""
    if len(text) > _LONG_MESSAGE:
        return False
    told = set[str]().union(*(content_words(fact) for fact in facts))
    said = [sentence for sentence in sentences(text) if could_answer(text[slice(*sentence)])]
    parts = [text[start:end] for sentence in said for start, end in _split(text, sentence, _CLAUSE_END)]
    return all(content_words(part) <= told for part in parts if tells(part))


_MOST_STANDING_WORDS = 25
_STANDING = lazy(r"\b(?:always|never|from now on|whenever|every time)\b", re.IGNORECASE)
_ASSISTANT_SAID = lazy(
    r"\b(?:did|have|had) you\b|\byour (?:\w+ )?(?:advice|answer|suggestion|recommendation|explanation|response|reply)s?\b"
    r"|\byou (?:\w+ )?(?:said|told|recommended|suggested|mentioned|gave|explained|advised|proposed|listed|provided)\b",
    re.IGNORECASE,
)
_SUMMARY = lazy(r"\b(?:summar\w+|overview|recap)\b", re.IGNORECASE)


def is_standing_instruction(text: str) -> bool:
    """Return whether a text says what to do from now on: a short one with "always", "never", "from now on" and the like."""
    is_short = len(text) <= 12 * _MOST_STANDING_WORDS and len(text.split()) <= _MOST_STANDING_WORDS
    return is_short and _STANDING.search(text) is not None


def asks_what_assistant_said(query: str) -> bool:
    """Return whether a question is about what the assistant said: "did you", "you recommended"."""
    return _ASSISTANT_SAID.search(query) is not None


def asks_for_summary(query: str) -> bool:
    """Return whether a question asks for a summary, to which everybody's messages belong."""
    return _SUMMARY.search(query) is not None
