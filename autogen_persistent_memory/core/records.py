"""What an extractor finds in a conversation: facts, and what they put an end to."""

from __future__ import annotations

import hashlib
import re
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

NOT_NAMING = frozenset(
    """
    a an the my our their his her its to of in at for with on and or any more anymore now user s is
    """.split()  # noqa: SIM905
)
"""Words that name nothing."""


class Ending(NamedTuple):
    """What a statement puts an end to: the memory of this slot, that names these words."""

    key: str | None
    """The slot, with all that narrows it down; None where what ended has no slot of its own."""
    words: str
    """What is over, as it was called; empty for whatever fills the slot."""
    tag: str | None = None
    """What sort of memory it is, if that is known."""

    def ends(self, content: str, key: str | None, tags: Iterable[str] = ()) -> bool:
        """Whether a memory is over by this: it fills the slot, and it names every word of what ended."""
        if self.key is not None and (key is None or (key != self.key and not key.startswith(f"{self.key}/"))):
            return False
        if self.key is None and (not self.words or (self.tag is not None and self.tag not in tags)):
            return False
        named = _stems(content)
        return all(stem in named for stem in _stems(self.words))


class Fact(NamedTuple):
    """What a message tells that is worth keeping."""

    content: str
    """A sentence that stands by itself, in the third person."""
    kind: str = "fact"
    tags: tuple[str, ...] = ()
    key: str | None = None
    """The slot it fills, so that a later statement takes its place; None for what can be many."""
    ends: Ending | None = None
    """What it puts an end to: with nothing in its place, or, where it tells of a change, what was before."""
    replaces: str | None = None
    """The id of a known memory that it takes the place of."""
    quote: str | None = None
    """The words that tell it, as they were said or nearly so."""


def _stems(text: str) -> set[str]:
    """Words without their endings, roughly: enough to see "smoking" in "smokes"."""
    found = re.findall(r"[\w+#]+", text.lower())
    return {
        re.sub(r"(?:ing|es|ed|s|e)$", "", word) if len(word) > 4 else word for word in found if word not in NOT_NAMING
    }


Origin = Literal["user", "agent", "tool", "extractor", "application"]
"""Who put a memory there: the user's or an agent's own words, a tool call, an extractor, or your code."""

Clock = Callable[[], datetime]

TEXT = "text/plain"
MARKDOWN = "text/markdown"
JSON = "application/json"
MIME_TYPES = (TEXT, MARKDOWN, JSON)


FACTS = "apm:facts"
"""Under this name the metadata of a captured message lists the ids of the facts that were drawn from it."""
MESSAGES = "apm:messages"
"""Under this name the metadata of an extracted fact lists the ids of the messages that told it."""
SPANS = "apm:spans"
"""Under this name it lists where in the message each of those facts is told, in the same order."""
QUOTE = "apm:quote"
"""Under this name the metadata of an extracted fact holds the words of the message that told it last."""


def utc_now() -> datetime:
    """The current time, timezone-aware, in UTC."""
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """One memory. Times are timezone-aware UTC; `content` is kept verbatim (JSON memories hold their JSON text)."""

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
        """Whether this memory counts now: not superseded, not expired."""
        return self.superseded_by is None and (self.expires_at is None or self.expires_at > now)

    def was_current(self, then: datetime) -> bool:
        """Whether this memory was believed at that time: written, not yet superseded, not yet expired."""
        return (
            self.created_at <= then
            and (self.superseded_at is None or self.superseded_at > then)
            and (self.expires_at is None or self.expires_at > then)
        )


class Signal(NamedTuple):
    """Something that speaks for or against a memory: a part of its relevance."""

    name: str
    """The field of `MemoryHit` that says how much it contributed."""
    description: str
    weight: str | None
    """The field of `RecallPolicy` that it is multiplied by; None for a weight of 1."""
    sign: int
    """1 if it speaks for the memory, -1 if against it."""


def _signal(description: str, *, weight: str | None = None, sign: int = 1) -> Any:
    """Return the field of a signal, which is thereby in `SIGNALS`: ranked, explained, and listed by the command line."""
    return field(default=0.0, metadata={"signal": (description, weight, sign)})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHit:
    """One recalled memory, its score, and the parts that make the score up (all between 0 and 1)."""

    record: MemoryRecord
    score: float
    """The confidence: the weighted sum of similarity, recency and frequency."""
    similarity: float
    """How relevant it is: the sum of its signals, from `cosine` to `question`, bent below 1 where it exceeds 0.8."""
    recency: float
    frequency: float
    cosine: float = _signal("Similarity of meaning, by the embedding.")
    keywords: float = _signal("What it gained by holding the question's words.", weight="keyword_weight")
    session: float = _signal("What it gained by its whole session holding them.", weight="session_weight")
    neighbours: float = _signal(
        "What it gained by similar memories next to it in its session.", weight="neighbour_weight"
    )
    speaker: float = _signal("What it gained because the question names its speaker.", weight="speaker_weight")
    particulars: float = _signal(
        "What it gained, as a message, by saying when and by naming something.", weight="particulars_weight"
    )
    question: float = _signal("What it lost by being a question itself.", weight="question_weight", sign=-1)
    kind_bonus: float = 0.0
    """Not part of the score; added when hits are put in order, so that preferences come before equal chatter."""
    excerpt: str | None = None
    """What of a message still holds, where a fact that it told was superseded, ended or forgotten since."""

    @property
    def content(self) -> str:
        """What the memory says: its text, without what does not hold any more."""
        return self.record.content if self.excerpt is None else self.excerpt

    def explain(self) -> str:
        """Why this memory was chosen, in a line or two."""
        return f"{self.score:.2f} {self.content!r}\n     {self.reasons}"

    @property
    def reasons(self) -> str:
        """What its score is made of, in words."""
        parts = ((signal.name, getattr(self, signal.name)) for signal in SIGNALS)
        relevance = " ".join(f"{value:+.2f} {name}" for name, value in parts if value)
        similarity = f"similarity {self.similarity:.2f}" + (f" ({relevance})" if relevance else "")
        return f"{similarity}, recency {self.recency:.2f}, frequency {self.frequency:.2f}"


SIGNALS = tuple(
    Signal(field.name, *field.metadata["signal"]) for field in fields(MemoryHit) if "signal" in field.metadata
)
"""What relevance is made of. To add a signal, give `MemoryHit` its field, and compute it in `retrieval`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What a recall found, best first. Iterates over its hits."""

    query: str
    hits: tuple[MemoryHit, ...]
    text: str
    """Ready to paste: one `- ` line a memory, or a sentence that says there is none."""

    @property
    def tokens(self) -> int:
        """How many tokens `text` takes."""
        return count_tokens(self.text)

    def __iter__(self) -> Iterator[MemoryHit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One conversation, as `sessions()` lists it."""

    name: str
    started_at: datetime | None
    """When its first message was written; None where only a team's state was saved in it."""
    ended_at: datetime | None
    """When its last message was written."""
    speakers: tuple[str, ...]
    """Who spoke, in the order of their first words."""
    messages: int
    resumable: bool
    """Whether the state of a team or agent is saved in it, which `load()` can restore."""


class Query(NamedTuple):
    """What to recall for."""

    text: str
    lead: str | None = None
    """The part of it whose words count by themselves, where the rest is only background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory that was asked for and checked, but has no id and no place yet."""

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
    """The id it is to have; where a record has it already, there is nothing to do. By default a new one."""
    ends: Callable[[MemoryRecord], bool] | None = None
    """Which memories are over by this one."""


class Selection(NamedTuple):
    """Which records are meant. Every field that is set must hold; an empty selection means all of them."""

    kinds: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    """All of these tags."""
    session: str | None = None
    key: str | None = None
    superseded_by: str | None = None
    containing: str | None = None
    """This literal text, in upper or lower case."""
    before: datetime | None = None
    """Written before this time."""
    expired_at: datetime | None = None
    """Expired by this time."""
    current_at: datetime | None = None
    """Not superseded, and not expired at this time, which is now."""
    believed_at: datetime | None = None
    """Believed at this time, which is past."""

    @property
    def is_all_that_is_current(self) -> bool:
        """Whether it selects everything that is current at some time."""
        return self.current_at is not None and self._replace(current_at=None) == _EVERYTHING

    def matches(self, record: MemoryRecord) -> bool:
        """Whether the record is one of those meant."""
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


_EVERYTHING = Selection()


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
    """Check the arguments of `remember()`. A message, which somebody said, is kept whole however long it is.

    Raises:
        ValueError: What is wrong with which argument.
    """
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
    """Return the text of a memory, or raise a ValueError."""
    return require_text(value, "content", MAX_CONTENT, "Split it into several memories, or store what matters of it.")


def select(
    *,
    kinds: object = None,
    tags: object = None,
    session: object = None,
    key: object = None,
    containing: object = None,
    before: object = None,
) -> Selection:
    """Check the filters of `recall()`, `records()` and `forget()`.

    Raises:
        ValueError: What is wrong with which argument.
    """
    return Selection(
        kinds=check_kinds(kinds),
        tags=check_tags(tags),
        session=None if session is None else check_session(session),
        key=optional_text(key, "key"),
        containing=optional_text(containing, "containing"),
        before=check_time(before, "before"),
    )


def new_session_name(now: datetime) -> str:
    """A session named by time, unique also within the same second."""
    return f"{now:%Y-%m-%dT%H-%M-%S}-{secrets.token_hex(3)}"


def contains(text: str, literal: str) -> bool:
    """Whether a literal text stands in another, in upper or lower case."""
    return literal.casefold() in text.casefold()


def listed(record: MemoryRecord, name: str) -> list[str]:
    """The ids that are listed in the metadata of a record under a name of ours."""
    ids = record.metadata.get(name, ())
    return [str(id) for id in ids] if isinstance(ids, (list, tuple)) else []


def told_facts(message: MemoryRecord) -> dict[str, tuple[int, int] | None]:
    """The ids of the facts that were drawn from a message, and where it tells each, unless an earlier version captured it."""
    ids, spans = listed(message, FACTS), message.metadata.get(SPANS, ())
    if len(spans) != len(ids):
        return dict.fromkeys(ids)
    return {id: (int(start), int(end)) for id, (start, end) in zip(ids, spans)}


def stable_id(*parts: str) -> str:
    """An id that is the same whenever it is made from the same texts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def with_own_metadata(record: MemoryRecord) -> MemoryRecord:
    """The record, with metadata that nobody else can change."""
    return replace(record, metadata=deepcopy(dict(record.metadata))) if record.metadata else record


def in_order(messages: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """The messages of a session as they followed each other."""
    return sorted(messages, key=lambda record: (record.created_at, record.sequence or 0))
