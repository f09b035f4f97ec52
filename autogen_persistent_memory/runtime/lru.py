"""Bounds what a process with many namespaces keeps of them: the least recently used are let go."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from itertools import islice
from typing import Protocol

_TRIES = 20
"""So many more are asked to rest than have to, since some may be busy."""


class Evictable(Protocol):
    """What can let go of what it holds, and get it back when it is used again."""

    def rest(self) -> bool:
        """Let go of everything that can be had again, unless it is in use; whether it did."""


class LeastRecentlyUsed:
    """Those that are not resting, least recently used first; at most so many, as far as they can rest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._mutex = threading.Lock()
        self._by_use: OrderedDict[int, weakref.KeyedRef[int, Evictable]] = OrderedDict()
        self._gone: deque[weakref.KeyedRef[int, Evictable]] = deque()

    def used(self, one: Evictable) -> None:
        """Take note that one is used, and let others rest if there are too many."""
        with self._mutex:
            self._drop_gone()
            key = id(one)
            known = self._by_use.get(key)
            if known is None or known() is not one:
                self._by_use[key] = weakref.KeyedRef(one, self._gone.append, key)
            self._by_use.move_to_end(key)
            too_many = len(self._by_use) - self._most
            oldest = list(islice(self._by_use.values(), too_many + _TRIES)) if too_many > 0 else []
        for reference in oldest:
            other = reference()
            if too_many > 0 and other is not None and other is not one and other.rest():
                too_many -= 1
                self._gone.append(reference)

    def _drop_gone(self) -> None:
        """Forget those that rest or are no more. They were only noted: garbage is collected at any moment, also within."""
        while self._gone:
            reference = self._gone.popleft()
            if self._by_use.get(reference.key) is reference:
                del self._by_use[reference.key]
