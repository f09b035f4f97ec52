"""Work in the background: started once, awaited for a limited time, stopped with its owner."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """Run one coroutine at a time in the background of the event loop that starts it.

    A task belongs to its loop: on another loop, and after `asyncio.run` ended, `start()` begins again. An exception that
    nobody awaits is dropped, so the work must log its own failures.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the work is under way on this loop."""
        return self._here is not None and not self._here.done()

    def start(self) -> asyncio.Task[T]:
        """Start the work, unless it is under way on this loop; return its task."""
        task = self._here
        if task is None or task.done():
            task = self._task = in_background(self._work())
        return task

    async def wait(self, seconds: float = math.inf) -> bool:
        """Wait this long for the work to end, however it ends, without cancelling it; return whether it has."""
        task = self._here
        if task is None:
            return True
        done, _ = await asyncio.wait({task}, timeout=None if math.isinf(seconds) else seconds)
        return bool(done)

    async def stop(self) -> None:
        """Cancel the work and wait until it has ended."""
        task, self._task = self._here, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def cancel(self) -> None:
        """Cancel the work without waiting for its end."""
        if self._here is not None:
            self._here.cancel()

    @property
    def _here(self) -> asyncio.Task[T] | None:
        """The latest task, if it belongs to the running loop."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            return self._task
        return None


def in_background(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task whose exception may go unawaited."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_retrieve)
    return task


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


S = TypeVar("S")


async def one_ahead(prepare: Callable[[S], Coroutine[Any, Any, T]], batches: Iterable[S]) -> AsyncGenerator[T, None]:
    """What is prepared of each batch, in order; while it is used, the next is being prepared.

    Close it (`contextlib.aclosing`), so that nothing goes on if whoever uses it fails.
    """
    loop = asyncio.get_running_loop()
    under_way: asyncio.Task[T] | None = None
    try:
        for batch in batches:
            current, under_way = under_way, loop.create_task(prepare(batch))
            if current is not None:
                yield await current
        if under_way is not None:
            yield await under_way
    finally:
        if under_way is not None:
            under_way.cancel()


_QUIET_SECONDS = 1.0
_LONGEST_SECONDS = 10.0


class Debounce:
    """Does some work once nobody has asked for it for a moment, or has for too long."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked_at = 0.0

    @property
    def is_awaited(self) -> bool:
        """Whether the work is still to be done."""
        return self._loop is not None

    def ask(self) -> None:
        """Let it be done soon, but not right now."""
        loop = asyncio.get_running_loop()
        self._asked_at = loop.time()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(_QUIET_SECONDS, self._look, loop.time() + _LONGEST_SECONDS)

    def call_off(self) -> None:
        """It was done by other means."""
        self._loop = None

    def _look(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        at = min(self._asked_at + _QUIET_SECONDS, until)
        if self._loop is not loop:
            return
        if loop.time() < at:
            loop.call_at(at, self._look, until)
        else:
            self._loop = None
            self._work()
