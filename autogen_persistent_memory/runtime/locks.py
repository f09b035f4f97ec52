"""Locks for the tasks of any event loop, and for the threads, of this process."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


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
