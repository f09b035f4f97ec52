"""Rules for things that ended without a replacement: "no longer", "stopped", "cancelled". Pure functions."""

from __future__ import annotations

import re
from dataclasses import replace

from ...core.lazy_regex import lazy
from ..extractor import NOT_NAMING, Ending
from .about_user import from_predicate
from .claims import without_adverbs
from .person import first_form, plain_form
from .phrases import Finding, choice_key, head, is_passing
from .vocabulary import KIN, pattern, words

_I = re.IGNORECASE
_GENERIC = words(
    """
    trip, meeting, plan, plans, subscription, membership, appointment, flight, holiday, vacation, event, booking,
    reservation, order, visit, account, job, project
    """
)
_TERMINABLE = lazy(
    rf"[A-Z]|\b(?:{'|'.join(sorted(_GENERIC))}|wedding|party|concert|contract|lease|support|conference|interview|call"
    rf"|dinner|course|class|launch|release|beta|tour|surgery)s?\b"
)
_LEFT_OFF = words(
    """
    use, drink, eat, smoke, play, do, practice, practise, watch, read, attend, go, run, take, train, date, volunteer,
    subscribe, follow, commute, drive, cook, own, listen, vape, gamble
    """
)

_NO_LONGER = pattern(
    r"(?P<who>I|we) (?:(?:am|are) no longer (?P<am>.+)|no longer (?P<do>.+)|(?:do not|cannot) (?P<neg>.+?) (?:any "
    r"?more|any longer|these days)(?P<t1>\b.*)|(?:am|are) not (?P<negam>.+?) (?:any ?more|any longer)(?P<t2>\b.*))"
)
_STOPPED = pattern(
    r"(?P<who>I|we) (?:have |just |finally |recently |also |already )*(?:stopped|quit|gave up|given up|am done"
    r"|are done) (?P<v>\w+ing\b.*|(?:coffee|alcohol|sugar|caffeine|cigarettes|meat|dairy|gluten|carbs|nicotine|weed"
    r"|drinking|social media|facebook|twitter|instagram|gluten|soda|chocolate)\b.*)"
)
_LEFT_JOB = pattern(
    r"(?:I) (?:have |just |finally |recently |am |was |got )*(?:(?:quit|left|lost|resigned from) (?:my |the )?(?:job"
    r"|position|role)(?: (?:at|with) (?P<v>(?-i:[A-Z])[^,.]*?))?|(?:quit|resigned|was fired|was laid off|fired"
    r"|laid off)(?: (?:from|by|at) (?P<v2>(?-i:[A-Z])[^,.]*?))?|(?:left|quitting|leaving) "
    r"(?P<v3>(?-i:[A-Z])[\w&-]*))(?=$|[,.]| (?:yesterday|today|last|this|in|on|after|because|and|since|to)\b)"
)
_DROPPED = pattern(
    r"(?P<who>I|we|our team|my team|the team) (?:have |has |just |finally |recently |also |already "
    r"|decided to )*(?P<verb>cancell?ed|cancell?|called off|dropped|drop|ditched|abandoned|got rid of|gave up|sold"
    r"|returned|uninstalled|removed|deleted|retired|canned|gave away|broke up with|unsubscribed from) (?P<v>.+)"
)
_IS_CANCELLED = pattern(
    r"(?P<v>(?:the|my|our) [^,]{2,80}?) (?:has been|have been|was|were|is|are|got) (?:just |now )?(?:cancell?ed"
    r"|called off|scrapped|dropped|discontinued|abandoned)\b.*"
)
_DIED = pattern(
    rf"(?:my|our) (?:(?:old|beloved|dear|poor|late) )*(?P<kin>{KIN})(?:,? (?P<name>(?-i:[A-Z])[\w-]+))?,? (?:has "
    rf"|just |sadly |recently )*(?:died|passed away|passed|was put (?:down|to sleep)|ran away)\b.*"
)


def ending(text: str) -> Finding | None:
    """Return what a clause says is over."""
    found = _no_longer(text) or _gone(text)
    if found and found.ends and (found.ends.key or "").startswith("project/") and re.match(r"we\b", text, _I):
        return replace(found, together=True)
    return found


def _no_longer(text: str) -> Finding | None:
    found = _NO_LONGER.match(text)
    stopped = _STOPPED.match(text)
    if found:
        predicate, who = found["do"] or found["neg"] or f"am {found['am'] or found['negam']}", found["who"]
    elif stopped:
        verb, _, rest = stopped["v"].partition(" ")
        predicate = f"{plain_form(verb)} {rest}".strip() if verb.endswith("ing") else f"have {stopped['v']}"
        who = stopped["who"]
    else:
        return None
    predicate = re.sub(
        r"\s+(?:last (?:year|month|week)|yesterday|now|since .*|because .*|in (?:\d{4}|(?:Jan|Febr)uary|March|April"
        r"|May|June|July|August|(?:Septem|Octo|Novem|Decem)ber).*)$",
        "",
        without_adverbs(predicate),
        flags=_I,
    )
    verb, _, rest = predicate.partition(" ")
    if is_passing(rest):
        return None
    is_use = first_form(verb).lower() in ("use", "run", "deploy", "code", "write", "work")
    if is_use and (key := choice_key(rest, together=who.lower() == "we")):
        return _over("tool", key, head(rest))
    known = next(from_predicate(predicate), None)
    if known is not None and known.slot is not None:
        return _over(known.tag, f"user/{known.slot}", known.value)
    if known is None and not (stopped and verb not in ("get", "see")) and verb.lower() not in _LEFT_OFF:
        return None
    named = head(rest) or (stopped["v"] if stopped else verb)
    named = re.sub(r"^(?:a|an|the|to|at|in|for|with|allergic to)\s+", "", named)
    return _over(known.tag if known else "ending", None, named, known.tag if known else None)


def _gone(text: str) -> Finding | None:
    left = _LEFT_JOB.match(text)
    if left:
        return _over("work", "user/employer", left["v"] or left["v2"] or left["v3"] or "")
    died = _DIED.match(text)
    if died:
        return _over("family", None, died["name"] or died["kin"])
    found = _DROPPED.match(text) or _IS_CANCELLED.match(text)
    if found is None:
        return None
    thing = re.sub(
        r"\s+(?:because|since|last|yesterday|today|this|as|due|and|in [A-Z\d]\w+)\b.*", "", head(found["v"]), flags=_I
    )
    if is_passing(thing) or re.match(
        r"(?:the )?(?:file|line|folder|function|import|code|node|column|row)s?\b", thing, _I
    ):
        return None
    if re.match(r"the\b", thing, _I) and not _TERMINABLE.search(thing):
        return None
    known = choice_key(thing, together=(found.groupdict().get("who") or "we").lower() != "i")
    naming = " ".join(word for word in re.findall(r"[\w+#.'-]+", thing) if word.lower() not in NOT_NAMING)
    sharper = " ".join(word for word in naming.split() if word.lower() not in _GENERIC)
    return _over("ending", known, sharper or naming)


def _over(tag: str, key: str | None, naming: str, sort: str | None = None) -> Finding:
    return Finding(tag, value=naming, ends=Ending(key, naming.strip(" .,!"), sort))
