"""What the rules share: what a rule finds, tests of phrases, and which slot a value fills. Pure functions.

A slot is a part of a key: "TypeScript" is a language, so "I prefer TypeScript" fills "preference/language".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ...core.lazy_regex import lazy
from ..english import vocabulary
from ..extractor import Ending
from .vocabulary import inverted, pattern, words


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in a clause."""

    tag: str
    kind: str = "fact"
    slot: str | None = None
    """The slot it fills; None if there can be many. Rules about the user leave out the owner: "home", not "user/home"."""
    value: str = ""
    """The words that name it, so that a later statement can end it."""
    told: str | None = None
    """What to store instead of the clause, in the first person."""
    together: bool = False
    """Whether it is about the user's team."""
    ends: Ending | None = None
    """What it puts an end to."""


Build = Callable[[re.Match[str]], Finding | None]
Rule = tuple[re.Pattern[str], Build]


def kept(tag: str, kind: str = "fact", slot: str | None = None, test: Callable[[str], bool] | None = None) -> Build:
    """Return a builder that keeps the group `v`, unless it points at the conversation or fails the test."""

    def build(found: re.Match[str]) -> Finding | None:
        value = found["v"]
        if is_passing(value) or (test is not None and not test(value)):
            return None
        return Finding(tag, kind, slot, head(value))

    return build


def compiled(*table: tuple[str, Build]) -> tuple[Rule, ...]:
    """Return rules that match a predicate from its start, ignoring case."""
    return tuple((pattern(text), build) for text, build in table)


# Phrases

FEW = r"(?:[\w'.-]+ ){0,3}?"
ARTICLE = r"(?:a|an|the|my|our|one|two|three|four|five|six|seven|\d+|some|another|no)"
PLACE_WORD = pattern(
    r"\b(?:city|town|village|countryside|suburbs?|coast|mountains|farm|island|downtown|abroad|apartment|house|flat"
    r"|country|dorm|mountain)\b"
)
_DEICTIC = pattern(
    r"(?:it|this|that|these|those|them|him|her|you|your|yours|he|she|both|either|neither|one|ones|how|what"
    r"|where (?:this|you|we)|when (?:you|this|it)|which|why|so|i\b|we\b|to$|(?:option|choice|version|answer|approach"
    r"|solution) (?:\w|one|two|\d+)$|to (?:know|ask|bother|see|hear|say|admit|thank|point|be able)|all of|none|some of"
    r"|any|the (?:first|second|third|last|latter|former|other|idea|ideas|way|look|sound|sounds|following|above|same"
    r"|current|one|ones|result|results|answer|suggestion|suggestions|approach|new|old|previous|next|original|code"
    r"|output|option|version|plan|part))\b|.*\b(?:(?:this|these|those)(?! (?:days|morning|week|weekend|month|year"
    r"|spring|summer|fall|autumn|winter|(?:mon|tues|wednes|thurs|fri|satur|sun)day))|that one|above|below"
    r"|the following|here|your|you)\b|.*\bthat\W*$"
)
_POINTING = pattern(r"(?:[\w'-]+ ){0,3}?(?:them|him|his|her|their|it|its|that|each other|us all|all the|all of)\b")
_THE_ENDURING = lazy(
    r"the (?:[A-Z]|(?:[\w-]+ )?(?:ocean|sea|mountains?|outdoors|beach|cold|heat|rain|snow|city|countryside|theat(?:er"
    r"|re)|cinema|gym|opera|piano|guitar|violin|sun|forest|desert|arts?|smell|sound|taste) ?)"
)
_NOT_FIRST_NAMES = words(
    """
    fine, good, ok, okay, well, great, here, back, done, ready, sorry, sure, new, happy, glad, lost, stuck, late, busy,
    tired
    """
)
_NOT_NAMES = words(
    vocabulary.NATIONALITIES,
    vocabulary.FAITHS,
    vocabulary.JOBS,
    vocabulary.DIETS,
    vocabulary.HEALTH_TRAITS,
    "ai, i, ok, aws, hr, it, qa, late, not",
)
_REASON = pattern(
    r",?\s+(?:because|since|as (?:it|they|we|I|the)|due to|so that|so (?=we|I|it|they)|to (?=cut|avoid|reduce|save"
    r"|get|make|keep|speed)|in order to|after|over|instead of|rather than|but|although|though|even though"
    r"|thanks to)\b|[,;(]"
)


def head(phrase: str) -> str:
    """Return a phrase up to its reason, its alternative or its first comma."""
    found = _REASON.search(phrase)
    return (phrase[: found.start()] if found else phrase).strip()


def is_passing(phrase: str) -> bool:
    """Return whether a phrase points at the conversation ("this one"), so that it means nothing later."""
    return _DEICTIC.match(phrase) is not None


def is_likable(phrase: str) -> bool:
    """Return whether liking it means something later: not "the colour" of a picture just seen, not "holding them"."""
    return not _POINTING.match(phrase) and (
        not re.match(r"the\b", phrase, re.I) or _THE_ENDURING.match(phrase) is not None
    )


def is_proper(phrase: str) -> bool:
    """Return whether a phrase starts with a name, or has one after an article."""
    return re.match(r"(?:the |a |an |my |our )?(?:[a-z][\w-]*\s+){0,3}?[A-Z][\w&.'-]*", phrase) is not None


def name_in(phrase: str) -> str | None:
    """Return the name that a phrase starts with, if nothing else follows it."""
    found = re.match(
        r"((?:(?:Dr|Mr|Mrs|Ms|Prof)\.? )?[A-ZÀ-Ý][\w'’-]*(?: (?:[A-ZÀ-Ý][\w'’.-]*|van|de|von|der|da|bin|al|del"
        r"|la))*)(?:$|[,.;!]| (?:and|but|from|by)\b)",
        phrase,
    )
    if found is None:
        return None
    name = found[1].removesuffix(" de")
    first = name.split()[0].lower()
    known = name.lower() in _NOT_NAMES or first in _NOT_FIRST_NAMES or value_in(name) is not None
    return None if known or (name.isupper() and len(name) > 3) else name


# Slots

_CATEGORY_OF = inverted(vocabulary.CATEGORIES)
_CATEGORY_NAMED = inverted(vocabulary.CATEGORY_NOUNS)
_ANSWERS = inverted(vocabulary.ANSWERS)
_ATTRIBUTE = inverted(vocabulary.ATTRIBUTES)
_PROJECT_ATTRIBUTE = inverted(vocabulary.PROJECT_ATTRIBUTES)
_PROJECT_CHOICES = words(vocabulary.PROJECT_CHOICES)
_PLAIN = words(vocabulary.PLAIN_QUALIFIERS)
_LONGEST_VALUE = max(len(value.split()) for value in _CATEGORY_OF)

_SPELLED = {
    value.lower(): value
    for table in vocabulary.CATEGORIES.values()
    for value in (part.strip() for part in table.split(","))
}
_EVERYDAY = words(
    """
    go, r, swift, dart, make, square, express, spring, arc, edge, linear, render, black, solid, sketch, notion, signal,
    cursor, atom, nano, crystal, brave, opera, railway, drone, chef, puppet, gin, mint, nord, phoenix, aurora, helix,
    stripe, mac, windows, oracle, zoom, teams, julia, ruby, shortcut, slack, rust, elm, rocket, bun, poetry, fish,
    remix, ember, lit, arch, monday, discord, zed, flask, composer, ninja, affinity, sentry, snowflake, spanner, cargo,
    roam, travis, react, jest, chrome, safari, parcel, celery, aurora, jasmine, mocha, nose
    """
)
"""Values that are everyday words too: they count only in the spelling of the table."""
_ANSWERING = pattern(
    r"\b(?:answer|answers|reply|replies|respond|response|responses|explanation|explanations|explain|write|writing"
    r"|talk|speak|summaries|summary|format|style|tone|be|keep|messages?|output|outputs|emails?|comments|docs|use)\b"
)
_QUALIFIED = pattern(r"\b(?:for|at|when)\s+(?:the\s+|my\s+|our\s+|all\s+)*([\w\s'-]{2,40})$")
_BECAUSE = pattern(r",|;|\s+(?:because|since|due to|so that|so|but|although|though)\b")
_SYNONYMS = {
    "colour": "color",
    "favorite": "favourite",
    "tv show": "series",
    "show": "series",
    "tv series": "series",
    "film": "movie",
}


def slug(text: str) -> str:
    """Return a part of a key: lower case, words joined by hyphens."""
    return re.sub(r"[^\w]+", "-", text.lower()).strip("-")[:40]


def value_in(phrase: str) -> tuple[str, str] | None:
    """Return the first value in a phrase that the vocabulary knows, and its category."""
    tokens = [token.strip(",;:!?()\"'").removesuffix(".").removesuffix("'s") for token in phrase.split()[:40]]
    for start in range(len(tokens)):
        for length in range(min(_LONGEST_VALUE, len(tokens) - start), 0, -1):
            value = " ".join(tokens[start : start + length])
            category = _CATEGORY_OF.get(value.lower())
            if category is not None and (value.lower() not in _EVERYDAY or value == _SPELLED[value.lower()]):
                return value, category
    return None


def category_of(phrase: str) -> str | None:
    """Return the category of the first known value in a phrase, or the one that the phrase names ("our database is …")."""
    found = value_in(phrase)
    return found[1] if found else category_named(phrase)


def category_named(noun: str) -> str | None:
    """Return the category that a noun stands for: "db" is a database."""
    return _CATEGORY_NAMED.get(re.sub(r"^(?:the|our|my|a|an)\s+", "", noun.lower().strip()))


def qualifier(phrase: str, category: str) -> str | None:
    """Return what a choice is limited to: "Python for scripting" says nothing about other purposes."""
    found = _QUALIFIED.search(_BECAUSE.split(phrase)[0])
    if found is None or value_in(found[1]) is not None:
        return None
    purpose = found[1].lower().strip()
    purpose = re.split(r"\s+(?:in|on|at|with|by|and|since|now)\s+", purpose)[0]
    of_speaker = re.search(r"(?:^| )(?:i|we)(?: |$)", purpose)
    return None if of_speaker or purpose in _PLAIN or _CATEGORY_NAMED.get(purpose) == category else slug(purpose)


def choice_slot(phrase: str) -> str | None:
    """Return the slot that choosing something fills, without its owner: "database", "language/scripting"."""
    found = value_in(head(phrase))
    if found is None:
        return None
    narrowed = qualifier(phrase, found[1])
    return f"{found[1]}/{narrowed}" if narrowed else found[1]


def choice_key(phrase: str, *, together: bool) -> str | None:
    """Return the key that using something fills: the team's, or the user's own for a personal choice."""
    slot = choice_slot(phrase)
    if slot is None:
        return None
    return f"project/{slot}" if together or slot.split("/")[0] in _PROJECT_CHOICES else f"user/preference/{slot}"


def answer_slot(phrase: str) -> str | None:
    """Return the slot that a wish about answers fills: "keep your answers short", "answer in Spanish"."""
    if not _ANSWERING.search(phrase):
        return None
    spoken = re.search(r"\b(?:in|speak|use)\s+(?:[Ss]imple\s+)?([A-Z]\w+)", phrase)
    if spoken and _ANSWERS.get(spoken[1].lower()) == "answer-language":
        return "answer-language"
    lowered = f" {re.sub(r'[^a-z -]+', ' ', phrase.lower())} "
    for value, slot in _ANSWERS.items():
        if slot != "answer-language" and f" {value} " in lowered:
            return slot
    return None


def attribute_slot(noun: str, *, of_project: bool = False) -> str | None:
    """Return the slot that "my … is" or, of a project, "our … is" fills, without its owner."""
    return (_PROJECT_ATTRIBUTE if of_project else _ATTRIBUTE).get(noun.lower().strip())


def favourite_slot(thing: str) -> str:
    """Return the slot of a favourite: a favourite tool fills the same slot as a preferred one."""
    category = category_named(thing)
    if category is not None:
        return f"preference/{category}"
    thing = re.sub(r"\s+(?:of all time|ever|in the world|right now|these days)$", "", thing.lower().strip())
    thing = _SYNONYMS.get(thing, thing).replace("colour", "color")
    return f"favourite/{slug(thing)}"
