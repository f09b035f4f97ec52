"""Memories as text: lines to paste, and the block that a model reads before its turn. Pure functions.

Stored text is data: each memory is on one line, cannot close the block, and is labelled as background.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from ..core.policy import RecallPolicy
from ..core.records import MemoryHit, MemoryRecord
from ..core.tokens import count_tokens
from ..retrieval.diversity import first_told_once, told_once, varied
from ..retrieval.ranking import in_order, relevance
from ..text.pieces import replaced
from ..text.redaction import neutral
from .autogen_messages import NOTHING_FOUND, named, opening_of

CLOSING = "</memory>"
WORD_JOINER = "\u2060"

_CUT_MARK = " …"
_SHORTEST_CUT = 20
_LESSON = "lesson"
_LONGEST_LINE = 2_000
"""Characters of a message that can be a line of a summary."""
_STORY = 0.6
"""The share of a block that a story may take; the rest is for relevant memories."""
_LONGEST_TOKEN = 16  # characters; nothing longer can fit


class Block(NamedTuple):
    """A text within its budget, and the memories in it."""

    text: str
    hits: tuple[MemoryHit, ...]
    told: tuple[MemoryRecord, ...] = ()
    """The messages that are in it because the conversation ended with them."""

    @property
    def tokens(self) -> int:
        """How many tokens the text takes."""
        return count_tokens(self.text)


class Story(NamedTuple):
    """How a conversation went, as lines."""

    summary: tuple[str, ...] = ()
    ending: tuple[str, ...] = ()
    told: tuple[MemoryRecord, ...] = ()
    """The messages of the ending."""

    def tells(self, record: MemoryRecord) -> bool:
        """Return whether a message is in it."""
        is_told = any(record.id == told.id for told in self.told)
        may_be_line = bool(self.summary) and len(record.content) <= _LONGEST_LINE
        return is_told or (may_be_line and spoken(record.source, record.content) in self.summary)


def paste(
    hits: Sequence[MemoryHit], limit: int, max_tokens: int | None = None, policy: RecallPolicy = RecallPolicy()
) -> Block:
    """Return one `- ` line a memory, best first, as many as the limit and the budget allow."""

    def compose(chosen: Sequence[MemoryHit]) -> str:
        return "\n".join(_marked_line(hit, policy) for hit in chosen) or NOTHING_FOUND

    chosen = first_told_once(sorted(hits, key=relevance, reverse=True), limit)
    return _fit(in_order(chosen), max_tokens, compose, limit)


def answer(hits: Sequence[MemoryHit], *, limit: int, policy: RecallPolicy) -> Block:
    """Return the answer to a model that searches: as `paste`, without repetitions, each line with the id of its memory."""

    def compose(chosen: Sequence[MemoryHit]) -> str:
        return "\n".join(f"{_marked_line(hit, policy)} {named(hit.record)}" for hit in chosen) or NOTHING_FOUND

    return _fit(varied(hits, limit), policy.max_tokens, compose, limit)


def render(
    hits: Sequence[MemoryHit], *, block_id: str, policy: RecallPolicy, now: datetime, story: Story = Story()
) -> Block:
    """Return the block for a model context: the set of hits that is worth most, and the story around them.

    It is empty if there is neither, or no room.
    """

    def section(name: str, lines: Sequence[str]) -> list[str]:
        return [_heading(name, policy), *lines] if lines else []

    def compose(chosen: Sequence[MemoryHit]) -> str:
        if not chosen and not story.ending:
            return ""
        lines = [opening_of(block_id), policy.heading, *section("summary", story.summary)]
        best_first = in_order(chosen)
        for kind in dict.fromkeys(hit.record.kind for hit in best_first):
            of_kind = [hit for hit in best_first if hit.record.kind == kind]
            lines += section(kind, [f"{_line(hit)} ({age_in_words(now - hit.record.updated_at)})" for hit in of_kind])
        return "\n".join([*lines, *section("ending", story.ending), CLOSING])

    block = _fit(varied(hits, policy.limit), policy.max_tokens, compose, policy.limit)
    return block._replace(hits=tuple(in_order(block.hits)), told=story.told)


def room_for_story(block_id: str, policy: RecallPolicy) -> int:
    """Return how many tokens the lines of a story may take in a block: its share, at most what fits beside the headings."""
    headings = [_heading(name, policy) for name in ("summary", "ending")]
    around = count_tokens("\n".join([opening_of(block_id), policy.heading, *headings, CLOSING]))
    return min(int(policy.max_tokens * _STORY), policy.max_tokens - around)


def _heading(name: str, policy: RecallPolicy) -> str:
    return f"{policy.headings.get(name) or neutral(name).capitalize()}:"


def _fit(
    hits: Sequence[MemoryHit], max_tokens: int | None, compose: Callable[[Sequence[MemoryHit]], str], limit: int
) -> Block:
    """Return as many hits as the budget allows; if not even one fits, as much of the first as does."""
    if max_tokens is None:
        chosen = told_once(first_told_once(hits, limit))
        return Block(compose(chosen), tuple(chosen))
    short = [hit for hit in hits if len(hit.content) <= max_tokens * _LONGEST_TOKEN]  # not to count a megabyte
    chosen = told_once(first_told_once(short, limit))
    text = compose(chosen)
    if chosen and count_tokens(text) <= max_tokens:
        return Block(text, tuple(chosen))
    chosen = _affordable(short, max_tokens, compose, limit)
    if hits and not chosen:
        cut = _cut(hits[0], max_tokens * _LONGEST_TOKEN, lambda hit: count_tokens(compose([hit])) <= max_tokens)
        if cut is not None:
            return Block(compose([cut]), (hits[0],))
    return Block(compose(chosen), tuple(chosen))


def _affordable(
    hits: Sequence[MemoryHit], max_tokens: int, compose: Callable[[Sequence[MemoryHit]], str], limit: int
) -> list[MemoryHit]:
    """Return the set within the budget that is worth most, in order; the first hit is in it if it fits.

    It is the better of two ways to fill the budget: what comes first, or what is worth most a token.
    """

    def fill(order: Iterable[MemoryHit]) -> list[MemoryHit]:
        taken: list[MemoryHit] = []
        filled: list[MemoryHit] = []
        for hit in order:
            would = told_once([*taken, hit])
            is_cheap = sum(costs[id(one)] for one in would) <= max_tokens  # a lower bound, quick to check
            if len(would) <= limit and is_cheap and count_tokens(compose(would)) <= max_tokens:
                taken.append(hit)
                filled = would
        return filled

    costs = {id(hit): count_tokens(_line(hit)) for hit in hits}
    dense = sorted(hits[1:], key=lambda hit: hit.similarity / costs[id(hit)], reverse=True)
    best = max(fill(hits), fill([*hits[:1], *dense]), key=lambda filled: sum(hit.similarity for hit in filled))
    return [hit for hit in hits if any(hit is one for one in best)]


def _cut(hit: MemoryHit, longest: int, fits: Callable[[MemoryHit], bool]) -> MemoryHit | None:
    """Return the hit with as much of its content as fits, or None if not even a few words do."""

    def shortened(length: int) -> MemoryHit:
        return replace(hit, excerpt=hit.content[:length].rstrip() + _CUT_MARK)

    fitting, too_long = 0, min(len(hit.content), longest)
    while too_long - fitting > 1:
        middle = (fitting + too_long) // 2
        fitting, too_long = (middle, too_long) if fits(shortened(middle)) else (fitting, middle)
    return shortened(fitting) if fitting >= _SHORTEST_CUT else None


def _line(hit: MemoryHit) -> str:
    return spoken(hit.record.source if hit.record.kind == "interaction" else None, hit.content)


def _marked_line(hit: MemoryHit, policy: RecallPolicy) -> str:
    """Return a line to be read without a heading above it: a lesson about a failure must not pass for advice."""
    line = _line(hit)
    return line.replace("- ", f"- {_heading(_LESSON, policy)} ", 1) if hit.record.kind == _LESSON else line


def spoken(source: str | None, text: str, longest: int | None = None) -> str:
    """Return a line of a conversation, cut to this many characters."""
    if longest is not None and len(text) > longest:
        text = text[:longest].rsplit(None, 1)[0] + _CUT_MARK
    return f"- {f'{neutral(source)}: ' if source else ''}{neutral(text)}"


def break_words(text: str, words: Sequence[str]) -> str:
    """Return the text with a word joiner inside each of these words, so that a search for them fails."""
    hints = [word.casefold() for word in words]
    return replaced(_middles(tuple(words)), lambda _: WORD_JOINER, text, hints=hints) if hints else text


@lru_cache
def _middles(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that matches in the middle of each of these words."""
    halves = [(re.escape(word[: len(word) // 2]), re.escape(word[len(word) // 2 :])) for word in words]
    return re.compile("|".join(f"(?<={start})(?={end})" for start, end in halves), re.IGNORECASE)


_MINUTES = {"year": 525_600, "month": 43_200, "week": 10_080, "day": 1_440, "hour": 60, "minute": 1}


def age_in_words(age: timedelta) -> str:
    """Return an age as people say it: "just now", "yesterday", "3 weeks ago"."""
    for unit, minutes in _MINUTES.items():
        count = age // timedelta(minutes=minutes)
        if count >= 1:
            return "yesterday" if (unit, count) == ("day", 1) else f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
