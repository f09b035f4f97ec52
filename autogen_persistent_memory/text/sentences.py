"""What somebody says in their own words: the sentences of a message without code, logs and quotations.

Pure functions, linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..core.lazy_regex import lazy

LONGEST_TEXT = 16_000
"""How much of a message is read: what people say of themselves stands in short ones, or at the start of long ones."""

LONGEST_SENTENCE = 400
"""Longer ones are pasted, or too tangled for rules."""

_QUOTED = "\ufffc"
"""Stands for a quotation; a sentence with one in it is not the speaker's own."""

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
    | \s*\[\w+[ ][0-9a-f]{7,}\]                                               # what git answers
    | \s*(?:[$%]|\w+@\w+)[ ]                                                  # a shell
    | \s*(?:\#|//|/\*|<!--|</?\w+[^>]{0,80}>)
    | \s*(?:def|class|import|const|let|var|function|return|public|private|static|struct|elif|print|SELECT
    |INSERT|UPDATE)
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

_END = lazy(r"(?<=[.!?])[\"')\]]*\s+|(?<=[.!?])(?=\n)")
_ABBREVIATION = lazy(
    r"(?:^|[\s(])(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Inc|Ltd|Co|Corp|vs|etc|approx|No|Mt|Ft"
    r"|e\.g|i\.e|a\.m|p\.m|U\.S|U\.K)\.$"
)

_QUOTING = lazy(
    r"""\b(?:translate|rewrite|rephrase|paraphrase|proofread|correct|summari[sz]e|improve|edit|polish|shorten
    |grammar|spelling
    |wrote|writes|said|says|read|reads|replied|asked|posted|tweeted|answered|goes|sentence|text|e?mail|message
    |paragraph|quote
    |letter|post|essay|tweet|review|log|output|error|comment|lyrics|poem|headline|prompt|example|following
    |snippet|transcript
    |classify|sentiment|analy[sz]e|parse|tagline|caption|bio|template|dialogue|conversation)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_OWN_LABEL = lazy(
    r"(?:decision|note|notes|remember|reminder|fact|facts|fyi|ps|p\.s|update|context|background"
    r"|lesson|lessons|preference"
    r"|preferences|tl;dr|todo|important|btw|remember this|about me|constraints?|requirements?)$",
    re.IGNORECASE,
)
_SPEAKER_LABEL = lazy(r"[A-Z][\w.]*(?: [A-Z][\w.]*)?$")
_LABEL = lazy(r"([^:]{1,120}):(?:\s+|$)")


def sentences(text: str) -> list[str]:
    """The sentences of a text that its writer says, in order, each on one line."""
    own: list[str] = []
    for sentence in _split(_prose(text[:LONGEST_TEXT].translate(_TYPED))):
        label = _LABEL.match(sentence)
        if label is not None and _introduces_others_words(label[1]):
            break  # what follows a "Translate this:" belongs to it, to the end of the message
        if _QUOTED not in sentence and len(sentence) <= LONGEST_SENTENCE:
            own.append(sentence)
    return own


def _introduces_others_words(label: str) -> bool:
    if _OWN_LABEL.match(label.strip()):
        return False
    return _QUOTING.search(label) is not None or _SPEAKER_LABEL.match(label) is not None


def _prose(text: str) -> str:
    """The text without code, logs and quoted lines, and with a mark where a quotation was."""
    kept: list[str] = []
    fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
            kept.append("")
        elif not fenced:
            bullet = _BULLET.match(line)
            item = line[bullet.end() :] if bullet else line
            if _PASTED.match(item if bullet else line):
                kept.append("")
            elif kept and kept[-1] and not bullet and _continues(kept[-1], item):
                kept[-1] = f"{kept[-1]} {item.strip()}"
            else:
                kept.append(item.strip())
    return _QUOTATION.sub(_quotation, _BACKTICKS.sub(_inline_code, "\n".join(kept)))


def _continues(line: str, following: str) -> bool:
    """Whether a line was only broken to fit a width."""
    return (
        len(line) < LONGEST_SENTENCE
        and line[-1:] not in ".!?:;"
        and following.lstrip()[:1].islower()
        and len(line) > 40
    )


def _inline_code(found: re.Match[str]) -> str:
    return found[1] if len(found[1].split()) <= 3 else _QUOTED


def _quotation(found: re.Match[str]) -> str:
    """A title stays, a saying does not."""
    said = found[1] or found[2]
    return _QUOTED if len(said.split()) > 5 or _FIRST_PERSON.search(said) else found[0]


def _split(prose: str) -> Iterator[str]:
    for line in prose.split("\n"):
        start = 0
        for end in _END.finditer(line):
            if not _ABBREVIATION.search(line, max(start, end.start() - 8), end.start()):
                yield from _tidied(line[start : end.start()])
                start = end.end()
        yield from _tidied(line[start:])


def _tidied(sentence: str) -> Iterator[str]:
    words = " ".join(sentence.split())
    if len(words) > 2:
        yield words
