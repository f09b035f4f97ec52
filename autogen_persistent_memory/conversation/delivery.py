"""From what was heard to what is stored: at once, or by way of this machine's disk while the store cannot be reached."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..core.errors import PersistentMemoryError, StoreUnavailableError
from ..core.records import FACTS, MESSAGES, QUOTE, SPANS, MemoryRecord, Selection, draft, stable_id
from ..extraction.background_extraction import BackgroundExtraction, mark_unread
from ..extraction.extractor import Extractor, Message, RuleExtractor, learned, within_limits
from ..retrieval.engine import Engine
from ..runtime.threads import in_thread
from ..storage.availability import CircuitBreaker, patiently
from ..storage.outbox import Heard, Outbox, Parcel
from ..text.sentences import locate

logger = logging.getLogger("autogen_persistent_memory")

_BATCH = 16
"""So many messages are stored before they are removed: what a slow server and the end of a process let come to nothing."""
_MOST_FACTS = 500
"""How many facts are drawn from one message."""
_LONGEST_QUOTE = 500
_SHARE = 0.25
"""What of its deadline an agent waits for what was put by before."""


class Delivery:
    """Stores what a session heard, with the facts in it. What cannot be stored is put by, and delivered later, once.

    It also delivers what other sessions and other processes of the namespace put by.

    Args:
        engine: The engine of the namespace.
        session: The session that is captured, if one is.
        extractor: How facts are drawn from it.
        study: Who reads it later.
    """

    def __init__(
        self,
        engine: Engine,
        session: str | None = None,
        extractor: Extractor | None = None,
        study: BackgroundExtraction | None = None,
    ) -> None:
        self._engine = engine
        self._session = session
        self._extractor = extractor
        self._extraction = study
        self._task: asyncio.Task[bool] | None = None
        self._is_wanted = False
        self._waking: tuple[asyncio.AbstractEventLoop, CircuitBreaker, Callable[[], None]] | None = None

    @property
    def outbox(self) -> Outbox | None:
        """Where messages are put by; None where the store is on this machine."""
        return self._engine.namespace_data.outbox

    @property
    def _breaker(self) -> CircuitBreaker:
        return self._engine.namespace_data.connection.breaker

    async def learn(self, heard: Heard, *, late: bool = False) -> tuple[Heard, list[MemoryRecord]]:
        """Store the facts in a message; the message as it is to be stored, and the facts."""
        if not heard.learn:
            return heard, []
        extractor = self._extractor or RuleExtractor()  # another process heard it, and wants them
        message = Message(id=heard.id, source=heard.source, text=heard.text, by_user=heard.by_user, at=heard.at)
        facts = within_limits(await extractor.extract_now(message))[:_MOST_FACTS]
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

    async def store(self, messages: Sequence[Heard]) -> None:
        """Store messages, and leave them to whoever reads them later."""
        for session in {heard.session for heard in messages if heard.study}:
            if self._extraction is not None and session == self._session:
                await self._extraction.begin()
            else:
                await mark_unread(self._engine, session)
        drafts = [
            draft(
                heard.text,
                kind="interaction",
                source=heard.source,
                session=heard.session,
                origin="user" if heard.by_user else "agent",
                metadata=_links(heard),
                at=heard.at,
                id=heard.id,
                is_message=True,
            )
            for heard in messages
        ]
        stored = await self._engine.remember("session", drafts)
        if self._extraction is not None:
            self._extraction.add([record for record in stored if record.session == self._session])

    async def learn_from_user(self, message: MemoryRecord) -> None:
        """Store the facts in a message that was stored as an agent's, and mark it as what it is: the user's."""
        heard = Heard(
            id=message.id,
            session=message.session or "",
            source=message.source or "",
            text=message.content,
            by_user=True,
            at=message.created_at,
            learn=self._extractor is not None,
        )
        heard, _ = await self.learn(heard, late=True)

        def corrected(record: MemoryRecord) -> MemoryRecord:
            return replace(record, origin="user", metadata={**record.metadata, **_links(heard)})

        amended = await self._engine.amend("session", message.id, corrected)
        if self._extraction is not None and amended is not None:
            self._extraction.correct(amended)

    async def is_known(self, heard: Heard) -> bool:
        """Whether its session holds these words of this speaker already."""
        said_before = await self.said_before(heard.session, heard.source, heard.text)
        return any(record.id != heard.id for record in said_before)

    async def said_before(self, session: str, source: str, text: str) -> list[MemoryRecord]:
        """The messages of a session with these words of this speaker, newest first."""
        selection = Selection(session=session, kinds=("interaction",), containing=text)
        records = await self._engine.select(selection, ["session"])
        return [record for record in records if (record.source, record.content) == (source, text)]

    # By way of the disk

    async def put_by(self, messages: Sequence[Heard]) -> None:
        """Keep messages on this machine's disk, and deliver them when the store is back.

        Raises:
            OSError: They could not be written.
        """
        outbox = self.outbox
        assert outbox is not None
        await in_thread(partial(outbox.put, messages))
        self._deliver_when_it_answers()

    async def begin(self) -> None:
        """See that all that was put by is stored, in the background, as soon as the server takes it."""
        if self.outbox is not None and await in_thread(self.outbox.waits):
            self._deliver_when_it_answers()

    async def hurry(self) -> None:
        """As `finish`, where an agent waits: for a part of its deadline. What takes longer goes on in the background.

        Raises:
            PersistentMemoryError: It is not stored by then.
        """
        if self.outbox is None or not await in_thread(self.outbox.waits):
            return
        self._breaker.check()
        task = self._start()
        done, _ = await asyncio.wait({task}, timeout=_SHARE * self._engine.policy.deadline)
        if not done or task.cancelled() or not task.result():
            raise StoreUnavailableError(
                "What was said before is still being delivered, which goes on in the background."
            )

    async def finish(self) -> None:
        """Store all that was put by, in order, whoever did.

        Raises:
            PersistentMemoryError: It cannot be stored now. It stays where it is.
        """
        outbox = self.outbox
        if outbox is None or not await in_thread(outbox.waits):
            return
        async with self._engine.namespace_data.connection.lock(f"{self._engine.namespace}\noutbox"):
            await self._empty(outbox)

    async def _empty(self, outbox: Outbox) -> None:
        lock = await in_thread(outbox.claim)
        if lock is None:  # another process does
            return
        try:
            while parcels := await in_thread(partial(outbox.next_parcels, _BATCH)):
                await self._deliver(parcels)
                await in_thread(partial(outbox.remove, parcels))
        except OSError as error:
            raise StoreUnavailableError(
                f"What is kept in {outbox.folder} for the server cannot be read or removed: {error!r}. Make the folder "
                "readable and writable for this user."
            ) from error
        finally:
            await asyncio.shield(in_thread(lock.release))

    async def _deliver(self, parcels: Sequence[Parcel]) -> None:
        messages: list[Heard] = []
        for heard in (heard for parcel in parcels for heard in parcel.messages):
            if heard.if_new and await self.is_known(heard):
                continue
            message, _ = await self.learn(heard, late=True)
            messages.append(message)
        await self.store(messages)

    def _deliver_when_it_answers(self) -> None:
        loop = asyncio.get_running_loop()
        if self._waking is None or self._waking[0] is not loop:
            self._forget_waking()
            breaker, wake = self._breaker, partial(_wake_in, loop, self._start)
            self._waking = loop, breaker, wake
            breaker.when_it_answers(wake)

    def _forget_waking(self) -> None:
        if self._waking is not None:
            _, breaker, wake = self._waking
            breaker.no_longer(wake)
        self._waking = None

    def _start(self) -> asyncio.Task[bool]:
        self._forget_waking()
        self._is_wanted = True
        if self._task is None or self._task.done() or self._task.get_loop() is not asyncio.get_running_loop():
            self._task = asyncio.get_running_loop().create_task(self._work())
        return self._task

    async def _work(self) -> bool:
        """Work that nobody waits for: what goes wrong must not be lost in silence, nor reach the agent; whether it is done."""
        try:
            with patiently():
                while self._is_wanted:  # more may be put by while the last of it is delivered
                    self._is_wanted = False
                    await self.finish()
        except PersistentMemoryError as error:
            self._engine.log_trouble("What was said cannot be delivered yet, and will be tried again: %s", error)
            if self._breaker.is_open:
                self._deliver_when_it_answers()
        except Exception:
            logger.exception("Memory failed to deliver what was said; please report this.")
        else:
            return True
        return False

    async def leave(self) -> None:
        """Stop delivering, and reading what was delivered; the next process goes on."""
        self._forget_waking()
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task})
        if self._extraction is not None:
            await self._extraction.leave()


def _links(heard: Heard) -> dict[str, object]:
    """Return what the metadata of a message says of the facts that were drawn from it."""
    return {FACTS: list(heard.facts), SPANS: [list(span) for span in heard.spans]} if heard.facts else {}


def _wake_in(loop: asyncio.AbstractEventLoop, start: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(start)
    except RuntimeError:  # that loop was closed; what waits is delivered with the next turn
        logger.debug("Nobody is there to deliver what was put by.")
