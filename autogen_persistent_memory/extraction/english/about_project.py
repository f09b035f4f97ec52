"""Rules for work: decisions, switches, tools in use, and what failed. Pure functions."""

from __future__ import annotations

import re

from ..extractor import Ending
from .claims import is_unreal
from .phrases import (
    Finding,
    attribute_slot,
    category_named,
    choice_key,
    choice_slot,
    head,
    is_passing,
    qualifier,
    value_in,
)
from .vocabulary import PROJECT_PARTS, PROJECT_SUBJECTS, any_of, pattern, words

_I = re.IGNORECASE
_PARTS = words(PROJECT_PARTS)

TEAM_SUBJECT = rf"(?:we|(?:our|my|the|this) (?:[\w-]+ )?(?:{any_of(PROJECT_SUBJECTS)}))"
_ADVERBS = (
    r"(?:(?:have|has|finally|just|all|then|also|now|already|both|recently|eventually|ultimately|jointly|unanimously"
    r"|originally|together|today|yesterday|am|are|is|\w+ly) )*"
)

_DECIDED = pattern(
    rf"(?:(?:after|following|in the end|last|on|this|yesterday|today|as a team|in the)\b[^,]{{0,60}}?,? )?(?P<who>I"
    rf"|my \w+ and I|{TEAM_SUBJECT}) {_ADVERBS}"
    r"(?P<what>(?:decided|chose|agreed|settled (?=on|for|upon)|opted|voted|committed|resolved)\b|ended up (?:choosing"
    r"|with|going with|using|picking)\b|picked (?=[A-Z\w])|went (?:with|for)\b|(?:are |is |am )?going with\b"
    r"|made the decision\b|have chosen\b|chosen\b)(?P<rest>.*)"
)
_DECISION_LABEL = pattern(r"(?:decision|final decision|decided)\s*:\s*(?P<rest>.+)")
_WAS_DECIDED = pattern(
    r"(?:it was (?:decided|agreed)|the decision (?:is|was)|the (?:team's |final )?decision is) (?P<rest>(?:that"
    r"|to)\b.+)"
)
_BECAUSE = pattern(r"\b(?:because|since|so that|due to)\b")
_AT_WORK = pattern(
    r"\b(?:team|company|ship\w*|releas\w*|beta|deploy\w*|sprints?|apps?|code\w*|apis?|features?|customers?|clients?"
    r"|support\w*|servers?|tests?|testing|projects?|products?|micro-?services|schemas?|data|users|launch\w*|roadmap"
    r"|backlog|refactor\w*|rewrit\w*|migrat\w*|library|libraries|framework|version|models?|pipeline|docs|review\w*"
    r"|standup|meetings?|on-call)\b"
)
_UNDECIDED = pattern(
    r"(?:\s*(?:yet|whether|between|if|what|which|how|later)\b|\s+on (?:what|which|how|whether)\b|\s*$|\s+(?:with"
    r"|that) (?:you|him|her|them|me)\b|\s+(?:it|this|that|so)\W*$)"
)
_LEAVING = pattern(
    r"\s*to (?:drop|remove|abandon|leave|stop|retire|ditch|get rid of|cancel|kill|deprecate|move away from)\b"
)

_SWITCHED = pattern(
    rf"(?P<who>I|{TEAM_SUBJECT}) {_ADVERBS}"
    r"(?:(?:switched|switching|moved|moving|migrated|migrating|changed|converted|transitioned|upgraded|ported"
    r"|went back|gone back|shifted|rewrote|rewritten)\b(?P<what>[^,]*?)(?: (?:away )?from (?P<old>[^,]+?))?(?: "
    r"over)? (?:to|into|in) (?P<new>.+)|(?:replaced|swapped|swapping|replacing|exchanged) (?P<old2>[^,]+?) (?:with"
    r"|for|by) (?P<new2>.+))"
)
_USES = pattern(
    rf"(?P<who>I|{TEAM_SUBJECT}) {_ADVERBS}"
    r"(?P<verb>uses?|using|on|do(?= (?-i:[A-Z]))|writes?|lives? on|runs? (?:on|with)|running (?:on|with)?"
    r"|deploys? (?:to|on|with)|deploying (?:to|on)|(?:is |are )?(?:written|built|developed|implemented|coded|deployed"
    r"|hosted|based) (?:in|with|on|to|using)|builds? (?:with|on)|codes? (?:in|with)|writes? (?:everything "
    r"|most things |code )?in|develops? (?:in|on|with)|programs? in|hosts? (?:\w+ )?on|works? (?:in|with)|relies on"
    r"|rely on|stores? (?:\w+ ){0,2}in|sticks? with|standardi[sz]ed? on|follows?|tracks? (?:\w+ ){1,2}in"
    r"|manages? (?:\w+ ){1,2}(?:with|in)) (?P<v>.+)"
)
_OUR = pattern(
    r"(?:our|the project's|the team's|(?:my|the) (?=(?:project|app|product|startup) is called)) ?(?P<noun>[\w'-]+(?: "
    r"[\w'-]+){0,2}?) (?P<verb>is|are) (?:now |currently |still )*(?:called |named )?(?P<v>.+)"
)

_FAILED = pattern(
    r"(?:(?P<who>I|we|our \w+|my \w+) (?:have |also |first |originally |once |initially |already )*(?:tried|attempted"
    r"|experimented with)\b ?(?P<tried>[^,]{2,160}?),? (?P<joined>but|and|however|yet) (?P<result>.+)"
    r"|(?P<thing>[^,]{2,160}?) (?:did not|does not|do not|never|will not) (?:work|scale|help|hold up|pan out"
    r"|perform)(?:ed)?\b(?P<why>.*)|(?P<thing2>[^,]{2,160}?) (?:failed|fails|broke down|backfired"
    r"|fell over) (?P<why2>(?:because|due to|since|when|under|on|for|in)\b.+)|(?P<thing3>[^,]{2,160}?) (?:was|were"
    r"|turned out to be|is) (?:a (?:mistake|bad idea|dead end|disaster|failure|waste of time)|not worth it)\b.*)"
)
_LESSON_LABEL = pattern(
    r"(?:lessons?(?: learned| learnt)?|takeaway|note to self)\s*[:\-–]\s*(?P<rest>.+)|(?:we|I) (?:have )?(?:learned"
    r"|learnt) (?:the hard way )(?:that )?(?P<hard>.+)"
)
_AVOID = pattern(
    r"(?:please )?(?:avoid|do not (?:ever )?use|never use|stay away from) (?P<v>.+?) (?:because|since|as it) .+"
)
_REASONED = pattern(r"\b(?:because|since|due to|as (?:it|they|the)|over|under|with|on|when|for|in|well|at)\b")
_DEBUGGING = pattern(
    r"\b(?:same error|an error|the error|this error|error message|still|the script|the code|the test|the tests"
    r"|the command|your|nothing|no luck|get(?:ting)?|gives)\b"
)
_NO_SUBJECT = pattern(
    r"(?:I|we|he|she|they|there|my|the|our) ?(?:code|script|test|link|button|page|file|function|command)?\b$"
)
_OF_THE_MOMENT = pattern(
    r"(?:my|the) (?:code|script|tests?|link|button|page|file|function|command|build|app|program)\b"
)
_WENT_WELL = pattern(
    r"\b(?:loved?|liked|works? (?:great|fine|well)|worked|great|perfect|amazing|good|better|faster|happy|awesome)\b"
)
_BADLY = pattern(
    r"\b(?:fail\w*|slow\w*|crash\w*|nightmare|not|too|broke\w*|worse|errors?|bad\w*|mess|terrible|never|awful"
    r"|disaster|leak\w*|timed out|hate\w*|regret\w*|unstable)\b"
)


def _went_well(found: re.Match[str]) -> bool:
    result = found["result"]
    if found["joined"].lower() == "and":
        return _BADLY.search(result) is None
    return _WENT_WELL.search(result) is not None and " not " not in result


def lesson(text: str) -> Finding | None:
    """Return what failed, from a whole sentence, with its reason."""
    label = _LESSON_LABEL.match(text)
    if label:
        return _lesson(told=label["rest"] or label["hard"])
    avoid = _AVOID.match(text)
    if avoid and not is_passing(avoid["v"]):
        return _lesson(avoid["v"])
    found = _FAILED.match(text)
    if found is None or _DEBUGGING.search(text):
        return None
    if found["tried"]:
        tried = re.sub(r"^(?:to|out|using|with)\s+", "", found["tried"])
        return None if is_passing(tried) or _went_well(found) else _lesson(tried)
    thing = found["thing"] or found["thing2"] or found["thing3"]
    why = found["why"] if found["thing"] else found["why2"] or "."
    if is_passing(thing) or _NO_SUBJECT.match(thing) or _OF_THE_MOMENT.match(thing):
        return None
    return _lesson(thing) if found["thing3"] or _REASONED.search(why) else None


def _lesson(value: str = "", told: str | None = None) -> Finding:
    return Finding("lesson", "lesson", value=value, told=told, together=True)


def decision(text: str) -> Finding | None:
    """Return what was decided, from a whole sentence, with its reason."""
    label = _DECISION_LABEL.match(text) or _WAS_DECIDED.match(text)
    if label:
        rest = label["rest"]
        slot = choice_slot(rest)
        told = re.sub(r"^(?:that|to)\s+", lambda found: "we decided to " if found[0].startswith("to") else "", rest)
        return Finding("decision", "decision", f"project/{slot}" if slot else None, head(rest), told, together=True)
    found = _DECIDED.match(text)
    if (
        found is None
        or _UNDECIDED.match(found["rest"])
        or is_unreal(text[: found.start("what")])
        or re.search(r"\b(?:have|has) not\b", text[: found.start("what")])
    ):
        return None
    together = found["who"].lower() != "i"
    what = found["what"].lower()
    verb = what.split()[0]
    rest = re.sub(r"^\s*(?:on|to|for|with|that|upon|not|against|in favou?r of)\s+", "", found["rest"])
    if is_passing(rest.strip()) or (verb == "agreed" and not together):
        return None
    slot = None if _LEAVING.match(found["rest"]) else choice_slot(found["rest"])
    chosen_alone = not together and verb in ("chose", "picked", "opted", "went", "going", "am", "ended")
    if slot is None and ("went for" in what or (chosen_alone and not _BECAUSE.search(rest))):
        return None
    key = None if slot is None else choice_key(found["rest"], together=together)
    ours = together and (key is not None or at_work(text))
    return Finding("decision", "decision", key, head(rest), together=ours)


def switch(text: str) -> Finding | None:
    """Return what replaced something else, which is over."""
    found = _SWITCHED.match(text)
    if found is None:
        return None
    old, new = head(found["old"] or found["old2"] or ""), found["new"] or found["new2"]
    together = found["who"].lower() != "i"
    known = value_in(head(new)) or (value_in(old) if old else None)
    if is_passing(new):
        return None
    if known is not None:
        tag, key, narrowed = known[1], choice_key(known[0], together=together), qualifier(new, known[1])
        key = f"{key}/{narrowed}" if narrowed else key
    elif found["old2"] and re.match(r"[A-Z]", old) and re.match(r"[A-Z]", new):
        tag, key = "tool", None
    else:
        return None
    kind, ends = "decision" if together else "preference", Ending(key, old) if old else None
    return Finding(tag, kind, key, head(new), together=together, ends=ends)


def use(text: str) -> Finding | None:
    """Return what somebody works with."""
    found = _USES.match(text)
    if found is None or is_passing(found["v"]):
        return None
    together = found["who"].lower() != "i"
    kind, used = "fact" if together else "preference", found["v"]
    known = value_in(head(used))
    if known is None:
        if not re.match(r"(?:an? )?[A-Z][\w.+#-]+", used) or not found["verb"].lower().startswith("us"):
            return None
        return Finding("tool", kind, value=head(used), together=together)
    if re.search(r"\b(?:to|for) \w+ (?:this|these|that|the following)\b", used):
        return None
    key = choice_key(used, together=together)
    part = re.sub(r"^(?:our|my|the|this) ", "", found["who"].lower())
    if key and part in _PARTS and known[1] == "language":
        key = f"{key}/{part.replace(' ', '-')}"
    return Finding(known[1], kind, key, known[0], together=together)


def at_work(text: str) -> bool:
    """Return whether a text is about work."""
    return _AT_WORK.search(text) is not None


def attribute(text: str) -> Finding | None:
    """Return what "our … is" tells about the project."""
    found = _OUR.match(text)
    if found is None or is_passing(found["v"]):
        return None
    noun = found["noun"]
    category = category_named(noun)
    known = value_in(head(found["v"]))
    if category and known and known[1] == category:
        return Finding(category, slot=f"project/{category}", value=known[0])
    slot = attribute_slot(noun, of_project=True)
    if slot is None or re.match(r"(?:not|broken|down|slow|failing|\w+ing|too|very|so|to|still)\b", found["v"], _I):
        return None
    if slot in ("name", "company", "customer") and not re.match(r"(?:called |named )?[A-Z]", found["v"]):
        return None
    return Finding(slot, slot=f"project/{slot}", value=head(found["v"]))
