"""Letting go of what is not used."""

from __future__ import annotations

import gc

from autogen_persistent_memory.runtime.lru import LeastRecentlyUsed


class Sleeper:
    def __init__(self) -> None:
        self.rests = 0

    def rest(self) -> bool:
        self.rests += 1
        return True


def test_the_least_recently_used_rest_first() -> None:
    awake = LeastRecentlyUsed(2)
    first, second, third = Sleeper(), Sleeper(), Sleeper()
    for one in (first, second, first, third):
        awake.used(one)
    assert (first.rests, second.rests, third.rests) == (0, 1, 0)
    awake.used(second)
    assert (first.rests, third.rests) == (1, 0)


def test_those_that_are_no_more_take_no_place() -> None:
    awake = LeastRecentlyUsed(2)
    kept = Sleeper()
    awake.used(kept)
    for _ in range(100):
        awake.used(Sleeper())
        gc.collect(0)  # the newest objects; to look at those of all tests before takes long
    assert kept.rests == 0


def test_garbage_may_be_collected_at_any_moment() -> None:
    awake = LeastRecentlyUsed(10)

    class Cycle(Sleeper):
        def __init__(self) -> None:
            super().__init__()
            self.me = self

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(3000):
            awake.used(Cycle())
    finally:
        gc.set_threshold(*threshold)
