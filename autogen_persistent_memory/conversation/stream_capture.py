"""What is said in a stream, taken in beside it: whoever reads the stream never waits for memory."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

from ..core.errors import PersistentMemoryError
from ..storage.availability import automatic
from .autogen_messages import Utterance
from .ledger import moment

logger = logging.getLogger("autogen_persistent_memory")


class Overhearing(Protocol):
    """Who takes in what is said in a stream."""

    async def listen_in(self, since: int) -> None:
        """A stream begins."""

    async def overhear(self, whose: object, utterances: deque[Utterance], since: int) -> None:
        """Take in what was said in a stream that began at a moment."""

    async def settle(self) -> None:
        """Store what was taken in."""

    async def keep_stream(self, whose: object, left: deque[Utterance], since: int, trouble: str) -> None:
        """It cannot be stored."""

    async def gave_up(self, whose: object, left: deque[Utterance], since: int) -> None:
        """It could not be stored in time."""

    def stop_listening(self, whose: object, left: deque[Utterance], since: int) -> None:
        """The stream has ended."""


class Hearing:
    """What is said in a stream, taken in one after the other by a task of its own."""

    def __init__(self, recorder: Overhearing) -> None:
        self._recorder = recorder
        self._since = moment()
        self._waiting: deque[Utterance] = deque()
        self._listens = False
        self._task = asyncio.get_running_loop().create_task(self._take_in())

    def add(self, utterance: Utterance) -> None:
        """Somebody said this."""
        self._waiting.append(utterance)
        if self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._take_in())

    async def end(self, seconds: float) -> None:
        """Wait a while for what was said last; what is not taken in by then is, the next time."""
        done, _ = await asyncio.wait({self._task}, timeout=seconds)
        self._task.cancel()
        if not done:
            await self._recorder.gave_up(self, self._waiting, self._since)
        self._recorder.stop_listening(self, self._waiting, self._since)

    async def _take_in(self) -> None:
        with automatic():
            await self._take_in_quietly()

    async def _take_in_quietly(self) -> None:
        try:
            if not self._listens:
                await self._recorder.listen_in(self._since)
                self._listens = True
            goes_on = True
            while goes_on:
                await self._recorder.overhear(self, self._waiting, self._since)
                await self._recorder.settle()
                goes_on = bool(self._waiting)  # more was said while that was stored
        except PersistentMemoryError as error:
            await self._recorder.keep_stream(self, self._waiting, self._since, str(error))
        except Exception:
            logger.exception("Memory failed to take in a stream; please report this.")
