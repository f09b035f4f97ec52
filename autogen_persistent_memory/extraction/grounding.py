"""Check a model's facts against the messages they come from. Pure functions.

A small model repeats its instructions, invents, and mistakes questions and suggestions for statements. So a fact is believed
only if the messages contain all its numbers and names and nearly all its other words, most of them in statements of the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from ..core.lazy_regex import lazy
from ..text.sentences import own_sentences
from ..text.words import capitalised, terms
from .english.person import spelled_out, third_person
from .english.vocabulary import pattern
from .extractor import Message

SHORTEST, LONGEST = 8, 300

_COMMON = """
    user users person people team project name named called prefer prefers preference like likes love loves enjoy enjoys
    work works working job live lives living use uses using used want wants need needs plan plans planning decide
    decided decision choose chose chosen choice favourite favorite own owns currently new keep say says said tell told
    state states stated mention mentioned express expressed interest interested think feel consider include involve
    lesson fact context option reason due make makes always usually often regularly switch switched replace replaced
    change changed move moved former previously longer instead dislike dislikes hate hates avoid avoids fail
    failed fails failure stop stopped quit ended cancelled canceled one someone something thing way time
    year years old age aged diet follow follows reside resides located based employed employee profession occupation
    company family member speak speaks take takes taken took go goes went gone buy buys bought get become became begin
    began start started grow grows grew grown city town country hobby
    hello hi hey bye thank thanks thankful please ok okay yes yeah sure great good nice cool perfect fine welcome
"""
"""Words that any fact may use, so that finding them in a message proves nothing."""
_NEUTRAL = (
    "user users person name named called own owns currently state states mention mentioned say says said tell told"
)
"""Words that do not change the meaning of a fact."""

_NEGATIVE = pattern(
    r"\b(?:not|no|never|nor|without|none|nothing|cannot|neither|former|formerly|previously|used to|no longer|any ?more"
    r"|except|instead|rather than|over|dis\w+|hat(?:e|es|ed)|avoid\w*|refus\w+|reject\w*|against|allergic|intolerant"
    r"|stop\w*|quit|end(?:s|ed)|cancel\w*|fail\w*|left|gave up|drop\w*|broke\w*)\b|n't\b"
)
_NOT = pattern(r"\b(?:not|never|no longer|cannot|neither|nor)\b|n't\b")
_TURN = pattern(
    r"\b(?:not|no|never|no longer|any ?more|used to|former(?:ly)?|previously|stopped|quit|ended|cancell?ed|instead"
    r"|without|except|dislikes?|hates?|avoids?|left)\b|n't\b"
)
_CHANGE = pattern(
    r"\b(?:now|no longer|any ?more|moved|switch\w*|chang\w+|instead|stopped|quit|cancell?ed|new|left|actually"
    r"|correction|used to|replac\w+|not|renamed|became|since|from now on|postponed|update\w*)\b|n't\b"
)
_CLAUSE = pattern(r"[,;:()]|\s[-–—]\s|\b(?:but|and|because|although|though|while|whereas)\b")
_SUPPOSED = pattern(r"(?:imagine|suppose|pretend|what if|let's say|say i|if (?:i|we) (?:were|was|had|lived|could))\b")
_REQUEST = pattern(
    r"(?:please |now |then |also |just |ok(?:ay)?,? )*(?:fix|write|show|give|explain|tell|help|create|generate"
    r"|translate|summari[sz]e|list|find|check|debug|refactor|review|run|look|read|add|make|compare|describe|draft"
    r"|calculate|convert|search|open|send|try|continue|rewrite|improve|build|implement|test)\b(?!.*\b(?:i|i'm|my|we"
    r"|our|always|never|every|whenever|from now on)\b)"
)
_PROPOSING = pattern(r"\b(?:you|your|you're|shall|should|let's|we)\b|[?？]")
_ASKING = lazy(r"[?？]\W*$")
_AGREEING = pattern(
    r"\W*(?:yes|yep|yeah|yup|ok|okay|sure|exactly|right|correct|agreed|indeed|absolutely|definitely|perfect|deal"
    r"|sounds good|go ahead|do (?:that|it|so)|let's do|please do|that(?:'s| is) (?:right|correct|it|fine))\b"
)
_DECIDED = pattern(
    r"\b(?:we|team|our)\b.*\b(?:decid\w+|agreed|chose|chosen|settled|going with|go with|went with|switched|will use"
    r"|now uses?|failed|did not work|didn't work|does not work|doesn't work)\b|\b(?:decision|lesson)\b\W"
)
_NOT_A_FACT = lazy(
    r"""
      (?:the\s)?(?:assistant|ai|bot|chatbot|(?:language\s)?model|agent|system|conversation|messages?|example)\b
    | you(?:r)?\b | as\san\sai\b | hello\b | hi\b | thank | please\b | sure\b | (?:there\s(?:is|are)\s)?no(?:ne|thing)?\b
    | (?:the\s)?user\s(?:
        (?:is\s|was\s|has\s)?(?:ask(?:s|ed|ing)?|wonder(?:s|ed|ing)?|inquir\w+|enquir\w+|curious|request(?:s|ed|ing)?)\b
          (?!\sthat\b|\s(?:to\sbe|for\s\w+\sto)\b)
      | (?:wants?|would\slike|wanted|is\strying|needs?)\sto\sknow
      | (?:is\s)?(?:greet|thank|apologi[sz]|say(?:s|ing)\s(?:hello|hi|thank)|appreciat)
      | (?:has\s)?(?:not\s)?(?:said|mentioned|provided|told|given|shared)\s(?:nothing|no|any)\b
      | (?:has|is)\s(?:a\s)?(?:question|happy|glad|welcome|here)\b
      )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_FIRST_PERSON = pattern(r"(?:i|we|my|our|i'm|i've|we're|we've)\b")
_NUMERALS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COUNTED = {word: str(number) for number, word in enumerate(_NUMERALS, 2)}
_ORDINAL = lazy(r"(\d+)(?:st|nd|rd|th|am|pm)")


@dataclass(frozen=True, slots=True)
class _Clause:
    words: frozenset[str]
    negated: bool


class Evidence:
    """The words of some messages, prepared to be compared with facts. A fact may also begin with a name from `names`."""

    def __init__(self, messages: Sequence[Message], names: Iterable[str] = ()) -> None:
        said = [(message, list(_statements(message.text))) for message in messages]
        self._said = set(_terms(" ".join(message.text for message in messages)))
        self._subjects = self._said.union(*(_terms(text) for text in names))
        own = [sentence for message, parts in said if message.by_user for sentence in parts]
        own += _confirmed(messages)
        self._agreed = [s for message, parts in said if not message.by_user for s in parts if _DECIDED.search(s)]
        self._clauses = list(_clauses(own))
        self._stated = {word for clause in self._clauses for word in clause.words}
        self._decided = {word for sentence in self._agreed for word in _terms(sentence)}
        self._changes = any(_CHANGE.search(sentence) for sentence in (*own, *self._agreed))

    @property
    def is_empty(self) -> bool:
        """Whether the messages state nothing that a fact could come from."""
        return not (self._stated - _common()) and not (self._decided - _common())

    def supports(self, content: str, kind: str = "fact") -> bool:
        """Return whether the user stated a fact or, for decisions, lessons and context, the team agreed on it."""
        stated = self._stated | self._decided if kind in ("decision", "lesson", "context") else self._stated
        foreign = _is_foreign(content)
        if not all(self._occurs(word, first=first) for first, word in _names_and_numbers(content, foreign)):
            return False
        subject = self._subjects.intersection(_terms(content.partition(" ")[0])) - self._said
        carriers = [word for word in _carriers(content) if word not in subject]
        if not carriers:
            return False
        reach = 3 if foreign else 5
        unsaid = [word for word in carriers if not _near(word, self._said, reach)]
        unstated = [word for word in carriers if not _near(word, stated, reach)]
        allowed = len(carriers) // 2 if foreign else int(len(carriers) >= 5)
        if len(unsaid) > allowed or 2 * len(unstated) > len(carriers) or len(unstated) == len(carriers):
            return False
        return not self._contradicts(content, carriers)

    def allows_replacing(self, content: str, known: str) -> bool:
        """Return whether a fact may replace a known memory: they share words, or the messages tell of a change."""
        return self._changes or bool((set(terms(content)) & set(terms(known))) - {"user"})

    def _occurs(self, name: str, *, first: bool) -> bool:
        return all(word in (self._subjects if first else self._said) for word in _terms(name))

    def _contradicts(self, content: str, carriers: Sequence[str]) -> bool:
        """Return whether the clause closest to a fact is negated and the fact is not, or only the fact is negated."""
        if _NOT.search(content):
            return not any(clause.negated for clause in self._clauses) and not self._agreed
        if _NEGATIVE.search(content):
            return False
        best = max(self._clauses, key=lambda clause: len(clause.words & set(carriers)), default=None)
        return best is not None and best.negated and bool(best.words & set(carriers))


def tidied(content: str) -> str:
    """Return a fact as a sentence in the third person, on one line."""
    line = " ".join(content.split()).strip(" \"'`*-•")
    if _FIRST_PERSON.match(line):
        line = third_person(spelled_out(line))
    line = re.sub(r"^(?:the )?user\b", "The user", line, flags=re.IGNORECASE)
    return f"{line}." if line and line[-1].isalnum() else line


def is_worth_keeping(content: str) -> bool:
    """Return whether a sentence can be a memory: not a question, not about the assistant, not a courtesy."""
    return (
        SHORTEST <= len(content) <= LONGEST
        and not _ASKING.search(content)
        and not _NOT_A_FACT.match(content)
        and not re.search(r"[<>{}\[\]]|\.\.\.|…", content)
    )


def restates(content: str, known: str) -> bool:
    """Return whether a fact only repeats a known one: the same words in the same order, or fewer, and no new negation."""
    if sorted(_turns(content)) != sorted(_turns(known)):
        return False
    neutral = frozenset(terms(_NEUTRAL))
    words = iter(_terms(known))
    return all(word in words for word in _terms(content) if word not in neutral)


@lru_cache(maxsize=1)
def _common() -> frozenset[str]:
    return frozenset(terms(_COMMON))


def _turns(text: str) -> list[str]:
    return ["not" if found.lower() == "n't" else found.lower() for found in _TURN.findall(text)]


def _statements(text: str) -> Iterator[str]:
    """Yield the sentences that state something: no questions, no requests, nothing supposed, quoted or pasted."""
    for sentence in own_sentences(text):
        if not _ASKING.search(sentence) and not _SUPPOSED.match(sentence) and not _REQUEST.match(sentence):
            yield sentence


def _confirmed(messages: Sequence[Message]) -> Iterator[str]:
    """Yield what an agent proposed or asked and the user agreed to in the next message."""
    for before, message in pairwise(messages):
        if message.by_user and not before.by_user and _AGREEING.match(message.text):
            yield from filter(_PROPOSING.search, own_sentences(before.text))


def _clauses(said: Iterable[str]) -> Iterator[_Clause]:
    for sentence in said:
        for clause in _CLAUSE.split(sentence):
            yield _Clause(frozenset(_terms(clause)), _NOT.search(clause) is not None)


def _terms(text: str) -> list[str]:
    """Return the terms of a text, with its numbers in digits."""
    found = [_COUNTED.get(term, term) for term in terms(text)]
    return [ordinal[1] if (ordinal := _ORDINAL.fullmatch(term)) else term for term in found]


def _carriers(content: str) -> list[str]:
    """Return the terms that carry the meaning of a fact, each once."""
    return [term for term in dict.fromkeys(_terms(content)) if term not in _common()]


def _names_and_numbers(content: str, foreign: bool) -> Iterator[tuple[bool, str]]:
    """Yield the names and numbers of a fact, each with whether the sentence begins with it."""
    words = re.findall(r"\w+", content)
    large = capitalised(content)
    for at, word in enumerate(words):
        if any(sign.isdigit() for sign in word) or (
            word in large and not _is_common(word) and not (foreign and at < 3)  # "Der Nutzer ..."
        ):
            yield at == 0, word


def _is_foreign(content: str) -> bool:
    """Return whether a sentence is probably not English, so that its function words and verb forms are unknown."""
    words = re.findall(r"\w+", content.lower())
    return 4 * sum(map(_is_common, words)) < len(words)


def _is_common(word: str) -> bool:
    return all(term in _common() for term in terms(word))


def _near(word: str, said: set[str], reach: int) -> bool:
    """Return whether a word was said, or another form of it: "allergy" for "allergic"."""
    if word in said:
        return True
    beginning = word[:reach]
    return len(word) >= reach and word.isalpha() and any(other.startswith(beginning) for other in said)
