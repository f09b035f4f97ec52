"""One suite for every store: whatever holds for one must hold for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from toys import words

from autogen_persistent_memory import PersistentMemory, ProfileMemory, SessionMemory
from autogen_persistent_memory._store import MemoryStore

Make = Callable[[], MemoryStore]


@pytest.fixture
def open_memory(make_store: Make, namespace: str) -> Callable[..., PersistentMemory]:
    def make(name: str = namespace, **options: str) -> PersistentMemory:
        return PersistentMemory(name, store=make_store(), embedding=words(), **options)  # type: ignore[arg-type]

    return make


OpenMemory = Callable[..., PersistentMemory]


async def test_what_is_stored_is_there_for_the_next_memory(open_memory: OpenMemory) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
    async with open_memory() as first:
        stored = await first.remember(
            "Uses PostgreSQL, because of JSONB",
            kind="decision",
            tags=["db", "ünï"],
            ttl=timedelta(days=10_000),
            key="project/database",
            source="Ann",
            session="s1",
            metadata={"nested": {"list": [1, None, {"x": True}]}, "text": "ä"},
            at=at,
        )
    async with open_memory() as second:
        assert await second.record(stored.id) == stored
        assert (await second.recall("which PostgreSQL")).hits[0].record == stored
    assert (stored.created_at, stored.kind, stored.tags) == (at, "decision", ("db", "ünï"))
    assert stored.metadata == {"nested": {"list": [1, None, {"x": True}]}, "text": "ä"}


VERBATIM = [
    "trailing white space \n\t ",
    "\n leading",
    "nul \x00 inside",
    "שלום, עולם: right to left",
    "🙂 👩‍👩‍👧 é e\u0301",
    "\r\n windows",
    "x" * 1_000_000,
]


@pytest.mark.parametrize("content", VERBATIM, ids=lambda content: repr(content)[:20])
async def test_content_comes_back_verbatim(open_memory: OpenMemory, content: str) -> None:
    async with open_memory() as memory:
        stored = await memory.remember(content, metadata={"copy": content[:100]})
        back = await memory.record(stored.id)
        assert back is not None
        assert back.content == content
        assert back.metadata == {"copy": content[:100]}
        await memory.set("value", content)
        assert await memory.get("value") == content


async def test_reading_an_unknown_namespace_finds_nothing_and_creates_nothing(open_memory: OpenMemory) -> None:
    async with open_memory() as memory:
        assert (await memory.recall("anything")).hits == ()
        assert await memory.records() == []
        assert await memory.count() == 0
        assert await memory.forget("no-such-id") == 0
        assert await memory.get("x", "default") == "default"
        assert await memory.values() == {}
        assert not await memory.delete("x")
        assert memory.namespace not in await memory._engine.holdings.connection.namespaces()
        await memory.remember("x")
        assert memory.namespace in await memory._engine.holdings.connection.namespaces()


async def test_filters_find_the_rare_among_the_many(open_memory: OpenMemory) -> None:
    async with open_memory() as memory:
        many = [{"content": f"tea number {number}", "session": "bulk"} for number in range(150)]
        await memory.remember_many(many)
        rare = await memory.remember("coffee", kind="preference", tags=["a", "b"], session="one")
        for filters in ({"kinds": ["preference"]}, {"tags": ["a"]}, {"tags": ["a", "b"]}, {"session": "one"}):
            found = await memory.recall("tea number", limit=3, **filters)  # type: ignore[arg-type]
            assert [hit.record.id for hit in found] == [rare.id], filters
            assert [record.id for record in await memory.records(**filters)] == [rare.id]  # type: ignore[arg-type]
        assert (await memory.recall("tea", tags=["a", "c"])).hits == ()
        assert len((await memory.recall("tea number", limit=120)).hits) == 120


async def test_a_long_history_does_not_hide_what_is_current(open_memory: OpenMemory) -> None:
    async with open_memory() as memory:
        await memory.remember("Ann likes tea with milk")
        for number in range(130):
            await memory.remember(f"Ann lives in street {number}", key="home")
        found = await memory.recall("Ann lives in street", limit=2)
        assert [hit.record.content for hit in found] == ["Ann lives in street 129", "Ann likes tea with milk"]
        assert await memory.count() == 2
        assert len(await memory.history("home")) == 130


async def test_values_keep_their_types_and_their_space(open_memory: OpenMemory) -> None:
    values = {
        "n": 5,
        "yes": True,
        "float": 1.0,
        "text": "[1,2]",
        "list": [1, [2]],
        "map": {"a": None},
        "no": False,
        "": 1,
    }
    del values[""]
    async with open_memory() as memory:
        for key, value in values.items():
            await memory.set(key, value)
        await memory.set("n", 6)
        await memory.set("gone", 1)
        await memory.set("gone", None)
    async with open_memory() as memory:
        back = await memory.values()
        assert {key: (type(value), value) for key, value in back.items()} == {
            key: (type(value), value) for key, value in {**values, "n": 6}.items()
        }
        assert await memory.keys() == sorted(values)
        assert await memory.count() == 0
        assert (await memory.recall("text")).hits == ()
        assert await memory.delete("n")
        assert not await memory.delete("n")
        assert await memory.get("n") is None


async def test_a_value_of_megabytes_is_replaced_without_leftovers(open_memory: OpenMemory) -> None:
    async with open_memory() as memory:
        for size in (2_000_000, 700_000, 10):
            await memory.set("big", "äx" * (size // 2))
            assert await memory.get("big") == "äx" * (size // 2)
        rows = await memory._engine.values.read(lambda collection: collection.count(), 0)  # type: ignore[attr-defined]
        assert rows == 1


async def test_clear_empties_what_the_object_owns_and_nothing_else(open_memory: OpenMemory, namespace: str) -> None:
    async with open_memory(session="a") as memory, open_memory(f"{namespace}/other") as other:

        async def fill() -> None:
            await memory.remember("profile fact")
            await memory.set("key", 1)
            await memory.session.append("Ann", "message in a")
            await SessionMemory.on_engine(memory._engine, "b").append("Ann", "message in b")

        await other.remember("other fact")
        await fill()
        await memory.session.clear()
        assert sorted(record.content for record in await memory.records()) == ["message in b", "profile fact"]
        await fill()
        await memory.profile.clear()
        assert sorted(record.content for record in await memory.records()) == [
            "message in a",
            "message in b",
            "message in b",
        ]
        assert await memory.values() == {}
        await fill()
        await memory.clear()
        assert await memory.records(include_history=True) == []
        assert await memory.values() == {}
        assert await other.count() == 1
        await memory.remember("after clear")
        assert await memory.count() == 1


async def test_another_memory_notices_that_the_namespace_was_cleared(open_memory: OpenMemory) -> None:
    async with open_memory() as one, open_memory() as other:
        await one.remember("Likes tea")
        assert await other.count() == 1
        await one.clear()
        assert await other.count() == 0
        assert (await other.recall("tea")).hits == ()
        await other.remember("Likes coffee")
        assert [record.content for record in await one.records()] == ["Likes coffee"]


async def test_concurrent_restatements_become_one_memory(open_memory: OpenMemory) -> None:
    async with open_memory() as one, open_memory() as other:
        records = await asyncio.gather(*(memory.remember("Likes tea") for memory in [one, other] * 10))
        assert len({record.id for record in records}) == 1
        (record,) = await one.records()
        assert record.uses == 19


async def test_messages_of_a_session_keep_their_order(open_memory: OpenMemory) -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    async with open_memory(session="a") as memory:
        for number in range(12):
            await memory.session.append("Ann" if number % 2 else "Bob", f"message {number}", at=at)
    async with open_memory(session="a") as memory:
        await memory.session.append("Ann", "ok")
        await memory.session.append("Ann", "ok")
        messages = await memory.session.messages()
        assert [message.content for message in messages] == [f"message {number}" for number in range(12)] + ["ok", "ok"]
        assert [message.sequence for message in messages] == list(range(1, 15))
        assert [message.content for message in await memory.session.messages(limit=3)] == ["message 11", "ok", "ok"]
        assert messages[1].source == "Ann"


async def test_used_memories_are_counted_in_the_store(open_memory: OpenMemory) -> None:
    async with open_memory() as memory:
        record = await memory.remember("Likes tea")
        await memory.recall("tea")
        await memory.recall("tea", reinforce=True)
        await memory.recall("tea", reinforce=True)
    async with open_memory() as memory:
        back = await memory.record(record.id)
        assert back is not None
        assert back.uses == 2
        assert back.last_used_at is not None


async def test_profile_and_session_are_separate_stores_usable_alone(make_store: Make, namespace: str) -> None:
    profile = ProfileMemory(namespace, store=make_store(), embedding=words())
    session = SessionMemory(namespace, "s", store=make_store(), embedding=words())
    both = PersistentMemory(namespace, session="s", store=make_store(), embedding=words())
    await profile.remember("a fact about tea")
    await session.append("Ann", "a message about tea")
    assert [record.content for record in await profile.records()] == ["a fact about tea"]
    assert [record.content for record in await session.messages()] == ["a message about tea"]
    assert {hit.record.content for hit in await both.recall("tea")} == {"a fact about tea", "a message about tea"}
    results = (await session.query("tea")).results
    assert [result.content for result in results] == ["a message about tea"]
    for memory in (profile, session, both):
        await memory.close()
