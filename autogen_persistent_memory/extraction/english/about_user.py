"""Rules for what people say of themselves: who they are, where they live, what they like. Pure functions.

A rule reads a predicate in the first person, without its subject and adverbs: "live in Berlin", "am allergic to nuts".
So the same rules serve a relative: "my wife lives in Berlin" is read as "live in Berlin", and told of her.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...core.lazy_regex import lazy
from .about_identity import IDENTITY, employer
from .about_life import LIFE, event
from .phrases import Finding, any_of, is_passing, is_proper, name_in
from .slots import attribute_slot, category_named, favourite_slot, head
from .vocabulary import EVENTS, words

_MY = lazy(
    r"(?P<noun>(?:all-time |absolute |current |new |personal "
    r"|preferred )?[\w'/-]+(?: [\w'/-]+){0,3}?)(?: of choice)? (?P<verb>is|are|was) (?:now "
    r"|currently |actually |still |probably )*(?:called |named |at |in (?=[A-Z]))?(?P<v>[^?]+)",
    re.IGNORECASE,
)
_FAVOURITE = lazy(r"(?:all-time |absolute |current |new )*(?:favou?rite|fave?) (?P<thing>.+)", re.IGNORECASE)
_IS_FAVOURITE = lazy(
    r"(?P<v>[\w][\w\s'+#.&-]{0,60}?) (?:is|are) my (?:all-time |absolute |new )?(?:favou?rite"
    r"|fave?) (?P<thing>[\w\s-]+)$",
    re.IGNORECASE,
)
_SCHEDULED = lazy(
    r"(?P<v>[\w'-]+(?: [\w'-]+){0,5}?) (?:is|are|starts?|begins?|leaves?|departs?|takes place"
    r"|ends?|will be|is due|is scheduled for|happens) (?P<when>(?:on|at|in|next|this|due"
    r"|scheduled|tomorrow|today|tonight|the|\d|from)\b.*|[A-Z]\w+ \d.*)",
    re.IGNORECASE,
)
_VAGUE = words("part, thing, bit, one, way, aspect, option, answer, example")


def from_predicate(predicate: str) -> Iterator[Finding]:
    """What a predicate in the first person tells: by the first rule that fits, and an employer beside a job."""
    if re.match(r"(?:am|was) not (?!a (?:big |huge )?fan|into\b)", predicate):
        return
    for pattern, build in (*IDENTITY, *LIFE):
        found = pattern.match(predicate)
        finding = build(found) if found else None
        if finding is not None:
            yield finding
            yield from _beside(predicate, finding)
            return


def _beside(predicate: str, finding: Finding) -> Iterator[Finding]:
    if finding.slot == "job":
        place = re.search(r"\s(?:at|for) (?P<v>(?:the |a |an )?[A-Z\w].*)", predicate)
        found = employer(place) if place else None
        if found is not None and not re.search(r"\bfor (?:the|my|our|\d)", predicate):
            yield Finding("work", slot="employer", value=found.value, told=f"I work at {found.value}")
    elif finding.slot == "employer":
        job = re.search(r"\sas (?P<v>(?:a|an|the|senior|head|lead|chief) .+)", predicate)
        if job:
            title = head(re.split(r"\s+(?:at|for|in|with|last|this|in)\b", job["v"])[0])
            yield Finding("work", slot="job", value=re.sub(r"^(?:a|an|the)\s+", "", title), told=f"I work as {title}")


def from_attribute(attribute: str) -> Finding | None:
    """What "my …" tells, without its "my": "name is Sarah", "favourite colour is blue"."""
    scheduled = _SCHEDULED.match(attribute)
    if scheduled and not attribute_slot(scheduled["v"]):
        planned = event(scheduled)
        if planned is not None and re.search(
            rf"\b(?:{any_of(EVENTS)}|lease|contract|visa|rent|shift|semester|school|internship"
            rf"|parental leave|leave|due date|passport|exams)\b",
            scheduled["v"],
            re.I,
        ):
            return planned
    found = _MY.match(attribute)
    if found is None or is_passing(found["v"]):
        return None
    noun, value = found["noun"], found["v"]
    favourite = _FAVOURITE.match(noun)
    if favourite:
        if favourite["thing"].split()[0].lower() in _VAGUE:
            return None
        return Finding("favourite", "preference", favourite_slot(favourite["thing"], value), head(value))
    return _attribute(re.sub(r"^(?:current|new|personal|preferred) ", "", noun.lower()), value)


def from_favourite(clause: str) -> Finding | None:
    """What "blue is my favourite colour" tells."""
    found = _IS_FAVOURITE.match(clause)
    if found is None or is_passing(found["v"]) or found["thing"].split()[0].lower() in _VAGUE:
        return None
    return Finding("favourite", "preference", favourite_slot(found["thing"], found["v"]), found["v"])


def _attribute(noun: str, value: str) -> Finding | None:
    if noun in ("hobbies", "hobby", "interests", "main hobby"):
        return Finding("like", "preference", value=head(value))
    category = category_named(noun)
    if category is not None:
        short = len(head(value).split()) <= 3 and not re.match(r"(?:not|too|very|so|slow|broken|\w+ing)\b", value)
        return Finding("preference", "preference", f"preference/{category}", head(value)) if short else None
    slot = attribute_slot(noun)
    if (
        slot is None
        or re.match(
            r"(?:not|wrong|missing|broken|too|very|so|to(?! \w+ (?:a|an|\w+ing|the (?!file|bug|test))\b)"
            r"|still|always|being|spelled|printed|failing|\w+ing|never|with|like|really|just|pretty"
            r"|quite|almost|great|amazing|awesome|important|fun|hard|tough|about)\b",
            value,
        )
        or (slot not in ("birthday", "anniversary") and re.match(r"(?:in|on)\b", value))
    ):
        return None
    if slot in ("name", "surname", "nickname"):
        name = name_in(value) or (name_in(value.title()) if value.islower() and len(value.split()) < 3 else None)
        return Finding("name", slot=slot, value=name, told=f"my {noun} is {name}") if name else None
    if slot in ("car", "laptop", "doctor", "website") and not re.match(r"(?:an?|my) |[A-Z\d]|\w+\.\w|https?:", value):
        return None
    if slot == "phone" and not re.search(r"\d{3}", value):
        return None
    if slot in ("employer", "home", "school", "team") and not is_proper(value):
        return None
    return Finding({"job": "work", "employer": "work"}.get(slot, slot), slot=slot, value=head(value))
