"""Extract facts from captured messages in the background, some messages at a time, and resume after a restart.

How far a session was read is stored as a mark of its namespace, so that the next process continues where this one stopped.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from datetime import timedelta

from ..core.errors import PersistentMemoryError
from ..core.records import MESSAGES, MemoryRecord, Selection, in_order, stable_id
from ..retrieval.engine import Engine
from ..runtime.background_task import BackgroundTask, Budget
from ..storage.availability import automatic
from .extractor import Extractor, Fact, Message, learned, within_limits

logger = logging.getLogger("autogen_persistent_memory")

_KNOWN = 20
_LONGEST_QUERY = 2_000
_ABANDONED = timedelta(minutes=10)
"""After this long without a message, another process may extract the rest of a session."""
UP_TO = "apm:up_to"
"""The metadata key of a fact that holds the number of the last message it was extracted from."""


class BackgroundExtraction:
    """Passes the messages of a session to `Extractor.extract_later`, and stores the facts and how far it got."""

    def __init__(self, engine: Engine, session: str, extractor: Extractor, every: int) -> None:
        self._engine = engine
        self._session = session
        self._extractor = extractor
        self._every = every
        self._queue: list[MemoryRecord] = []
        self._seen: set[str] = set()
        self._task = BackgroundTask(self._work)
        self._is_marked = False
        self._has_resumed = False
        self._is_draining = False

    async def begin(self) -> None:
        """Mark where extraction has to start, before any message of the session is stored."""
        if not self._is_marked:
            await mark_unread(self._engine, self._session)
            self._is_marked = True

    def add(self, messages: Sequence[MemoryRecord]) -> None:
        """Queue messages of the session that were just stored."""
        self._enqueue(messages)
        if len(self._queue) >= self._every or not self._has_resumed:
            self._task.start()

    def correct(self, message: MemoryRecord) -> None:
        """Replace a queued message by its corrected version."""
        self._queue = [message if queued.id == message.id else queued for queued in self._queue]

    async def finish(self, seconds: float = math.inf) -> bool:
        """Extract from all queued messages, and wait this long for it; return whether it is done. It is not cancelled."""
        budget = Budget(seconds)
        self._is_draining = True
        if not await self._task.wait(budget.left):
            return False
        if self._queue:  # the task was not running, or failed
            self._is_draining = True
            self._task.start()
        return await self._task.wait(budget.left)

    async def drop_deleted(self) -> None:
        """Drop queued messages that were deleted."""
        self._queue = await self._existing(self._queue)

    def drop(self) -> None:
        """Empty the queue."""
        self._queue, self._is_marked = [], False

    async def leave(self) -> None:
        """Stop working. The stored mark tells the next process where to continue."""
        self._queue, self._seen, self._is_marked, self._has_resumed = [], set(), False, False
        await self._task.stop()

    def _enqueue(self, messages: Sequence[MemoryRecord]) -> None:
        new = [record for record in messages if record.id not in self._seen]
        self._seen.update(record.id for record in new)
        self._queue = in_order([*self._queue, *new])

    async def _existing(self, messages: Sequence[MemoryRecord]) -> list[MemoryRecord]:
        there = {record.id for record in await self._engine.find([record.id for record in messages], ["session"])}
        return [record for record in messages if record.id in there]

    async def _work(self) -> None:
        """Extract from full batches, or from all messages while draining. Failures are logged and retried later."""
        try:
            with automatic():
                if not self._has_resumed:
                    await self._resume()
                while len(self._queue) >= (1 if self._is_draining else self._every):
                    batch = self._queue[: self._every]
                    await self._extract(self._session, batch)
                    done = {record.id for record in batch}
                    self._queue = [record for record in self._queue if record.id not in done]
        except PersistentMemoryError as error:
            self._engine.log_trouble(
                "Facts could not be extracted from the conversation; it is retried later: %s", error
            )
        except Exception:
            name = type(self._extractor).__name__
            logger.exception("%r: extract_later() of %s failed; it is retried later.", self._engine.namespace, name)
        finally:
            self._is_draining = False

    async def _resume(self) -> None:
        """Queue what earlier processes left unread of this session, and extract what they left of abandoned ones."""
        marks = await self._engine.values.all("mark")
        for session, text in marks.items():
            unread = await self._unread(session, int(json.loads(text)))
            if session == self._session:
                self._enqueue(unread)
            elif unread and self._engine.clock() - unread[-1].created_at > _ABANDONED:
                for start in range(0, len(unread), self._every):
                    await self._extract(session, unread[start : start + self._every])
        self._has_resumed = True

    async def _unread(self, session: str, mark: int) -> list[MemoryRecord]:
        """Return the messages of a session that nothing was extracted from yet.

        A process may have died between storing facts and moving the mark, so the facts count as well.
        """
        facts = await self._engine.select(Selection(session=session), ["profile"], history=True)
        ends = [fact.metadata.get(UP_TO) for fact in facts]
        done = max((end for end in ends if isinstance(end, int)), default=0)
        messages = await self._engine.select(Selection(session=session, kinds=("interaction",)), ["session"])
        return [record for record in in_order(messages) if (record.sequence or 0) > max(mark, done)]

    async def _extract(self, session: str, batch: Sequence[MemoryRecord]) -> None:
        """Store the facts of a batch, and move the mark. If a message is deleted meanwhile, start over without it."""
        last = batch[-1].sequence or 0
        while batch := await self._existing(batch):
            facts = await self._facts_in(batch)
            if len(await self._existing(batch)) == len(batch):
                await self._store(facts, session, batch, last)
                break
        await self._engine.values.put("mark", session, json.dumps(last))

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
    """Mark the next message of a session as the first to extract from, unless the session is marked already."""
    if await engine.values.get("mark", session) is None:
        last = await engine.data.last_number("session", session)
        await engine.values.put("mark", session, json.dumps(last))


def _by_user(batch: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    return [record for record in batch if record.origin == "user"]


def _message(record: MemoryRecord) -> Message:
    return Message(record.id, record.source or "", record.content, record.origin == "user", record.created_at)
