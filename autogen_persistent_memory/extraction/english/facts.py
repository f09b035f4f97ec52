"""From a message to its facts: try the rules on every claim and clause, in order. A pure function."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..english import about_project as project
from ..english import about_user as user
from ..extractor import Fact
from .about_life import kind_of_plan
from .claims import Claim, Clause, claims, clauses, without_adverbs
from .endings import ending
from .instructions import instruction
from .person import first_form, third_person
from .phrases import Finding, is_passing, slug
from .vocabulary import KIN, ONLY_RELATIONS, PETS, pattern, words

_I = re.IGNORECASE
_LONGEST_FACT = 300
_ONLY, _PETS = words(ONLY_RELATIONS), words(PETS)
_RELATIVE = pattern(
    rf"(?:my|our) (?P<which>(?:(?:older|younger|elder|little|big|other|oldest|youngest|eldest|new|old|middle|first"
    rf"|second|beloved|late|dear) )*)(?P<kin>{KIN})\b(?:,? (?P<name>(?-i:[A-Z])[\w-]+),?)?(?P<has>'s)? (?P<rest>.+)"
)
_OF_OTHERS = frozenset(
    ("name", "surname", "age", "birthday", "favourite", "job", "employer", "diet", "pronouns", "email", "phone", "home")
)
_PERSONAL = pattern(r"(?P<who>I|we)\s+(?P<rest>.+)")
_AS_A = pattern(r"as (?P<v>(?:a|an) [\w\s-]{3,50}?),\s+(?=(?:I|we|my|our|it|the|what|could|can|how)\b)")


def extract_facts(text: str) -> list[Fact]:
    """Return the facts that a message of the user tells about the user and the user's work, in order, each once.

    Of a very long message, only the beginning is read.

    >>> [fact.content for fact in extract_facts("My name is Sarah and I prefer TypeScript")]
    ["The user's name is Sarah.", 'The user prefers TypeScript.']
    """
    told = (fact for claim in claims(text) for fact in _of_claim(claim))
    once = {fact.content: fact for fact in told if 8 <= len(fact.content) <= _LONGEST_FACT}
    return list(once.values())


def _of_claim(claim: Claim) -> Iterator[Fact]:
    whole = _of_whole(claim.text)
    if whole is not None:
        yield _fact(whole, claim.text)
        return
    role = _AS_A.match(claim.text)
    if role:
        for found in user.from_predicate(f"am {role['v']}"):
            yield _fact(_owned(found, "user"), f"I am {role['v']}")
        claim = Claim(claim.text[role.end() :])
    facts = [fact for clause in clauses(claim) for fact in _of_clause(clause)]
    if not facts and claim.explicit and not is_passing(claim.text):
        facts = [_fact(Finding("remembered", kind_of_plan(claim.text) or "fact"), claim.text)]
    yield from facts


def _of_whole(text: str) -> Finding | None:
    """Return what only a whole sentence tells, with its reason."""
    learned = project.lesson(text)
    if learned is not None:
        return learned
    decided = project.decision(text)
    if decided is not None:
        over = ending(text) if decided.slot is None else None
        return replace(decided, ends=over.ends) if over else decided
    wanted = instruction(text)
    return wanted and _owned(wanted, "user")


def _of_clause(clause: Clause) -> Iterator[Fact]:
    for rule in (project.decision, ending, project.switch, project.use, project.attribute):
        if rule is project.switch and re.search(r"\b(?:no longer|any ?more)\b", clause.text, _I):
            return  # something is over, but the rules do not know what
        found = rule(clause.text)
        if found is not None:
            yield _fact(found, clause.whole)
            return
    for found, more in _of_person(clause.text):
        yield _fact(found, clause.whole, more)


def _of_person(text: str) -> Iterator[tuple[Finding, tuple[str, ...]]]:
    """Yield what a clause tells of the user or a relative, with further tags."""
    personal = _PERSONAL.match(text)
    relative = _RELATIVE.match(text)
    if personal:
        predicate = re.sub(r"^are\b", "am", without_adverbs(personal["rest"]))
        for found in user.from_predicate(predicate):
            ours = found.tag == "project" or (found.tag == "habit" and project.at_work(text))
            if ours and personal["who"].lower() == "we":
                yield replace(_owned(found, "project"), together=True), ()
            else:
                yield _owned(found, None if found.tag == "project" else "user"), ()
    elif relative:
        yield from _of_relative(relative)
    else:
        if re.match(r"(?:my|our)\b", text, _I):
            told = user.from_attribute(re.sub(r"^(?:my|our)\s+", "", text, flags=_I)) or _of_own_team(text)
        else:
            told = user.from_favourite(text)
        if told is not None:
            yield _owned(told, "user"), ()


def _of_own_team(text: str) -> Finding | None:
    found = re.match(
        r"(?:my|our) (?:team|company|department) (?:has (?=\d|two|three|four|five|six|seven|eight|nine|ten|a |no )"
        r"|consists of |meets |works |prefers |follows )(?P<v>.+)",
        text,
        _I,
    )
    if found is None or is_passing(found["v"]) or re.match(r"(?:\w+ing|not|a bit|to)\b", found["v"]):
        return None
    return Finding("work", value=found["v"])


def _of_relative(found: re.Match[str]) -> Iterator[tuple[Finding, tuple[str, ...]]]:
    """Yield what is said of a relative or a pet: read as if said of oneself, and kept under the relative."""
    kin, name = found["kin"].lower(), found["name"]
    owner = f"user/{slug(found['which'] + kin)}"
    if name and kin not in _ONLY:
        owner = f"{owner}/{slug(name)}"
    rest = found["rest"] if found["has"] else re.sub(r"^is (?:called|named) ", "name is ", found["rest"], flags=_I)
    if found["has"] or rest.lower().startswith("name is"):
        told = user.from_attribute(rest)
        if told and found["has"] and (told.slot or "").split("/")[0] not in _OF_OTHERS:
            told = None
    else:
        verb, _, after = without_adverbs(rest).partition(" ")
        told = next(user.from_predicate(without_adverbs(f"{first_form(verb)} {after}")), None)
    if told is not None and told.tag not in ("tool", "project"):
        many = told.slot == "name" and kin not in _ONLY
        kind = told.kind if told.tag == "plan" else "fact"
        yield (
            _owned(replace(told, kind=kind, told=None), None if many else owner),
            ("pet" if kin in _PETS else "family",),
        )


def _owned(found: Finding, owner: str | None) -> Finding:
    """Return a finding with the owner of its slot; without an owner it fills none."""
    return replace(found, slot=f"{owner}/{found.slot}" if owner and found.slot else None)


def _fact(found: Finding, said: str, more: tuple[str, ...] = ()) -> Fact:
    return Fact(
        content=third_person(found.told or said, together=found.together),
        kind=found.kind,
        tags=tuple(dict.fromkeys((*more, found.tag))),
        key=found.slot,
        ends=found.ends,
        quote=said,
    )
