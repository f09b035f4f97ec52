"""When something is to happen, as far as words tell: how long a plan is worth keeping. A pure function."""

from __future__ import annotations

import re

from ...core.lazy_regex import lazy

_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTH = r"(?:january|february|march|april|june|july|august|september|october|november|december)"
_COUNT = r"(?:a|one|two|three|four|five|six|a few|a couple of|\d{1,2})"

_DAYS = lazy(
    rf"\b(?:today|tonight|tomorrow|this (?:morning|afternoon|evening|week|weekend|{_DAY})|(?:on"
    rf"|by|until|before) (?:the )?(?:coming )?{_DAY}(?!s)"
    rf"|(?:on|at|over) the weekend|in {_COUNT} (?:hours?|days?)|coming {_DAY})\b",
    re.IGNORECASE,
)
_WEEKS = lazy(
    rf"\b(?:next (?:week|month|weekend|{_DAY})|in {_COUNT} weeks?|in a month"
    rf"|(?:later )?this month|(?:at the )?end of (?:the|this) (?:week|month))\b",
    re.IGNORECASE,
)
_LONG = lazy(
    rf"\b(?:{_MONTH}|(?:in|on|by|until|since|early|late|mid|of|next|this) May|May \d{{1,2}}|\d{{1,"
    rf"2}}(?:st|nd|rd|th)?(?: of)? May|(?:in|by|until|before) (?:early |late )?20\d\d"
    rf"|(?:next|this|in the|over the) (?:year|spring|summer|fall|autumn|winter|quarter)"
    rf"|\d{{4}}-\d\d-\d\d|\d{{1,2}}[./]\d{{1,2}}(?:[./]\d{{2,4}})?"
    rf"|in {_COUNT} months?|(?:for|at|over|before|after) (?:christmas|easter|thanksgiving"
    rf"|new year|the holidays)|the \d{{1,2}}(?:st|nd|rd|th))\b",
    re.IGNORECASE,
)


def kind_of_plan(text: str) -> str | None:
    """The kind whose lifetime suits a plan: `temporary` for days, `context` for weeks, `fact` for later; or no plan."""
    if _LONG.search(text):
        return "fact"
    if _WEEKS.search(text):
        return "context"
    return "temporary" if _DAYS.search(text) else None
