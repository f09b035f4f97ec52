"""A conversation that writes itself down: what is said is captured, what it tells becomes a memory."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import TypeVar

from autogen_core.model_context import ChatCompletionContext

from ._capture import Captured, Ledger, Place, Utterance, said_by, said_in
from ._conversation import everything_in
from ._engine import Engine
from ._errors import PersistentMemoryError
from ._extraction import Extractor, Message, learned
from ._records import FACTS, MESSAGE, Draft, MemoryRecord, Selection, draft, in_order
from ._secrets import redact
from ._study import Study
from ._threads import in_thread

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_MOST_CONTEXTS = 256


class Recorder:
    """Captures one session, and hands what is said to an extractor."""

    def __init__(self, engine: Engine, session: str, extractor: Extractor | None) -> None:
        self._engine = engine
        self._session = session
        self._extractor = extractor
        self._study: Study | None = None
        if extractor is not None and extractor.every is not None:
            self._study = Study(engine, session, extractor, extractor.every)
        self._books: Ledger | None = None
        self._contexts: OrderedDict[int, tuple[ChatCompletionContext, Place]] = OrderedDict()
        self._heard: list[Message] = []
        self._messages: list[Draft] = []
        self._writing: asyncio.Task[None] | None = None

    async def hear(self, context: ChatCompletionContext) -> None:
        """Take in what is new in a model context. When this returns, the facts that it tells are stored.

        The messages themselves are being stored then; see `settle`.
        """
        await self._catch_up()
        await self._hear(context)

    async def _catch_up(self) -> None:
        """Take in the replies that other agents gave meanwhile, so that everything is captured in its order."""
        for context, _ in list(self._contexts.values()):
            if (said := said_in(await everything_in(context))) and said[-1].own:
                await self._hear(context)

    async def _hear(self, context: ChatCompletionContext) -> None:
        ledger = await self._ledger()
        place = self._place_of(context, ledger)
        news, goes_on = place.news(said_in(await everything_in(context)))
        clean = await self._clean(news)
        await self._take_in(ledger.hear(place, clean) if goes_on else ledger.hear_anew(place, clean))

    async def observe(self, stream: AsyncIterable[T]) -> AsyncGenerator[T, None]:
        """Pass a stream through, and take in what is said in it, beside it: the stream never waits."""
        hearing = _Hearing(self)
        try:
            async for item in stream:
                utterance = said_by(item)
                if utterance is not None:
                    hearing.add(utterance)
                yield item
        finally:
            await hearing.end(self._engine.policy.deadline)

    async def settle(self) -> None:
        """Wait until everything that was heard is stored.

        Raises:
            PersistentMemoryError: It cannot be stored for now. It is kept, and tried again.
        """
        writing = self._writing
        if writing is not None and writing.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(writing)

    async def flush(self) -> None:
        """Take in the last replies, and store what could not be stored before.

        Raises:
            PersistentMemoryError: It cannot be stored now either. It is kept for the next time.
        """
        for context, _ in list(self._contexts.values()):
            await self._hear(context)
        if self._writing is not None and self._writing.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({self._writing})
        await self._learn()
        await self._write_messages()
        if self._study is not None:
            await self._study.finish()

    def leave(self) -> None:
        """Let go of the books and of the contexts, before the store is closed."""
        self._books = None
        self._contexts.clear()

    async def tell(self, utterances: Sequence[Utterance]) -> list[MemoryRecord]:
        """Take in a finished transcript; the facts it tells."""
        ledger = await self._ledger()
        place = ledger.open()
        try:
            found = ledger.hear(place, await self._clean(utterances))
        finally:
            ledger.close(place)
        self._heard += [self._message(captured) for captured in found]
        facts = await self._learn()
        await self._write_messages()
        if self._study is not None:
            await self._study.finish()
        return facts

    async def _take_in(self, captured: Sequence[Captured]) -> None:
        if not captured:
            return
        self._heard += [self._message(found) for found in captured]
        await self._learn()
        self._writing = asyncio.get_running_loop().create_task(self._write_after(self._writing))
        self._writing.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _learn(self) -> list[MemoryRecord]:
        """Store the facts in what was heard, and then leave the messages to be stored."""
        learned: dict[str, MemoryRecord] = {}
        heard, self._heard = self._heard, []
        try:
            while heard:
                facts = await self._facts_of(heard[0])
                records = await self._engine.remember("profile", facts) if facts else []
                learned |= {record.id: record for record in records}
                self._messages.append(self._said(heard.pop(0), [record.id for record in records]))
        finally:
            self._heard = heard + self._heard
        return list(learned.values())

    async def _facts_of(self, message: Message) -> list[Draft]:
        if self._extractor is None:
            return []
        return [
            learned(
                fact,
                id=hashlib.sha256(f"{message.id}\0{fact.content}".encode("utf-8", "surrogatepass")).hexdigest()[:32],
                source=message.source,
                session=self._session,
                metadata={MESSAGE: message.id},
            )
            for fact in await self._extractor.extract_now(message)
        ]

    async def _write_messages(self) -> None:
        if not self._messages:
            return
        messages, self._messages = self._messages, []
        try:
            stored = await self._engine.remember("session", messages)
        except BaseException:
            self._messages = messages + self._messages
            raise
        if self._study is not None:
            await self._study.add(stored)

    async def _write_after(self, previous: asyncio.Task[None] | None) -> None:
        """Store messages where nobody has to wait for it, in order."""
        if previous is not None and previous.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({previous})
        await self._write_messages()

    async def _ledger(self) -> Ledger:
        """The books of the session, which all memories of this process share."""
        if self._books is None:
            name = f"{self._engine.namespace}\nledger\n{self._session}"
            self._books = await self._engine.holdings.connection.shared(name, lambda: Ledger(self._session))
        books = self._books
        if not books.is_loaded:
            stored = await self._engine.select(Selection(session=self._session, kinds=("interaction",)), ["session"])
            if not books.is_loaded:
                books.load(Utterance(record.source or "", record.content) for record in in_order(stored))
        return books

    def _place_of(self, context: ChatCompletionContext, ledger: Ledger) -> Place:
        """Where a context's messages are heard. It is kept, since its last reply is in no later turn."""
        if id(context) not in self._contexts:
            self._contexts[id(context)] = (context, ledger.open())
            if len(self._contexts) > _MOST_CONTEXTS:
                _, (_, oldest) = self._contexts.popitem(last=False)
                ledger.close(oldest)
        self._contexts.move_to_end(id(context))
        return self._contexts[id(context)][1]

    async def _clean(self, utterances: Sequence[Utterance]) -> list[Utterance]:
        if not self._engine.policy.redact or not utterances:
            return list(utterances)
        return await in_thread(lambda: [said._replace(text=redact(said.text)) for said in utterances])

    def _message(self, captured: Captured) -> Message:
        source, text = captured.utterance.said
        by_user = source in self._engine.policy.user_sources
        return Message(id=captured.id, source=source, text=text, by_user=by_user, at=self._engine.clock())

    def _said(self, message: Message, facts: Sequence[str]) -> Draft:
        return draft(
            message.text,
            kind="interaction",
            source=message.source,
            session=self._session,
            origin="user" if message.by_user else "agent",
            metadata={FACTS: list(dict.fromkeys(facts))} if facts else None,
            at=message.at,
            id=message.id,
        )


class _Hearing:
    """What is said in a stream, taken in one after the other by a task of its own."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waiting: deque[Utterance] = deque()
        self._place: Place | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, utterance: Utterance) -> None:
        self._waiting.append(utterance)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._take_in())

    async def end(self, seconds: float) -> None:
        """Wait a while for what was said last; it goes on being taken in if that is not enough."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
        if self._place is not None:
            (await self._recorder._ledger()).close(self._place)

    async def _take_in(self) -> None:
        try:
            ledger = await self._recorder._ledger()
            if self._place is None:
                self._place = ledger.open()
            while self._waiting:
                cleaned = await self._recorder._clean([self._waiting[0]])
                self._waiting.popleft()
                await self._recorder._take_in(ledger.hear(self._place, cleaned))
            await self._recorder.settle()
        except PersistentMemoryError as error:
            logger.warning("What is said in a stream cannot be stored for now: %s", error)
        except Exception:
            logger.exception("Memory failed to take in a stream; please report this.")
