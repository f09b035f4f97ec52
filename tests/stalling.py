"""How long the event loop stands still during some work, beside how long it does so on this machine anyway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

ATTEMPTS = 3


async def stalls_during(work: Awaitable[object]) -> list[float]:
    """The seconds between one turn of the loop and the next, until the work is done."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    stalls, last = list[float](), loop.time()
    while not task.done():
        await asyncio.sleep(0.001)
        now = loop.time()
        stalls.append(now - last)
        last = now
    await task
    return stalls


def compute(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


async def own_stall(work: Callable[[int], Awaitable[object]], longest: float, *, share: float = 1.0) -> float:
    """How long some work stalls the loop by itself: the longest stall, or the longest of a share of the shortest ones.

    On a busy machine the loop waits for others, too. A control shows how long: a thread that only computes. Twice the stall
    of the control does not count, and work that stalls for `longest` or more gets two more attempts.
    """
    own = longest
    for attempt in range(ATTEMPTS):
        control = await stalls_during(asyncio.to_thread(compute, 0.5))
        own = _at(share, await stalls_during(work(attempt))) - 2 * _at(share, control)
        if own < longest:
            break
    return own


def _at(share: float, stalls: list[float]) -> float:
    return sorted(stalls)[min(int(len(stalls) * share), len(stalls) - 1)]
