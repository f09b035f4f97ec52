"""The least recently used objects are evicted."""

from __future__ import annotations

import gc

from autogen_persistent_memory.runtime.lru import LeastRecentlyUsed


class Cached:
    def __init__(self) -> None:
        self.evictions = 0

    def evict(self) -> bool:
        self.evictions += 1
        return True


def test_the_least_recently_used_are_evicted_first() -> None:
    lru = LeastRecentlyUsed(2)
    first, second, third = Cached(), Cached(), Cached()
    for one in (first, second, first, third):
        lru.touch(one)
    assert (first.evictions, second.evictions, third.evictions) == (0, 1, 0)
    lru.touch(second)
    assert (first.evictions, third.evictions) == (1, 0)


def test_deleted_objects_do_not_count() -> None:
    lru = LeastRecentlyUsed(2)
    kept = Cached()
    lru.touch(kept)
    for _ in range(100):
        lru.touch(Cached())
        gc.collect(0)  # the newest objects; to look at those of all tests before takes long
    assert kept.evictions == 0


def test_garbage_may_be_collected_at_any_moment() -> None:
    lru = LeastRecentlyUsed(10)

    class Cycle(Cached):
        def __init__(self) -> None:
            super().__init__()
            self.me = self

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(3000):
            lru.touch(Cycle())
    finally:
        gc.set_threshold(*threshold)
