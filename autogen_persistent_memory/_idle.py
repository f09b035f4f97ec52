"""Bounds what a process with many namespaces keeps of them: the least recently used are let go."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Protocol

_TRIES = 20
"""So many more are asked to rest than have to, since some may be busy."""


class Restful(Protocol):
    """What can let go of what it holds, and get it back when it is used again."""

    def rest(self) -> bool:
        """Let go of everything that can be had again, unless it is in use; whether it did."""


class Awake:
    """Those that are not resting, least recently used first; at most so many, as far as they can rest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._mutex = threading.Lock()
        self._by_use: OrderedDict[int, weakref.ref[Restful]] = OrderedDict()

    def used(self, one: Restful) -> None:
        """Take note that one is used, and let others rest if there are too many."""
        with self._mutex:
            key = id(one)
            if key not in self._by_use:
                self._by_use[key] = weakref.ref(one, lambda _: self._by_use.pop(key, None))
            self._by_use.move_to_end(key)
            too_many = len(self._by_use) - self._most
            oldest = [*self._by_use.items()][: too_many + _TRIES] if too_many > 0 else []
        for key, reference in oldest:
            other = reference()
            if too_many > 0 and other is not None and other is not one and other.rest():
                too_many -= 1
                self._by_use.pop(key, None)
