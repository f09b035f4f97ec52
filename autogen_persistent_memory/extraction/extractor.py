"""Extractors: messages in, facts out. By rule here; by a model in `extraction.model_extraction`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

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
    """Something that was said in a conversation, as it is captured."""

    id: str
    source: str
    """Who said it."""
    text: str
    by_user: bool
    """Whether the user said it, and not an agent."""
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


class Extractor(ABC):
    """Draws facts from what is said.

    Rules answer at once, so that a fact is known in the turn in which it is told. What takes long, such as asking a
    model, is done by `extract_later`, in the background, for so many messages at a time.
    """

    every: int | None = None
    """For how many messages at a time `extract_later` is called, and once more for the rest; None for never."""

    @property
    @abstractmethod
    def config(self) -> ExtractorConfig:
        """The declarative form, from which `extractor_from_config` makes an equal extractor."""

    async def extract_now(self, message: Message) -> list[Fact]:
        """The facts in a message that can be had within milliseconds."""
        return []

    async def extract_later(self, messages: Sequence[Message], known: Sequence[MemoryRecord]) -> list[Fact]:
        """The facts in some messages, told in this order.

        Args:
            messages: What was said since the last time.
            known: Current memories that these messages may restate, change or end, most relevant first.
        """
        return []


class RuleExtractor(Extractor):
    """Finds what people say of themselves and of their work, by rule: no model, milliseconds, English.

    Preferences, identity, home, work, family, health, plans, instructions, decisions with their reasons, failures.

    Example:
        >>> RuleExtractor().config.type
        'rules'
    """

    @property
    def config(self) -> RuleExtractorConfig:
        return RuleExtractorConfig()

    async def extract_now(self, message: Message) -> list[Fact]:
        """The facts in a message of the user's; what agents say proves nothing."""
        return await in_thread(lambda: _facts_by_rule(message.text[:MAX_CONTENT])) if message.by_user else []


def _facts_by_rule(text: str) -> list[Fact]:
    from .english import extract_facts

    return extract_facts(text)


def within_limits(facts: Iterable[Fact]) -> list[Fact]:
    """Return facts as they may be stored. What is too large for a memory is not a fact; other parts of it are cut or dropped."""
    return [
        fact._replace(
            kind=fact.kind if len(fact.kind) <= MAX_KIND else Fact._field_defaults["kind"],
            tags=tuple(tag for tag in dict.fromkeys(fact.tags) if len(tag) <= MAX_TAG)[:MAX_TAGS],
            key=fact.key if fact.key is None or len(fact.key) <= MAX_KEY else None,
        )
        for fact in facts
        if len(fact.content) <= MAX_CONTENT
    ]


def learned(
    fact: Fact, *, id: str, source: str, session: str, metadata: Mapping[str, object], at: datetime | None = None
) -> Draft:
    """A fact as a memory to be stored, with an id by which it is known again if it is drawn again.

    `at` is when it was told, if that was not just now.
    """
    return draft(
        fact.content,
        kind=fact.kind,
        tags=fact.tags,
        key=fact.key,
        source=source,
        session=session,
        origin="extractor",
        metadata=metadata,
        at=at,
        id=id,
        ends=ending(fact),
    )


def ending(fact: Fact) -> Callable[[MemoryRecord], bool] | None:
    """Which memories are over by a fact, if any can be."""
    if fact.ends is None and fact.replaces is None:
        return None
    return lambda record: (
        record.id == fact.replaces
        or (fact.ends is not None and fact.ends.ends(record.content, record.key, record.tags))
    )
