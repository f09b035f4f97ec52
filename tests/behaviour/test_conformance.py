"""Everything a memory can do, on every store. What a store must do for it is tested by `testing.StoreConformance`."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from toys import HandClock, words

import autogen_persistent_memory
from autogen_persistent_memory import PersistentMemory, ProfileMemory, RecallPolicy, SessionMemory
from autogen_persistent_memory.storage.protocol import MemoryStore

Make = Callable[[], MemoryStore]


@pytest.fixture
def open_memory(make_store: Make, namespace: str) -> Callable[..., PersistentMemory]:
    def make(name: str = namespace, **options: Any) -> PersistentMemory:
        return PersistentMemory(name, store=make_store(), embedding=words(), **options)

    return make


OpenMemory = Callable[..., PersistentMemory]


@pytest.fixture
async def memory(open_memory: OpenMemory) -> AsyncIterator[PersistentMemory]:
    async with open_memory(session="today") as memory:
        yield memory


@pytest.fixture
async def profile(make_store: Make, namespace: str) -> AsyncIterator[ProfileMemory]:
    async with ProfileMemory(namespace, store=make_store(), embedding=words()) as profile:
        yield profile


def contents(records: Any) -> list[str]:
    return [getattr(record, "record", record).content for record in records]


async def say(memory: PersistentMemory, text: str, reply: str = "Thank you for telling me that.") -> list[str]:
    """Say something to a new agent; what its model saw."""
    client = ReplayChatCompletionClient([reply])
    await AssistantAgent("assistant", model_client=client, memory=[memory]).run(task=text)
    return [str(message.content) for message in client.create_calls[0]["messages"]]


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


async def test_reading_an_unknown_namespace_finds_nothing_and_creates_nothing(open_memory: OpenMemory) -> None:
    async with open_memory() as memory:
        assert (await memory.recall("anything")).hits == ()
        assert await memory.records() == []
        assert await memory.count() == 0
        assert await memory.forget("no-such-id") == 0
        assert await memory.get("x", "default") == "default"
        assert await memory.values() == {}
        assert not await memory.delete("x")
        assert memory.namespace not in await memory._engine.data.connection.embeddings()
        await memory.remember("x")
        assert memory.namespace in await memory._engine.data.connection.embeddings()


async def test_a_value_of_megabytes_is_replaced_without_leftovers(open_memory: OpenMemory) -> None:
    async with open_memory() as memory:
        for size in (2_000_000, 700_000, 10):
            await memory.set("big", "äx" * (size // 2))
            assert await memory.get("big") == "äx" * (size // 2)
        rows = await memory._engine.values._table.read(lambda collection: collection.count(), 0)  # type: ignore[attr-defined]
        assert rows == 1


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


async def test_recall_within_a_score_and_a_budget(memory: PersistentMemory) -> None:
    await memory.remember_many(["green tea", "green tea from a shop in the old town", "nothing of the kind"])
    best, second, _ = (await memory.recall("green tea")).hits
    assert best.score > second.score
    assert contents(await memory.recall("green tea", min_score=(best.score + second.score) / 2)) == ["green tea"]
    short = await memory.recall("green tea", max_tokens=6)
    assert contents(short) == ["green tea"]
    assert short.tokens <= 6


async def test_several_queries_at_once(memory: PersistentMemory) -> None:
    await memory.remember_many(["Likes green tea", "Lives in Oslo"])
    tea, town = await memory.recall_many(["green tea", "lives in"], limit=1)
    assert (contents(tea), contents(town)) == (["Likes green tea"], ["Lives in Oslo"])
    assert await memory.recall_many([]) == []


async def test_remember_many_returns_one_record_each_in_order(profile: ProfileMemory) -> None:
    items = ["Likes tea", {"content": "Likes jam", "kind": "preference"}, "likes the tea.", "Likes honey"]
    records = await profile.remember_many(items)
    assert contents(records) == ["Likes tea", "Likes jam", "Likes tea", "Likes honey"]
    assert records[0].id == records[2].id
    assert records[1].kind == "preference"
    assert await profile.count() == 3
    assert await profile.remember_many([]) == []


async def test_an_expired_memory_is_gone_from_every_read_at_that_instant_and_swept_from_the_store(
    clock: HandClock, open_memory: OpenMemory
) -> None:
    policy = RecallPolicy(sweep_interval=timedelta(days=1))
    memory = open_memory(policy=policy)
    record = await memory.remember("Likes tea", ttl=timedelta(hours=2), key="drink")
    pinned = await memory.remember("Likes jam", ttl=timedelta(hours=2), pinned=True)
    assert pinned.expires_at is None
    clock.move(hours=1, minutes=59, seconds=59)
    assert contents(await memory.recall("tea", limit=1)) == ["Likes tea"]
    clock.move(seconds=1)
    assert contents(await memory.recall("tea")) == ["Likes jam"]
    assert contents(await memory.records()) == ["Likes jam"]
    assert (await memory.query("tea")).results[0].content == "Likes jam"
    assert await memory.record(record.id) is None
    assert await memory.count() == 1
    assert "tea" not in await memory.context("tea")
    assert sorted(contents(await memory.records(include_history=True))) == ["Likes jam", "Likes tea"]
    await memory.flush()
    assert contents(await memory.records(include_history=True)) == ["Likes jam"]


async def test_a_newer_statement_supersedes_by_key_and_the_old_one_stays_as_history(
    clock: HandClock, open_memory: OpenMemory
) -> None:
    memory = open_memory()
    rome = await memory.remember("Lives in Rome", key="home", at=clock.now - timedelta(days=100))
    oslo = await memory.remember("Lives in Oslo", key="home", at=clock.now - timedelta(days=10))
    assert contents(await memory.recall("Lives in")) == ["Lives in Oslo"]
    assert contents(await memory.records()) == ["Lives in Oslo"]
    assert await memory.record(rome.id) is None
    assert contents(await memory.history("home")) == ["Lives in Oslo", "Lives in Rome"]
    assert contents(await memory.history(rome.id)) == ["Lives in Oslo", "Lives in Rome"]
    assert (await memory.history(rome.id))[1].superseded_by == oslo.id
    assert contents(await memory.records(include_history=True)) == ["Lives in Oslo", "Lives in Rome"]
    believed = await memory.recall("Lives in", at=clock.now - timedelta(days=50))
    assert contents(believed) == ["Lives in Rome"]
    assert contents(await memory.recall("Lives in", at=clock.now - timedelta(days=500))) == []
    assert await memory.history("no such thing") == []


async def test_records_are_newest_first_in_pages(clock: HandClock, open_memory: OpenMemory) -> None:
    memory = open_memory()
    for number in range(7):
        await memory.remember(f"fact {number}")
        clock.move(seconds=1)
    assert contents(await memory.records(limit=3)) == ["fact 6", "fact 5", "fact 4"]
    assert contents(await memory.records(limit=3, offset=5)) == ["fact 1", "fact 0"]


async def fill_for_forgetting(memory: PersistentMemory, clock: HandClock) -> dict[str, str]:
    ids = {}
    ids["old"] = (await memory.remember("Lives in Rome", key="home")).id
    clock.move(days=1)
    ids["new"] = (await memory.remember("Lives in Oslo", key="home")).id
    ids["tagged"] = (await memory.remember("ann@example.com is the mail", tags=["pii", "mail"])).id
    ids["kind"] = (await memory.remember("Likes tea", kind="preference", session="elsewhere")).id
    ids["said"] = (await memory.session.append("Ann", "write to ann@example.com")).id
    return ids


FORGETTING: list[tuple[dict[str, Any], set[str]]] = [
    ({"key": "home"}, {"new"}),
    ({"key": "home", "everywhere": True}, {"old", "new"}),
    ({"kinds": ["preference"]}, {"kind"}),
    ({"kinds": ["interaction"]}, {"said"}),
    ({"tags": ["pii", "mail"]}, {"tagged"}),
    ({"tags": ["pii", "other"]}, set()),
    ({"session": "elsewhere"}, {"kind"}),
    ({"session": "today"}, {"said"}),
    ({"containing": "ann@example.com"}, {"tagged"}),
    ({"containing": "ann@example.com", "everywhere": True}, {"tagged", "said"}),
    ({"containing": "ANN@Example.com"}, {"tagged"}),
    ({"containing": "ANN@Example.com", "everywhere": True}, {"tagged", "said"}),
    ({"containing": "similar to mail", "everywhere": True}, set()),
    ({"kinds": ["fact"], "containing": "Oslo"}, {"new"}),
]


async def test_forget_deletes_by_identity_for_good(clock: HandClock, open_memory: OpenMemory, namespace: str) -> None:
    for number, (selectors, gone) in enumerate(FORGETTING):
        memory = open_memory(f"{namespace}/{number}", session="today")
        ids = await fill_for_forgetting(memory, clock)
        assert await memory.forget(**selectors) == len(gone), selectors
        left = {record.id for record in await memory.records(include_history=True)}
        assert {name for name, id in ids.items() if id not in left} == gone, selectors
        assert await memory.forget(**selectors) == 0, selectors


async def test_forget_by_id_reaches_whatever_has_it(memory: PersistentMemory, clock: HandClock) -> None:
    ids = await fill_for_forgetting(memory, clock)
    assert await memory.forget(ids["said"]) == 1
    assert await memory.forget(id=ids["tagged"], kinds=["preference"]) == 0
    assert await memory.forget(id=ids["tagged"]) == 1
    assert await memory.forget("no-such-id") == 0
    assert await memory.forget(ids["new"], everywhere=True) == 2


async def test_forget_before_a_time(clock: HandClock, open_memory: OpenMemory) -> None:
    memory = open_memory()
    await memory.remember("older")
    clock.move(days=1)
    await memory.remember("newer")
    assert await memory.forget(before=clock.now) == 1
    assert contents(await memory.records()) == ["newer"]


async def test_add_takes_text_markdown_and_json_and_query_gives_them_back(profile: ProfileMemory) -> None:
    mine = {"kind": "mine", "score": "mine", "nested": {"a": [1, {"b": None}]}}
    document = {"theme": "dark", "sizes": [1, 2.5], "nested": {"on": True, "off": None}}
    text = MemoryContent(content="Likes green tea", mime_type=MemoryMimeType.TEXT, metadata=mine)
    await profile.add(text)
    await profile.add(MemoryContent(content="# Rules\n\n- no sugar", mime_type="text/markdown"))
    await profile.add(MemoryContent(content=document, mime_type=MemoryMimeType.JSON))
    assert text.metadata == mine == {"kind": "mine", "score": "mine", "nested": {"a": [1, {"b": None}]}}

    (tea,) = (await profile.query("green tea", limit=1)).results
    assert tea.content == "Likes green tea"
    assert tea.metadata is not None
    assert tea.metadata["nested"] == mine["nested"]
    assert tea.metadata["kind"] == "fact"
    for name, kind in {"score": float, "id": str, "kind": str, "created_at": str}.items():
        assert type(tea.metadata[name]) is kind
    record = await profile.record(tea.metadata["id"])
    assert record is not None
    assert record.metadata == mine
    (rules,) = (await profile.query(MemoryContent(content="rules sugar", mime_type="text/plain"), limit=1)).results
    assert (rules.content, rules.mime_type) == ("# Rules\n\n- no sugar", MemoryMimeType.MARKDOWN)
    (settings,) = (await profile.query("theme dark", limit=1)).results
    assert (settings.content, settings.mime_type) == (document, MemoryMimeType.JSON)


async def test_an_agent_remembers_what_was_said_once(open_memory: OpenMemory) -> None:
    async with open_memory(session="monday") as memory:
        await say(memory, "My name is Sarah and I prefer TypeScript.")
        await say(memory, "We decided to use SQLite because it needs no server.")
    async with open_memory(session="friday") as memory:
        seen = await say(memory, "Which language do I prefer for the example?")
        assert any("The user prefers TypeScript." in text for text in seen)
        await memory.flush()
        said = [(record.source, record.content) for record in await memory.session.messages()]
        assert said == [
            ("user", "Which language do I prefer for the example?"),
            ("assistant", "Thank you for telling me that."),
        ]
        monday = await memory.records(session="monday", kinds=["interaction"])
        assert len(monday) == 4
        context = UnboundedChatCompletionContext([UserMessage(content="SQLite or not?", source="user")])
        shown = (await memory.profile.update_context(context)).memories.results
        assert any("SQLite" in str(content.content) for content in shown)
        assert "SQLite" in await memory.context("SQLite or not?")


async def test_a_stream_and_a_transcript_are_captured_once(open_memory: OpenMemory) -> None:
    async with open_memory(session="s") as memory:
        agent = AssistantAgent(
            "assistant", model_client=ReplayChatCompletionClient(["Lisbon is a nice place."]), memory=[memory]
        )
        async for _ in memory.observe(agent.run_stream(task="I moved to Lisbon.")):
            pass
        await memory.extract("I am allergic to nuts.")
        await memory.extract("I am allergic to nuts.")
        assert contents(await memory.session.messages()) == [
            "I moved to Lisbon.",
            "Lisbon is a nice place.",
            "I am allergic to nuts.",
        ]
        assert sorted(contents(await memory.profile.records())) == [
            "The user is allergic to nuts.",
            "The user moved to Lisbon.",
        ]


def team_of_two() -> RoundRobinGroupChat:
    agents = [AssistantAgent(name, model_client=ReplayChatCompletionClient(["Yes."] * 9)) for name in ("ann", "bob")]
    return RoundRobinGroupChat(list(agents), termination_condition=MaxMessageTermination(3))


async def test_conversations_are_listed_resumed_and_deleted(open_memory: OpenMemory) -> None:
    async with open_memory(session="work") as memory:
        team = team_of_two()
        async with memory.session.saving(team):
            async for _ in memory.observe(team.run_stream(task="Shall we go on?")):
                pass
        await memory.session.save(team)
    async with open_memory(session="work") as memory:
        await open_memory(session="other").session.append("ann", "hello there")
        info = {session.name: session for session in await memory.sessions()}
        assert set(info) == {"work", "other"}
        assert (info["work"].speakers, info["work"].messages, info["work"].resumable) == (
            ("user", "ann", "bob"),
            3,
            True,
        )
        team = team_of_two()
        assert await memory.session.load(team)
        assert "Shall we go on?" in str(await team.save_state())
        assert await memory.delete_session("work") == 3
        assert [session.name for session in await memory.sessions()] == ["other"]
        assert not await memory.session.load(team)


async def test_a_memory_is_dumped_and_loaded_with_its_store(open_memory: OpenMemory, make_store: Make) -> None:
    async with open_memory(session="s") as memory:
        await memory.remember("Likes tea")
        parts = (memory, memory.profile, memory.session)
        copies = [type(part).load_component(part.dump_component()) for part in parts]
        await memory.session.append("ann", "tea is what I like")
        for copy in copies:
            assert (await copy.recall("tea")).hits
            await copy.close()


async def test_every_memory_opens_at_once_and_again_after_it_was_closed(make_store: Make, namespace: str) -> None:
    memory = PersistentMemory(namespace, session="today", store=make_store(), embedding=words())
    for part in (memory, memory.profile, memory.session):
        await part.open()
        await part.open()
        await part.close()
    await memory.open()
    await memory.remember("Likes tea")
    await memory.close()


async def test_vectors_are_made_anew_for_another_embedding(make_store: Make, namespace: str) -> None:
    async with ProfileMemory(namespace, store=make_store(), embedding=words("old")) as profile:
        await profile.remember_many(["Likes tea", "Lives in Oslo"])
    profile = ProfileMemory(namespace, store=make_store(), embedding=words("new"))
    assert await profile.reembed(progress=False) == 2
    async with profile:
        assert contents(await profile.recall("tea", limit=1)) == ["Likes tea"]


async def test_a_namespace_is_compacted_without_losing_anything(memory: PersistentMemory) -> None:
    kept = await memory.remember("Likes tea")
    await memory.remember_many([f"fact {number}" for number in range(30)])
    await memory.forget(containing="fact")
    assert await memory.compact(progress=False) == 1
    assert (await memory.recall("tea")).hits[0].record == kept


def test_every_method_of_every_memory_is_in_this_suite() -> None:
    files = (Path(__file__), Path(autogen_persistent_memory.__file__).with_name("testing") / "conformance.py")
    suite = "".join(path.read_text(encoding="utf-8") for path in files)
    ours = {
        name
        for memory in (PersistentMemory, ProfileMemory, SessionMemory)
        for name, _ in inspect.getmembers(memory, inspect.isfunction)
        if not name.startswith("_")
    }
    elsewhere = {"import_chroma", "edit"}  # of a folder of its own; on all stores in tests/test_editing.py
    assert [name for name in sorted(ours - elsewhere) if not re.search(rf"\.{name}\(", suite)] == []
