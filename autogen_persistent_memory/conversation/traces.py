"""Traces of forgotten memories in saved states, summaries and values: finding them, and blanking them in states.

Texts are replaced, messages stay: tool calls keep their results, the next turn of every agent is the same, and the state
still fits the team that saved it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..core.lazy_regex import lazy
from ..core.records import MemoryRecord, Selection, contains
from ..runtime.threads import in_thread
from ..storage.connection import Values
from ..text.redaction import redact
from .autogen_compat import FIXED_FIELDS, IMAGE, MEMORY_CONTENT, SPOKEN_FIELDS, TOOL_CALL, TOOL_RESULT, members_in
from .autogen_messages import FORGOTTEN, NAMED_ID, opening_in, plain
from .block import CLOSING, WORD_JOINER
from .team_resume import from_text, to_text

_WORD = lazy(r"\w+")
_LINE = lazy(r"^- (.*)$", re.MULTILINE)
_FEWEST_WORDS = 2
"""A fact of fewer words is found in a text only if it is all of it."""
_LEAST_SHOWN = 20
"""How many characters of a memory that is too long a block shows at least."""

Tells = Callable[[str], bool]


class Traces(NamedTuple):
    """Where else a forgotten memory was found."""

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


async def trace(values: Values, forgotten: ForgetMatcher, *, erase: bool) -> Traces:
    """Find what saved states, summaries and values tell of it; if asked, blank it in the states and drop the summaries."""
    if not forgotten:
        return Traces()
    states, unclear, summaries = list[str](), list[str](), list[str]()
    for session in sorted(await values.names("state")):
        blanking = Blanking(forgotten.told_in(session))
        if erase:
            await values.revise("state", session, blanking)
        else:
            text = await values.get("state", session)
            await in_thread(partial(blanking, text or "{}"))
        if blanking.changed:
            states.append(session)
        if blanking.left:
            unclear.append(session)
    for session, text in sorted((await values.all("summary")).items()):
        if session in forgotten.sessions or await in_thread(partial(forgotten.told_in(session), text)):
            summaries.append(session)
            if erase:
                await values.remove("summary", session)
    told_in_value, given = forgotten.told_in(None), await values.all("value")
    keys = await in_thread(lambda: sorted(key for key, text in given.items() if told_in_value(text)))
    return Traces(tuple(states), tuple(summaries), tuple(keys), tuple(unclear))


class ForgetMatcher:
    """What is to be forgotten, as it can be recognised in a text.

    Args:
        records: The memories and messages that are going to be deleted.
        selection: What the caller asked for, if not one memory by its id. Every text that tells a given literal text is to
            be forgotten, and everything of a given session, unless only memories of some kind, tag, key or age were meant.
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
                self._said[record.session].add(plain(record.content))
            else:
                words = _WORD.findall(plain(record.content))
                self._facts[len(words)].add(" ".join(words))
            line = f"{record.source}: {record.content}" if is_message and record.source else record.content
            shown = plain(line)[:_LEAST_SHOWN]
            self._shown[len(shown)].add(shown)

    def __bool__(self) -> bool:
        return bool(self._literal or self._whole or self._ids)

    @property
    def sessions(self) -> set[str]:
        """The sessions of which messages are forgotten."""
        return {session for session in self._said if session is not None}

    def told_in(self, session: str | None) -> Tells:
        """Return a function that says whether a text of that session's saved state tells it."""
        literal = self._literal if self._session in (None, session) else None
        said = self._said.get(session, set()) if session is not None else set()
        are_redacted = any("[redacted:" in text for text in said)

        def tells(text: str) -> bool:
            text = text.replace(WORD_JOINER, "")
            if literal is not None and any(contains(part, literal) for part in texts_within(text)):
                return True
            if opening_in(text) is not None:
                return bool(said) or self._is_shown_in(text)
            if not self._ids.isdisjoint(NAMED_ID.findall(text)):
                return True
            if said and (plain(text) in said or (are_redacted and plain(redact(text)) in said)):
                return True
            return bool(self._facts) and any(map(self._tells_fact, texts_within(text)))

        return (lambda text: True) if session is not None and session == self._whole else tells

    def _tells_fact(self, text: str) -> bool:
        words = _WORD.findall(plain(text))
        return any(
            " ".join(words[start : start + count]) in facts
            for count, facts in self._facts.items()
            for start in (range(len(words) - count + 1) if count >= _FEWEST_WORDS else range(len(words) == count))
        )

    def _is_shown_in(self, block: str) -> bool:
        lines = map(plain, _LINE.findall(block))
        return any(line[:length] in shown for line in lines for length, shown in self._shown.items())


def texts_within(text: str) -> Iterator[str]:
    """Yield the text, and if it is JSON, also the texts in that, which may be escaped in it."""
    yield text
    if "\\" in text and text.lstrip()[:1] in ("{", "[", '"'):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return
        yield from _leaves(value)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _leaves(item)


class Blanking:
    """Replaces the texts of a saved state that tell something."""

    def __init__(self, tells: Tells) -> None:
        self._tells = tells
        self._participants: set[str] = set()
        self.changed = False
        self.left = False
        """Whether the state may still tell it: it cannot be read, or the text is a single word outside of any message,
        which may steer the team."""

    def __call__(self, text: str) -> str | None:
        """Return a state, given as text, without it; None if the text can stay as it is."""
        self.changed = self.left = False
        try:
            state = self.of(from_text(text))
        except (ValueError, RecursionError):
            self.changed, self.left = False, True
            return None
        return to_text(state) if self.changed else None

    def of(self, value: Any, *, said: bool = False) -> Any:
        """Return a part of a state without those texts; in a part that was `said`, every text counts."""
        if isinstance(value, Mapping):
            return self._of_mapping(value, said)
        if isinstance(value, list):
            texts = [item for item in value if isinstance(item, str)] if said else []
            if len(texts) > 1 and self._tells("\n".join(texts)):  # the parts of a message with images
                self.changed = True
                return [FORGOTTEN if isinstance(item, str) else item for item in value]
            return [
                item if isinstance(item, Mapping) and item.keys() == IMAGE else self.of(item, said=said)
                for item in value
            ]
        return self._of_text(value, said) if isinstance(value, str) else value

    def _of_mapping(self, value: Mapping[str, Any], said: bool) -> Mapping[str, Any]:
        if value.keys() >= TOOL_CALL:
            if not isinstance(value["arguments"], str) or not self._tells(value["arguments"]):
                return value
            self.changed = True
            return {**value, "arguments": "{}"}
        if value.keys() >= TOOL_RESULT:
            return {**value, "content": self.of(value.get("content"), said=True)}
        if value.keys() >= MEMORY_CONTENT:
            return {**value, **self._of_memory(value)}
        members = members_in(value)
        if isinstance(members, Mapping):
            self._participants.update(members)
        fixed = FIXED_FIELDS if not said and ("type" in value or "source" in value) else ()
        return {
            key: item if key in fixed else self.of(item, said=said or key in SPOKEN_FIELDS)
            for key, item in value.items()
        }

    def _of_memory(self, memory: Mapping[str, Any]) -> dict[str, Any]:
        """Return content and metadata of a memory that was shown to an agent, identified by its metadata."""
        content, metadata = memory["content"], memory.get("metadata")
        if isinstance(metadata, Mapping) and self._tells(f"(id: {metadata.get('id')})"):
            self.changed = True
            return {"content": FORGOTTEN if isinstance(content, str) else {}, "metadata": {"id": metadata["id"]}}
        return {"content": self.of(content, said=True), "metadata": self.of(metadata, said=True)}

    def _of_text(self, text: str, said: bool) -> str:
        if text == FORGOTTEN or not self._tells(text):
            return text
        if not said and text.isascii() and not any(map(str.isspace, text)):
            self.left = self.left or text not in self._participants
            return text
        opening = opening_in(text)  # an emptied block is still found by its first line
        emptied = FORGOTTEN if opening is None else f"{opening}\n{CLOSING}"
        self.changed = self.changed or emptied != text
        return emptied
