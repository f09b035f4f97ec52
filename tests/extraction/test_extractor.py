"""An extractor of one's own: what `Extractor` asks for, and what the memory does with it."""

from __future__ import annotations

import doctest
from collections.abc import Sequence

import pytest
from toys import words

from autogen_persistent_memory import MemoryRecord, PersistentMemory, TemporaryStore
from autogen_persistent_memory.extraction import extractor
from autogen_persistent_memory.extraction.extractor import Extractor, Fact, Message, RuleExtractor


class Orders(Extractor):
    """Finds the last order at once, and lists all orders later."""

    every = 2

    async def extract_now(self, message: Message) -> list[Fact]:
        return [Fact(content=f"The user's last order is {message.text}", key="user/last-order")]

    async def extract_later(self, messages: Sequence[Message], known: Sequence[MemoryRecord]) -> list[Fact]:
        return [Fact(content=f"The user placed {message.text}", tags=("order",)) for message in messages]


def a_memory() -> PersistentMemory:
    return PersistentMemory("ann", session="s", store=TemporaryStore(), embedding=words(), extractor=Orders())


def test_the_example_of_the_docstring_works() -> None:
    results = doctest.testmod(extractor)
    assert results.attempted > 4
    assert results.failed == 0


async def test_an_own_extractor_needs_only_the_methods_it_uses() -> None:
    async with a_memory() as memory:
        await memory.extract("Order 4711", source="user")
        await memory.extract("Order 4712", source="user")
        assert [record.content for record in await memory.history("user/last-order")] == [
            "The user's last order is Order 4712",
            "The user's last order is Order 4711",
        ]
        await memory.flush()
        assert {record.content for record in await memory.records(tags=["order"])} == {
            "The user placed Order 4711",
            "The user placed Order 4712",
        }


async def test_a_memory_with_an_own_extractor_says_why_it_cannot_be_dumped() -> None:
    with pytest.raises(ValueError, match=r"with the extractor Orders cannot be dumped.*pass your extractor again"):
        a_memory().dump_component()


class Broken(RuleExtractor):
    async def extract_now(self, message: Message) -> list[Fact]:
        raise RuntimeError("out of order")


async def test_a_message_is_stored_even_if_its_extractor_fails(caplog: pytest.LogCaptureFixture) -> None:
    async with PersistentMemory("ann", store=TemporaryStore(), embedding=words(), extractor=Broken()) as memory:
        await memory.extract("My name is Ann.")
        await memory.extract("I live in Lisbon.")
        messages = [record.content for record in await memory.session.messages()]
    assert messages == ["My name is Ann.", "I live in Lisbon."]
    failures = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert failures == [
        "'ann': extract_now() of Broken failed, so no facts of that message are stored: RuntimeError('out of order')"
    ]


def test_a_subclass_of_the_rules_is_not_dumped_as_the_rules() -> None:
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=words(), extractor=Broken())
    with pytest.raises(ValueError, match="with the extractor Broken cannot be dumped"):
        memory.dump_component()
