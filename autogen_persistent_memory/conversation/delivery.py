"""From a heard message to a stored one: facts first, then the message; by way of the outbox while the server is down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ..core.errors import PersistentMemoryError, StoreUnavailableError
from ..core.records import FACTS, MESSAGES, QUOTE, SPANS, MemoryRecord, Selection, draft, stable_id
from ..extraction.background_extraction import BackgroundExtraction, mark_unread
from ..extraction.extractor import Extractor, Message, RuleExtractor, learned, within_limits
from ..retrieval.engine import Engine
from ..runtime.background_task import BackgroundTask
from ..runtime.locks import CrossLoopLock
from ..runtime.reporting import notices
from ..runtime.threads import in_thread
from ..storage.availability import patiently
from ..storage.outbox import Outbox, QueuedMessage
from ..text.sentences import locate

logger = logging.getLogger("autogen_persistent_memory")

_BATCH = 200
"""Messages that are stored with one call."""
_OUTBOX_BATCH = 16
"""The same for queued messages: a killed process or a slow server costs at most this many repeated writes."""
_SHARE = 0.25
"""The share of its deadline that an agent waits for queued messages to be delivered."""
_MOST_FACTS = 500
"""How many facts are stored from one message."""
_LONGEST_QUOTE = 500


class Delivery:
    """Stores heard messages and their facts, in order. Queues in the outbox what cannot be stored, and delivers it once.

    It also delivers what other sessions and other processes of the namespace queued, with a learner without a session if it
    is given none.
    """

    def __init__(self, engine: Engine, learner: Learner | None = None) -> None:
        self._engine = engine
        self._learner = learner or Learner(engine)
        self._heard: list[QueuedMessage] = []
        self._messages: list[QueuedMessage] = []  # whose facts are stored
        self._learning, self._storing = CrossLoopLock(), CrossLoopLock()
        self._writing = BackgroundTask(self.store)
        self._delivering = BackgroundTask(self._deliver_all)
        self._has_more = False
        self._wake_up: tuple[asyncio.AbstractEventLoop, Callable[[], None]] | None = None  # where, and how to cancel it

    @property
    def outbox(self) -> Outbox | None:
        """The queue on this machine's disk; None where the store itself is on this machine."""
        return self._engine.data.outbox

    # To the store

    @property
    def is_idle(self) -> bool:
        """Whether every message that was added is stored or queued."""
        return not self._heard and not self._messages

    def add(self, heard: Sequence[QueuedMessage]) -> None:
        self._heard += heard

    def drop(self) -> None:
        """Forget messages that are not stored yet."""
        self._heard, self._messages = [], []

    async def learn(self) -> list[MemoryRecord]:
        """Store and return the facts of all added messages; `settle` stores the messages. If this raises, all are kept."""
        facts: dict[str, MemoryRecord] = {}
        self._engine.breaker.check()
        await self.finish()  # earlier messages come first
        async with self._learning:
            for heard in list(self._heard):
                message, records = await self._with_facts(heard)
                facts |= {record.id: record for record in records}
                if heard in self._heard:  # else it was queued meanwhile
                    self._heard.remove(heard)
                    if message is not None:
                        self._messages.append(message._replace(learn=False, if_new=False))
        return list(facts.values())

    async def _with_facts(
        self, heard: QueuedMessage, *, late: bool = False
    ) -> tuple[QueuedMessage | None, list[MemoryRecord]]:
        """Store the facts of a message; return None for a message that an earlier process stored."""
        if heard.if_new:
            known = await self.said_before(heard.session, heard.source, heard.text)
            if any(record.id != heard.id for record in known):
                return None, []
        return await self._learner.learn(heard, late=late)

    async def said_before(self, session: str, source: str, text: str) -> list[MemoryRecord]:
        """Return the stored messages of a session with these words of this speaker, newest first."""
        selection = Selection(session=session, kinds=("interaction",), containing=text)
        records = await self._engine.select(selection, ["session"])
        return [record for record in records if (record.source, record.content) == (source, text)]

    async def settle(self) -> None:
        """Store all messages whose facts are stored, or raise and keep them.

        It continues in the background if the caller stops waiting.
        """
        while self._messages:
            await asyncio.shield(self._writing.start())

    async def store(self) -> None:
        """Store all messages whose facts are stored, and stop if the caller does."""
        async with self._storing:
            while self._messages:
                messages = self._messages[:_BATCH]
                await self._store(messages)
                stored = {message.id for message in messages}
                self._messages = [message for message in self._messages if message.id not in stored]

    async def _store(self, messages: Sequence[QueuedMessage]) -> None:
        await self._learner.expect(messages)
        drafts = [
            draft(
                heard.text,
                kind="interaction",
                source=heard.source,
                session=heard.session,
                origin="user" if heard.by_user else "agent",
                metadata=links(heard),
                at=heard.at,
                id=heard.id,
                is_message=True,
            )
            for heard in messages
        ]
        self._learner.add(await self._engine.remember("session", drafts))

    # By way of the outbox

    async def queue(self) -> None:
        """Move all messages that are not stored to the outbox, and deliver them when the server answers.

        If they cannot be written, they are kept in memory, and this raises OSError.
        """
        outbox, messages, heard = self.outbox, self._messages, self._heard
        if outbox is None or self.is_idle:
            return
        self._messages, self._heard = [], []
        try:
            await in_thread(partial(outbox.put, [*messages, *heard]))
        except BaseException:
            self._messages, self._heard = messages + self._messages, heard + self._heard
            raise
        self._deliver_when_server_answers()

    async def begin(self) -> None:
        """Deliver the outbox in the background, as soon as the server answers."""
        if await self._has_queued():
            self._deliver_when_server_answers()

    async def hurry(self) -> None:
        """Deliver the outbox while an agent waits, for a share of its deadline; raise and continue after that."""
        if not await self._has_queued():
            return
        self._engine.breaker.check()
        task, seconds = self._start(), _SHARE * self._engine.policy.deadline
        if not await self._delivering.wait(seconds) or task.cancelled() or not task.result():
            raise StoreUnavailableError(
                "Earlier messages are still being delivered from the outbox, which continues in the background."
            )

    async def finish(self) -> None:
        """Deliver the outbox now, in order, including what other processes queued. If that raises, the rest stays in it."""
        outbox = self.outbox
        if outbox is not None and await self._has_queued():
            async with self._engine.data.connection.lock(f"{self._engine.namespace}\noutbox"):
                await self._empty(outbox)

    async def _has_queued(self) -> bool:
        return self.outbox is not None and await in_thread(self.outbox.waits)

    async def _empty(self, outbox: Outbox) -> None:
        lock = await in_thread(outbox.claim)
        if lock is None:  # another process delivers
            return
        try:
            while parcels := await in_thread(partial(outbox.next_parcels, _OUTBOX_BATCH)):
                found = [await self._with_facts(heard, late=True) for parcel in parcels for heard in parcel.messages]
                await self._store([message for message, _ in found if message is not None])
                await in_thread(partial(outbox.remove, parcels))
        except OSError as error:
            raise StoreUnavailableError(
                f"The messages queued in {outbox.folder} cannot be read or removed: {error!r}. Make the folder readable "
                "and writable for this user."
            ) from error
        finally:
            await asyncio.shield(in_thread(lock.release))

    def _start(self) -> asyncio.Task[bool]:
        self._cancel_wake_up()
        self._has_more = True
        return self._delivering.start()

    async def _deliver_all(self) -> bool:
        """Deliver the outbox in the background, where failures can only be logged; return whether it is delivered."""
        try:
            with patiently():
                while self._has_more:  # more may be queued while the last of it is delivered
                    self._has_more = False
                    await self.finish()
            return True
        except PersistentMemoryError as error:
            self._engine.log_trouble("Queued messages cannot be delivered yet; retrying later: %s", error)
            if self._engine.breaker.is_open:
                self._deliver_when_server_answers()
        except Exception:
            logger.exception("Delivering the queued messages of %r failed; please report this.", self._engine.namespace)
        return False

    def _deliver_when_server_answers(self) -> None:
        loop = asyncio.get_running_loop()
        if self._wake_up is None or self._wake_up[0] is not loop:
            self._cancel_wake_up()
            breaker, wake = self._engine.breaker, partial(self._start_in, loop)
            self._wake_up = loop, partial(breaker.cancel_call, wake)
            breaker.call_when_reachable(wake)

    def _start_in(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # that loop was closed; the next turn delivers
            loop.call_soon_threadsafe(self._start)

    def _cancel_wake_up(self) -> None:
        if self._wake_up is not None:
            self._wake_up[1]()
        self._wake_up = None

    async def leave(self, *, writing: bool = False) -> None:
        """Stop delivering and learning in the background, with `writing` also storing; the next process continues."""
        self._cancel_wake_up()
        if writing:
            await self._writing.stop()
        await self._delivering.stop()
        if self._learner.background is not None:
            await self._learner.background.leave()


class Learner:
    """Stores the facts in messages: the extractor finds them as each message arrives, or later where it wants a model to read.

    The session is the captured one, if there is one. Queued messages of other sessions get the rules if there is no extractor.
    """

    def __init__(self, engine: Engine, session: str | None = None, extractor: Extractor | None = None) -> None:
        self._engine = engine
        self._session = session
        self.extractor = extractor
        self.background: BackgroundExtraction | None = None
        """Lets a model read the session later, if the extractor wants that."""
        if session is not None and extractor is not None and extractor.every is not None:
            self.background = BackgroundExtraction(engine, session, extractor, extractor.every)

    async def learn(self, heard: QueuedMessage, *, late: bool = False) -> tuple[QueuedMessage, list[MemoryRecord]]:
        """Store the facts in a message; return the message with links to them, and the facts.

        Those of a message that was queued come `late`: they are dated by the message and not by now.
        """
        if not heard.learn:
            return heard, []
        extractor = self.extractor or RuleExtractor()
        message = Message(id=heard.id, source=heard.source, text=heard.text, by_user=heard.by_user, at=heard.at)
        try:
            facts = within_limits(await extractor.extract_now(message))[:_MOST_FACTS]
        except Exception as error:  # the message is stored all the same
            name = type(extractor).__name__
            log = "%r: extract_now() of %s failed, so no facts of that message are stored: %r"
            notices.warn(self._engine.whose, log, self._engine.namespace, name, error)
            return heard, []
        if not facts:
            return heard, []
        spans = await in_thread(lambda: locate([fact.quote or fact.content for fact in facts], heard.text))
        drafts = [
            learned(
                fact,
                id=stable_id(heard.id, fact.content),
                source=heard.source,
                session=heard.session,
                metadata={MESSAGES: [heard.id], QUOTE: heard.text[start:end][:_LONGEST_QUOTE]},
                at=heard.at if late else None,
            )
            for fact, (start, end) in zip(facts, spans, strict=True)
        ]
        records = await self._engine.remember("profile", drafts)
        told = {record.id: span for record, span in zip(records, spans, strict=True)}
        return heard._replace(learn=False, facts=tuple(told), spans=tuple(told.values())), records

    async def learn_from_user(self, message: MemoryRecord) -> None:
        """Store the facts in a message that was stored as an agent's, and correct its origin: the user said it."""
        heard = QueuedMessage(
            id=message.id,
            session=message.session or "",
            source=message.source or "",
            text=message.content,
            by_user=True,
            at=message.created_at,
            learn=self.extractor is not None,
        )
        heard, _ = await self.learn(heard, late=True)

        def corrected(record: MemoryRecord) -> MemoryRecord:
            return replace(record, origin="user", metadata={**record.metadata, **links(heard)})

        amended = await self._engine.amend("session", message.id, corrected)
        if self.background is not None and amended is not None:
            self.background.correct(amended)

    async def expect(self, messages: Sequence[QueuedMessage]) -> None:
        """Mark the sessions that a model has to read, before these messages are stored."""
        for session in {heard.session for heard in messages if heard.study}:
            if self.background is not None and session == self._session:
                await self.background.begin()
            else:
                await mark_unread(self._engine, session)

    def add(self, stored: Sequence[MemoryRecord]) -> None:
        """Let a model read stored messages of the session."""
        if self.background is not None:
            self.background.add([record for record in stored if record.session == self._session])


def links(heard: QueuedMessage) -> dict[str, object]:
    """Return the metadata that links a message to the facts it tells."""
    return {FACTS: list(heard.facts), SPANS: [list(span) for span in heard.spans]} if heard.facts else {}
