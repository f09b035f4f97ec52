"""Before an agent's turn: hear what is new, recall what matters, show it to the model, and never be in the agent's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import LLMMessage

from ..core.errors import PersistentMemoryError
from ..core.records import MemoryHit, MemoryRecord, Query, Selection
from ..retrieval.engine import Engine
from ..runtime.background_task import Budget, within
from ..runtime.locks import one_at_a_time
from ..runtime.reporting import notices
from ..runtime.threads import in_thread_if_long
from ..storage.availability import automatic
from ..storage.protocol import TableName
from ..text.sentences import could_answer
from .autogen_compat import never_waits
from .autogen_messages import VisibleText, block_id_of, text_of
from .block import Block, Story, render, room_for_story
from .placement import place_block, up_to_date
from .recall_query import question
from .recorder import Recorder
from .session_recap import Recap

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_NOTHING = Block("", ())
_SPARE = 5
"""Hits that are fetched beyond twice a block's limit, for those that repeat others or are too long for the block."""


class Turn:
    """Keeps one block up to date in the model contexts of the agents that have this memory.

    The listener captures what is said, if anything does. The recap tells how the session went, if the block is to say that.
    """

    def __init__(
        self,
        engine: Engine,
        tables: Sequence[TableName],
        selection: Selection,
        block_id: str,
        *,
        listener: Recorder | None = None,
        recap: Recap | None = None,
    ) -> None:
        self._engine = engine
        self._tables = tables
        self._selection = selection
        self._block_id = block_id
        self._listener = listener
        self._recap = recap
        self._opening_since: float | None = None

    async def update(self, context: ChatCompletionContext) -> Sequence[MemoryHit]:
        """Bring the block up to date; return the memories in it. Log failures, and let the agent go on without memory.

        Raises:
            PersistentMemoryError: Only under `policy.strict`, and only an error that the developer has to fix.
        """
        with automatic():
            return await self._update(context)

    async def _update(self, context: ChatCompletionContext) -> Sequence[MemoryHit]:
        policy = self._engine.policy
        messages: Sequence[LLMMessage] = ()
        trouble: Exception | None = None
        budget = Budget(policy.deadline)
        if self._listener is not None:
            self._listener.glimpse(context)
        try:
            messages = list(await _in_time(context, policy.deadline, context.get_messages()))
            await one_at_a_time()
            users = policy.user_sources if self._listener is None else self._listener.users
            query = question(messages, policy, users)
            if query is not None or self._listener is not None:
                await self._prepare()
                budget = Budget(policy.deadline)
                trouble = await self._hear(context, budget)
            block = _NOTHING if query is None else await within(budget.left, self._recall(query, messages))
            shown = await self._show(block, context, messages)
        except Exception as error:
            self._log(error)
            await self._remove_block(context, messages)
            if self._listener is not None:
                await self._listener.keep(policy.deadline)
            if policy.strict and isinstance(error, PersistentMemoryError) and error.needs_developer:
                raise
            return ()
        if query is not None and notices:
            notices.settle(self._engine.whose)
        if shown and block.hits:
            self._engine.reinforce(block.hits)
        await self._settle(context, budget, trouble)
        if self._recap is not None:
            self._recap.keep_up()
        # The ending of the story is shown because of its position in the conversation, and so has no score.
        told = [MemoryHit(record=record, score=0, similarity=0, recency=0, frequency=0) for record in block.told]
        return (*block.hits, *told) if shown else ()

    # The steps of a turn, in order

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

    async def _hear(self, context: ChatCompletionContext, budget: Budget) -> Exception | None:
        """Capture what is new, within half of the time, so that enough is left to recall; return what went wrong."""
        if self._listener is None:
            return None
        try:
            await within(budget.left / 2, self._listener.hear(context))
        except Exception as error:
            if isinstance(error, asyncio.TimeoutError):
                self._engine.breaker.gave_up(self._engine.policy.deadline)
            return error
        return None

    async def _recall(self, query: Query, messages: Sequence[LLMMessage]) -> Block:
        self._engine.breaker.check()  # instead of waiting for what an earlier turn has given up on
        others = [message for message in up_to_date(messages) if block_id_of(message) != self._block_id]
        length = sum(len(text_of(message)) for message in others)
        return await self.block(query, await in_thread_if_long(length, lambda: VisibleText(others)))

    async def block(self, query: Query, visible: VisibleText | None = None) -> Block:
        """Return the block for a query: what is relevant enough and not visible already, within the budget."""
        policy = self._engine.policy
        story = Story()
        if self._recap is not None and visible is not None:
            story = await self._recap.story(visible, room_for_story(self._block_id, policy))
        asked, limit = query.lead or query.text, 2 * policy.limit + _SPARE

        def skip(record: MemoryRecord) -> bool:
            answers_nothing = record.kind == "interaction" and not could_answer(record.content, asked)
            return answers_nothing or story.tells(record) or (visible is not None and visible.shows(record))

        hits = await self._engine.recall(
            query, self._tables, limit=limit, selection=self._selection, only_relevant=True, skip=skip
        )
        confident = [hit for hit in hits if hit.score >= policy.min_score]
        rendering = partial(
            render, confident, block_id=self._block_id, policy=policy, now=self._engine.clock(), story=story
        )
        return await in_thread_if_long(sum(len(hit.record.content) for hit in confident), rendering)

    async def _show(self, block: Block, context: ChatCompletionContext, messages: Sequence[LLMMessage]) -> bool:
        """Put the block into the context, or remove an old one; return whether the model sees it."""
        if not block.text and all(block_id_of(message) != self._block_id for message in messages):
            return False
        policy = self._engine.policy
        placing = place_block(context, self._block_id, block.text, messages, system=policy.placement == "system")
        return bool(await _in_time(context, policy.deadline, placing))

    async def _settle(self, context: ChatCompletionContext, budget: Budget, trouble: Exception | None) -> None:
        """Wait for what was heard in this turn to be stored, for the rest of the time; that continues in the background."""
        if self._listener is None:
            return
        self._listener.keep_hold_of(context)
        try:
            await within(budget.left, self._listener.delivery.settle())
        except asyncio.TimeoutError:
            self._engine.breaker.gave_up(self._engine.policy.deadline)
            trouble = trouble or PersistentMemoryError("Storing them takes too long.")
        except Exception as error:
            trouble = trouble or error
        if trouble is not None:
            await self._listener.keep(self._engine.policy.deadline)
            reason = str(trouble) or "it took too long"
            self._engine.log_trouble("New messages are not stored yet, and are kept until they can be: %s", reason)

    # When it fails

    async def _remove_block(self, context: ChatCompletionContext, messages: Sequence[LLMMessage]) -> None:
        """Remove the block of the turn before: its memories may have been superseded or forgotten since."""
        try:
            await self._show(_NOTHING, context, messages)
        except Exception as error:
            message = "The memories of %r from the turn before stay in a context, since it fails: %r"
            notices.warn(self._engine.whose, message, self._engine.namespace, error)

    def _log(self, error: Exception) -> None:
        """Log once per process, namespace and reason that the agent has no memory, until it had some in between."""
        policy = self._engine.policy
        reason, level, trace = str(error), logging.WARNING, None
        if isinstance(error, asyncio.TimeoutError):
            self._engine.breaker.gave_up(policy.deadline)
            reason = (
                f"it did not answer in time (policy.deadline is {policy.deadline:g} s, policy.opening_deadline "
                f"{policy.opening_deadline:g} s)."
            )
        elif not isinstance(error, PersistentMemoryError):
            reason, trace = repr(error), error
        elif error.needs_developer:
            level = logging.ERROR
        if self._engine.breaker.is_open or not notices.is_new(self._engine.whose, repr(error)):
            level, trace = logging.DEBUG, None  # the reason was logged before
        logger.log(level, "The agent goes on without memory of %r: %s", self._engine.namespace, reason, exc_info=trace)


async def _in_time(context: ChatCompletionContext, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work on a context, if it is there in time; AutoGen's own contexts never wait."""
    return await work if never_waits(context) else await within(seconds, work)
