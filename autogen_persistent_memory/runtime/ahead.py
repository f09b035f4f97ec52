"""Working through batches with the next one already under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


async def one_ahead(prepare: Callable[[S], Coroutine[Any, Any, T]], batches: Iterable[S]) -> AsyncGenerator[T, None]:
    """What is prepared of each batch, in order; while it is used, the next is being prepared.

    Close it (`contextlib.aclosing`), so that nothing goes on if whoever uses it fails.
    """
    loop = asyncio.get_running_loop()
    under_way: asyncio.Task[T] | None = None
    try:
        for batch in batches:
            current, under_way = under_way, loop.create_task(prepare(batch))
            if current is not None:
                yield await current
        if under_way is not None:
            yield await under_way
    finally:
        if under_way is not None:
            under_way.cancel()
