"""The `Extractor` protocol: messages in, facts out. `RuleExtractor` is here, `ModelExtractor` in `model_extraction`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ..core.checks import MAX_CONTENT, MAX_KEY, MAX_KIND, MAX_TAG, MAX_TAGS
from ..core.component_configs import ExtractorConfig, RuleExtractorConfig
from ..core.lazy_regex import lazy
from ..core.records import Draft, MemoryRecord, draft
from ..runtime.threads import in_thread
from ..text.words import stem

NOT_NAMING = frozenset(
    """
    a an the my our their his her its to of in at for with on and or any more anymore now user s is
    """.split()  # noqa: SIM905
)
"""Words that name nothing."""
_WORD = lazy(r"[\w+#]+")


class Message(NamedTuple):
    """A captured message of a conversation."""

    id: str
    source: str
    """The speaker's name."""
    text: str
    by_user: bool
    """Whether the user said it, rather than an agent."""
    at: datetime


class Ending(NamedTuple):
    """Which memories a statement puts an end to: those of this slot that name these words."""

    key: str | None
    """The slot, with all that narrows it down; None if what ended has no slot of its own."""
    words: str
    """What ended, in the words of the statement; empty for any memory of the slot."""
    tag: str | None = None
    """A tag that the memory has, if it is known."""

    def ends(self, content: str, key: str | None, tags: Iterable[str] = ()) -> bool:
        """Return whether this ends a memory: the memory fills the slot and names every word of what ended."""
        if self.key is not None and (key is None or (key != self.key and not key.startswith(f"{self.key}/"))):
            return False
        if self.key is None and (not self.words or (self.tag is not None and self.tag not in tags)):
            return False
        return _named(self.words) <= _named(content)


def _named(text: str) -> set[str]:
    return {stem(word) for word in _WORD.findall(text.lower()) if word not in NOT_NAMING}


class Fact(NamedTuple):
    """Something that a message tells and that is worth remembering."""

    content: str
    """A sentence that stands by itself, in the third person."""
    kind: str = "fact"
    tags: tuple[str, ...] = ()
    key: str | None = None
    """The slot it fills, so that a later statement supersedes it; None for facts of which there can be many."""
    ends: Ending | None = None
    """Which memories it ends: without a successor, or, where it tells of a change, what was true before."""
    replaces: str | None = None
    """The id of a known memory that it supersedes."""
    quote: str | None = None
    """The words that tell it, as they were said or nearly so."""


class Extractor:
    """Finds facts in a conversation. Subclass it for an extractor of your own, and pass it as `extractor=`.

    Implement one of these, or both:

    - `extract_now(message)` is awaited once for every message, in the turn in which it is captured. Return within
      milliseconds, and do not block the event loop. Its facts can be recalled in the same turn.
    - `extract_later(messages, known)` is awaited in the background, for `every` messages at a time, when the memory is
      flushed, and after a restart for messages that the last process did not reach. Set `every`, or it is never called.
      If it raises, the error is logged and the same messages are passed again later.

    Both return `Fact`s: `content` is a sentence that can be understood on its own; a `key` lets a later fact with the same
    key supersede this one. Facts that are already stored, or too large for a memory, are not stored.

    Implement `config` only if memories with this extractor have to be dumped with `dump_component()`.

    Example:
        >>> class Orders(Extractor):
        ...     async def extract_now(self, message: Message) -> list[Fact]:
        ...         if not (message.by_user and message.text.startswith("Order ")):
        ...             return []
        ...         return [Fact(content=f"The user placed {message.text}.", tags=("order",), key="user/last-order")]
        >>> order = Message("1", "user", "Order 4711", True, datetime(2026, 3, 1))
        >>> import asyncio
        >>> [fact.content for fact in asyncio.run(Orders().extract_now(order))]
        ['The user placed Order 4711.']
    """

    every: int | None = None
    """How many messages `extract_later` gets at a time, fewer when the memory is flushed; None if it is not used."""

    @property
    def config(self) -> ExtractorConfig:
        """The declarative form, from which `extractor_from_config` makes an equal extractor."""
        raise ValueError(
            f"A memory with the extractor {type(self).__name__} cannot be dumped, because it has no config. Dump a memory with "
            "RuleExtractor or ModelExtractor, and pass your extractor again after loading."
        )

    async def extract_now(self, message: Message) -> list[Fact]:
        """Return the facts in a message that can be found within milliseconds."""
        return []

    async def extract_later(self, messages: Sequence[Message], known: Sequence[MemoryRecord]) -> list[Fact]:
        """Return the facts in some messages.

        Args:
            messages: The messages since the last call, oldest first.
            known: Current memories that these messages may restate, change or end, most relevant first.
        """
        return []


class RuleExtractor(Extractor):
    """Finds by rule what users say about themselves and their work, in English: no model, a few milliseconds.

    Preferences, identity, home, work, family, health, plans, instructions, decisions with their reasons, failures.

    Example:
        >>> RuleExtractor().config.type
        'rules'
    """

    @property
    def config(self) -> ExtractorConfig:
        return (
            RuleExtractorConfig() if type(self) is RuleExtractor else super().config
        )  # the JSON cannot name a subclass

    async def extract_now(self, message: Message) -> list[Fact]:
        """Return the facts in a message of the user; an agent's messages prove nothing."""
        return await in_thread(lambda: _facts_by_rule(message.text[:MAX_CONTENT])) if message.by_user else []


def _facts_by_rule(text: str) -> list[Fact]:
    from .english import extract_facts

    return extract_facts(text)


def within_limits(facts: Iterable[Fact]) -> list[Fact]:
    """Return the facts that can be stored. A fact with too long a content is dropped; other parts are cut or dropped."""
    return [
        fact._replace(
            kind=fact.kind if len(fact.kind) <= MAX_KIND else Fact._field_defaults["kind"],
            tags=tuple(tag for tag in dict.fromkeys(fact.tags) if len(tag) <= MAX_TAG)[:MAX_TAGS],
            key=fact.key if fact.key is None or len(fact.key) <= MAX_KEY else None,
        )
        for fact in facts
        if len(fact.content) <= MAX_CONTENT
    ]


def learned(fact: Fact, *, id: str, **about: Any) -> Draft:
    """Return a fact as a memory to store, with further arguments of `draft`, such as its source.

    The id must be the same each time the same fact is extracted, so that it is stored once.
    """
    said: dict[str, Any] = {"kind": fact.kind, "tags": fact.tags, "key": fact.key, "ends": ending(fact)}
    return draft(fact.content, **said, **about, id=id, origin="extractor")


def ending(fact: Fact) -> Callable[[MemoryRecord], bool] | None:
    """Return a test for the memories that a fact ends or replaces; None if it ends none."""
    if fact.ends is None and fact.replaces is None:
        return None
    return lambda record: (
        record.id == fact.replaces
        or (fact.ends is not None and fact.ends.ends(record.content, record.key, record.tags))
    )
