"""Keyword search over the memories of a namespace, in RAM: BM25, and what surrounds a memory in its session.

The index grows and shrinks memory by memory, without a rebuild: a term's postings are numpy arrays with room at the end.
In comparison, bm25s and rank-bm25 cannot add to an index, and SQLite's FTS5 takes sixty times as long for a query over
100,000 memories.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from ..text.sentences import asks_for_summary, asks_what_assistant_said, is_standing_instruction
from ..text.words import (
    STOP_WORDS,
    capitalised,
    each_term,
    has_terms,
    is_english,
    is_name,
    mentions_time,
    names_within,
    terms,
)
from .vector_index import Column, larger

if TYPE_CHECKING:
    from .vector_index import Floats, Slots

_K1, _B = 0.9, 0.4
# What a memory's neighbours in its session add to its own score: a memory often answers or continues the one before.
_PREVIOUS, _BEFORE_THAT, _NEXT, _ANSWERED = 0.3, 0.2, 0.2, 0.35
_HIGHEST = 1.0
_MUCH_WASTE = 1_000
_LONGEST = 1_000_000
"""Characters of a memory that are indexed."""
_MOST_TERMS = 50_000
"""Different terms of a memory that are indexed. Only pasted data has more, not prose of that length."""
_NOTHING = 1e-4
_SHARPNESS = 2
"""The power that makes a memory with half of the question's words count much less than half of one with all of them."""


class Words(NamedTuple):
    """What the index holds of a memory's text."""

    counts: Mapping[str, int]
    names: Set[str]
    names_within: tuple[str, ...]
    mentions_time: bool
    asks: bool
    is_standing: bool


def words_of(text: str, *, date: str = "", speaker: str | None = None) -> Words:
    """Read the words of a memory, and of its date and speaker. Long texts take long: call this before locking the index."""
    asks = text.rstrip().endswith("?")
    text = text[:_LONGEST]
    counts: Counter[str] = Counter()
    for term in each_term(f"{speaker or ''} {date} {text}"):
        if term in counts or len(counts) < _MOST_TERMS:
            counts[term] += 1
    names = capitalised(f"{date} {text}")
    if speaker is not None:
        names.add(speaker)
    return Words(counts, names, tuple(names_within(text)), mentions_time(text), asks, is_standing_instruction(text))


class KeywordIndex:
    """Finds memories by their words, and computes their other signals. Not thread-safe.

    A memory has a slot until it is removed; slots are not reused.
    """

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        """The slot of each memory, by its id."""
        self._terms: list[tuple[str, ...]] = []  # by slot, as are the other lists and the columns
        self._names: list[tuple[str, ...]] = []
        self._names_within: list[tuple[str, ...]] = []
        self._postings: dict[str, _Posting] = {}
        self._lengths, self._previous, self._following = Column("f4"), Column("i4"), Column("i4")
        self._asks, self._session_of, self._table_of = Column("f4"), Column("i4"), Column("i4")
        self._says_when, self._is_message, self._particulars = Column("?"), Column("?"), Column("i4")
        self._speaker_of = Column("i4")
        self._is_assistant, self._is_standing = Column("?"), Column("?")
        self._total_length = 0
        self._sessions: dict[str, int] = {}
        self._in_session: list[list[tuple[Any, int]]] = []
        self._orders: list[Any] = []
        self._tables: dict[str, int] = {}
        self._capitalised: Counter[str] = Counter()
        self._speakers: Counter[str] = Counter()
        self._speaker_numbers: dict[str | None, int] = {}

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def is_wasteful(self) -> bool:
        """Whether more memories were removed than are left, so that a new index would be much smaller."""
        return len(self._terms) > 2 * len(self) + _MUCH_WASTE

    def insert(
        self,
        id: str,
        words: Words,
        *,
        table: str,
        is_message: bool = False,
        is_assistant: bool = False,
        is_user: bool = False,
        speaker: str | None = None,
        session: str | None = None,
        order: Any = None,
    ) -> None:
        """Add or replace a memory. `order` is its place within its session."""
        slot = self.slots.get(id)
        if slot is None:
            slot = self.slots[id] = len(self._terms)
            for blank in (self._terms, self._names, self._names_within, self._orders):
                blank.append(())
        else:
            self._empty(slot)
        counts = words.counts
        if speaker is not None:
            self._speakers[speaker] += 1
            if self._speakers[speaker] == 1:
                self._recount_particulars(speaker)
        self._terms[slot] = tuple(counts)
        self._names[slot] = (speaker or "", *words.names)
        self._names_within[slot] = words.names_within
        self._speaker_of.put(slot, self._speaker_numbers.setdefault(speaker, len(self._speaker_numbers)))
        self._says_when.put(slot, words.mentions_time)
        self._is_message.put(slot, is_message)
        self._is_assistant.put(slot, is_assistant)
        self._is_standing.put(slot, words.is_standing and is_user)
        self._particulars.put(slot, self._count_particulars(slot))
        self._capitalised.update(words.names)
        length = sum(counts.values())
        self._total_length += length
        self._lengths.put(slot, length)
        self._asks.put(slot, words.asks)
        self._table_of.put(slot, self._tables.setdefault(table, len(self._tables)))
        self._previous.put(slot, -1)
        self._following.put(slot, -1)
        for term, count in counts.items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = _Posting()
            posting.add(slot, count)
        self._orders[slot] = order
        self._session_of.put(slot, -1 if session is None else self._join(session, order, slot))

    def remove(self, id: str) -> None:
        """Remove a memory, if it is there."""
        slot = self.slots.pop(id, None)
        if slot is not None:
            self._empty(slot)

    def _empty(self, slot: int) -> None:
        for term in self._terms[slot]:
            posting = self._postings[term]
            posting.remove(slot)
            if not posting.size:
                del self._postings[term]
        speaker, *names = self._names[slot]
        self._capitalised.subtract(names)
        self._speakers[speaker] -= bool(speaker)
        self._total_length -= int(self._lengths.view[slot])
        self._terms[slot], self._names[slot], self._names_within[slot] = (), (), ()
        session = int(self._session_of.view[slot])
        if session >= 0:
            chain = self._in_session[session]
            del chain[bisect_left(chain, (self._orders[slot], slot))]
            self._link(int(self._previous.view[slot]), int(self._following.view[slot]))
            self._previous.view[slot] = self._following.view[slot] = -1

    def _join(self, session: str, order: Any, slot: int) -> int:
        number = self._sessions.setdefault(session, len(self._in_session))
        if number == len(self._in_session):
            self._in_session.append([])
        chain = self._in_session[number]
        at = bisect_left(chain, (order, slot))
        before = chain[at - 1][1] if at > 0 else -1
        after = chain[at][1] if at < len(chain) else -1
        chain.insert(at, (order, slot))
        self._link(before, slot)
        self._link(slot, after)
        return number

    def _link(self, before: int, after: int) -> None:
        if before >= 0:
            self._following.view[before] = after
        if after >= 0:
            self._previous.view[after] = before

    def signals(
        self, slots: Slots, nearness: Floats, matches: KeywordMatches, named: Iterable[str] = ()
    ) -> dict[str, Floats]:
        """Return, by their names, the signals that the index knows of the memories in these slots.

        How well its words match, and those of its session; how near the memories right before and after it in its session
        are; how many particulars it tells, as a message: whether it says when, and whether it names something;
        whether one of the named speakers says it; whether it asks.
        """
        import numpy as np

        is_assistant = self._is_assistant.view[slots]
        gate = ~is_assistant if matches.gated else np.ones(len(slots), dtype=bool)
        near = dict(zip(slots.tolist(), nearness.tolist(), strict=True))
        flowing = dict(zip(slots[gate].tolist(), nearness[gate].tolist(), strict=True)) if matches.gated else near
        neighbours = [
            flowing.get(before, 0.0) + near.get(after, 0.0)
            for before, after in zip(self._previous.view[slots].tolist(), self._following.view[slots].tolist())
        ]
        speakers = [self._speaker_numbers[name] for name in named if name in self._speaker_numbers]
        keywords, session = matches.of(slots)
        return {
            "keywords": keywords,
            "session": session,
            "neighbours": np.array(neighbours) * gate,
            "speaker": np.isin(self._speaker_of.view[slots], speakers) if speakers else np.zeros(len(slots)),
            "particulars": self._particulars.view[slots],
            "question": self._asks.view[slots] * bool(speakers),
            "standing": self._is_standing.view[slots],
            "assistant": is_assistant * matches.recalls_assistant,
        }

    def _count_particulars(self, slot: int) -> int:
        if not self._is_message.view[slot] or self._is_assistant.view[slot]:
            return 0
        names_something = any(self._speakers.get(name, 0) <= 0 for name in self._names_within[slot])
        return int(self._says_when.view[slot]) + names_something

    def _recount_particulars(self, speaker: str) -> None:
        """Count again after a new speaker: a speaker's name is not a particular."""
        for slot, names in enumerate(self._names_within):
            if speaker in names:
                self._particulars.view[slot] = self._count_particulars(slot)

    def speakers_named(self, query: str) -> set[str]:
        """Return the known speakers whose names, which have a capital, are in the query."""
        return {
            name
            for name, count in self._speakers.items()
            if count > 0 and name in query and is_name(name) and re.search(rf"\b{re.escape(name)}\b", query)
        }

    def as_said(self, query: str) -> str:
        """Return the query as the speakers whom it names would put it: with "I" for their names.

        Names that a tenth of all memories hold distinguish nothing, and are left out.
        """
        speakers = self.speakers_named(query)
        if not speakers:
            return query
        said, english = query, is_english(query)
        for name in sorted(speakers, key=len, reverse=True):
            said = re.sub(rf"\b{re.escape(name)}(?:['’]s\b|(?<=s)['’])", "my" if english else "", said)
            said = re.sub(rf"\b{re.escape(name)}\b", "I" if english else "", said)
        common = max(5, len(self) / 10)
        empty = [
            re.escape(name)
            for name in capitalised(said)
            if self._capitalised.get(name, 0) > common and name.casefold() not in STOP_WORDS
        ]
        if empty:
            said = re.sub(rf"\b(?:{'|'.join(empty)})\b(?:['’]s)?", "", said)
        return " ".join(said.split()) if has_terms(said) else query

    def search(self, query: str) -> KeywordMatches:
        """Return how well each memory matches the words of a query."""
        import numpy as np

        own: Floats = np.zeros(len(self._terms) + 1, dtype=np.float32)  # one more, at -1: no memory
        sessions: Floats = np.zeros(len(self._in_session) + 1, dtype=np.float32)  # one more, at -1: no session
        reachable = reachable_by_session = 0.0
        average = self._total_length / max(1, len(self))
        for term in set(terms(query)):
            posting = self._postings.get(term)
            weight = _rarity(posting.size if posting else 0, len(self))
            reachable += weight
            if posting is None:
                reachable_by_session += _rarity(0, len(self._in_session))
                continue
            slots, counts = posting.view
            relative = self._lengths.view[slots] * (_K1 * _B / max(1.0, average)) + _K1 * (1 - _B)
            own[slots] += counts * (weight * (_K1 + 1)) / (counts + relative)
            within = self._session_of.view[slots]
            touched = np.bincount(within[within >= 0]).nonzero()[0]
            rarity = _rarity(len(touched), len(self._in_session))
            sessions[touched] += rarity
            reachable_by_session += rarity
        sessions *= (len(self._in_session) > 1) / max(reachable_by_session, 1e-9)
        recalls_assistant = asks_what_assistant_said(query)
        gated = not (recalls_assistant or asks_for_summary(query))
        keywords = self._with_neighbours(own, reachable, gated=gated)
        return KeywordMatches(self, keywords, sessions, gated=gated, recalls_assistant=recalls_assistant)

    def _with_neighbours(self, own: Floats, reachable: float, *, gated: bool) -> Floats:
        """Return the score of each memory by its own words and those around it in its session. Changes `own`."""
        import numpy as np

        holders = (own != 0).nonzero()[0]  # several times as fast as own.nonzero()
        # At most 1: a word that occurs twice does not make up for a missing one.
        words = own[holders] = np.minimum(own[holders] / max(reachable, 1e-9), 1)
        following = self._following.view[holders]
        flowing = words * ~self._is_assistant.view[holders] if gated else words
        # A memory has one neighbour on either side, so no slot is added to twice.
        own[following] += (_PREVIOUS + _ANSWERED * self._asks.view[holders]) * flowing
        own[np.where(following >= 0, self._following.view[following], -1)] += _BEFORE_THAT * flowing
        own[self._previous.view[holders]] += _NEXT * words
        own[-1] = 0
        touched = (own != 0).nonzero()[0]
        own[touched] = np.minimum(own[touched], _HIGHEST) ** _SHARPNESS
        if gated:
            own[touched] *= ~self._is_assistant.view[touched]
        return own


class KeywordMatches:
    """The result of a search: how well the words of each memory match, and those of each session.

    Stays valid while the index changes.
    """

    def __init__(
        self, index: KeywordIndex, keywords: Floats, sessions: Floats, *, gated: bool, recalls_assistant: bool
    ) -> None:
        self.index = index
        self.gated = gated
        """Whether the words and neighbours of an assistant's messages count for nothing."""
        self.recalls_assistant = recalls_assistant
        """Whether the question asks what the assistant said."""
        self._keywords, self._sessions = keywords, sessions  # each with a 0 at the end

    def of(self, slots: Slots) -> tuple[Floats, Floats]:
        """Return how well the memories in these slots match, and how well their sessions do; 0 for newer memories."""
        is_known = slots < len(self._keywords) - 1
        return self._keywords.take(slots, mode="clip"), self._of_sessions(slots) * is_known

    def or_better(self, other: KeywordMatches) -> KeywordMatches:
        """Return for each memory the better of two matches of the same index."""
        import numpy as np

        keywords = np.maximum(self._keywords, other._keywords)
        sessions = np.maximum(self._sessions, other._sessions)
        return KeywordMatches(
            self.index,
            keywords,
            sessions,
            gated=self.gated and other.gated,
            recalls_assistant=self.recalls_assistant or other.recalls_assistant,
        )

    def best(self, count: int, tables: Sequence[str], session_weight: float) -> dict[str, list[int]]:
        """Return the slots of the best matches in each of these tables."""
        import numpy as np

        slots = (self._keywords > _NOTHING).nonzero()[0]
        table_of = self.index._table_of.view[slots]
        score = self._keywords[slots] + session_weight * self._of_sessions(slots)
        best: dict[str, list[int]] = {}
        for table in tables:
            there = (table_of == self.index._tables.get(table, -1)).nonzero()[0]
            if len(there) > count:
                there = there[np.argpartition(score[there], -count)[-count:]]
            best[table] = slots[there].tolist()
        return best

    def _of_sessions(self, slots: Slots) -> Floats:
        import numpy as np

        none = len(self._sessions) - 1
        found: Floats = self._sessions[np.minimum(self.index._session_of.view[slots], none)]  # 0 if it is newer
        return found


class _Posting:
    """The memories that hold a term, and how often."""

    __slots__ = ("_counts", "_slots", "size")

    def __init__(self) -> None:
        self._slots, self._counts = larger(None, "i4"), larger(None, "f4")
        self.size = 0

    @property
    def view(self) -> tuple[Any, Any]:
        return self._slots[: self.size], self._counts[: self.size]

    def add(self, slot: int, count: int) -> None:
        if self.size == len(self._slots):
            self._slots, self._counts = larger(self._slots, "i4"), larger(self._counts, "f4")
        self._slots[self.size], self._counts[self.size] = slot, count
        self.size += 1

    def remove(self, slot: int) -> None:
        (position,) = (self._slots[: self.size] == slot).nonzero()[0]
        self.size -= 1
        self._slots[position], self._counts[position] = self._slots[self.size], self._counts[self.size]


def _rarity(frequency: int, count: int) -> float:
    return math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
