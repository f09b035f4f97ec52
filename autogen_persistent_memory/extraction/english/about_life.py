"""Rules for family, health, diet, likes, possessions, habits and plans, and when a plan takes place. Pure functions.

`LIFE` is read by `about_user.from_predicate`, after its own rules.
"""

from __future__ import annotations

import re

from .phrases import (
    ARTICLE,
    FEW,
    Finding,
    answer_slot,
    choice_slot,
    compiled,
    head,
    is_likable,
    is_passing,
    kept,
    value_in,
)
from .vocabulary import (
    DIETS,
    EVENTS,
    HEALTH_TRAITS,
    ILLNESSES,
    NOUNS_OF_FAMILY,
    PETS,
    POSSESSIONS,
    THINGS_BUILT,
    any_of,
    pattern,
)

_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTH = r"(?:january|february|march|april|june|july|august|september|october|november|december)"
_COUNT = r"(?:a|one|two|three|four|five|six|a few|a couple of|\d{1,2})"

_DAYS = pattern(
    rf"\b(?:today|tonight|tomorrow|this (?:morning|afternoon|evening|week|weekend|{_DAY})|(?:on|by|until"
    rf"|before) (?:the )?(?:coming )?{_DAY}(?!s)|(?:on|at|over) the weekend|in {_COUNT} (?:hours?|days?)"
    rf"|coming {_DAY})\b"
)
_WEEKS = pattern(
    rf"\b(?:next (?:week|month|weekend|{_DAY})|in {_COUNT} weeks?|in a month|(?:later )?this month"
    rf"|(?:at the )?end of (?:the|this) (?:week|month))\b"
)
_LONG = pattern(
    rf"\b(?:{_MONTH}|(?:in|on|by|until|since|early|late|mid|of|next|this) May|May \d{{1,2}}|\d{{1,2}}(?:st|nd|rd"
    rf"|th)?(?: of)? May|(?:in|by|until|before) (?:early |late )?20\d\d|(?:next|this|in the|over the) (?:year|spring"
    rf"|summer|fall|autumn|winter|quarter)|\d{{4}}-\d\d-\d\d|\d{{1,2}}[./]\d{{1,2}}(?:[./]\d{{2,4}})?"
    rf"|in {_COUNT} months?|(?:for|at|over|before|after) (?:christmas|easter|thanksgiving|new year|the holidays)"
    rf"|the \d{{1,2}}(?:st|nd|rd|th))\b"
)


def kind_of_plan(text: str) -> str | None:
    """Return the kind whose lifetime suits a plan: `temporary` for days, `context` for weeks, `fact` for later; else None."""
    if _LONG.search(text):
        return "fact"
    if _WEEKS.search(text):
        return "context"
    return "temporary" if _DAYS.search(text) else None


_OFTEN = (
    r"(?:every (?:day|morning|evening|night|week|weekend|month|year|summer|winter|other day|(?:Mon|Tues|Wednes|Thurs"
    r"|Fri|Satur|Sun)day)|daily|weekly|(?:once|twice|three times|\d times) a (?:day|week|month|year)|on (?:weekends"
    r"|weekdays|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days)|in the (?:mornings|evenings))"
)


def _eats(found: re.Match[str]) -> Finding | None:
    whole_diet = re.match(r"(?:any )?(?:meat|fish and meat|animal products)\b", found["v"], re.I)
    return Finding("diet", slot="diet" if whole_diet else None, value=head(found["v"]))


def _prefers(found: re.Match[str]) -> Finding | None:
    wanted = found["v"]
    if is_passing(wanted) or re.match(r"not\b", wanted):
        return None
    of_answers = re.search(r"\b(?:answers?|replies|responses?|explanations?|summaries)\b", wanted, re.I)
    slot = (answer_slot(wanted) if of_answers else None) or choice_slot(wanted)
    return Finding("preference", "preference", f"preference/{slot}" if slot else None, head(wanted))


def _wants(found: re.Match[str]) -> Finding | None:
    wanted = found["v"]
    if is_passing(re.sub(r"\byour\b", "the", wanted)) or not re.search(
        r"\b(?:answers|replies|responses|explanations|summaries)\b", wanted, re.I
    ):
        return None
    slot = answer_slot(wanted)
    return Finding("preference", "preference", f"preference/{slot}", wanted) if slot else None


def _themed(found: re.Match[str]) -> Finding | None:
    known = value_in(found["v"])
    return Finding("preference", "preference", "preference/theme", known[0]) if known and known[1] == "theme" else None


def _habit(found: re.Match[str]) -> Finding | None:
    if is_passing(found["v"]) or re.search(r"\b(?:it|errors?|time I)\b", found["v"]):
        return None
    return Finding("habit", value=head(found["v"]))


def _plan(found: re.Match[str]) -> Finding | None:
    plan = found["v"]
    kind = kind_of_plan(plan)
    if kind is None or is_passing(plan) or re.search(r"\b(?:that|it)\b", plan):
        return None
    return Finding("plan", kind, value=head(plan))


def event(found: re.Match[str]) -> Finding | None:
    """Return the plan `v`, if `when` says when it takes place."""
    kind = kind_of_plan(found["when"])
    return Finding("plan", kind, value=found["v"]) if kind and not is_passing(found["v"]) else None


LIFE = compiled(
    # family
    (
        r"(?:am|got|have been|am happily|am recently|got recently) (?P<v>(?:married|engaged|divorced|widowed"
        r"|separated|single)(?! (?:in (?:a|the)|with the|handed))\b(?!-)[^?]*)",
        lambda found: (
            None if kind_of_plan(found["v"]) else Finding("family", slot="marital-status", value=found["v"].split()[0])
        ),
    ),
    (
        rf"(?:have|am a (?:mother|father|mom|dad|parent|mum) of) (?P<v>(?:{FEW})(?:{any_of(NOUNS_OF_FAMILY)}"
        rf"|daughters?|sons?|brothers?|sisters?|kid|child|baby|wife|husband|partner|girlfriend|boyfriend|grandson"
        rf"|granddaughter)\b.*)",
        kept("family"),
    ),
    (
        r"(?:am|became|just became) (?P<v>(?:a |an )?(?:\w+ )?(?:mother|father|mom|dad|parent|mum|grandmother"
        r"|grandfather|only child|twin)\b.*)",
        kept("family"),
    ),
    (
        rf"(?:have|own|keep|adopted|got|bought|rescued|have got|have adopted|foster) (?P<v>(?:{ARTICLE} "
        rf"|)(?:{FEW})(?:{any_of(PETS)})\b.*)",
        kept("pet"),
    ),
    # health
    (
        r"am (?P<v>(?:\w+ )?(?:allergic|intolerant) to .+)",
        lambda found: (
            None if is_passing(found["v"].split(" to ")[-1]) else Finding("health", value=found["v"].split(" to ")[-1])
        ),
    ),
    (
        rf"am (?P<v>(?:a |an )?(?:\w+ ){{0,2}}?(?:{any_of(HEALTH_TRAITS)}))(?=$|[,.;]| (?:and|but|so|since|in|on)\b)",
        kept("health"),
    ),
    (
        rf"(?:have|have got|suffer from|was diagnosed with|am diagnosed with|got diagnosed with|live with"
        rf"|struggle with) (?P<v>(?:an? |severe |mild |chronic |type |\d |\w+ ){{0,4}}?(?:{any_of(ILLNESSES)})\b.*)",
        kept("health"),
    ),
    (r"(?:suffer from|was diagnosed with|am recovering from|got diagnosed with) (?P<v>.+)", kept("health")),
    (r"(?:am (?:\d+ (?:weeks|months) )?)(?P<v>pregnant)\b.*", kept("health", slot="pregnancy")),
    (r"am (?P<v>expecting (?:a baby|twins|our|my)\b.*)", kept("health", slot="pregnancy")),
    (
        r"take (?P<v>(?:\d+ ?(?:mg|mcg|ml|units)\b.*|[\w ]+ (?:every (?:day|morning|night|evening)|daily|twice a day"
        r"|for (?:my )?[\w ]+(?:pressure|pain|anxiety|thyroid|diabetes))\b.*))",
        kept("health"),
    ),
    (
        r"(?:use|wear|rely on) (?P<v>(?:a |an )?(?:wheelchair|hearing aids?|screen reader|cane|walker|prosthe\w+"
        r"|insulin pump|cpap|glasses|contact lenses)\b.*)",
        kept("health"),
    ),
    (
        rf"(?:am|went|turned|became|have been|have gone|have become|am now|am going|am on|follow|keep|eat|started"
        rf"|am doing|am mostly|switched to|changed to|moved to|went back to being|am back to being) (?P<v>(?:a |an "
        rf"|the |strictly |strict )?(?:{any_of(DIETS)})\b(?: diet)?)(?=$|[,.;!]| )(?! (?:recipe|restaurant|food"
        rf"|option))",
        kept("diet", slot="diet"),
    ),
    (
        r"(?:(?:started|am|went back to|have gone back to|am back to|have started) )?(?P<v>eat(?:ing)? (?:meat|fish"
        r"|dairy|everything|gluten|eggs)(?: (?:again|now))?)(?=$|[,.])",
        kept("diet", slot="diet"),
    ),
    (
        r"(?:do not|cannot|never) (?:(?:eat|drink|consume|tolerate) (?!anything|that|it\b|much|enough)|(?:do"
        r"|have) (?=(?:any )?(?:dairy|gluten|sugar|caffeine|nuts|alcohol|milk|eggs|lactose|soy|shellfish|pork|meat"
        r"|wheat|peanuts)\b))(?P<v>.+)",
        _eats,
    ),
    # likes
    (r"(?:would )?prefer (?P<v>.+)", _prefers),
    (r"(?:favor|favour) (?P<v>.+)", _prefers),
    (r"would rather (?P<v>(?!not\b).+ than .+)", kept("preference", "preference")),
    (
        r"(?:like|love|enjoy|adore|cherish|would never miss|cannot get enough of|cannot live without"
        r"|appreciate a good) (?P<v>.+)",
        kept("like", "preference", test=is_likable),
    ),
    (
        r"am (?:a )?(?:really |very |so |quite |totally |huge |big |massive |lifelong )*(?:fan of|into|fond of"
        r"|keen on|obsessed with|passionate about|crazy about|addicted to) (?P<v>.+)",
        kept("like", "preference", test=is_likable),
    ),
    (
        r"(?:hate|dislike|detest|loathe|despise|cannot stand|cannot bear|do not like|do not enjoy|do not really like"
        r"|am not a (?:big )?fan of|cannot tolerate|am not into|do not care for) (?P<v>.+)",
        kept("dislike", "preference", test=is_likable),
    ),
    (r"(?:want|would like|need|like|expect) (?P<v>.+)", _wants),
    (
        r"(?:have|keep|use|set) (?P<v>(?:my \w+ (?:in|to|on) )?(?:the )?(?:dark|light|high contrast) (?:mode"
        r"|theme)s?\b.*)",
        _themed,
    ),
    # possession
    (
        rf"(?:have|have got|bought|got|built|have bought|rent|have just bought) (?P<v>(?:{ARTICLE} "
        rf"|my own )(?:{FEW})(?:{any_of(POSSESSIONS)})\b.*)",
        kept("possession"),
    ),
    (
        rf"have (?P<v>(?:a|an|the|my) (?:[\w'-]+ ){{0,3}}?(?:{any_of(EVENTS)})\b[^,]*?) (?P<when>(?:on|at|in|next"
        rf"|this|tomorrow|today|tonight|coming)\b.*)",
        event,
    ),
    (
        r"(?:own|drive|ride|collect) (?P<v>(?!it|that|this|me\b|myself).+)",
        kept("possession", test=lambda v: not re.match(r"(?:to|home|there|the car to)\b", v)),
    ),
    # what people do
    (
        r"(?:play|have played|have been playing) (?P<v>(?:the |in an? )?\w+.*)",
        kept(
            "habit",
            test=lambda v: not re.match(r"(?:around|with|a role|the role|back|along|devil|for|together|\w+ly\b)", v),
        ),
    ),
    (
        rf"(?!get\b|see\b|receive\b|have to\b|need\b|am\b|will\b|run into\b|do not\b|was\b|were\b|had\b"
        rf"|cannot\b)(?P<v>\w+ .*?{_OFTEN}.*)",
        _habit,
    ),
    (
        rf"(?:am|have been|started) (?:building|developing|working on|creating|writing) (?P<v>(?:a|an|my"
        rf"|our) (?:[\w'-]+ ){{0,4}}?(?:{any_of(THINGS_BUILT)})\b.*)",
        kept("project", slot="goal"),
    ),
    (
        r"am (?:currently )?(?:learning|teaching myself) (?P<v>(?!how\b|to\b|that\b|about this|a (?:ton|lot|bit)"
        r"|so much|with\b|from\b|more\b|new\b|as\b).+)",
        kept("habit"),
    ),
    # plans
    (
        r"(?:am (?!trying|looking|working|wondering|asking|getting (?:a|an|the)\b|having|seeing|thinking|using"
        r"|writing)(?:going to |flying |\w+ing )|will |have to |leave |fly |travel |start |arrive |graduate "
        r"|return )(?P<v>.+)",
        _plan,
    ),
)
