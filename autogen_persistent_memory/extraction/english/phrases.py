"""Phrases the rules look at, and what a rule finds. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ...core.lazy_regex import lazy
from .slots import head, value_in
from .vocabulary import DIETS, FAITHS, HEALTH_TRAITS, JOBS, NATIONALITIES, words


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in a clause."""

    tag: str
    kind: str = "fact"
    slot: str | None = None
    """The slot without its owner; None for what can be many."""
    value: str = ""
    """The words that name it, so that a later statement can end it."""
    told: str | None = None
    """What to write down instead of the clause, in the first person."""


Build = Callable[[re.Match[str]], Finding | None]
Rule = tuple[re.Pattern[str], Build]

_TEMPERS = words(
    "fine, good, ok, okay, well, great, here, back, done, ready, sorry, sure, new, happy, glad,"
    " lost, stuck, late, busy, tired"
)


def any_of(table: str) -> str:
    return "|".join(re.escape(word) for word in sorted(words(table), key=len, reverse=True))


FEW = r"(?:[\w'.-]+ ){0,3}?"
ARTICLE = r"(?:a|an|the|my|our|one|two|three|four|five|six|seven|\d+|some|another|no)"
_DEICTIC = lazy(
    r"""(?:it|this|that|these|those|them|him|her|you|your|yours|he|she|both|either|neither|one|ones|how|what
    |where[ ](?:this|you|we)|when[ ](?:you|this|it)|which|why
    |so|i\b|we\b|to$|(?:option|choice|version|answer|approach|solution)[ ](?:\w|one|two|\d+)$|to[ ](?:know|ask
    |bother|see|hear|say|admit|thank|point|be[ ]able)|all[ ]of|none|some[ ]of|any|the[ ](?:first|second|third
    |last|latter|former|other|idea|ideas|way|look|sound
    |sounds|following|above|same|current|one|ones|result|results|answer|suggestion|suggestions|approach|new|old
    |previous|next|original|code|output|option|version|plan|part))\b
    |.*\b(?:(?:this|these|those)(?![ ](?:days|morning|week|weekend|month|year|spring|summer|fall|autumn|winter
    |(?:mon|tues|wednes|thurs|fri|satur|sun)day))|that[ ]one
    |above|below|the[ ]following|here|your|you)\b|.*\bthat\W*$""",
    re.IGNORECASE | re.VERBOSE,
)
PLACE_WORD = lazy(
    r"\b(?:city|town|village|countryside|suburbs?|coast|mountains|farm|island|downtown|abroad"
    r"|apartment|house|flat|country|dorm|mountain)\b",
    re.I,
)


def is_passing(phrase: str) -> bool:
    """Whether a phrase points at something in the conversation, and so says nothing later on."""
    return _DEICTIC.match(phrase) is not None


_POINTING = lazy(
    r"(?:[\w'-]+ ){0,3}?(?:them|him|his|her|their|it|its|that|each other|us all|all the"
    r"|all of)\b",
    re.IGNORECASE,
)
_THE_ENDURING = lazy(
    r"the (?:[A-Z]|(?:[\w-]+ )?(?:ocean|sea|mountains?|outdoors|beach|cold|heat|rain|snow|city"
    r"|countryside|theat(?:er|re)|cinema|gym|opera|piano|guitar|violin|sun|forest|desert|arts?"
    r"|smell|sound|taste) ?)",
)


def is_likable(phrase: str) -> bool:
    """Whether liking it says something later on: not "the colour" of a picture just seen, not "holding them"."""
    return not _POINTING.match(phrase) and (
        not re.match(r"the\b", phrase, re.I) or _THE_ENDURING.match(phrase) is not None
    )


def is_proper(phrase: str) -> bool:
    """Whether a phrase starts with a name, or has one after an article."""
    return re.match(r"(?:the |a |an |my |our )?(?:[a-z][\w-]*\s+){0,3}?[A-Z][\w&.'-]*", phrase) is not None


def name_in(phrase: str) -> str | None:
    """The name a phrase starts with, if it is nothing but one."""
    found = re.match(
        r"((?:(?:Dr|Mr|Mrs|Ms|Prof)\.? )?[A-ZÀ-Ý][\w'’-]*(?: (?:[A-ZÀ-Ý][\w'’.-]*|van|de|von|der|da"
        r"|bin|al|del|la))*)(?:$|[,.;!]| (?:and|but|from|by)\b)",
        phrase,
    )
    if found is None:
        return None
    name = found[1].removesuffix(" de")
    first = name.split()[0].lower()
    known = name.lower() in _NOT_NAMES or first in _TEMPERS or value_in(name) is not None
    return None if known or (name.isupper() and len(name) > 3) else name


_NOT_NAMES = words(f"{NATIONALITIES},{FAITHS},{JOBS},{DIETS},{HEALTH_TRAITS},ai,i,ok,aws,hr,it,qa,late,not")


def kept(tag: str, kind: str = "fact", slot: str | None = None, test: Callable[[str], bool] | None = None) -> Build:
    """A finding of the group `v`, unless it only points at something or fails the test."""

    def build(found: re.Match[str]) -> Finding | None:
        value = found["v"]
        if is_passing(value) or (test is not None and not test(value)):
            return None
        return Finding(tag, kind, slot, head(value))

    return build


def compiled(*table: tuple[str, Build]) -> tuple[Rule, ...]:
    """Rules that match from a predicate's start, in any case."""
    return tuple((lazy(pattern, re.IGNORECASE), build) for pattern, build in table)
