"""Wait for work, but only for a limited time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
CLOSING_SECONDS = 10.0
"""How long each part of closing a memory may take, and how long a flush waits for models."""


class Budget:
    """A number of seconds, counted from now, that several pieces of work share."""

    def __init__(self, seconds: float) -> None:
        self._until = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> float:
        """The seconds left. Never 0, so that a result that is ready can still be used."""
        return max(0.01, self._until - asyncio.get_running_loop().time())


async def ended(task: asyncio.Task[Any] | None, seconds: float) -> bool:
    """Wait this long for a task of this loop to end, however it ends, without cancelling it; return whether it has."""
    if task is None or task.get_loop() is not asyncio.get_running_loop():
        return True
    done, _ = await asyncio.wait({task}, timeout=None if math.isinf(seconds) else seconds)
    return bool(done)


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, or cancel the work if it takes longer.

    Unlike `asyncio.wait_for` it does not wait for late work to react to its cancellation, which some work ignores. Work
    that cancels itself has failed; that does not cancel the caller.

    Raises:
        asyncio.TimeoutError: The work took longer.
        RuntimeError: The work cancelled itself.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.sleep(0)  # work that waits for nothing is done after this
        if not task.done():
            await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _abandon(task)
        raise
    if not task.done():
        _abandon(task)
        raise asyncio.TimeoutError
    if task.cancelled():
        raise RuntimeError("The work was cancelled from within.")
    return task.result()


def _abandon(task: asyncio.Task[Any]) -> None:
    task.cancel()
    task.add_done_callback(lambda late: late.cancelled() or late.exception())
