"""Memories as data: what is stored, what a recall returns, and the checked arguments of both.

In this order: the record and its fields; hits and recalls; drafts, which become records; selections, which pick records;
small functions over records.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, NamedTuple, get_args

from .checks import (
    MAX_CONTENT,
    MAX_KEY,
    MAX_LIFETIME,
    MAX_SOURCE,
    check_flag,
    check_kind,
    check_kinds,
    check_metadata,
    check_session,
    check_tags,
    check_time,
    optional_text,
    require_text,
)
from .tokens import count_tokens

Origin = Literal["user", "agent", "tool", "extractor", "application"]
"""Who put a memory there: the user's or an agent's own words, a tool call, an extractor, or your code."""

TEXT = "text/plain"
MARKDOWN = "text/markdown"
JSON = "application/json"
MIME_TYPES = (TEXT, MARKDOWN, JSON)

# Keys of ours in the metadata of captured messages and of extracted facts.
FACTS = "apm:facts"
"""In a message: the ids of the facts drawn from it."""
SPANS = "apm:spans"
"""In a message: where it tells each of those facts, in the same order."""
MESSAGES = "apm:messages"
"""In a fact: the ids of the messages that told it."""
QUOTE = "apm:quote"
"""In a fact: the words of the message that told it last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """One memory. Times are timezone-aware UTC; `content` is stored verbatim (JSON memories hold their JSON text)."""

    id: str
    namespace: str
    content: str
    kind: str = "fact"
    tags: tuple[str, ...] = ()
    key: str | None = None
    """The slot this memory fills; a newer memory with the same key supersedes it."""
    source: str | None = None
    """Who said it, in free text."""
    session: str | None = None
    sequence: int | None = None
    """Order within its session."""
    origin: Origin = "application"
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    uses: int = 0
    """How often it was recalled into a context or stated again."""
    pinned: bool = False
    superseded_by: str | None = None
    """The id of the memory that replaced this one."""
    superseded_at: datetime | None = None
    mime_type: str = TEXT
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def is_current(self, now: datetime) -> bool:
        """Return whether this memory is neither superseded nor expired."""
        return self.superseded_by is None and (self.expires_at is None or self.expires_at > now)

    def was_current(self, then: datetime) -> bool:
        """Return whether this memory was believed at that time: written, not yet superseded, not yet expired."""
        return (
            self.created_at <= then
            and (self.superseded_at is None or self.superseded_at > then)
            and (self.expires_at is None or self.expires_at > then)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One conversation, as `sessions()` lists it."""

    name: str
    started_at: datetime | None
    """When its first message was written; None if only a team's state was saved in it."""
    ended_at: datetime | None
    """When its last message was written."""
    speakers: tuple[str, ...]
    """Who spoke, in the order of their first words."""
    messages: int
    resumable: bool
    """Whether the state of a team or agent is saved in it, which `load()` can restore."""


# Recall


class Query(NamedTuple):
    """What to recall memories for."""

    text: str
    lead: str | None = None
    """The part of the text whose words count by themselves, if the rest is only background."""


class Signal(NamedTuple):
    """One part of a memory's relevance, for or against it."""

    name: str
    """The field of `MemoryHit` that says how much it contributed."""
    description: str
    weight: str | None
    """The field of `RecallPolicy` that it is multiplied by; None for a weight of 1."""
    sign: int
    """1 if it speaks for the memory, -1 if against it."""


def _signal(description: str, *, weight: str | None = None, sign: int = 1) -> Any:
    """Return the field of a signal, which puts it into `SIGNALS`: ranked, explained, and listed by the command line."""
    return field(default=0.0, metadata={"signal": (description, weight, sign)})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHit:
    """One recalled memory, its score, and the parts of that score (all between 0 and 1)."""

    record: MemoryRecord
    score: float
    """The confidence: the weighted sum of similarity, recency and frequency."""
    similarity: float
    """The relevance: the sum of its signals from `cosine` to `question`, compressed to stay below 1 where it exceeds 0.8."""
    recency: float
    frequency: float
    cosine: float = _signal("Similarity of meaning, by the embedding.")
    keywords: float = _signal("Added because the memory holds the question's words.", weight="keyword_weight")
    session: float = _signal("Added because its whole session holds them.", weight="session_weight")
    neighbours: float = _signal(
        "Added because the memories next to it in its session are similar.", weight="neighbour_weight"
    )
    speaker: float = _signal("Added because the question names its speaker.", weight="speaker_weight")
    particulars: float = _signal(
        "Added because it is a message that says when, or names something.", weight="particulars_weight"
    )
    question: float = _signal(
        "Subtracted because it is a question itself, where the question names a speaker.",
        weight="question_weight",
        sign=-1,
    )
    standing: float = _signal("Added because it is a standing instruction of the user.", weight="standing_weight")
    assistant: float = _signal(
        "Added because the question asks what the assistant said, and the assistant said it.", weight="assistant_weight"
    )
    kind_bonus: float = 0.0
    """Not part of the score; added for sorting, so that preferences come before equally relevant chatter."""
    excerpt: str | None = None
    """The part of a message that still holds, if a fact that it told was superseded, ended or forgotten since."""

    @property
    def content(self) -> str:
        """The text of the memory, without what does not hold any more."""
        return self.record.content if self.excerpt is None else self.excerpt

    def explain(self) -> str:
        """Return why this memory was chosen, in a line or two."""
        return f"{self.score:.2f} {self.content!r}\n     {self.reasons}"

    @property
    def reasons(self) -> str:
        """The parts of its score, in words."""
        parts = ((signal.name, getattr(self, signal.name)) for signal in SIGNALS)
        relevance = " ".join(f"{value:+.2f} {name}" for name, value in parts if value)
        similarity = f"similarity {self.similarity:.2f}" + (f" ({relevance})" if relevance else "")
        return f"{similarity}, recency {self.recency:.2f}, frequency {self.frequency:.2f}"


SIGNALS = tuple(
    Signal(field.name, *field.metadata["signal"]) for field in fields(MemoryHit) if "signal" in field.metadata
)
"""The parts of relevance. To add a signal, give `MemoryHit` its field, and compute it in `retrieval`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The memories that a recall found, best first. Iterates over its hits."""

    query: str
    hits: tuple[MemoryHit, ...]
    text: str
    """Ready to paste: one `- ` line for each memory, or a sentence that says there is none."""

    @property
    def tokens(self) -> int:
        """The number of tokens in `text`."""
        return count_tokens(self.text)

    def __iter__(self) -> Iterator[MemoryHit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


# Drafts: memories to be stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory to be stored, checked, without a place in the store yet."""

    content: str
    kind: str
    tags: tuple[str, ...]
    ttl: timedelta | None
    pinned: bool
    key: str | None
    source: str | None
    session: str | None
    metadata: Mapping[str, Any]
    at: datetime | None
    mime_type: str
    origin: Origin
    id: str | None = None
    """The id it will have, None for a new one. If a record has this id already, nothing is stored."""
    ends: Callable[[MemoryRecord], bool] | None = None
    """Returns whether this memory ends another one."""


def draft(
    content: object,
    *,
    kind: object = "fact",
    tags: object = None,
    ttl: object = None,
    pinned: object = False,
    key: object = None,
    source: object = None,
    session: object = None,
    metadata: object = None,
    at: object = None,
    mime_type: str = TEXT,
    origin: Origin = "application",
    id: str | None = None,
    ends: Callable[[MemoryRecord], bool] | None = None,
    is_message: bool = False,
) -> Draft:
    """Check the arguments of `remember()`. A captured message (`is_message`) may have any length."""
    if ttl is not None and not (isinstance(ttl, timedelta) and timedelta(0) < ttl <= MAX_LIFETIME):
        raise ValueError(f"ttl must be a timedelta above 0 and up to {MAX_LIFETIME.days:,} days, not {ttl!r}.")
    if origin not in get_args(Origin):
        raise ValueError(f"origin must be one of {', '.join(get_args(Origin))}, not {origin!r}.")
    return Draft(
        content=require_text(content, "content") if is_message else check_content(content),
        kind=check_kind(kind),
        tags=check_tags(tags, may_be_empty=True) or (),
        ttl=ttl,
        pinned=check_flag(pinned, "pinned"),
        key=optional_text(key, "key", MAX_KEY),
        source=optional_text(source, "source", MAX_SOURCE),
        session=None if session is None else check_session(session),
        metadata=check_metadata(metadata),
        at=check_time(at, "at"),
        mime_type=mime_type,
        origin=origin,
        id=id,
        ends=ends,
    )


def check_content(value: object) -> str:
    return require_text(value, "content", MAX_CONTENT, "Split it into several memories, or store what matters of it.")


# Selections of records


class Selection(NamedTuple):
    """Selects the records for which every field that is set holds; without fields, all records."""

    kinds: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    """Has all of these tags."""
    session: str | None = None
    key: str | None = None
    superseded_by: str | None = None
    containing: str | None = None
    """Contains this literal text, in upper or lower case."""
    before: datetime | None = None
    """Was written before this time."""
    expired_at: datetime | None = None
    """Has expired by this time."""
    current_at: datetime | None = None
    """Is neither superseded nor expired at this time, which is now."""
    believed_at: datetime | None = None
    """Was believed at this time, which is past."""

    @property
    def is_everything_current(self) -> bool:
        """Whether it selects everything that is current at some time."""
        return self.current_at is not None and self._replace(current_at=None) == Selection()

    def matches(self, record: MemoryRecord) -> bool:
        """Return whether the record is selected."""
        return (
            (self.kinds is None or record.kind in self.kinds)
            and (self.tags is None or set(self.tags) <= set(record.tags))
            and (self.session is None or record.session == self.session)
            and (self.key is None or record.key == self.key)
            and (self.superseded_by is None or record.superseded_by == self.superseded_by)
            and (self.containing is None or contains(record.content, self.containing))
            and (self.before is None or record.created_at < self.before)
            and (self.expired_at is None or (record.expires_at is not None and record.expires_at <= self.expired_at))
            and (self.current_at is None or record.is_current(self.current_at))
            and (self.believed_at is None or record.was_current(self.believed_at))
        )


def select(
    *,
    kinds: object = None,
    tags: object = None,
    session: object = None,
    key: object = None,
    containing: object = None,
    before: object = None,
) -> Selection:
    """Check the filters of `recall()`, `records()` and `forget()`."""
    return Selection(
        kinds=check_kinds(kinds),
        tags=check_tags(tags),
        session=None if session is None else check_session(session),
        key=optional_text(key, "key"),
        containing=optional_text(containing, "containing"),
        before=check_time(before, "before"),
    )


def contains(text: str, literal: str) -> bool:
    """Return whether a text contains another, in upper or lower case."""
    return literal.casefold() in text.casefold()


# Ids, times, order and metadata

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


def new_session_name(now: datetime) -> str:
    """Return a name for a session, made of the time and unique also within the same second."""
    return f"{now:%Y-%m-%dT%H-%M-%S}-{secrets.token_hex(3)}"


def stable_id(*parts: str) -> str:
    """Return an id that is always the same for the same texts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def in_order(messages: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """Return the messages of a session in the order in which they were said."""
    return sorted(messages, key=lambda record: (record.created_at, record.sequence or 0))


def listed(record: MemoryRecord, name: str) -> list[str]:
    """Return the ids that the metadata of a record lists under one of our keys."""
    ids = record.metadata.get(name, ())
    return [str(id) for id in ids] if isinstance(ids, (list, tuple)) else []


def told_facts(message: MemoryRecord) -> dict[str, tuple[int, int] | None]:
    """Return the ids of the facts drawn from a message, and where it tells each; None if an earlier version captured it."""
    ids, spans = listed(message, FACTS), message.metadata.get(SPANS, ())
    if len(spans) != len(ids):
        return dict.fromkeys(ids)
    return {id: (int(start), int(end)) for id, (start, end) in zip(ids, spans)}


def with_own_metadata(record: MemoryRecord) -> MemoryRecord:
    """Return the record with a copy of its metadata, which nobody else can change."""
    return replace(record, metadata=deepcopy(dict(record.metadata))) if record.metadata else record
