"""Many agents at once: what each does on the event loop takes milliseconds, and all together must not hold up the others."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque


async def one_at_a_time() -> None:
    """Wait until no other task was let through in this iteration of the event loop. Who comes alone passes at once."""
    loop = asyncio.get_running_loop()
    turnstile = _turnstiles.get(loop)
    if turnstile is None:
        turnstile = _turnstiles[loop] = _Turnstile()
    await turnstile.pass_through()


class _Turnstile:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False

    async def pass_through(self) -> None:
        if self._is_taken:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        else:
            self._is_taken = True
            asyncio.get_running_loop().call_soon(self._let_next_through)

    def _let_next_through(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._let_next_through)
                return
        self._is_taken = False


_turnstiles: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Turnstile] = weakref.WeakKeyDictionary()
