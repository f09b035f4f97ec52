"""Listening to a conversation: in model contexts, streams, transcripts and loaded states. Each message is captured once."""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import LLMMessage

from ..core.errors import PersistentMemoryError
from ..core.records import Draft, MemoryRecord, Selection, in_order, stable_id
from ..extraction.extractor import Extractor
from ..retrieval.engine import Engine
from ..runtime.background_task import CLOSING_SECONDS, BackgroundTask, within
from ..runtime.reporting import notices
from ..runtime.threads import in_thread
from ..storage.availability import automatic, is_automatic
from ..storage.outbox import QueuedMessage
from ..text.redaction import redact
from .autogen_compat import State, chat_message, everything_in, live_messages, thread_of, waiting_in
from .autogen_messages import Utterance, asked_in, said_by, said_in
from .delivery import Delivery, Learner
from .ledger import MOST_UNCAPTURED, Captured, Ledger, Place, moment

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_AT_ONCE = 200
"""Messages of a long transcript that are captured before other tasks get their turn."""
_LOADING_SHARE = 0.4
"""The share of its deadline that an agent waits for the messages that earlier processes captured."""


class _Stream:
    """An observed stream, and what was said in it and is not captured yet."""

    def __init__(self) -> None:
        self.since = moment()
        self.waiting: deque[Utterance] = deque()
        self.has_begun = False


class Recorder:
    """Captures one session: hears messages, has their facts learned, and has them stored."""

    def __init__(self, engine: Engine, session: str, extractor: Extractor | None) -> None:
        self._engine = engine
        self._session = session
        self._learner = Learner(engine, session, extractor)
        self.delivery = Delivery(engine, self._learner)
        self._books: Ledger | None = None
        self._loading = BackgroundTask(self._load)
        self._asked: set[str] = set()
        self._streams: list[_Stream] = []
        self._glimpses: dict[int, tuple[ChatCompletionContext, list[LLMMessage]]] = {}

    @property
    def users(self) -> frozenset[str]:
        """The names under which the user speaks: those of the policy, and of people who were asked for input."""
        shared = set[str]() if self._books is None else self._books.users
        return self._engine.policy.user_sources.union(self._asked, shared)

    def _note_users(self, names: Iterable[str]) -> None:
        self._asked.update(set(names) - self._engine.policy.user_sources)
        if self._books is not None:
            self._books.users |= self._asked

    # Model contexts

    def glimpse(self, context: ChatCompletionContext) -> None:
        """Note the messages of a new context at once: heard later, after more was said, they would pass for old ones."""
        live = live_messages(context)
        if live is not None and (self._books is None or not self._books.has_heard(context)):
            self._glimpses.setdefault(id(context), (context, list(live)))

    async def hear(self, context: ChatCompletionContext) -> None:
        """Capture what is new in a model context. When this returns, the facts in it are stored.

        The messages themselves are stored by `delivery.settle()`, after the recall: Chroma would let one wait for the other.
        The replies that other agents gave meanwhile are captured first, so that all messages are in order.
        """
        ledger, since = await self._ledger(), moment()
        await self._hear_replies(ledger, since, skip=context)
        await self._hear(context, ledger, since)
        await self.delivery.hurry()
        await self.delivery.learn()

    async def _hear_replies(self, ledger: Ledger, since: int, skip: ChatCompletionContext | None = None) -> None:
        """Capture what agents have replied by now. A reply that comes while this runs does not belong before `since`."""
        others = [other for other in ledger.contexts if other is not skip]
        replied = [other for other in others if ledger.place_of(other).has_a_reply(await everything_in(other))]
        for other in replied:
            await self._hear(other, ledger, since)

    async def _hear(self, context: ChatCompletionContext, ledger: Ledger, since: int) -> None:
        place = ledger.place_of(context)
        async with ledger.listening:
            await self._hear_glimpse(context, place, ledger, since)
            live, messages = live_messages(context), await everything_in(context)
            removed = place.removed(messages if live is None else live)
            news, continues = place.unheard(messages)
            is_first = place.is_new
            said_before, said_now = await self._clean(said_in(removed)), await self._clean(said_in(news))
            # Nothing is awaited from here on, so that a message is both heard and captured, or neither.
            captured = ledger.hear(place, said_before)
            place.note(messages, live)
            if continues:
                captured += ledger.hear(place, said_now)
            else:
                captured += ledger.hear_conversation(place, said_now, is_first=is_first, since=since)
            self._add(captured, ledger)
            self._glimpses.pop(id(context), None)

    async def _hear_glimpse(self, context: ChatCompletionContext, place: Place, ledger: Ledger, since: int) -> None:
        """Capture the messages that a context had at first, if it has grown since and nothing of it was heard yet."""
        _, glimpse = self._glimpses.get(id(context), (context, []))
        live = live_messages(context)
        if place.is_new and glimpse and live is not None and len(live) > len(glimpse):
            said = await self._clean(said_in(glimpse))
            self._add(ledger.hear_conversation(place, said, since=since), ledger)
            place.note(glimpse, None)

    def keep_hold_of(self, context: ChatCompletionContext) -> None:
        """Note the list of messages that a context has since our block was placed in it."""
        live = live_messages(context)
        if self._books is not None and live is not None:
            self._books.place_of(context).hold(live)

    # Streams

    async def observe(self, stream: AsyncIterable[T]) -> AsyncGenerator[T, None]:
        """Pass a stream through, and capture what is said in it in the background: the stream never waits."""
        said = _Stream()
        capture = BackgroundTask(partial(self._capture, said))
        capture.start()
        try:
            async for item in stream:
                if (asked := asked_in(item)) is not None:
                    self._note_users([asked])
                if (utterance := said_by(item)) is not None:
                    said.waiting.append(utterance)
                    capture.start()
                yield item
        finally:
            deadline = self._engine.policy.deadline
            if not await capture.wait(deadline):
                capture.cancel()
                self._engine.breaker.gave_up(deadline)
                await self._keep_stream(said, "it took too long")
            if said.waiting:
                self._streams.append(said)
            elif self._books is not None:
                self._books.leave(said)

    async def _capture(self, said: _Stream) -> None:
        """Capture and store what was said in a stream so far, in the background, where failures can only be logged."""
        with automatic():
            try:
                if not said.has_begun:  # earlier replies come first
                    await self._hear_replies(await self._ledger(), said.since)
                    await self.delivery.learn()
                    said.has_begun = True
                is_done = False
                while not is_done:
                    ledger = await self._ledger()
                    await self._hear_stream(said, ledger)
                    await self.delivery.learn()
                    await self._learn_from_misheard(ledger)
                    await self.delivery.settle()
                    is_done = not said.waiting
            except PersistentMemoryError as error:
                await self._keep_stream(said, str(error))
            except Exception:
                logger.exception("Capturing a stream for %r failed; please report this.", self._engine.namespace)

    async def _hear_stream(self, said: _Stream, ledger: Ledger) -> None:
        place = ledger.place_of(said, since=said.since)
        while said.waiting:
            async with ledger.listening:
                (utterance,) = await self._clean([said.waiting[0]])
                captured = ledger.hear(place, [utterance])
                self._add(captured, ledger)
                said.waiting.popleft()
                known = ledger.last(utterance) if utterance.source in ledger.users and not captured else None
                if known is not None:
                    ledger.misheard.append(known)

    async def _learn_from_misheard(self, ledger: Ledger) -> None:
        """Learn from messages that agents heard before this process knew that a person had said them.

        A team runs ahead of the reader of its stream, which tells who was asked for input.
        """
        if not ledger.misheard:
            return
        await self.delivery.store()
        for known in list(ledger.misheard):
            record = await self._stored(known)
            if record is None:  # another memory captured it, and has not stored it yet
                continue
            if record.origin != "user":
                await self._learner.learn_from_user(record)
            if known in ledger.misheard:  # else another memory of the session was faster
                ledger.misheard.remove(known)

    async def _keep_stream(self, said: _Stream, trouble: str) -> None:
        """Move what was said in a stream and cannot be stored to the outbox, if there is one."""
        if self.delivery.outbox is not None:
            with automatic():
                await self._hear_stream(said, await self._ledger())
            await self.keep()
        self._engine.log_trouble("Messages of a stream cannot be stored for now: %s", trouble)

    # Transcripts, loaded states, single messages

    async def tell(self, utterances: Sequence[Utterance], people: Iterable[str] = ()) -> list[MemoryRecord]:
        """Capture a finished transcript in which these people were asked for input; return the facts in it."""
        self._note_users(people)
        ledger = await self._ledger()
        async with ledger.listening:
            clean, known = await self._clean(utterances), ledger.known()
            for start in range(0, len(clean), _AT_ONCE):
                self._add(ledger.hear_transcript(clean[start : start + _AT_ONCE], known), ledger)
                await asyncio.sleep(0)
        facts = await self.delivery.learn()
        await self.delivery.store()
        await self.read()
        return facts

    async def resume(self, state: State) -> None:
        """Capture what is missing of a saved conversation that was loaded and will continue."""
        ledger = await self._ledger()
        async with ledger.listening:
            tail: list[Utterance] = []
            for message in reversed(thread_of(state)[-MOST_UNCAPTURED:]):
                tail = await self._clean(await in_thread(partial(_said_in, [message]))) + tail
                if tail and ledger.last(tail[0]) is not None:
                    waiting = await in_thread(lambda: [_said_in(messages) for messages in waiting_in(state)])
                    counts, last = [len(said) for said in waiting if said], [said[-1] for said in waiting if said]
                    self._add(ledger.resume(tail, zip(counts, await self._clean(last))), ledger)
                    break
        await self.delivery.learn()
        await self.delivery.store()

    async def append(self, message: Draft) -> MemoryRecord:
        """Store a message that the application adds; return the stored one, if it was captured from an agent just now.

        An agent may say the appended message afterwards; it is not stored again then.
        """
        ledger = await self._ledger()
        async with ledger.listening:
            (said,) = await self._clean([Utterance(message.source or "", message.content.strip())])
            known = ledger.last(said)
            is_new = ledger.hear_again(self, said)
        if not is_new and known is not None:
            await self.catch_up()
            captured = await self._stored(known)
            if captured is not None:
                return captured
        (record,) = await self._engine.remember("session", [message])
        return record

    async def _stored(self, known: Captured) -> MemoryRecord | None:
        found = await self._engine.find([self._id(known)], ["session"])
        found = found or await self.delivery.said_before(self._session, *known.utterance[:2])
        return found[0] if found else None

    # Storing what was heard

    async def read(self, seconds: float = math.inf) -> bool:
        """Let a model read all stored messages, and wait this long for it; return whether it has.

        A failing model raises nothing: its messages stay marked as unread, and are tried again.
        """
        background = self._learner.background
        return background is None or await background.finish(seconds)

    async def catch_up(self) -> None:
        """Capture and store all that was said, the last replies included, without waiting for a model to read it.

        If it cannot be stored now, it is kept for the next time, and this raises PersistentMemoryError.
        """
        if self._books is None and not self._glimpses and not self._streams and self.delivery.is_idle:
            return
        trouble: PersistentMemoryError | None = None
        try:
            ledger = await self._ledger()
        except PersistentMemoryError as error:
            if self._books is None or self.delivery.outbox is None or error.needs_developer:
                raise
            ledger, trouble = self._books, error
        while self._streams:
            await self._hear_stream(self._streams[0], ledger)
            ledger.leave(self._streams.pop(0))
        for context in {id(context): context for context in (*ledger.contexts, *self._glimpsed)}.values():
            await self._hear(context, ledger, moment())
        try:
            if trouble is not None:
                raise trouble
            await self.delivery.learn()
            await self.delivery.store()
            await self._learn_from_misheard(await self._shared_books())
        except PersistentMemoryError:
            await self._queue()
            raise

    async def keep(self, seconds: float = CLOSING_SECONDS) -> None:
        """Move what is not stored yet to the outbox, if there is one, so that it survives the process. Never raises."""
        try:
            await within(seconds, self._queue())
        except Exception as error:
            message = "Messages of %r cannot be stored, nor kept on this machine's disk until they can: %r"
            notices.warn(self._engine.whose, message, self._engine.namespace, error)

    async def _queue(self) -> None:
        if self.delivery.outbox is not None:
            for context in self._glimpsed:  # there was no time to hear them
                await self._hear(context, await self._shared_books(), moment())
            await self.delivery.queue()

    @property
    def _glimpsed(self) -> list[ChatCompletionContext]:
        return [context for context, _ in self._glimpses.values()]

    async def drop_deleted(self) -> None:
        """Learn nothing any more from messages that were deleted."""
        if self._learner.background is not None:
            await self._learner.background.drop_deleted()

    def drop(self) -> None:
        """Forget what was heard and is not stored yet."""
        self._glimpses, self._streams = {}, []
        self.delivery.drop()
        if self._learner.background is not None:
            self._learner.background.drop()

    async def leave(self) -> None:
        """Stop all work in the background, before the store is closed."""
        self._books = None
        await self._loading.stop()
        await self.delivery.leave(writing=True)

    # Books and messages

    async def _ledger(self) -> Ledger:
        """Return the books of the session, with what earlier processes captured, unless an agent would wait for that."""
        books, breaker = await self._shared_books(), self._engine.breaker
        is_patient = self.delivery.outbox is None or not is_automatic()
        if books.is_loaded or (breaker.is_open and not is_patient):
            return books
        loading = self._loading.start()
        patience = math.inf if is_patient else _LOADING_SHARE * self._engine.policy.deadline
        error = loading.exception() if await self._loading.wait(patience) else None
        if error is not None and (is_patient or getattr(error, "needs_developer", True)):
            raise error
        return books

    async def _shared_books(self) -> Ledger:
        """Return the books of the session as they are, which all memories of this process share."""
        if self._books is None:
            name = f"{self._engine.namespace}\nledger\n{self._session}"
            self._books = await self._engine.data.connection.shared(name, Ledger)
            self._books.users |= self._asked
        return self._books

    async def _load(self) -> None:
        books, outbox = await self._shared_books(), self.delivery.outbox
        queued = [] if outbox is None else await in_thread(outbox.messages)
        stored = await self._engine.select(Selection(session=self._session, kinds=("interaction",)), ["session"])
        if not books.is_loaded:
            said = {record.id: Utterance(record.source or "", record.content) for record in in_order(stored)}
            for heard in queued:
                if heard.session == self._session:
                    said.setdefault(heard.id, Utterance(heard.source, heard.text))
            books.load(utterance for id, utterance in said.items() if id not in books.provisional)

    async def _clean(self, utterances: Sequence[Utterance]) -> list[Utterance]:
        if not self._engine.policy.redact or not utterances:
            return list(utterances)
        return await in_thread(lambda: [said._replace(text=redact(said.text)) for said in utterances])

    def _add(self, captured: Sequence[Captured], ledger: Ledger) -> None:
        self.delivery.add([self._message(found, ledger) for found in captured])

    def _message(self, captured: Captured, ledger: Ledger) -> QueuedMessage:
        source, text, _ = captured.utterance
        if ledger.is_loaded:
            while self._engine.data.knows(self._id(captured)):  # an earlier occurrence was deleted
                captured = ledger.another(captured)
            id = self._id(captured)
        else:  # how often it was said before is not known yet
            id = uuid.uuid4().hex
            ledger.provisional.add(id)
        return QueuedMessage(
            id=id,
            session=self._session,
            source=source,
            text=text,
            by_user=source in self.users,
            at=self._engine.clock(),
            learn=captured.is_fresh and self._learner.extractor is not None,
            study=self._learner.background is not None,
            if_new=captured.if_new,
        )

    def _id(self, captured: Captured) -> str:
        return stable_id(self._session, *captured.utterance[:2], str(captured.occurrence))


def _said_in(messages: Sequence[State]) -> list[Utterance]:
    return [said for message in messages if (said := said_by(chat_message(message))) is not None]
