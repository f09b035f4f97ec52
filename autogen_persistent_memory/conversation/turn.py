"""What happens before an agent's turn: find what matters, show it to the model, and never be in the agent's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import LLMMessage

from ..core.errors import PersistentMemoryError
from ..core.records import MemoryHit, MemoryRecord, Query, Selection
from ..retrieval.engine import Engine
from ..runtime.deadlines import Budget, within
from ..runtime.locks import one_at_a_time
from ..runtime.reporting import notices
from ..runtime.threads import in_thread_if_long
from ..storage.availability import CircuitBreaker, automatic
from ..storage.protocol import TableName
from ..text.sentences import could_answer
from .autogen_messages import VisibleText, block_id_of, text_of
from .block import Block, Story, render, room_for_story
from .placement import place_block, up_to_date
from .recall_query import question
from .session_recap import Recap

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_NOTHING = Block("", ())
_SPARE = 5
"""Twice as many hits as a block holds are looked at, and so many more, for those that repeat others or are too long for it."""


class Listener(Protocol):
    """Who wants to know what is said before memories are recalled for it."""

    @property
    def users(self) -> Collection[str]:
        """The names under which the user speaks."""

    def glimpse(self, context: ChatCompletionContext) -> None:
        """Note with what a context came up, in case that it cannot be heard in time."""

    async def hear(self, context: ChatCompletionContext) -> None:
        """Take in what is new in a model context."""

    def keep_hold_of(self, context: ChatCompletionContext) -> None:
        """The context got a new list of messages, with the block in it."""

    async def settle(self) -> None:
        """Wait until what was heard is stored."""

    async def put_by(self) -> bool:
        """Keep what was heard and is not stored yet where it outlives the process, if there is such a place."""


class Turn:
    """Keeps one block up to date in the model contexts of the agents that have this memory."""

    def __init__(
        self,
        engine: Engine,
        tables: Sequence[TableName],
        selection: Selection,
        block_id: str,
        *,
        listener: Listener | None = None,
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
        """Bring the block up to date; the memories it now holds. In trouble: log it, and let the agent go on without.

        Raises:
            PersistentMemoryError: Only under `policy.strict`, and only what a developer has to mend.
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
            await self._take_back(context, messages)
            await self._put_by()
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
        return (*block.hits, *map(_not_searched, block.told)) if shown else ()

    async def block(self, query: Query, visible: VisibleText | None = None) -> Block:
        """The block for a query: what is relevant enough and not visible already, within the budget."""
        policy = self._engine.policy
        story = Story()
        if self._recap is not None and visible is not None:
            story = await self._recap.story(visible, room_for_story(self._block_id, policy))
        hits = await self._engine.recall(
            query,
            self._tables,
            limit=2 * policy.limit + _SPARE,
            selection=self._selection,
            only_relevant=True,
            unless=lambda record: (
                _answers_nothing(record, query)
                or story.tells(record)
                or (visible is not None and visible.shows(record))
            ),
        )
        confident = [hit for hit in hits if hit.score >= policy.min_score]
        rendering = partial(
            render, confident, block_id=self._block_id, policy=policy, now=self._engine.clock(), story=story
        )
        return await in_thread_if_long(sum(len(hit.record.content) for hit in confident), rendering)

    async def _recall(self, query: Query, messages: Sequence[LLMMessage]) -> Block:
        self._breaker.check()  # before anything waits for what an earlier turn began in vain
        others = [message for message in up_to_date(messages) if block_id_of(message) != self._block_id]
        length = sum(len(text_of(message)) for message in others)
        return await self.block(query, await in_thread_if_long(length, lambda: VisibleText(others)))

    async def _hear(self, context: ChatCompletionContext, budget: Budget) -> Exception | None:
        """Let the listener hear what is new, within half of the time, so that enough is left to recall; its trouble."""
        if self._listener is None:
            return None
        try:
            await within(budget.left / 2, self._listener.hear(context))
        except Exception as error:
            if isinstance(error, asyncio.TimeoutError):
                self._breaker.gave_up(self._engine.policy.deadline)
            return error
        return None

    async def _settle(self, context: ChatCompletionContext, budget: Budget, trouble: Exception | None) -> None:
        """Give what was heard in this turn the rest of the time to be stored; it goes on being stored if that is too short."""
        if self._listener is None:
            return
        self._listener.keep_hold_of(context)
        try:
            await within(budget.left, self._listener.settle())
        except asyncio.TimeoutError:
            self._breaker.gave_up(self._engine.policy.deadline)
            trouble = trouble or PersistentMemoryError("It takes long to store what was said.")
        except Exception as error:
            trouble = trouble or error
        if trouble is not None:
            await self._put_by()
            reason = str(trouble) or "it took too long"
            self._engine.log_trouble("What was said is not stored yet, and is kept until it can be: %s", reason)

    async def _put_by(self) -> None:
        """See that nothing that was heard is lost with the process."""
        try:
            if self._listener is not None:
                await within(self._engine.policy.deadline, self._listener.put_by())
        except Exception as error:
            logger.warning("What was said cannot be kept on this machine's disk either: %r", error)

    async def _show(self, block: Block, context: ChatCompletionContext, messages: Sequence[LLMMessage]) -> bool:
        """Put the block into the context, or take out an old one; whether the model sees it."""
        if not block.text and not self._shows_block(messages):
            return False
        policy = self._engine.policy
        placing = place_block(context, self._block_id, block.text, messages, system=policy.placement == "system")
        return bool(await _in_time(context, policy.deadline, placing))

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

    async def _take_back(self, context: ChatCompletionContext, messages: Sequence[LLMMessage]) -> None:
        """Remove the block of the turn before: what it says may have been superseded or forgotten since."""
        try:
            await self._show(_NOTHING, context, messages)
        except Exception as error:
            logger.warning("The memories of the turn before stay in the context, since it fails: %r", error)

    @property
    def _breaker(self) -> CircuitBreaker:
        return self._engine.namespace_data.connection.breaker

    def _shows_block(self, messages: Sequence[LLMMessage]) -> bool:
        return any(block_id_of(message) == self._block_id for message in messages)

    def _log(self, error: Exception) -> None:
        """Log once per process, namespace and reason that the agent has no memory, until it had some in between."""
        policy = self._engine.policy
        if isinstance(error, asyncio.TimeoutError):
            self._breaker.gave_up(policy.deadline)
        if self._breaker.is_open or not notices.is_new(self._engine.whose, repr(error)):
            logger.debug("The agent goes on without memory: %r", error)  # the reason was logged before
        elif isinstance(error, PersistentMemoryError):
            level = logging.ERROR if error.needs_developer else logging.WARNING
            logger.log(level, "The agent goes on without memory: %s", error)
        elif isinstance(error, asyncio.TimeoutError):
            logger.warning(
                "The agent goes on without memory: it did not answer in time (policy.deadline is %g s, "
                "policy.opening_deadline %g s).",
                policy.deadline,
                policy.opening_deadline,
            )
        else:
            logger.warning("The agent goes on without memory: %r", error, exc_info=error)


async def _in_time(context: ChatCompletionContext, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of work on a context, if it is there in time; AutoGen's own contexts wait for nothing."""
    return await work if type(context).__module__.startswith("autogen_core.") else await within(seconds, work)


def _not_searched(record: MemoryRecord) -> MemoryHit:
    """A message that is shown because of where it stands in its conversation."""
    return MemoryHit(record=record, score=0, similarity=0, recency=0, frequency=0)


def _answers_nothing(record: MemoryRecord, query: Query) -> bool:
    return record.kind == "interaction" and not could_answer(record.content, query.lead or query.text)
