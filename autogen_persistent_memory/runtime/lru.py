"""Bound what a process keeps in RAM for many namespaces: the least recently used are evicted."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from itertools import islice
from typing import Protocol

_SPARE = 20
"""How many more are tried than must be evicted, since some may be in use."""


class Evictable(Protocol):
    """Something that can drop what it holds in RAM, and load it again when it is used."""

    def evict(self) -> bool:
        """Drop everything that can be loaded again, unless it is in use; return whether that was done."""


class LeastRecentlyUsed:
    """The objects that hold something in RAM, least recently used first: at most `most`, if enough can be evicted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._mutex = threading.Lock()
        self._by_use: OrderedDict[int, weakref.KeyedRef[int, Evictable]] = OrderedDict()
        self._gone: deque[weakref.KeyedRef[int, Evictable]] = deque()

    def touch(self, one: Evictable) -> None:
        """Note that an object is used, and evict others if there are too many."""
        with self._mutex:
            self._drop_gone()
            key = id(one)
            known = self._by_use.get(key)
            if known is None or known() is not one:
                self._by_use[key] = weakref.KeyedRef(one, self._gone.append, key)
            self._by_use.move_to_end(key)
            too_many = len(self._by_use) - self._most
            oldest = list(islice(self._by_use.values(), too_many + _SPARE)) if too_many > 0 else []
        for reference in oldest:
            other = reference()
            if too_many > 0 and other is not None and other is not one and other.evict():
                too_many -= 1
                self._gone.append(reference)

    def _drop_gone(self) -> None:
        """Forget evicted and deleted objects here, under the lock: garbage collection may run at any moment, also under it."""
        while self._gone:
            reference = self._gone.popleft()
            if self._by_use.get(reference.key) is reference:
                del self._by_use[reference.key]
