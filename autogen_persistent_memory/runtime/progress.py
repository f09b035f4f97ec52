"""Progress of long operations: a bar on the terminal, a callback of the caller's, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from .threads import in_thread

Progress = bool | Callable[[int, int], None]
"""True for a bar (shown only on a terminal), False for none, or a function that is given (done, total)."""


@asynccontextmanager
async def progress_of(
    total: int, title: str, progress: Progress, *, unit: str = " memories"
) -> AsyncIterator[Callable[[int], None]]:
    """Give a function to be called with the number of items just done."""
    if callable(progress):
        done = 0

        def report(count: int) -> None:
            nonlocal done
            done += count
            progress(done, total)

        yield report
    elif progress:
        bars = await in_thread(_bars)
        with bars(total=total, desc=title, unit=unit, unit_scale=unit == "B", disable=None) as bar:
            yield lambda count: (bar.update(count), None)[1]
    else:
        yield lambda count: None


def _bars() -> Any:
    """What makes bars; importing it reads files, which the event loop must not wait for."""
    from tqdm import tqdm

    return tqdm
