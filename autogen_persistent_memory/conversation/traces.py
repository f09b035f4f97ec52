"""Where a forgotten memory stands besides the memories: in saved states of teams, in summaries, in values."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ..core.lazy_regex import lazy
from ..core.records import MemoryRecord, Selection, contains
from ..runtime.threads import in_thread
from ..storage.protocol import Values
from ..text.secrets import redact
from .blanking import Blanking, is_block, texts_within
from .team_state import from_text, to_text

_WORD = lazy(r"\w+")
_NAMED = lazy(r"\(id: ([0-9a-f]{32})\)")
_LINE = lazy(r"^- (.*)$", re.MULTILINE)
_WORD_JOINER = "\u2060"
_FEWEST_WORDS = 2
"""A fact of fewer words is found in a text only if it is all of it."""
_LEAST_SHOWN = 20
"""How many characters of a memory that is too long a block shows at least."""

Tells = Callable[[str], bool]


class Traces(NamedTuple):
    """Where else it was found."""

    states: tuple[str, ...] = ()
    """The sessions whose saved state told it."""
    summaries: tuple[str, ...] = ()
    """The sessions whose summary told it, or was made of a message that is forgotten."""
    values: tuple[str, ...] = ()
    """The keys of values that tell it. They are the application's, and stay."""
    unclear: tuple[str, ...] = ()
    """The sessions whose saved state may still tell it: it cannot be read, or the text may be a word that steers a team."""


class Forgotten(int):
    """How many memories a `forget()` deleted, or would delete; and what else it found."""

    messages: int
    """How many of them are captured messages."""
    traces: Traces

    def __new__(cls, count: int, messages: int = 0, traces: Traces = Traces()) -> Forgotten:
        forgotten = super().__new__(cls, count)
        forgotten.messages, forgotten.traces = messages, traces
        return forgotten


class Doomed:
    """What is to be forgotten, as it can be told from a text.

    Args:
        records: The memories and messages that are going to be deleted.
        selection: What was asked for, if not one memory by its id. All that tells a literal text is to be forgotten, and
            all of a session, unless only memories of some kind, tag, key or age were meant.
    """

    def __init__(self, records: Sequence[MemoryRecord], selection: Selection | None = None) -> None:
        meant = selection or Selection()
        only_text = meant == Selection(session=meant.session, containing=meant.containing)
        self._session = meant.session
        self._literal = meant.containing if only_text else None
        self._whole = meant.session if only_text and meant.containing is None else None
        self._ids = {record.id for record in records}
        self._said: defaultdict[str | None, set[str]] = defaultdict(set)
        self._facts: defaultdict[int, set[str]] = defaultdict(set)
        self._shown: defaultdict[int, set[str]] = defaultdict(set)
        for record in records:
            is_message = record.kind == "interaction"
            if is_message:
                self._said[record.session].add(_plain(record.content))
            else:
                words = _WORD.findall(_plain(record.content))
                self._facts[len(words)].add(" ".join(words))
            line = f"{record.source}: {record.content}" if is_message and record.source else record.content
            shown = _plain(line)[:_LEAST_SHOWN]
            self._shown[len(shown)].add(shown)

    def __bool__(self) -> bool:
        return bool(self._literal or self._whole or self._ids)

    @property
    def sessions(self) -> set[str]:
        """The sessions of which messages are forgotten."""
        return {session for session in self._said if session is not None}

    def told_in(self, session: str | None) -> Tells:
        """Whether a text of that session's saved state tells it."""
        literal = self._literal if self._session in (None, session) else None
        said = self._said.get(session, set()) if session is not None else set()
        are_redacted = any("[redacted:" in text for text in said)

        def tells(text: str) -> bool:
            text = text.replace(_WORD_JOINER, "")
            if literal is not None and any(contains(part, literal) for part in texts_within(text)):
                return True
            if is_block(text):
                return bool(said) or self._is_shown_in(text)
            if not self._ids.isdisjoint(_NAMED.findall(text)):
                return True
            if said and (_plain(text) in said or (are_redacted and _plain(redact(text)) in said)):
                return True
            return bool(self._facts) and any(map(self._tells_fact, texts_within(text)))

        return (lambda text: True) if session is not None and session == self._whole else tells

    def _tells_fact(self, text: str) -> bool:
        words = _WORD.findall(_plain(text))
        return any(
            " ".join(words[start : start + count]) in facts
            for count, facts in self._facts.items()
            for start in (range(len(words) - count + 1) if count >= _FEWEST_WORDS else range(len(words) == count))
        )

    def _is_shown_in(self, block: str) -> bool:
        lines = map(_plain, _LINE.findall(block))
        return any(line[:length] in shown for line in lines for length, shown in self._shown.items())


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


async def trace(values: Values, doomed: Doomed, *, erase: bool) -> Traces:
    """Find what saved states, summaries and values tell of it; if asked, blank it in the states and drop the summaries."""
    if not doomed:
        return Traces()
    states, unclear, summaries = list[str](), list[str](), list[str]()
    for session in sorted(await values.names("state")):
        blank = _Blank(doomed.told_in(session))
        if erase:
            await values.revise("state", session, blank)
        else:
            text = await values.get("state", session)
            await in_thread(partial(blank, text or "{}"))
        if blank.changed:
            states.append(session)
        if blank.unclear:
            unclear.append(session)
    for session, text in sorted((await values.all("summary")).items()):
        if session in doomed.sessions or await in_thread(partial(doomed.told_in(session), text)):
            summaries.append(session)
            if erase:
                await values.remove("summary", session)
    told_in_value, given = doomed.told_in(None), await values.all("value")
    keys = await in_thread(lambda: sorted(key for key, text in given.items() if told_in_value(text)))
    return Traces(tuple(states), tuple(summaries), tuple(keys), tuple(unclear))


class _Blank:
    """Blanks one saved state, given as text."""

    def __init__(self, tells: Tells) -> None:
        self._tells = tells
        self.changed = self.unclear = False

    def __call__(self, text: str) -> str | None:
        """The text without it, or None if it can stay as it is."""
        blanking = Blanking(self._tells)
        try:
            state = blanking.of(from_text(text))
        except (ValueError, RecursionError):
            self.changed, self.unclear = False, True
            return None
        self.changed, self.unclear = blanking.changed, blanking.left
        return to_text(state) if blanking.changed else None
