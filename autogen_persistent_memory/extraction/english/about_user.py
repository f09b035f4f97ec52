"""Rules for who the user is, where the user lives and works, and for "my … is …". Pure functions.

A rule is a pattern that matches a predicate from its start ("live in …", without its "I"), and a function that makes a
`Finding` of the match, or refuses it. The first rule that yields a finding wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .about_life import LIFE, event
from .phrases import (
    PLACE_WORD,
    Finding,
    attribute_slot,
    category_named,
    compiled,
    favourite_slot,
    head,
    is_passing,
    is_proper,
    kept,
    name_in,
    value_in,
)
from .vocabulary import ANSWERS, EVENTS, FAITHS, JOBS, NATIONALITIES, any_of, inverted, pattern, words

_LANGUAGES = frozenset(word for word, slot in inverted(ANSWERS).items() if slot == "answer-language")
_AFTER_PLACE = r"(?:because|since|and|but|with|as|to|for|so|where|now|again|last|this|after|in|on|at)\b"


def _is_place(phrase: str) -> bool:
    if re.fullmatch(r"[a-z]{4,}(?: [a-z]{3,})?", phrase) and not re.match(
        r"(?:fear|peace|harmony|hope|denial|here|there|with|hell|heaven|next|work|bed|sync|python)", phrase
    ):
        return True  # typed without capitals
    is_day = re.match(r"(?:the )?(?:Monday|Tuesday|Wednesday|Thursday|Friday)", phrase)
    return (is_proper(phrase) and not is_day) or bool(PLACE_WORD.search(phrase))


def _home(found: re.Match[str]) -> Finding | None:
    place = found["v"]
    if re.match(r"\d+\w? [A-Z]", place):
        return Finding("home", slot="address", value=place)
    if not _is_place(place) or is_passing(place):
        return None
    return Finding("home", slot="home", value=head(re.split(rf"\s+{_AFTER_PLACE}", place)[0]))


def _moved(found: re.Match[str]) -> Finding | None:
    known = value_in(head(found["v"]))
    return _home(found) if known is None or known[0] in ("Phoenix", "Aurora") else None


def _origin(found: re.Match[str]) -> Finding | None:
    is_place = is_proper(found["v"]) or PLACE_WORD.search(found["v"])
    return Finding("origin", slot="origin", value=head(found["v"])) if is_place else None


def _name(found: re.Match[str]) -> Finding | None:
    name = name_in(found["v"])
    return Finding("name", slot="name", value=name, told=f"my name is {name}") if name else None


def _nickname(found: re.Match[str]) -> Finding | None:
    name = name_in(found["v"])
    return Finding("name", "preference", "nickname", name, told=f"I want to be called {name}") if name else None


def _age(found: re.Match[str]) -> Finding | None:
    return Finding("age", slot="age", value=found["v"]) if 0 < int(found["v"]) < 120 else None


def _speaks(found: re.Match[str]) -> Finding | None:
    spoken = [word for word in re.findall(r"[A-Z]\w+", found["v"]) if word.lower() in _LANGUAGES]
    return Finding("languages", value=" ".join(spoken)) if spoken else None


def _employer(found: re.Match[str]) -> Finding | None:
    place = re.split(r"\s+(?:as|because|since|and|but|in|on|from|last|next|this|where)\b", head(found["v"]))[0]
    lower = re.fullmatch(r"[a-z]{4,}(?: [a-z]+)?", place) and not re.match(
        r"(?:night|home|work|least|times|hours|scale|midnight|free|fun|money|weekends|data|people|kids|children"
        r"|animals|numbers|images|text)",
        place,
    )
    if (
        is_passing(place)
        or not (lower or re.match(r"(?:(?:a|an|the|my|myself)\b|[A-Z\d])", place))
        or re.match(r"the (?:moment|same|meeting|call|time|weekend)\b", place)
    ):
        return None
    return Finding("work", slot="employer", value=place)


def _joined(found: re.Match[str]) -> Finding | None:
    is_name = re.match(r"(?:the )?[A-Z]", found["v"])
    return _employer(found) if is_name and not re.match(r"the [A-Z][\w-]* (?:team|call|meeting)", found["v"]) else None


def _job(found: re.Match[str]) -> Finding | None:
    title = head(re.split(r"\s+(?:at|for|in|with|from|who|working|based|on|now)\b", found["v"])[0])
    if is_passing(title):
        return None
    return Finding("work", slot="job", value=re.sub(r"^(?:a|an|the)\s+", "", title), told=f"I {found['verb']} {title}")


def _team(found: re.Match[str]) -> Finding | None:
    return None if is_passing(found["v"]) else Finding("work", slot="team", value=found["v"])


IDENTITY = compiled(
    # identity
    (r"(?:am|go by|am called|was named) (?:called |named )?(?P<v>[A-ZÀ-Ý][^,]*)", _name),
    (
        r"(?:go by|use) (?P<v>(?:they|she|he|xe|ze)/\w+(?:/\w+)?)(?: pronouns)?",
        lambda found: Finding("pronouns", slot="pronouns", value=found["v"]),
    ),
    (r"(?:want to be|am usually|prefer to be|like to be) (?:called|addressed as) (?P<v>.+)", _nickname),
    (
        r"(?:am|turned|am turning|have turned) (?P<v>\d{1,3})(?: years? old| years? of age)?(?=$|,| (?:last|this"
        r"|today|yesterday|in|and|now|on)\b)",
        _age,
    ),
    (
        r"was born (?:on|in) (?P<v>.*(?:\d|January|February|March|April|May|June|July|August|September|October"
        r"|November|December).*)",
        kept("birthday", slot="birthday"),
    ),
    (r"(?:was born|grew up|was raised) (?:and raised |up )?(?:in|near|on) (?P<v>.+)", _origin),
    (r"(?:am (?:originally |actually )?from|come (?:originally )?from|hail from) (?P<v>.+)", _origin),
    (
        rf"am (?:half |a |an )?(?P<v>{any_of(NATIONALITIES)})(?=$|[,.]| (?:and|but|by|citizen|national)\b)",
        kept("origin", slot="origin", test=str.istitle),
    ),
    (
        rf"am (?:a |an )?(?:practicing |practising |devout )?(?P<v>{any_of(FAITHS)})(?=$|[,.]| (?:and|but)\b)",
        kept("religion", slot="religion"),
    ),
    (r"(?:also )?speak (?P<v>.+)", _speaks),
    (r"am (?:fluent|bilingual|native) (?:in |speaker of )?(?P<v>.+)", _speaks),
    # place
    (
        r"(?:live|reside|am living|have lived|have been living|am based|am located|am currently based|am settled"
        r"|have settled|stay) (?:right )?(?:in|near|outside|out of|just outside|close to|on|at) (?P<v>.+)",
        _home,
    ),
    (
        r"(?:moved|relocated|have moved|have relocated|emigrated|immigrated|am moving back) (?:back |house "
        r"|away )?(?:from [^,]{2,40}? )?(?:back )?(?:to|into) (?P<v>.+)",
        _moved,
    ),
    (r"live (?P<v>(?:alone|with (?:my|two|three|a|an)\b.*|abroad))", kept("home")),
    (
        r"am (?:in|visiting) (?P<v>[A-Z][^,]*? (?:now|right now|at the moment|until .*|this week|for (?:a few|two"
        r"|three|the) .*))$",
        kept("place", "temporary", "location", is_proper),
    ),
    (
        r"(?:attend|go to) (?P<v>(?:[\w'-]+ ){0,4}?(?:school|university|college|elementary|kindergarten|academy"
        r"|preschool|daycare|high)\b.*)",
        kept("studies", slot="school", test=is_proper),
    ),
    # work
    (
        r"(?P<verb>work as|am employed as|started as|was promoted to|got promoted to|was hired as"
        r"|am working as) (?P<v>(?:a |an |the |senior |head |\w).+)",
        _job,
    ),
    (
        rf"(?P<verb>became|have become|am becoming) (?P<v>(?:a |an |the )?(?:[\w/+#.-]+ "
        rf"){{0,4}}?(?:{any_of(JOBS)})\b.*)",
        _job,
    ),
    (
        rf"(?P<verb>am) (?P<v>(?:a |an |the )?(?:[\w/+#.-]+ ){{0,4}}?(?:{any_of(JOBS)})\b(?: (?:of|for"
        rf"|in) [\w ]+?)?)(?=$|[,.;]| (?:at|for|in|with|from|who|working|based|on|by|and|but|now|specializing"
        rf"|specialising)\b)",
        _job,
    ),
    (
        r"(?P<verb>am) (?P<v>(?:retired|self-employed|self employed|unemployed|freelancing|between jobs))(?=$|[,. ])",
        _job,
    ),
    (
        r"(?P<verb>run|own|founded|started|co-founded|manage) (?P<v>(?:a|an|my own|our own) (?:[\w-]+ "
        r"){0,3}?(?:business|company|startup|bakery|shop|restaurant|cafe|café|studio|agency|store|farm|practice|salon"
        r"|bar|hotel|clinic|firm)\b.*)",
        lambda found: Finding("work", slot="job", value=head(found["v"])),
    ),
    (
        r"(?:work|am working|have been working|am employed|have worked) (?:full[- ]time |part[- ]time "
        r"|remotely )?(?:at|for|with|by) (?P<v>.+)",
        _employer,
    ),
    (r"(?:joined|have joined) (?P<v>.+)", _joined),
    (
        r"(?:started|have started|got|have got|landed|found|accepted|took|have accepted|begin|start|began) (?:a |an "
        r"|my )?(?:new |great |full-time )*(?:job|role|position|gig|work|working|offer|internship)(?: as [\w ]+?)? "
        r"(?:at|with|for|from) (?P<v>.+)",
        _employer,
    ),
    (r"(?:was|got|have been) hired (?:by|at) (?P<v>.+)", _employer),
    (
        r"(?:am (?:on|in|part of|a member of)|work (?:on|in)|joined|moved to|switched to) (?P<v>(?:the "
        r"|our )(?:[\w-]+ ){1,4}(?:team|squad|department|group|division))\b.*",
        _team,
    ),
    (
        r"(?:lead|manage|head|head up|run) (?P<v>(?:the|a|our) (?:[\w-]+ ){0,4}(?:team|squad|department|group"
        r"|division|engineers|developers|people))\b.*",
        _team,
    ),
    (
        r"(?:study|am studying|am majoring in|major in|studied|have a degree in|am doing a (?:phd|master's"
        r"|degree) in) (?P<v>(?!for\b|hard\b|the\b|how\b|at night).+)",
        kept("studies", slot="studies"),
    ),
    (r"work (?P<v>in (?!(?:a|the|this|my|progress|parallel|general|an)\b)[\w &-]{3,40})$", kept("work")),
    (
        r"(?P<v>have (?:over |about |almost )?(?:\d+|two|three|four|five|six|seven|eight|nine|ten|many"
        r"|several)\+? years of (?:\w+ )?experience\b.*)",
        kept("work"),
    ),
    (
        r"am (?P<v>(?:new to [A-Z].*|(?:a |an )?(?:\w+ )?(?:morning person|night owl|early bird|introvert|extrovert"
        r"|perfectionist|minimalist)|(?:terrified|afraid|scared) of (?!losing|breaking|the\b).+))",
        kept("trait"),
    ),
    (r"report to (?P<v>[A-Z]\w+)$", kept("work")),
    (
        r"(?P<v>work (?:from home|remotely|nights|night shifts|part[- ]time|full[- ]time|weekends|in shifts).*)",
        kept("work"),
    ),
)


_MY = pattern(
    r"(?P<noun>(?:all-time |absolute |current |new |personal |preferred )?[\w'/-]+(?: [\w'/-]+){0,3}?)(?: of "
    r"choice)? (?P<verb>is|are|was) (?:now |currently |actually |still |probably )*(?:called |named |at "
    r"|in (?=[A-Z]))?(?P<v>[^?]+)"
)
_FAVOURITE = pattern(r"(?:all-time |absolute |current |new )*(?:favou?rite|fave?) (?P<thing>.+)")
_IS_FAVOURITE = pattern(
    r"(?P<v>[\w][\w\s'+#.&-]{0,60}?) (?:is|are) my (?:all-time |absolute |new )?(?:favou?rite"
    r"|fave?) (?P<thing>[\w\s-]+)$"
)
_SCHEDULED = pattern(
    r"(?P<v>[\w'-]+(?: [\w'-]+){0,5}?) (?:is|are|starts?|begins?|leaves?|departs?|takes place|ends?|will be|is due"
    r"|is scheduled for|happens) (?P<when>(?:on|at|in|next|this|due|scheduled|tomorrow|today|tonight|the|\d|from)\b.*"
    r"|[A-Z]\w+ \d.*)"
)
_EVENT = pattern(
    rf"\b(?:{any_of(EVENTS)}|lease|contract|visa|rent|shift|semester|school|internship|parental leave|leave|due date"
    rf"|passport|exams)\b"
)
_VAGUE = words("part, thing, bit, one, way, aspect, option, answer, example")


def from_predicate(predicate: str) -> Iterator[Finding]:
    """Yield what a predicate in the first person tells: by the first rule that fits, and an employer beside a job."""
    if re.match(r"(?:am|was) not (?!a (?:big |huge )?fan|into\b)", predicate):
        return
    for matcher, build in (*IDENTITY, *LIFE):
        found = matcher.match(predicate)
        finding = build(found) if found else None
        if finding is not None:
            yield finding
            yield from _beside(predicate, finding)
            return


def _beside(predicate: str, finding: Finding) -> Iterator[Finding]:
    if finding.slot == "job":
        place = re.search(r"\s(?:at|for) (?P<v>(?:the |a |an )?[A-Z\w].*)", predicate)
        found = _employer(place) if place else None
        if found is not None and not re.search(r"\bfor (?:the|my|our|\d)", predicate):
            yield Finding("work", slot="employer", value=found.value, told=f"I work at {found.value}")
    elif finding.slot == "employer":
        job = re.search(r"\sas (?P<v>(?:a|an|the|senior|head|lead|chief) .+)", predicate)
        if job:
            title = head(re.split(r"\s+(?:at|for|in|with|last|this|in)\b", job["v"])[0])
            yield Finding("work", slot="job", value=re.sub(r"^(?:a|an|the)\s+", "", title), told=f"I work as {title}")


def from_attribute(attribute: str) -> Finding | None:
    """Return what "my …" tells, given without its "my": "name is Sarah", "favourite colour is blue"."""
    scheduled = _SCHEDULED.match(attribute)
    if scheduled and not attribute_slot(scheduled["v"]):
        planned = event(scheduled)
        if planned is not None and _EVENT.search(scheduled["v"]):
            return planned
    found = _MY.match(attribute)
    if found is None or is_passing(found["v"]):
        return None
    noun, value = found["noun"], found["v"]
    favourite = _FAVOURITE.match(noun)
    if favourite:
        if favourite["thing"].split()[0].lower() in _VAGUE:
            return None
        return Finding("favourite", "preference", favourite_slot(favourite["thing"]), head(value))
    return _attribute(re.sub(r"^(?:current|new|personal|preferred) ", "", noun.lower()), value)


def from_favourite(clause: str) -> Finding | None:
    """Return what "blue is my favourite colour" tells."""
    found = _IS_FAVOURITE.match(clause)
    if found is None or is_passing(found["v"]) or found["thing"].split()[0].lower() in _VAGUE:
        return None
    return Finding("favourite", "preference", favourite_slot(found["thing"]), found["v"])


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
            r"(?:not|wrong|missing|broken|too|very|so|to(?! \w+ (?:a|an|\w+ing|the (?!file|bug|test))\b)|still|always"
            r"|being|spelled|printed|failing|\w+ing|never|with|like|really|just|pretty|quite|almost|great|amazing"
            r"|awesome|important|fun|hard|tough|about)\b",
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
