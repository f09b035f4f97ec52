"""Rules for lasting wishes about the assistant's answers: "always …", "from now on …", "call me …". Pure functions."""

from __future__ import annotations

import re

from .phrases import Finding, answer_slot, category_of, choice_slot, is_passing, name_in
from .vocabulary import pattern

_I = re.IGNORECASE

_LASTING = pattern(
    r"(?:from now on|from here on|going forward|in (?:the )?future|from today|as of now|for all future \w+|in general"
    r"|whenever you \w+[^,]{0,40})\b,?\s*(?:please |always |I want you to |I would like you to "
    r"|you should )*(?P<do>.+)"
)
_TRAILING_LASTING = pattern(
    r"(?:please )?(?P<do>\w+\b.+?),? (?:from now on|going forward|in (?:the )?future|every time|in all (?:your"
    r"|future) \w+)$"
)
_ALWAYS = pattern(
    r"(?:please |you (?:should |must )|I want you to |I would like you to |I need you to |make sure (?:to "
    r"|you ))*(?P<do>(?:always|never) (?!\w+ing\b|mind|again|ever|heard|been|knew|seen|thought|had|did|was|a\b|the\b"
    r"|said|say\b|happy|good|nice|worked|works|is\b|have\b|forget|look on|give up|stop\b|lose\b|quit\b|believe"
    r"|too late)[a-z'-]+\b.*)"
)
_PLEASE = pattern(
    r"(?:please |kindly |can you please )*(?P<do>(?:do not |stop |avoid |only |just )?(?:use|using|answer|answering"
    r"|respond|responding|reply|replying|keep|write|writing|format|speak|talk|be|give me|give|explain|include"
    r"|stick to|address me|apologi[sz]\w+)\b.+)"
)
_CALL_ME = pattern(
    r"(?:please |you can |you may |just |everyone |people |everybody |my friends |friends )*(?:do not call me \w+,? "
    r")?(?:call|calls) me (?P<v>.+)"
)
_NO_MORE = pattern(
    r"(?:please )?(?P<do>(?:do not|stop|avoid|no need to) (?:ever )?(?:use |using |include |including |add "
    r"|adding )?(?:emojis?|emoticons|jargon|apologi[sz]\w+|exclamation marks|em[ -]dashes|filler|disclaimers"
    r"|buzzwords|hashtags|smileys|slang)\b.*)"
)
_ANSWERS = pattern(
    r"\b(?:your|all) (?:\w+ )?(?:answers|replies|responses|explanations|messages|code|output)\b|\bwhen you (?:answer"
    r"|reply|write|explain)\b|\bin my (?:code|projects)\b"
)
_ONCE = pattern(
    r"\b(?:this|these|the following|above|below|here|it|the (?:file|second|first|third|last|other|same|function|code"
    r"|class|list|table|data|option|error|question|text))\b|\b(?:an?|one|the) (?:\w+ ){0,3}(?:answer|response|reply"
    r"|summary|explanation|question|sentence|list|table|paragraph|word|email|message|poem|story)\b|:"
)
_NO_WISH = pattern(r"(?:I|we|my|our|he|she|they|the|(?:just )?let me know|feel free)\b")
_STYLES = frozenset(("units", "clock", "date-format", "spelling", "indentation", "quotes", "naming-style"))


def instruction(text: str) -> Finding | None:
    """Return a lasting wish about the assistant's work, but not a request for one answer."""
    called = _CALL_ME.match(text)
    if called:
        name = name_in(called["v"]) or name_in(called["v"].capitalize() if len(called["v"].split()) == 1 else "")
        if name and not re.match(r"(?:crazy|old|back|later|when|if|a\b|at\b)", name, _I):
            return Finding("name", "preference", "nickname", name, told=f"I want to be called {name}")
        return None
    lasting = _LASTING.match(text) or _TRAILING_LASTING.match(text)
    if lasting and not _NO_WISH.match(lasting["do"]):
        return _wanted(lasting["do"])
    always = _ALWAYS.match(text)
    if always and not _ONCE.search(always["do"]):
        return _wanted(always["do"])
    asked = _PLEASE.match(text)
    if (
        asked
        and not _ONCE.search(do := asked["do"])
        and not is_passing(re.sub(r"\byour\b", "the", do.partition(" ")[2]))
    ):
        of_answers = _ANSWERS.search(do) and re.match(r"(?:do not|stop|avoid|never|only)\b", do, _I)
        if of_answers or (_slot(do) and len(do.split()) <= 12):
            return _wanted(do)
    unwanted = _NO_MORE.match(text)
    return _wanted(unwanted["do"]) if unwanted else None


def _slot(do: str) -> str | None:
    answers = answer_slot(do)
    if answers:
        return f"preference/{answers}"
    if re.match(r"(?:always |please )*(?:use|stick to|write|answer|give)\b", do, _I) and category_of(do) in _STYLES:
        return f"preference/{choice_slot(do)}"
    return None


def _wanted(do: str) -> Finding:
    do = re.sub(r"^please\s+", "", do, flags=_I)
    do = re.sub(r"^do not\b", "not to", do, flags=_I)
    do = re.sub(
        r"\b(?:my|mine|me|I)\b",
        lambda found: {"my": "the user's", "mine": "the user's"}.get(found[0].lower(), "the user"),
        do,
    )
    do = f"{do[:1].lower()}{do[1:]}"
    wish = do if do.startswith("not to") else f"to {do}"
    slot = _slot(do)
    if not slot and re.match(r"(?:always )?use\b", do) and (choice := choice_slot(do)):
        slot = f"preference/{choice}"
    return Finding("instruction", "preference", slot, value=do, told=f"The user wants the assistant {wish}")
