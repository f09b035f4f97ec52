"""What happens before an agent's turn: find what matters, show it to the model, and never be in the agent's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from autogen_core.model_context import ChatCompletionContext

from ._block import Block, render
from ._conversation import VisibleText, block_id_of, question
from ._engine import Engine
from ._errors import PersistentMemoryError
from ._placement import place_block
from ._records import MemoryHit, Selection
from ._store import ShelfName

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")


class Turn:
    """Keeps one block up to date in the model contexts of the agents that have this memory."""

    def __init__(self, engine: Engine, shelves: Sequence[ShelfName], selection: Selection, block_id: str) -> None:
        self._engine = engine
        self._shelves = shelves
        self._selection = selection
        self._block_id = block_id
        self._opening_since: float | None = None

    async def update(self, context: ChatCompletionContext) -> Sequence[MemoryHit]:
        """Bring the block up to date; the memories it now holds. In trouble: log it, hold nothing, let the agent go on.

        Raises:
            PersistentMemoryError: Only under `policy.strict`, and only what a developer has to mend.
        """
        policy = self._engine.policy
        try:
            return await self._update(context)
        except PersistentMemoryError as error:
            if error.needs_developer:
                logger.error("The agent goes on without memory until this is mended: %s", error)
                if policy.strict:
                    raise
            else:
                logger.warning("The agent goes on without memory this turn: %s", error)
        except asyncio.TimeoutError:
            logger.warning(
                "The agent goes on without memory this turn: memory did not answer in time (policy.deadline is %g s, "
                "policy.opening_deadline %g s).",
                policy.deadline,
                policy.opening_deadline,
            )
        except Exception as error:
            logger.warning("The agent goes on without memory this turn: %r", error, exc_info=True)
        return ()

    async def block(self, query: str, visible: VisibleText | None = None) -> Block:
        """The block for a query: what is relevant enough and not visible already, within the budget."""
        policy = self._engine.policy
        hits = await self._engine.recall(
            query,
            self._shelves,
            limit=policy.limit,
            selection=self._selection,
            min_similarity=policy.min_similarity,
            unless=visible.shows if visible else None,
        )
        confident = [hit for hit in hits if hit.score >= policy.min_score]
        return render(confident, block_id=self._block_id, policy=policy, now=self._engine.clock())

    async def _update(self, context: ChatCompletionContext) -> Sequence[MemoryHit]:
        policy = self._engine.policy
        messages = await context.get_messages()
        query = question(messages, policy)
        if query is None:
            return ()
        others = [message for message in messages if block_id_of(message) != self._block_id]
        has_block = len(others) < len(messages)
        await self._prepare()

        async def refresh() -> Sequence[MemoryHit]:
            block = await self.block(query, VisibleText(others))
            if not block.text and not has_block:
                return ()
            shown = await place_block(context, self._block_id, block.text, system=policy.placement == "system")
            return block.hits if shown else ()

        hits = await within(policy.deadline, refresh())
        if hits:
            self._engine.reinforce(hits)
        return hits

    async def _prepare(self) -> None:
        """Wait for the slow first opening, longer than for anything else, but only once."""
        if self._engine.prepared:
            return
        now = asyncio.get_running_loop().time()
        if self._opening_since is None:
            self._opening_since = now
        policy = self._engine.policy
        left = policy.opening_deadline - (now - self._opening_since)
        await within(max(left, policy.deadline), self._engine.prepare())
        self._opening_since = None


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, if it is there in time. Unlike `asyncio.wait_for`, does not wait for it to be cancelled.

    Raises:
        asyncio.TimeoutError: It is not.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        raise asyncio.TimeoutError
    return task.result()
