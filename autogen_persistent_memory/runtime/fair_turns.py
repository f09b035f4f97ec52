"""Many agents at once: what each does on the event loop takes milliseconds, and all together must not hold up the others."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


async def one_at_a_time() -> None:
    """Wait until no other task was let through in this iteration of the event loop. Who comes alone passes at once."""
    await _turnstile().pass_through()


class Meanwhile(Generic[T]):
    """Work for the event loop while its task waits for something else; where that is sooner done, or others are at work, after.

    Args:
        work: What to do. If it fails, it is done again by `result`.
        seconds: When to begin.
    """

    def __init__(self, work: Callable[[], T], seconds: float) -> None:
        self._work = work
        self._done: list[T] = []
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        if _turnstile().pass_at_once():
            with suppress(Exception):
                self._done.append(self._work())

    def call_off(self) -> None:
        """Do not begin any more."""
        self._timer.cancel()

    async def result(self) -> T:
        """What came of it."""
        self.call_off()
        if not self._done:
            await one_at_a_time()
            self._done.append(self._work())
        return self._done[0]


class _Turnstile:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False

    async def pass_through(self) -> None:
        if not self.pass_at_once():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def pass_at_once(self) -> bool:
        if self._is_taken:
            return False
        self._is_taken = True
        asyncio.get_running_loop().call_soon(self._let_next_through)
        return True

    def _let_next_through(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._let_next_through)
                return
        self._is_taken = False


def _turnstile() -> _Turnstile:
    loop = asyncio.get_running_loop()
    turnstile = _turnstiles.get(loop)
    if turnstile is None:
        turnstile = _turnstiles[loop] = _Turnstile()
    return turnstile


_turnstiles: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Turnstile] = weakref.WeakKeyDictionary()
