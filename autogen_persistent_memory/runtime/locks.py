"""Locks between tasks of several event loops and between threads, and fair turns between the tasks of one loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class CrossLoopLock:
    """An `asyncio.Lock` that several event loops can share. First come, first served.

    Releasing it never waits, so that a task whose loop was closed releases it as well.
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
                still_waiting = (loop, turn) in self._waiting
                if still_waiting:
                    self._waiting.remove((loop, turn))
            if not still_waiting:  # the lock was passed to this task already
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
    """A lock is taken, and the caller does not want to wait for it."""


class ReadWriteLock:
    """Lets any number of threads read at the same time, or one write. A reader must not acquire it again.

    Writing takes long, so the event loop must not wait for it: it reads with `wait=False`.
    """

    def __init__(self) -> None:
        self._entrance = threading.Lock()  # a waiting writer holds it, so that no further readers get in
        self._mutex = threading.Lock()
        self._readers = 0
        self._in_use = threading.Lock()

    @contextmanager
    def reading(self, *, wait: bool = True) -> Iterator[None]:
        """Hold the lock for reading; unless `wait`, raise a LockTakenError if a writer holds the lock or waits for it."""
        if not self._entrance.acquire(blocking=wait):
            raise LockTakenError
        try:
            with self._mutex:
                self._readers += 1
                if self._readers == 1:
                    self._in_use.acquire()  # without waiting: a writer would hold the entrance
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
        with self._entrance, self._in_use:
            yield


async def one_at_a_time() -> None:
    """Wait until no other task passed here in this iteration of the event loop. A task that comes alone passes at once."""
    await _turns_of_this_loop().wait()


class IdleWork(Generic[T]):
    """Work that the event loop does from `seconds` on while its task waits for something else, else when `result` needs it.

    If the work fails, `result` does it again.
    """

    def __init__(self, work: Callable[[], T], seconds: float) -> None:
        self._work = work
        self._done: list[T] = []
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        if _turns_of_this_loop().take():
            with suppress(Exception):
                self._done.append(self._work())

    def cancel(self) -> None:
        self._timer.cancel()

    async def result(self) -> T:
        """Return the result of the work; do the work now if it is not done."""
        self.cancel()
        if not self._done:
            await one_at_a_time()
            self._done.append(self._work())
        return self._done[0]


class _Turns:
    """One turn for each iteration of an event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False

    async def wait(self) -> None:
        if not self.take():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def take(self) -> bool:
        if self._is_taken:
            return False
        self._is_taken = True
        asyncio.get_running_loop().call_soon(self._pass_on)
        return True

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._pass_on)
                return
        self._is_taken = False


_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = weakref.WeakKeyDictionary()


def _turns_of_this_loop() -> _Turns:
    return _turns.setdefault(asyncio.get_running_loop(), _Turns())
