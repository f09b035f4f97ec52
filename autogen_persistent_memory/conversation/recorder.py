"""A conversation that writes itself down: what is said is captured, what it tells becomes a memory."""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import LLMMessage

from ..core.errors import PersistentMemoryError
from ..core.records import Draft, MemoryRecord, Selection, in_order, stable_id
from ..extraction.background_extraction import BackgroundExtraction
from ..extraction.extractor import Extractor
from ..retrieval.engine import Engine
from ..runtime.locks import CrossLoopLock
from ..runtime.threads import in_thread
from ..storage.availability import automatic, is_automatic
from ..storage.outbox import Heard
from ..text.redaction import redact
from .autogen_messages import Utterance, asked_in, everything_in, live_messages, said_by, said_in, said_in_dump
from .delivery import Delivery
from .ledger import MOST_UNCAPTURED, Captured, Ledger, Place, moment
from .team_resume import State, thread_of, waiting_in

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_AT_ONCE = 200
"""Messages of a long transcript that are taken in before others get their turn."""
_LOADING_SHARE = 0.4
"""What of its deadline an agent waits for what earlier processes captured, where it can also be known later."""


class Recorder:
    """Captures one session, and hands what is said to an extractor."""

    def __init__(self, engine: Engine, session: str, extractor: Extractor | None) -> None:
        self._engine = engine
        self._session = session
        self._extractor = extractor
        self._extraction: BackgroundExtraction | None = None
        if extractor is not None and extractor.every is not None:
            self._extraction = BackgroundExtraction(engine, session, extractor, extractor.every)
        self._delivery = Delivery(engine, session, extractor, self._extraction)
        self._books: Ledger | None = None
        self._loading: asyncio.Task[None] | None = None
        self._asked: set[str] = set()
        self._overheard: list[tuple[object, deque[Utterance], int]] = []
        self._glimpses: dict[int, tuple[ChatCompletionContext, list[LLMMessage]]] = {}
        self._heard: list[Heard] = []
        self._messages: list[Heard] = []
        self._learning, self._storing = CrossLoopLock(), CrossLoopLock()
        self._writing: asyncio.Task[None] | None = None

    @property
    def delivery(self) -> Delivery:
        """What stores the messages, and delivers queued ones."""
        return self._delivery

    # StreamCapture

    async def hear(self, context: ChatCompletionContext) -> None:
        """Take in what is new in a model context. When this returns, the facts that it tells are stored.

        The messages themselves are stored by `settle`, after the recall: Chroma would let one wait for the other. The replies
        that other agents gave meanwhile are taken in first, so that everything is captured in its order.
        """
        ledger, since = await self._ledger(), moment()
        await self._hear_replies(ledger, since, but=context)
        await self._hear(context, ledger, since)
        await self._delivery.hurry()
        await self._learn()

    async def _hear_replies(self, ledger: Ledger, since: int, but: ChatCompletionContext | None = None) -> None:
        """Take in what agents have replied by now; whoever replies while we do was asked at the same time, not before."""
        others = [other for other in ledger.contexts if other is not but]
        replied = [other for other in others if ledger.place_of(other).has_a_reply(await everything_in(other))]
        for other in replied:
            await self._hear(other, ledger, since)

    async def _hear(self, context: ChatCompletionContext, ledger: Ledger, since: int) -> None:
        place = ledger.place_of(context)
        async with ledger.listening:
            await self._hear_first(context, place, ledger, since)
            live, messages = live_messages(context), await everything_in(context)
            behind = place.left_behind(messages if live is None else live)
            news, goes_on = place.unheard(messages)
            is_first = place.is_new
            said_before, said_now = await self._clean(said_in(behind)), await self._clean(said_in(news))
            # From here on nothing waits, so that a message is either heard and captured, or neither.
            captured = ledger.hear(place, said_before)
            place.note(messages, live)
            captured += (
                ledger.hear(place, said_now)
                if goes_on
                else ledger.hear_anew(place, said_now, is_first=is_first, since=since)
            )
            self._note(captured, ledger)
            self._glimpses.pop(id(context), None)

    def glimpse(self, context: ChatCompletionContext) -> None:
        """Note, before anything waits, with what a context came up: else, heard later, that would seem to be long past."""
        live = live_messages(context)
        if live is not None and (self._books is None or not self._books.has_heard(context)):
            self._glimpses.setdefault(id(context), (context, list(live)))

    @property
    def _glimpsed(self) -> list[ChatCompletionContext]:
        return [context for context, _ in self._glimpses.values()]

    async def _hear_first(self, context: ChatCompletionContext, place: Place, ledger: Ledger, since: int) -> None:
        """Take in with what a context came up, if it has grown while that could not be heard."""
        _, glimpse = self._glimpses.get(id(context), (context, []))
        live = live_messages(context)
        if place.is_new and glimpse and live is not None and len(live) > len(glimpse):
            said = await self._clean(said_in(glimpse))
            self._note(ledger.hear_anew(place, said, since=since), ledger)
            place.note(glimpse, None)

    def keep_hold_of(self, context: ChatCompletionContext) -> None:
        """The context got a new list of messages, with our block in it: keep hold of that one."""
        live = live_messages(context)
        if self._books is not None and live is not None:
            self._books.place_of(context).hold(live)

    @property
    def users(self) -> frozenset[str]:
        """The names under which the user speaks: those of the policy, and of people who were asked for input."""
        shared = set[str]() if self._books is None else self._books.users
        return self._engine.policy.user_sources.union(self._asked, shared)

    def _is_user(self, names: Iterable[str]) -> None:
        self._asked.update(set(names) - self._engine.policy.user_sources)
        if self._books is not None:
            self._books.users |= self._asked

    async def observe(self, stream: AsyncIterable[T]) -> AsyncGenerator[T, None]:
        """Pass a stream through, and take in what is said in it, beside it: the stream never waits."""
        hearing = StreamCapture(self)
        try:
            async for item in stream:
                if (asked := asked_in(item)) is not None:
                    self._is_user([asked])
                utterance = said_by(item)
                if utterance is not None:
                    hearing.add(utterance)
                yield item
        finally:
            await hearing.end(self._engine.policy.deadline)

    async def listen_in(self, since: int) -> None:
        """A stream begins: what was said before it comes before it."""
        await self._hear_replies(await self._ledger(), since)
        await self._learn()

    async def overhear(self, whose: object, utterances: deque[Utterance], since: int) -> None:
        """Take in what was said in a stream that began at a moment, one after the other."""
        ledger = await self._ledger()
        await self._take_down(whose, utterances, since, ledger)
        await self._learn()
        await self._learn_from_misheard(ledger)

    async def _take_down(self, whose: object, utterances: deque[Utterance], since: int, ledger: Ledger) -> None:
        place = ledger.place_of(whose, since=since)
        while utterances:
            async with ledger.listening:
                (said,) = await self._clean([utterances[0]])
                captured = ledger.hear(place, [said])
                self._note(captured, ledger)
                utterances.popleft()
                known = ledger.last(said) if said.source in ledger.users and not captured else None
                if known is not None:
                    ledger.misheard.append(known)

    async def _learn_from_misheard(self, ledger: Ledger) -> None:
        """Learn from what agents heard before this process knew that it was a person who said it.

        A team goes on while its stream is read, and may be ahead of the reader, who is told who was asked for input.
        """
        if not ledger.misheard:
            return
        await self._write_messages()
        for known in list(ledger.misheard):
            record = await self._stored(known)
            if record is None:  # another memory captured it, and has not stored it yet
                continue
            if record.origin != "user":
                await self._delivery.learn_from_user(record)
            if known in ledger.misheard:  # else another memory of the session was faster
                ledger.misheard.remove(known)

    async def _stored(self, known: Captured) -> MemoryRecord | None:
        found = await self._engine.find([self._id(known)], ["session"])
        found = found or await self._delivery.said_before(self._session, *known.utterance[:2])
        return found[0] if found else None

    async def gave_up(self, whose: object, left: deque[Utterance], since: int) -> None:
        """What was said in a stream could not be stored in time."""
        self._engine.namespace_data.connection.breaker.gave_up(self._engine.policy.deadline)
        await self.keep_stream(whose, left, since, "it took too long")

    async def keep_stream(self, whose: object, left: deque[Utterance], since: int, trouble: str) -> None:
        """What was said in a stream cannot be stored. It is put by, with what is left of it, where there is a place for it."""
        if self._delivery.outbox is not None:
            with automatic():
                await self._take_down(whose, left, since, await self._ledger())
            await self.keep()
        self._engine.log_trouble("What is said in a stream cannot be stored for now: %s", trouble)

    async def keep(self) -> None:
        """See that what could not be stored is not lost with the process, and be in nobody's way for that."""
        try:
            await self.put_by()
        except OSError as error:
            logger.warning("What was said cannot be kept on this machine's disk either: %r", error)

    def stop_listening(self, whose: object, left: deque[Utterance], since: int) -> None:
        """A stream has ended; what is left of it could not be taken in yet."""
        if left:
            self._overheard.append((whose, left, since))
        elif self._books is not None:
            self._books.leave(whose)

    async def resume(self, state: State) -> None:
        """A saved conversation was loaded, and will go on."""
        ledger = await self._ledger()
        async with ledger.listening:
            tail: list[Utterance] = []
            for message in reversed(thread_of(state)[-MOST_UNCAPTURED:]):
                tail = await self._clean(await in_thread(partial(_said_in, [message]))) + tail
                if tail and ledger.knows(tail[0]):
                    waiting = await in_thread(lambda: [_said_in(messages) for messages in waiting_in(state)])
                    counts, last = [len(said) for said in waiting if said], [said[-1] for said in waiting if said]
                    self._note(ledger.resume(tail, zip(counts, await self._clean(last))), ledger)
                    break
        await self._learn()
        await self._write_messages()

    async def tell(self, utterances: Sequence[Utterance], people: Iterable[str] = ()) -> list[MemoryRecord]:
        """Take in a finished transcript, in which these people were asked for input; the facts it tells."""
        self._is_user(people)
        ledger = await self._ledger()
        async with ledger.listening:
            clean, known = await self._clean(utterances), ledger.known()
            for start in range(0, len(clean), _AT_ONCE):
                self._note(ledger.hear_transcript(clean[start : start + _AT_ONCE], known), ledger)
                await asyncio.sleep(0)
        facts = await self._learn()
        await self._write_messages()
        await self.read()
        return facts

    async def append(self, message: Draft) -> MemoryRecord:
        """Store a message that the application adds by itself; the stored one, if agents were heard saying it just now.

        What is added here is expected to be heard from agents as well, and then not stored again.
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

    # Storing

    async def settle(self) -> None:
        """Store everything that was heard. It goes on being stored if whoever waits for it gives up.

        Raises:
            PersistentMemoryError: It cannot be stored for now. It is kept, and tried again.
        """
        if self._messages:
            writing = asyncio.get_running_loop().create_task(self._write_after(self._writing))
            writing.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._writing = writing
        if self._writing is not None and self._writing.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(self._writing)

    async def read(self, seconds: float = math.inf) -> bool:
        """Learn also what takes long from all that was stored, and wait so long for it; whether that is over.

        A model that is down is no reason for anything else to fail: what it did not read is marked, and tried again.
        """
        return self._extraction is None or await self._extraction.finish(seconds)

    async def catch_up(self) -> None:
        """Take in and store all that was said, the last replies included, without learning what takes long.

        Raises:
            PersistentMemoryError: It cannot be stored now. It is kept for the next time.
        """
        if self._books is None and not (self._glimpses or self._overheard or self._heard or self._messages):
            return
        trouble: PersistentMemoryError | None = None
        try:
            ledger = await self._ledger()
        except PersistentMemoryError as error:
            if self._books is None or self._delivery.outbox is None or error.needs_developer:
                raise
            ledger, trouble = self._books, error
        while self._overheard:
            whose, left, since = self._overheard[0]
            await self._take_down(whose, left, since, ledger)
            self._overheard.pop(0)
            ledger.leave(whose)
        for context in {id(context): context for context in (*ledger.contexts, *self._glimpsed)}.values():
            await self._hear(context, ledger, moment())
        try:
            if trouble is not None:
                raise trouble
            await self._store_everything()
        except PersistentMemoryError:
            await self.put_by()
            raise

    async def _store_everything(self) -> None:
        if self._writing is not None and self._writing.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({self._writing})
        self._writing = None
        await self._learn()
        await self._write_messages()
        await self._learn_from_misheard(await self._shared_books())

    async def put_by(self) -> bool:
        """Keep what could not be stored yet where it outlives the process, if there is such a place; whether it is safe.

        Raises:
            OSError: There is one, but it cannot be written.
        """
        if self._delivery.outbox is None:
            return False
        for context in self._glimpsed:  # there was no time to hear them
            await self._hear(context, await self._shared_books(), moment())
        messages, heard = self._messages, self._heard
        self._messages, self._heard = [], []
        try:
            if messages or heard:
                await self._delivery.put_by([*messages, *heard])
        except BaseException:
            self._messages, self._heard = messages + self._messages, heard + self._heard
            raise
        return True

    async def look_again(self) -> None:
        """Something was forgotten: learn nothing from it any more."""
        if self._extraction is not None:
            await self._extraction.look_again()

    def drop(self) -> None:
        """Forget what was heard and is not stored yet."""
        self._glimpses, self._overheard, self._heard, self._messages = {}, [], [], []
        if self._extraction is not None:
            self._extraction.drop()

    async def leave(self) -> None:
        """Let go of the books, and of all work in the background, before the store is closed."""
        self._books = None
        tasks = (self._writing, self._loading)
        self._writing = self._loading = None
        for task in tasks:
            if task is not None and task.get_loop() is asyncio.get_running_loop():
                task.cancel()
                await asyncio.wait({task})
        await self._delivery.leave()

    def _note(self, captured: Sequence[Captured], ledger: Ledger) -> None:
        self._heard += [self._message(found, ledger) for found in captured]

    async def _learn(self) -> list[MemoryRecord]:
        """Store the facts in what was heard, and then leave the messages to be stored."""
        found: dict[str, MemoryRecord] = {}
        self._engine.namespace_data.connection.breaker.check()
        await self._delivery.finish()  # what was said before that
        async with self._learning:
            for heard in list(self._heard):
                is_known = heard.if_new and await self._delivery.is_known(heard)
                message, records = (heard, []) if is_known else await self._delivery.learn(heard)
                found |= {record.id: record for record in records}
                if heard in self._heard:  # else it was put by meanwhile
                    self._heard.remove(heard)
                    if not is_known:
                        self._messages.append(message._replace(learn=False, if_new=False))
        return list(found.values())

    async def _write_messages(self) -> None:
        async with self._storing:
            while self._messages:
                messages = self._messages[:_AT_ONCE]
                await self._delivery.store(messages)
                stored = {message.id for message in messages}
                self._messages = [message for message in self._messages if message.id not in stored]

    async def _write_after(self, previous: asyncio.Task[None] | None) -> None:
        """Store messages where nobody has to wait for it, in order."""
        if previous is not None and previous.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({previous})
        await self._write_messages()

    async def _ledger(self) -> Ledger:
        """The books of the session, in which stands what earlier processes captured, unless an agent would wait for it."""
        books, breaker = await self._shared_books(), self._engine.namespace_data.connection.breaker
        if books.is_loaded or (self._delivery.outbox is not None and is_automatic() and breaker.is_open):
            return books
        loop = asyncio.get_running_loop()
        if self._loading is None or self._loading.done() or self._loading.get_loop() is not loop:
            self._loading = loop.create_task(self._load(books))
            self._loading.add_done_callback(lambda task: task.cancelled() or task.exception())
        is_patient = self._delivery.outbox is None or not is_automatic()
        patience = None if is_patient else _LOADING_SHARE * self._engine.policy.deadline
        done, _ = await asyncio.wait({self._loading}, timeout=patience)
        error = self._loading.exception() if done else None
        if error is not None and (is_patient or getattr(error, "needs_developer", True)):
            raise error
        return books

    async def _shared_books(self) -> Ledger:
        """The books of the session as they are, which all memories of this process share."""
        if self._books is None:
            name = f"{self._engine.namespace}\nledger\n{self._session}"
            self._books = await self._engine.namespace_data.connection.shared(name, Ledger)
            self._books.users |= self._asked
        return self._books

    async def _load(self, books: Ledger) -> None:
        """Read what of the session is stored, and what of it waits to be."""
        outbox = self._delivery.outbox
        waiting = [] if outbox is None else await in_thread(outbox.messages)
        stored = await self._engine.select(Selection(session=self._session, kinds=("interaction",)), ["session"])
        if not books.is_loaded:
            said = {record.id: Utterance(record.source or "", record.content) for record in in_order(stored)}
            for heard in waiting:
                if heard.session == self._session:
                    said.setdefault(heard.id, Utterance(heard.source, heard.text))
            books.load(utterance for id, utterance in said.items() if id not in books.provisional)

    async def _clean(self, utterances: Sequence[Utterance]) -> list[Utterance]:
        if not self._engine.policy.redact or not utterances:
            return list(utterances)
        return await in_thread(lambda: [said._replace(text=redact(said.text)) for said in utterances])

    def _message(self, captured: Captured, ledger: Ledger) -> Heard:
        source, text, _ = captured.utterance
        if ledger.is_loaded:
            while self._engine.namespace_data.knows(self._id(captured)):  # an earlier occurrence was deleted
                captured = ledger.another(captured)
            id = self._id(captured)
        else:  # nobody knows how many there are already
            id = uuid.uuid4().hex
            ledger.provisional.add(id)
        return Heard(
            id=id,
            session=self._session,
            source=source,
            text=text,
            by_user=source in self.users,
            at=self._engine.clock(),
            learn=captured.is_fresh and self._extractor is not None,
            study=self._extraction is not None,
            if_new=captured.if_new,
        )

    def _id(self, captured: Captured) -> str:
        return stable_id(self._session, *captured.utterance[:2], str(captured.occurrence))


def _said_in(messages: Sequence[State]) -> list[Utterance]:
    return [said for said in map(said_in_dump, messages) if said is not None]


class Overhearing(Protocol):
    """Who takes in what is said in a stream."""

    async def listen_in(self, since: int) -> None:
        """A stream begins."""

    async def overhear(self, whose: object, utterances: deque[Utterance], since: int) -> None:
        """Take in what was said in a stream that began at a moment."""

    async def settle(self) -> None:
        """Store what was taken in."""

    async def keep_stream(self, whose: object, left: deque[Utterance], since: int, trouble: str) -> None:
        """It cannot be stored."""

    async def gave_up(self, whose: object, left: deque[Utterance], since: int) -> None:
        """It could not be stored in time."""

    def stop_listening(self, whose: object, left: deque[Utterance], since: int) -> None:
        """The stream has ended."""


class StreamCapture:
    """What is said in a stream, taken in one after the other by a task of its own."""

    def __init__(self, recorder: Overhearing) -> None:
        self._recorder = recorder
        self._since = moment()
        self._waiting: deque[Utterance] = deque()
        self._listens = False
        self._task = asyncio.get_running_loop().create_task(self._take_in())

    def add(self, utterance: Utterance) -> None:
        """Somebody said this."""
        self._waiting.append(utterance)
        if self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._take_in())

    async def end(self, seconds: float) -> None:
        """Wait a while for what was said last; what is not taken in by then is, the next time."""
        done, _ = await asyncio.wait({self._task}, timeout=seconds)
        self._task.cancel()
        if not done:
            await self._recorder.gave_up(self, self._waiting, self._since)
        self._recorder.stop_listening(self, self._waiting, self._since)

    async def _take_in(self) -> None:
        with automatic():
            await self._take_in_quietly()

    async def _take_in_quietly(self) -> None:
        try:
            if not self._listens:
                await self._recorder.listen_in(self._since)
                self._listens = True
            goes_on = True
            while goes_on:
                await self._recorder.overhear(self, self._waiting, self._since)
                await self._recorder.settle()
                goes_on = bool(self._waiting)  # more was said while that was stored
        except PersistentMemoryError as error:
            await self._recorder.keep_stream(self, self._waiting, self._since, str(error))
        except Exception:
            logger.exception("Memory failed to take in a stream; please report this.")
