"""Facts drawn from a conversation later, some messages at a time, in the background. What is left is picked up again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Sequence
from datetime import timedelta

from ._engine import Engine
from ._errors import PersistentMemoryError
from ._extraction import Extractor, Message, learned
from ._records import MemoryRecord, Selection, in_order

logger = logging.getLogger("autogen_persistent_memory")

_KNOWN = 20
_LONGEST_QUERY = 2_000
_ABANDONED = timedelta(minutes=10)
"""A session in which nothing was said for so long is nobody's any more: what is left of it may be taken over."""
UP_TO = "up_to"
"""Under this name the metadata of a fact holds the number of the last message it was drawn from."""


class Study:
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

    async def add(self, messages: Sequence[MemoryRecord]) -> None:
        """Take in messages of the session that were stored just now."""
        if not messages:
            return
        if not self._is_marked:
            await self._mark(self._session, (messages[0].sequence or 1) - 1, unless_marked=True)
            self._is_marked = True
        self._take(messages)
        if len(self._waiting) >= self._every or not self._picked_up:
            self._start()

    async def finish(self) -> None:
        """Draw what is in the last messages, too.

        Raises:
            PersistentMemoryError: That failed. They stay marked as not done, and are tried again.
        """
        loop = asyncio.get_running_loop()
        if self._task is not None and self._task.get_loop() is loop:
            await asyncio.wait({self._task})
        while self._waiting:
            await self._next_batch()

    def _take(self, messages: Sequence[MemoryRecord]) -> None:
        new = [record for record in messages if record.id not in self._taken]
        self._taken.update(record.id for record in new)
        self._waiting = in_order([*self._waiting, *new])

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Work that nobody waits for: what goes wrong must not be lost in silence, nor reach the agent."""
        try:
            if not self._picked_up:
                await self._pick_up()
            while len(self._waiting) >= self._every:
                await self._next_batch()
        except PersistentMemoryError as error:
            logger.warning("No facts could be drawn from what was said; it will be tried again: %s", error)
        except Exception:
            logger.exception("Memory failed to draw facts from what was said; please report this.")

    async def _next_batch(self) -> None:
        batch = self._waiting[: self._every]
        await self._draw(self._session, batch)
        self._waiting = self._waiting[len(batch) :]

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
        done = max((int(fact.metadata[UP_TO]) for fact in facts if UP_TO in fact.metadata), default=0)
        messages = await self._engine.select(Selection(session=session, kinds=("interaction",)), ["session"])
        return [record for record in in_order(messages) if (record.sequence or 0) > max(mark, done)]

    async def _draw(self, session: str, batch: Sequence[MemoryRecord]) -> None:
        last = batch[-1].sequence or 0
        telling = [record for record in batch if record.content.strip()]
        query = "\n".join(record.content for record in telling if record.origin == "user")[:_LONGEST_QUERY].strip()
        if query:
            hits = await self._engine.recall(query, ["profile"], limit=_KNOWN)
            facts = await self._extractor.extract_later(
                [_message(record) for record in telling], [hit.record for hit in hits]
            )
            source = next(record.source for record in telling if record.origin == "user") or "user"
            told = "\0".join(record.id for record in batch)
            drafts = [
                learned(
                    fact,
                    id=hashlib.sha256(f"{told}\0{fact.content}".encode("utf-8", "surrogatepass")).hexdigest()[:32],
                    source=source,
                    session=session,
                    metadata={UP_TO: last},
                )
                for fact in facts
            ]
            await self._engine.remember("profile", drafts)
        await self._mark(session, last)

    async def _mark(self, session: str, sequence: int, *, unless_marked: bool = False) -> None:
        if unless_marked and await self._engine.values.get("mark", session) is not None:
            return
        await self._engine.values.put("mark", session, json.dumps(sequence))


def _message(record: MemoryRecord) -> Message:
    return Message(
        id=record.id,
        source=record.source or "",
        text=record.content,
        by_user=record.origin == "user",
        at=record.created_at,
    )
