"""Work for a quiet moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_QUIET_SECONDS = 1.0
_LONGEST_SECONDS = 10.0


class Lull:
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
