"""Facts drawn from a conversation later, some messages at a time, in the background. What is left is picked up again."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Sequence
from datetime import timedelta

from ..core.errors import PersistentMemoryError
from ..core.records import MESSAGES, MemoryRecord, Selection, in_order, stable_id
from ..retrieval.engine import Engine
from ..runtime.deadlines import Budget, ended
from ..storage.availability import automatic
from .extractor import Extractor, Fact, Message, learned, within_limits

logger = logging.getLogger("autogen_persistent_memory")

_KNOWN = 20
_LONGEST_QUERY = 2_000
_ABANDONED = timedelta(minutes=10)
"""A session in which nothing was said for so long is nobody's any more: what is left of it may be taken over."""
UP_TO = "apm:up_to"
"""Under this name the metadata of a fact holds the number of the last message it was drawn from."""


class BackgroundExtraction:
    """Hands captured messages to an extractor that takes its time, and remembers how far it got."""

    def __init__(self, engine: Engine, session: str, extractor: Extractor, every: int) -> None:
        self._engine = engine
        self._session = session
        self._extractor = extractor
        self._every = every
        self._waiting: list[MemoryRecord] = []
        self._taken: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_marked = False
        self._picked_up = False
        self._to_the_end = False

    async def begin(self) -> None:
        """Mark, before anything of the session is stored, from where on it is to be read."""
        if not self._is_marked:
            await mark_unread(self._engine, self._session)
            self._is_marked = True

    def add(self, messages: Sequence[MemoryRecord]) -> None:
        """Take in messages of the session that were stored just now."""
        self._take(messages)
        if len(self._waiting) >= self._every or not self._picked_up:
            self._start()

    def correct(self, message: MemoryRecord) -> None:
        """Read a message that waits as it is now."""
        self._waiting = [message if waiting.id == message.id else waiting for waiting in self._waiting]

    async def finish(self, seconds: float = math.inf) -> bool:
        """Draw what is in the last messages, too, and wait so long for it; it goes on after that. Whether it is over."""
        budget = Budget(seconds)
        self._to_the_end = True
        if not await ended(self._task, budget.left):
            return False
        if self._waiting:  # nobody was at it, or it failed
            self._to_the_end = True
            self._start()
        return await ended(self._task, budget.left)

    async def look_again(self) -> None:
        """Something was deleted: what is gone is not read any more."""
        self._waiting = await self._left(self._waiting)

    async def _left(self, messages: Sequence[MemoryRecord]) -> list[MemoryRecord]:
        """Those of the messages that were not forgotten."""
        there = {record.id for record in await self._engine.find([record.id for record in messages], ["session"])}
        return [record for record in messages if record.id in there]

    def drop(self) -> None:
        """Read nothing of what is waiting."""
        self._waiting, self._is_marked = [], False

    async def leave(self) -> None:
        """Stop working; what is left is marked, and read the next time."""
        task, self._task = self._task, None
        self._waiting, self._taken, self._is_marked, self._picked_up = [], set(), False, False
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task})

    def _take(self, messages: Sequence[MemoryRecord]) -> None:
        new = [record for record in messages if record.id not in self._taken]
        self._taken.update(record.id for record in new)
        self._waiting = in_order([*self._waiting, *new])

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Work that nobody waits for: what goes wrong must not be lost in silence, nor reach the agent."""
        try:
            with automatic():
                if not self._picked_up:
                    await self._pick_up()
                while len(self._waiting) >= (1 if self._to_the_end else self._every):
                    await self._next_batch()
        except PersistentMemoryError as error:
            self._engine.log_trouble("No facts could be drawn from what was said; it will be tried again: %s", error)
        except Exception:
            logger.exception("Memory failed to draw facts from what was said; please report this.")
        finally:
            self._to_the_end = False

    async def _next_batch(self) -> None:
        batch = self._waiting[: self._every]
        await self._draw(self._session, batch)
        drawn = {record.id for record in batch}
        self._waiting = [record for record in self._waiting if record.id not in drawn]

    async def _pick_up(self) -> None:
        """Draw what earlier processes stored and did not come to."""
        marks = await self._engine.values.all("mark")
        for session, text in marks.items():
            left = await self._left_of(session, int(json.loads(text)))
            if session == self._session:
                self._take(left)
            elif left and self._engine.clock() - left[-1].created_at > _ABANDONED:
                for start in range(0, len(left), self._every):
                    await self._draw(session, left[start : start + self._every])
        self._picked_up = True

    async def _left_of(self, session: str, mark: int) -> list[MemoryRecord]:
        """The messages of a session from which nothing was drawn yet.

        A process may have died after storing facts and before marking how far it got; the facts tell it as well.
        """
        facts = await self._engine.select(Selection(session=session), ["profile"], history=True)
        ends = [fact.metadata.get(UP_TO) for fact in facts]
        done = max((end for end in ends if isinstance(end, int)), default=0)
        messages = await self._engine.select(Selection(session=session, kinds=("interaction",)), ["session"])
        return [record for record in in_order(messages) if (record.sequence or 0) > max(mark, done)]

    async def _draw(self, session: str, batch: Sequence[MemoryRecord]) -> None:
        """Draw what is in some messages; nothing of what was forgotten, also while the extractor read it."""
        last = batch[-1].sequence or 0
        while batch := await self._left(batch):
            facts = await self._facts_in(batch)
            if len(await self._left(batch)) == len(batch):
                await self._store(facts, session, batch, last)
                break
        await _mark(self._engine, session, last)

    async def _facts_in(self, batch: Sequence[MemoryRecord]) -> Sequence[Fact]:
        query = "\n".join(record.content for record in _by_user(batch))[:_LONGEST_QUERY]
        if not query:
            return []
        hits = await self._engine.recall(query, ["profile"], limit=_KNOWN)
        return await self._extractor.extract_later([_message(record) for record in batch], [hit.record for hit in hits])

    async def _store(self, facts: Sequence[Fact], session: str, batch: Sequence[MemoryRecord], last: int) -> None:
        ids, by_user = [record.id for record in batch], _by_user(batch)
        drafts = [
            learned(
                fact,
                id=stable_id(*ids, fact.content),
                source=by_user[0].source or "user",
                session=session,
                metadata={UP_TO: last, MESSAGES: [record.id for record in by_user]},
            )
            for fact in within_limits(facts)
        ]
        await self._engine.remember("profile", drafts)


async def mark_unread(engine: Engine, session: str) -> None:
    """Mark from where on a session is to be read, unless it is marked."""
    if await engine.values.get("mark", session) is None:
        await _mark(engine, session, await engine.namespace_data.last_number("session", session))


async def _mark(engine: Engine, session: str, sequence: int) -> None:
    await engine.values.put("mark", session, json.dumps(sequence))


def _by_user(batch: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    return [record for record in batch if record.origin == "user"]


def _message(record: MemoryRecord) -> Message:
    return Message(
        id=record.id,
        source=record.source or "",
        text=record.content,
        by_user=record.origin == "user",
        at=record.created_at,
    )
