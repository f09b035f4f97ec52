"""Waiting, but not for ever."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
CLOSING_SECONDS = 10.0
"""How long each part of closing a memory may take, and what a flush waits for models."""


class Budget:
    """Some seconds from now on, to be shared by several pieces of work."""

    def __init__(self, seconds: float) -> None:
        self._until = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> float:
        """How many seconds are left; never none at all, since what is ready at once may still be had."""
        return max(0.01, self._until - asyncio.get_running_loop().time())


async def ended(task: asyncio.Task[Any] | None, seconds: float) -> bool:
    """Wait so long for a task of this loop to end, however it ends; whether it has. It is not cancelled."""
    if task is None or task.get_loop() is not asyncio.get_running_loop():
        return True
    done, _ = await asyncio.wait({task}, timeout=None if math.isinf(seconds) else seconds)
    return bool(done)


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, if it is there in time.

    Unlike `asyncio.wait_for` it does not wait for work that is too late to be cancelled, which some work refuses, and
    takes work that cancels itself for failed work, not for a cancellation of the caller.

    Raises:
        asyncio.TimeoutError: It is not.
        RuntimeError: The work cancelled itself.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.sleep(0)  # by then work that need not wait is done
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
