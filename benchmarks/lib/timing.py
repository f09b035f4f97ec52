"""How costs are measured: systems in turns, work in processes of its own, and stalls of the event loop."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

TICK = 0.001
Ask = Callable[[str], Awaitable[object]]
Rounds = Sequence[Mapping[str, float]]
"""For each round, one figure of every system."""


def milliseconds(seconds: Sequence[float], share: float = 0.5) -> float:
    """Return a percentile in ms, by default the median."""
    return 1000 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]


def typical(rounds: Rounds, name: str) -> float:
    """Return the median of all rounds."""
    return statistics.median(figures[name] for figures in rounds)


def ratio(rounds: Rounds, over: str, under: str) -> float:
    """Return the median of the rounds' ratios: a busy machine slows both figures of a round."""
    return statistics.median(figures[over] / figures[under] for figures in rounds)


async def in_turns(systems: Mapping[str, Ask], questions: Sequence[str]) -> dict[str, list[float]]:
    """Return the seconds that each system needs for each question.

    All systems answer a question before the next one is asked, each time another system first.
    """
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    names = list(systems)
    for number, question in enumerate(questions):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            started = time.perf_counter()
            await systems[name](question)
            seconds[name].append(time.perf_counter() - started)
    return seconds


async def stalls_during(work: Awaitable[object], *, own: bool = False) -> list[float]:
    """Return how late a task woke up that asks for every millisecond, tick by tick, during the work.

    With `own`, count at most the CPU time of this process: on a busy machine it waits for other processes, too.
    """
    stalls: list[float] = []

    async def tick() -> None:
        while True:
            asked, computed = time.perf_counter(), time.process_time()
            await asyncio.sleep(TICK)
            late = time.perf_counter() - asked - TICK
            stalls.append(min(late, time.process_time() - computed) if own else late)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        await work
        await asyncio.sleep(TICK)  # so that a stall at the very end is noted, too
    finally:
        ticking.cancel()
    return stalls


async def seconds_until(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


def processes(count: int) -> ProcessPoolExecutor:
    """Return a pool of new processes, which have loaded nothing yet and print no warnings."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, mp_context=context, initializer=logging.disable, initargs=(logging.WARNING,))


def in_fresh_process(work: Callable[..., T], *arguments: Any) -> T:
    with processes(1) as process:
        return process.submit(work, *arguments).result()


def resident() -> float:
    """Return the RAM of this process in MB; where the system does not report it, its maximum."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def megabytes_in(folder: str) -> float:
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6
