"""A saved state without what it tells of something that was forgotten. Pure functions.

Texts are replaced, messages stay: so calls of tools keep their results, everybody's next turn is the same, and the state
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
from .team_resume import from_text, to_text

FORGOTTEN = "[forgotten]"
"""What stands in a saved conversation instead of a text that was forgotten."""
_BLOCK = lazy(r'<memory id="[0-9a-f]+">')  # as `_conversation.opening_of` writes it
_NO_MEMORIES = "\n</memory>"
_FIXED = frozenset(("type", "version", "id", "source", "target", "created_at", "role", "name", "call_id"))
"""What a message is told apart and delivered by."""
_SAID = frozenset(("content", "thought", "metadata"))


class Blanking:
    """Replaces the texts of a state that tell something.

    Args:
        tells: Whether a text tells it.
    """

    def __init__(self, tells: Callable[[str], bool]) -> None:
        self._tells = tells
        self._participants: set[str] = set()
        self.changed = False
        """Whether a text was replaced."""
        self.left = False
        """Whether it also stands where it may steer a team: a single word of the state that is not part of a message."""

    def of(self, value: Any, *, said: bool = False) -> Any:
        """A part of a state without those texts; of what was `said`, every text counts."""
        if isinstance(value, Mapping):
            return self._of_mapping(value, said)
        if isinstance(value, list):
            texts = [item for item in value if isinstance(item, str)] if said else []
            if len(texts) > 1 and self._tells("\n".join(texts)):  # the parts of a message with pictures
                self.changed = True
                return [FORGOTTEN if isinstance(item, str) else item for item in value]
            return [item if _is_picture(item) else self.of(item, said=said) for item in value]
        return self._of_text(value, said) if isinstance(value, str) else value

    def _of_mapping(self, value: Mapping[str, Any], said: bool) -> Mapping[str, Any]:
        if "arguments" in value and "name" in value:
            return {**value, "arguments": self._of_arguments(value["arguments"])}
        if "call_id" in value:
            return {**value, "content": self.of(value.get("content"), said=True)}
        if "mime_type" in value and "content" in value:
            return {**value, **self._of_recalled(value)}
        if isinstance(value.get("agent_states"), Mapping):
            self._participants.update(value["agent_states"])
        fixed = _FIXED if not said and ("type" in value or "source" in value) else ()
        return {key: item if key in fixed else self.of(item, said=said or key in _SAID) for key, item in value.items()}

    def _of_arguments(self, arguments: Any) -> Any:
        if not isinstance(arguments, str) or not self._tells(arguments):
            return arguments
        self.changed = True
        return "{}"

    def _of_recalled(self, memory: Mapping[str, Any]) -> dict[str, Any]:
        """Content and metadata of a memory that was shown to an agent; which one it is, its metadata says."""
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
        emptied = emptied_block(text) or FORGOTTEN
        self.changed = self.changed or emptied != text
        return emptied


def _is_picture(part: Any) -> bool:
    return isinstance(part, Mapping) and part.keys() == {"data"}


def is_block(text: str) -> bool:
    """Whether a text is a block of memories, which is rebuilt before every turn."""
    return _BLOCK.match(text) is not None


def emptied_block(text: str) -> str | None:
    """A block of memories without them, still to be found by its first line; None if the text is none."""
    opening = _BLOCK.match(text)
    return None if opening is None else opening[0] + _NO_MEMORIES


def texts_within(text: str) -> Iterator[str]:
    """The text, and if it is JSON, also the texts in that, in which characters may be written otherwise."""
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
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _leaves(item)


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
