"""Report to people: log repeated problems once, and show the progress of long work."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any

from .threads import in_thread

logger = logging.getLogger("autogen_persistent_memory")

_MOST = 10_000
"""Beyond this number of entries the memory of what was logged is reset, so that it stays small."""


class Notices:
    """Remembers what this process has logged, so that a problem that repeats with every turn is logged once."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, set[str]] = {}

    def is_new(self, about: Hashable, reason: str) -> bool:
        """Return whether this was not logged yet, and note that it is logged now."""
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
        """Forget what was logged about it, so that the next problem is logged again."""
        self._logged.pop(about, None)

    def __bool__(self) -> bool:
        return bool(self._logged)

    def warn(self, about: Hashable, message: str, *args: object) -> None:
        """Log a warning, or at debug level if it was logged before."""
        level = logging.WARNING if self.is_new(about, message % args) else logging.DEBUG
        logger.log(level, message, *args)


notices = Notices()
"""What was logged about the namespaces of stores; see `Engine.whose`."""


Progress = bool | Callable[[int, int], None]
"""True for a bar (shown only on a terminal), False for none, or a function that is called with (done, total)."""


@asynccontextmanager
async def progress_of(
    total: int, title: str, progress: Progress, *, unit: str = " memories"
) -> AsyncIterator[Callable[[int], None]]:
    """Yield a function to call with the number of items just done."""
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
    """Import tqdm, which reads files: not on the event loop."""
    from tqdm import tqdm

    return tqdm
