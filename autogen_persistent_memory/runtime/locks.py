"""Locks for the tasks of any event loop, and for the threads, of this process."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar


class CrossLoopLock:
    """As `asyncio.Lock`, which serves only one event loop. First come, first served.

    Leaving it never waits, so that it is given back even by a task whose loop was closed under it.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        with self._mutex:
            if not self._held:
                self._held = True
                return
            turn = loop.create_future()
            self._waiting.append((loop, turn))
        try:
            await turn
        except asyncio.CancelledError:
            with self._mutex:
                gave_up = (loop, turn) in self._waiting
                if gave_up:
                    self._waiting.remove((loop, turn))
            if not gave_up:  # it was our turn already
                self._pass_on()
            raise

    async def __aexit__(self, *exception: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        with self._mutex:
            while self._waiting:
                loop, turn = self._waiting.popleft()
                try:
                    loop.call_soon_threadsafe(_begin, turn)
                except RuntimeError:  # that loop was closed
                    continue
                return
            self._held = False


def _begin(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class LockTakenError(Exception):
    """A lock is taken, and was not to be waited for."""


class ReadWriteLock:
    """Lets any number of threads read at a time, or one write. Who reads must not read within that again.

    Writing takes long, so the event loop never waits for it. The mutex within guards a counter alone.
    """

    def __init__(self) -> None:
        self._entrance = threading.Lock()  # held by who wants to write, so that no more readers come in before
        self._mutex = threading.Lock()
        self._readers = 0
        self._in_use = threading.Lock()

    @contextmanager
    def reading(self, *, wait: bool = True) -> Iterator[None]:
        """Keep writers out.

        Raises:
            LockTakenError: Somebody writes or is about to, and it was not to be waited for.
        """
        if not self._entrance.acquire(blocking=wait):
            raise LockTakenError
        try:
            with self._mutex:
                self._readers += 1
                if self._readers == 1:
                    self._in_use.acquire()  # at once: who writes holds the entrance, too
        finally:
            self._entrance.release()
        try:
            yield
        finally:
            with self._mutex:
                self._readers -= 1
                if self._readers == 0:
                    self._in_use.release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep all others out."""
        with self._entrance, self._in_use:
            yield


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
