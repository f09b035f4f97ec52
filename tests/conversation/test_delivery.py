"""Heard messages are stored once and in order, facts first, and are kept when storing fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from toys import NOW, words

from autogen_persistent_memory import RecallPolicy, RuleExtractor, StoreUnavailableError, TemporaryStore
from autogen_persistent_memory.conversation.delivery import Delivery, Learner
from autogen_persistent_memory.core.records import FACTS, Draft, MemoryRecord, Selection, in_order, listed
from autogen_persistent_memory.retrieval.engine import Engine
from autogen_persistent_memory.storage.outbox import QueuedMessage


class Session:
    """A delivery to a store that fails or waits when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = Engine("ann", TemporaryStore(), words(), RecallPolicy(), clock=lambda: NOW)
        self.delivery = Delivery(self.engine, Learner(self.engine, "monday", RuleExtractor()))
        self.fails = False
        self.may_store = asyncio.Event()
        self.may_store.set()
        self._remember = self.engine.remember
        monkeypatch.setattr(self.engine, "remember", self._wait_and_remember)

    async def _wait_and_remember(self, table: str, drafts: Sequence[Draft]) -> list[MemoryRecord]:
        await self.may_store.wait()
        if self.fails:
            raise StoreUnavailableError("The server is down.")
        return await self._remember(table, drafts)  # type: ignore[arg-type]

    def say(self, *texts: str) -> None:
        for text in texts:
            heard = QueuedMessage(id=text, session="monday", source="user", text=text, at=NOW, by_user=True, learn=True)
            self.delivery.add([heard])

    async def stored(self) -> list[MemoryRecord]:
        found = await self.engine.select(Selection(session="monday", kinds=("interaction",)), ["session"])
        return in_order(found)


@pytest.fixture
async def session(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Session]:
    session = Session(monkeypatch)
    yield session
    session.may_store.set()
    await session.delivery.leave()
    await session.engine.close()


async def test_facts_are_stored_first_and_linked_to_their_message(session: Session) -> None:
    session.say("I live in Berlin", "Hello there")
    (fact,) = await session.delivery.learn()
    assert "Berlin" in fact.content
    assert await session.stored() == []
    await session.delivery.settle()
    stored = await session.stored()
    assert [record.content for record in stored] == ["I live in Berlin", "Hello there"]
    assert [listed(record, FACTS) for record in stored] == [[fact.id], []]
    assert session.delivery.is_idle


async def test_storing_continues_when_the_caller_stops_waiting(session: Session) -> None:
    session.say("Hello")
    await session.delivery.learn()
    session.may_store.clear()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(session.delivery.settle(), 0.05)
    session.say("Hello again")
    await session.delivery.learn()
    session.may_store.set()
    await session.delivery.settle()
    assert [record.content for record in await session.stored()] == ["Hello", "Hello again"]


async def test_messages_that_cannot_be_stored_are_kept_and_tried_again(session: Session) -> None:
    session.say("Hello")
    await session.delivery.learn()
    session.fails = True
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="server is down"):
            await session.delivery.settle()
    await session.delivery.queue()  # there is no outbox for a store on this machine
    assert not session.delivery.is_idle
    session.fails = False
    await session.delivery.settle()
    assert [record.content for record in await session.stored()] == ["Hello"]


async def test_a_message_that_an_earlier_process_stored_is_not_stored_again(session: Session) -> None:
    session.say("Hello")
    await session.delivery.learn()
    await session.delivery.settle()
    again = QueuedMessage(id="another", session="monday", source="user", text="Hello", at=NOW, if_new=True)
    session.delivery.add([again])
    await session.delivery.learn()
    assert session.delivery.is_idle
    assert [record.id for record in await session.stored()] == ["Hello"]


async def test_dropped_messages_are_not_stored(session: Session) -> None:
    session.say("Hello", "I live in Berlin")
    session.delivery.drop()
    assert await session.delivery.learn() == []
    await session.delivery.settle()
    assert await session.stored() == []


async def test_a_failure_in_the_background_is_logged_with_its_namespace(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    session.engine.log_trouble("Queued messages cannot be delivered yet: %s", "no disk")
    assert caplog.messages == ["'ann': Queued messages cannot be delivered yet: no disk"]
