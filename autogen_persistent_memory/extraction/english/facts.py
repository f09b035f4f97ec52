"""Facts from what people say, by rule: no model, a fraction of a millisecond a sentence. A pure function."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...core.lazy_regex import lazy
from ..english import about_project as project
from ..english import about_user as person
from ..extractor import Ending, Fact
from .about_life import kind_of_plan
from .claims import Claim, Clause, claims, clauses, without_adverbs
from .endings import ending
from .instructions import instruction
from .person import first_form, third_person
from .phrases import Finding, is_passing, slug
from .vocabulary import MANY_RELATIONS, ONLY_RELATIONS, PETS, words

_I = re.IGNORECASE
_LONGEST_FACT = 300
_ONLY = words(ONLY_RELATIONS)
_KIN = "|".join(
    re.escape(word) for word in sorted(words(f"{ONLY_RELATIONS},{MANY_RELATIONS},{PETS}"), key=len, reverse=True)
)
_RELATIVE = lazy(
    rf"(?:my|our) (?P<which>(?:(?:older|younger|elder|little|big|other|oldest|youngest|eldest|new"
    rf"|old|middle|first|second|beloved|late|dear) )*)(?P<kin>{_KIN})\b(?:,"
    rf"? (?P<name>(?-i:[A-Z])[\w-]+),?)?(?P<has>'s)? (?P<rest>.+)",
    _I,
)
_OF_OTHERS = frozenset(
    ("name", "surname", "age", "birthday", "favourite", "job", "employer", "diet", "pronouns", "email", "phone", "home")
)
_PERSONAL = lazy(r"(?P<who>I|we)\s+(?P<rest>.+)", _I)
_AS_A = lazy(r"as (?P<v>(?:a|an) [\w\s-]{3,50}?),\s+(?=(?:I|we|my|our|it|the|what|could|can|how)\b)", _I)


def extract_facts(text: str) -> list[Fact]:
    """The facts that a message of the user's tells of the user and of the user's work, in order, each once.

    Args:
        text: The message. Only its beginning is read if it is very long.

    >>> [fact.content for fact in extract_facts("My name is Sarah and I prefer TypeScript")]
    ["The user's name is Sarah.", 'The user prefers TypeScript.']
    """
    told = (fact for claim in claims(text) for fact in _of_claim(claim))
    once = {fact.content: fact for fact in told if 8 <= len(fact.content) <= _LONGEST_FACT}
    return list(once.values())


def _of_claim(claim: Claim) -> Iterator[Fact]:
    whole = _of_whole(claim)
    if whole is not None:
        yield whole
        return
    role = _AS_A.match(claim.text)
    if role:
        yield from (
            _fact(found, f"I am {role['v']}", key=_key("user", found))
            for found in person.from_predicate(f"am {role['v']}")
        )
        claim = Claim(claim.text[role.end() :])
    facts = [fact for clause in clauses(claim) for fact in _of_clause(clause)]
    if not facts and claim.explicit and not is_passing(claim.text):
        facts = [_remembered(claim)]
    yield from facts


def _of_whole(claim: Claim) -> Fact | None:
    """What only a whole sentence tells, with its reason."""
    learned = project.lesson(claim.text)
    if learned is not None:
        return _fact(learned, claim.text, together=True)
    decided = project.decision(claim.text)
    if decided is not None:
        over = ending(claim.text) if decided[0].slot is None else None
        return _fact(decided[0], claim.text, together=decided[1], key=decided[0].slot, ends=over[1] if over else None)
    wanted = instruction(claim.text)
    if wanted is not None:
        return _fact(wanted, claim.text, key=_key("user", wanted))
    return None


def _of_clause(clause: Clause) -> Iterator[Fact]:
    text = clause.text
    decided = project.decision(text)
    if decided is not None:
        yield _fact(decided[0], clause.whole, together=decided[1], key=decided[0].slot)
        return
    over = ending(text)
    if over is not None:
        together = re.match(r"we\b", text, _I) is not None and (over[1].key or "").startswith("project/")
        yield _fact(over[0], clause.whole, together=together, ends=over[1])
        return
    if re.search(r"\b(?:no longer|any ?more)\b", text, _I):
        return  # something is over, but nothing that the rules know
    switched = project.switch(text)
    if switched is not None:
        found, old, together = switched
        yield _fact(
            found, clause.whole, together=together, key=found.slot, ends=Ending(found.slot, old) if old else None
        )
        return
    used = project.use(text)
    if used is not None:
        yield _fact(used[0], clause.whole, together=used[1], key=used[0].slot)
        return
    ours = project.attribute(text)
    if ours is not None:
        yield _fact(ours, clause.whole, key=ours.slot)
        return
    yield from _of_person(clause)


def _of_person(clause: Clause) -> Iterator[Fact]:
    text = clause.text
    personal = _PERSONAL.match(text)
    relative = _RELATIVE.match(text)
    if personal:
        predicate = re.sub(r"^are\b", "am", without_adverbs(personal["rest"]))
        for found in person.from_predicate(predicate):
            ours = found.tag == "project" or (found.tag == "habit" and project.at_work(text))
            together = ours and personal["who"].lower() == "we"
            key = _key("project" if together else "user", found) if together or found.tag != "project" else None
            yield _fact(found, clause.whole, together=together, key=key)
    elif relative:
        yield from _of_relative(relative, clause)
    elif re.match(r"(?:my|our)\b", text, _I):
        told = person.from_attribute(re.sub(r"^(?:my|our)\s+", "", text, flags=_I))
        if told is None:
            told = _of_own_team(text)
        if told is not None:
            yield _fact(told, clause.whole, key=_key("user", told))
    else:
        favourite = person.from_favourite(text)
        if favourite is not None:
            yield _fact(favourite, clause.whole, key=_key("user", favourite))


def _of_own_team(text: str) -> Finding | None:
    found = re.match(
        r"(?:my|our) (?:team|company|department) (?:has (?=\d|two|three|four|five|six|seven|eight"
        r"|nine|ten|a |no )|consists of |meets |works |prefers |follows )(?P<v>.+)",
        text,
        _I,
    )
    if found is None or is_passing(found["v"]) or re.match(r"(?:\w+ing|not|a bit|to)\b", found["v"]):
        return None
    return Finding("work", value=found["v"])


def _of_relative(found: re.Match[str], clause: Clause) -> Iterator[Fact]:
    """What is said of a relative or a pet: read like what one says of oneself, and kept under the relative."""
    kin, name = found["kin"].lower(), found["name"]
    owner = f"user/{slug(found['which'] + kin)}"
    if name and kin not in _ONLY:
        owner = f"{owner}/{slug(name)}"
    if found["has"]:
        told = person.from_attribute(found["rest"])
        findings = [told] if told and (told.slot or "").split("/")[0] in _OF_OTHERS else []
    else:
        rest = re.sub(r"^is (?:called|named) ", "name is ", found["rest"], flags=_I)
        if rest.lower().startswith("name is"):
            told = person.from_attribute(rest)
            findings = [told] if told else []
        else:
            verb, _, after = without_adverbs(rest).partition(" ")
            findings = list(person.from_predicate(without_adverbs(f"{first_form(verb)} {after}")))[:1]
    for finding in findings:
        many = finding.slot == "name" and kin not in _ONLY
        if finding.tag not in ("tool", "project"):
            yield _fact(
                Finding(finding.tag, finding.kind if finding.tag == "plan" else "fact", finding.slot, finding.value),
                clause.whole,
                key=None if many else _key(owner, finding),
                more=("pet" if kin in words(PETS) else "family",),
            )


def _remembered(claim: Claim) -> Fact:
    """What was said in order to be remembered, though no rule knows what it is."""
    return _fact(Finding("remembered", kind_of_plan(claim.text) or "fact"), claim.text)


def _key(owner: str, found: Finding) -> str | None:
    return f"{owner}/{found.slot}" if found.slot else None


def _fact(
    found: Finding,
    said: str,
    *,
    together: bool = False,
    key: str | None = None,
    ends: Ending | None = None,
    more: tuple[str, ...] = (),
) -> Fact:
    content = third_person(found.told or said, together=together)
    tags = tuple(dict.fromkeys((*more, found.tag)))
    return Fact(content=content, kind=found.kind, tags=tags, key=key, ends=ends, quote=said)
