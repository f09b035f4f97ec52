"""Log once what would otherwise repeat with every turn. Pure bookkeeping."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any

from .threads import in_thread

logger = logging.getLogger("autogen_persistent_memory")

_MOST = 10_000
"""With more than these the books are started over; then something may be logged a second time."""


class Notices:
    """What this process has already logged about whom."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, set[str]] = {}

    def is_new(self, about: Hashable, reason: str) -> bool:
        """Whether this was not logged yet; from now on it counts as logged."""
        if len(self._logged) >= _MOST:
            self._logged.clear()
        reasons = self._logged.setdefault(about, set())
        if reason in reasons:
            return False
        if len(reasons) >= _MOST:
            reasons.clear()
        reasons.add(reason)
        return True

    def settle(self, about: Hashable) -> None:
        """All is well again: new trouble is logged again."""
        self._logged.pop(about, None)

    def __bool__(self) -> bool:
        return bool(self._logged)

    def warn(self, about: Hashable, message: str, *args: object) -> None:
        """Log a warning, or at debug level if it was logged before."""
        level = logging.WARNING if self.is_new(about, message % args) else logging.DEBUG
        logger.log(level, message, *args)


notices = Notices()
"""Those of this process, about namespaces of stores; see `Engine.whose`."""


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
