"""Work in the background of an event loop, started once at a time, debounced or prefetched; and work with a deadline."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")
_QUIET_SECONDS = 1.0
_LONGEST_SECONDS = 10.0
CLOSING_SECONDS = 10.0
"""How long each part of closing a memory may take, and how long a flush waits for models."""


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
        """Whether the work is running on this loop."""
        return self._here is not None and not self._here.done()

    def start(self) -> asyncio.Task[T]:
        """Start the work unless it is running on this loop, and return its task."""
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
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


class Budget:
    """A number of seconds, counted from now, that several pieces of work share."""

    def __init__(self, seconds: float) -> None:
        self._until = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> float:
        """The seconds left. Never 0, so that a result that is ready can still be used."""
        return max(0.01, self._until - asyncio.get_running_loop().time())


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, or cancel the work if it takes longer.

    Unlike `asyncio.wait_for` it does not wait for late work to react to its cancellation, which some work ignores. Work
    that cancels itself has failed; that does not cancel the caller.

    Raises:
        asyncio.TimeoutError: The work took longer.
        RuntimeError: The work cancelled itself.
    """
    task = in_background(work)
    try:
        await asyncio.sleep(0)  # work that waits for nothing is done after this
        if not task.done():
            await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not task.done():
        task.cancel()
        raise asyncio.TimeoutError
    if task.cancelled():
        raise RuntimeError("The work was cancelled from within.")
    return task.result()


async def prefetch(prepare: Callable[[S], Coroutine[Any, Any, T]], batches: Iterable[S]) -> AsyncGenerator[T, None]:
    """Yield what `prepare` returns for each batch, in order, and prepare the next one while the caller uses it.

    Close the generator (`contextlib.aclosing`), so that preparation stops if the caller fails.
    """
    following: asyncio.Task[T] | None = None
    try:
        for batch in batches:
            current, following = following, in_background(prepare(batch))
            if current is not None:
                yield await current
        if following is not None:
            yield await following
    finally:
        if following is not None:
            following.cancel()


class Debounce:
    """Runs some work once nobody has asked for it for a second, or ten seconds after the first request."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked_at = 0.0

    @property
    def is_pending(self) -> bool:
        """Whether the work was asked for and has not run yet."""
        return self._loop is not None

    def ask(self) -> None:
        """Run the work soon."""
        loop = asyncio.get_running_loop()
        self._asked_at = loop.time()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(_QUIET_SECONDS, self._run_when_quiet, loop.time() + _LONGEST_SECONDS)

    def cancel(self) -> None:
        """Do not run the work before it is asked for again."""
        self._loop = None

    def _run_when_quiet(self, latest: float) -> None:
        loop = asyncio.get_running_loop()
        due = min(self._asked_at + _QUIET_SECONDS, latest)
        if self._loop is not loop:
            return
        if loop.time() < due:
            loop.call_at(due, self._run_when_quiet, latest)
        else:
            self._loop = None
            self._work()
