"""Keyword search over the memories of a namespace, in RAM: BM25, and what surrounds a memory in its session.

The index is a cache of what is in the store. It grows and shrinks memory by memory, without a rebuild: a term's
postings are numpy arrays with room at the end. Compared: bm25s and rank-bm25 cannot add to an index, SQLite's FTS5 takes
sixty times as long for a query over 100,000 memories.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._words import STOP_WORDS, capitalised, has_terms, is_english, is_name, names_within, says_when, terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

_K1, _B = 0.9, 0.4
# What a memory's neighbours in its session add to its own score: a memory often answers or goes on from the one before.
_PREVIOUS, _BEFORE_THAT, _NEXT, _ANSWERED = 0.3, 0.2, 0.2, 0.35
_HIGHEST = 1.0
_MUCH_WASTE = 1_000
_FIRST_ROOM = 4
_NOTHING = 1e-4
_SHARPNESS = 2.5
"""A memory that holds half of the question's words is worth much less than half of one that holds them all."""


class KeywordIndex:
    """Finds memories by their words. Not safe for use by several threads at once."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._ids: list[str | None] = []
        self._terms: list[tuple[str, ...]] = []
        self._names: list[tuple[str, ...]] = []
        self._names_within: list[tuple[str, ...]] = []
        self._postings: dict[str, _Posting] = {}
        self._lengths, self._previous, self._following = _Column("f4"), _Column("i4"), _Column("i4")
        self._asks, self._session_of, self._shelf_of = _Column("f4"), _Column("i4"), _Column("i4")
        self._says_when, self._particulars = _Column("i4"), _Column("i4")
        self._total_length = 0
        self._sessions: dict[str, int] = {}
        self._in_session: list[list[tuple[Any, int]]] = []
        self._orders: list[Any] = []
        self._shelves: dict[str, int] = {}
        self._capitalised: Counter[str] = Counter()
        self._speakers: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def is_wasteful(self) -> bool:
        """Whether more memories were removed than there are, so that a new index would be much smaller."""
        return len(self._ids) > 2 * len(self) + _MUCH_WASTE

    def put(
        self,
        id: str,
        text: str,
        *,
        shelf: str,
        date: str = "",
        speaker: str | None = None,
        session: str | None = None,
        order: Any = None,
    ) -> None:
        """Add a memory, or replace it. It is found by its date as well; within a session, `order` tells what follows what."""
        self.remove(id)
        slot = len(self._ids)
        counts = Counter(terms(f"{speaker or ''} {date} {text}"))
        names = capitalised(f"{date} {text}")
        if speaker is not None:
            names.add(speaker)
            self._speakers[speaker] += 1
            if self._speakers[speaker] == 1:
                self._recount_particulars(speaker)
        self._slots[id] = slot
        self._ids.append(id)
        self._terms.append(tuple(counts))
        self._names.append((speaker or "", *names))
        self._names_within.append(tuple(names_within(text)))
        self._says_when.append(says_when(text))
        self._particulars.append(self._count_particulars(slot))
        self._capitalised.update(names)
        length = sum(counts.values())
        self._total_length += length
        self._lengths.append(length)
        self._asks.append(text.rstrip().endswith("?"))
        self._shelf_of.append(self._shelves.setdefault(shelf, len(self._shelves)))
        self._previous.append(-1)
        self._following.append(-1)
        for term, count in counts.items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = _Posting()
            posting.add(slot, count)
        self._orders.append(order)
        self._session_of.append(-1 if session is None else self._join(session, order, slot))

    def remove(self, id: str) -> None:
        """Take a memory out, if it is in."""
        slot = self._slots.pop(id, None)
        if slot is None:
            return
        for term in self._terms[slot]:
            posting = self._postings[term]
            posting.remove(slot)
            if not posting.size:
                del self._postings[term]
        speaker, *names = self._names[slot]
        self._capitalised.subtract(names)
        self._speakers[speaker] -= bool(speaker)
        self._total_length -= int(self._lengths.view[slot])
        self._ids[slot], self._terms[slot], self._names[slot], self._names_within[slot] = None, (), ("",), ()
        session = int(self._session_of.view[slot])
        if session >= 0:
            chain = self._in_session[session]
            del chain[bisect_left(chain, (self._orders[slot], slot))]
            before, after = int(self._previous.view[slot]), int(self._following.view[slot])
            self._link(before, after)
            self._previous.view[slot] = self._following.view[slot] = -1

    def _join(self, session: str, order: Any, slot: int) -> int:
        number = self._sessions.setdefault(session, len(self._in_session))
        if number == len(self._in_session):
            self._in_session.append([])
        chain = self._in_session[number]
        at = bisect_left(chain, (order, slot))
        before = chain[at - 1][1] if at > 0 else -1
        after = chain[at][1] if at < len(chain) else -1
        insort(chain, (order, slot))
        self._link(before, slot)
        self._link(slot, after)
        return number

    def _link(self, before: int, after: int) -> None:
        if before >= 0:
            self._following.view[before] = after
        if after >= 0:
            self._previous.view[after] = before

    def weigh(self, ids: Iterable[str], cosines: Floats, matches: KeywordMatches) -> Floats:
        """What speaks for each of these memories, beside how near it is in meaning; a column each.

        Four rows: how well its words match, and those of its session; how near those right before and after it in its
        session are, compared to the farthest; and how many particulars it tells: whether it says when, and whether it
        names something. All 0 for a memory that is not in the index.
        """
        import numpy as np

        found = np.array([self._slots.get(id, -1) for id in ids], dtype=np.intp)
        weighed: Floats = np.zeros((4, len(found)))
        here = np.flatnonzero(found >= 0)
        if not len(here):
            return weighed
        slots = found[here]
        weighed[:2, here] = matches.of(slots)
        nearness = dict(zip(slots.tolist(), (cosines[here] - cosines.min()).tolist(), strict=True))
        for links in (self._previous, self._following):
            weighed[2, here] += [nearness.get(slot, 0.0) for slot in links.view[slots].tolist()]
        weighed[3, here] = self._particulars.view[slots]
        return weighed

    def _count_particulars(self, slot: int) -> int:
        names_something = any(self._speakers.get(name, 0) <= 0 for name in self._names_within[slot])
        return int(self._says_when.view[slot]) + names_something

    def _recount_particulars(self, speaker: str) -> None:
        """A name that is a speaker's says nothing any more."""
        for slot, names in enumerate(self._names_within):
            if speaker in names:
                self._particulars.view[slot] = self._count_particulars(slot)

    def speakers_named(self, query: str) -> set[str]:
        """The known speakers whose names, which have a capital, stand in the query."""
        return {
            name
            for name, count in self._speakers.items()
            if count > 0 and name in query and is_name(name) and re.search(rf"\b{re.escape(name)}\b", query)
        }

    def as_said(self, query: str) -> str:
        """The query as the speakers it names would put it, who say "I" where others say their names.

        Names that a tenth of all memories hold say nothing here and are left out.
        """
        said, english = query, is_english(query)
        for name in sorted(self.speakers_named(query), key=len, reverse=True):
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
        """How well each memory holds the words of a query."""
        import numpy as np

        size = len(self._ids)
        own: Floats = np.zeros(size, dtype=np.float32)
        sessions: Floats = np.zeros(max(1, len(self._in_session)), dtype=np.float32)
        reachable = reachable_by_session = 0.0
        average = self._total_length / max(1, len(self))
        for term in set(terms(query)):
            posting = self._postings.get(term)
            weight = _rarity(posting.size if posting else 0, len(self))
            reachable += weight
            if posting is None:
                reachable_by_session += _rarity(0, len(self._in_session))
                continue
            slots, counts = posting.slots, posting.counts
            relative = 1 - _B + _B * self._lengths.view[slots] / max(1.0, average)
            own[slots] += weight * counts * (_K1 + 1) / (counts + _K1 * relative)
            within = self._session_of.view[slots]
            touched = np.flatnonzero(np.bincount(within[within >= 0]))
            rarity = _rarity(len(touched), len(self._in_session))
            sessions[touched] += rarity
            reachable_by_session += rarity
        own = np.minimum(own / max(reachable, 1e-9), 1)  # to hold a word twice does not make up for another
        sessions /= max(reachable_by_session, 1e-9)
        keywords = self._with_neighbours(own)
        sessions = np.append(sessions, np.float32(0))  # one more, for -1: no session
        return KeywordMatches(self, keywords, sessions[self._session_of.view])

    def _with_neighbours(self, own: Floats) -> Floats:
        """What each memory's own words and those around it in its session are worth."""
        import numpy as np

        holders = np.flatnonzero(own != 0)
        words = own[holders]
        total: Floats = np.append(own, np.float32(0))  # one more, for -1: no such memory
        following = self._following.view[holders]
        # A memory has one neighbour on either side, so none receives twice.
        total[following] += (_PREVIOUS + _ANSWERED * self._asks.view[holders]) * words
        total[np.where(following >= 0, self._following.view[following], -1)] += _BEFORE_THAT * words
        total[self._previous.view[holders]] += _NEXT * words
        total = total[:-1]
        touched = np.flatnonzero(total != 0)
        total[touched] = np.minimum(total[touched], _HIGHEST) ** _SHARPNESS
        return total


class KeywordMatches:
    """What a search found: for each memory how well its words match, and how well those of its whole session do.

    Stays valid while the index goes on changing.
    """

    def __init__(self, index: KeywordIndex, keywords: Floats, session: Floats) -> None:
        self._index = index
        self._keywords = keywords
        self._session = session

    def of(self, slots: Any) -> Floats:
        """Of the memories in these slots how well they match, and how well their sessions do; 0 for those written since."""
        import numpy as np

        known = slots < len(self._keywords)
        found: Floats = np.zeros((2, len(slots)), dtype=np.float32)
        found[:, known] = self._keywords[slots[known]], self._session[slots[known]]
        return found

    def or_better(self, other: KeywordMatches) -> KeywordMatches:
        """For each memory the better of two matches, of searches one right after the other."""
        import numpy as np

        size = min(len(self._keywords), len(other._keywords))
        return KeywordMatches(
            self._index,
            np.maximum(self._keywords[:size], other._keywords[:size]),
            np.maximum(self._session[:size], other._session[:size]),
        )

    def best(self, count: int, shelf: str, session_weight: float) -> list[str]:
        """The ids of the best matches on a shelf."""
        import numpy as np

        index = self._index
        slots = (self._keywords > _NOTHING).nonzero()[0]
        slots = slots[index._shelf_of.view[slots] == index._shelves.get(shelf, -1)]
        score = self._keywords[slots] + session_weight * self._session[slots]
        if len(slots) > count:
            slots = slots[np.argpartition(-score, count - 1)[:count]]
        return [id for slot in slots.tolist() if (id := index._ids[slot]) is not None]


class _Column:
    """A numpy array with room to grow."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._room: Any = ()
        self._size = 0

    def append(self, value: float) -> None:
        if self._size == len(self._room):
            self._room = _larger(self._room, self._kind)
        self._room[self._size] = value
        self._size += 1

    @property
    def view(self) -> Any:
        """The values, to read and to change."""
        if not len(self._room):
            self._room = _larger((), self._kind)
        return self._room[: self._size]


class _Posting:
    """In which memories a term stands, and how often."""

    __slots__ = ("_counts", "_slots", "size")

    def __init__(self) -> None:
        self._slots, self._counts = _larger((), "i4"), _larger((), "f4")
        self.size = 0

    @property
    def slots(self) -> Any:
        return self._slots[: self.size]

    @property
    def counts(self) -> Any:
        return self._counts[: self.size]

    def add(self, slot: int, count: int) -> None:
        if self.size == len(self._slots):
            self._slots, self._counts = _larger(self._slots, "i4"), _larger(self._counts, "f4")
        self._slots[self.size], self._counts[self.size] = slot, count
        self.size += 1

    def remove(self, slot: int) -> None:
        (position,) = (self.slots == slot).nonzero()[0]
        self.size -= 1
        self._slots[position], self._counts[position] = self._slots[self.size], self._counts[self.size]


def _larger(room: Any, kind: str) -> Any:
    """An array with the same values and as much room again."""
    import numpy as np

    larger = np.zeros(max(_FIRST_ROOM, 2 * len(room)), dtype=kind)
    larger[: len(room)] = room
    return larger


def _rarity(frequency: int, count: int) -> float:
    return math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
