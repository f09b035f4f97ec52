"""A memory is edited in place."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from conftest import MakeStore
from toys import HandClock, words

from autogen_persistent_memory import (
    PersistentMemory,
    PersistentMemoryError,
    ProfileMemory,
    RecallPolicy,
    TemporaryStore,
)


async def test_an_edited_memory_keeps_its_id_and_is_found_by_its_new_text(
    make_store: MakeStore, namespace: str
) -> None:
    async with ProfileMemory(namespace, store=make_store(), embedding=words()) as memory:
        record = await memory.remember("Lives in Berlin", tags=["home"], metadata={"by": "form"})
        await memory.remember("Has two cats")
        edited = await memory.edit(record.id, content="Lives in Lisbon")
        assert (edited.id, edited.content, edited.created_at) == (record.id, "Lives in Lisbon", record.created_at)
        assert (edited.tags, edited.metadata) == (("home",), {"by": "form"})
        assert edited.updated_at > record.updated_at
        assert await memory.record(record.id) == edited
    async with ProfileMemory(namespace, store=make_store(), embedding=words()) as memory:
        assert await memory.record(record.id) == edited
        (best, *_) = await memory.recall("Lisbon")
        assert (best.record.id, best.cosine > 0.4) == (record.id, True)
        assert await memory.count() == 2


async def test_an_edited_memory_is_no_longer_found_by_its_old_words(profile: ProfileMemory) -> None:
    record = await profile.remember("Lives in Berlin")
    await profile.recall("Berlin")
    await profile.edit(record.id, content="Lives in Lisbon")
    (hit,) = await profile.recall("Berlin")
    assert hit.keywords == 0
    (hit,) = await profile.recall("Lisbon")
    assert hit.keywords > 0


async def test_edits_of_kind_and_pinning_change_the_expiry(clock: HandClock) -> None:
    profile = ProfileMemory("user-42", store=TemporaryStore(), embedding=words())
    record = await profile.remember("Is in Lisbon this week", kind="temporary", tags=["where"])
    assert record.expires_at == clock.now + timedelta(days=7)
    clock.move(days=1)
    assert (await profile.edit(record.id, tags=[])).tags == ()
    assert (await profile.edit(record.id, tags=["a", "b"])).expires_at == record.expires_at
    assert (await profile.edit(record.id, kind="context")).expires_at == clock.now + timedelta(days=30)
    assert (await profile.edit(record.id, pinned=True)).expires_at is None
    clock.move(days=100)
    assert (await profile.edit(record.id, pinned=False)).expires_at == clock.now + timedelta(days=30)
    fact = await profile.edit(record.id, kind="fact")
    assert (fact.expires_at, fact.tags, fact.content) == (None, ("a", "b"), "Is in Lisbon this week")


async def test_a_memory_edited_to_a_key_supersedes_the_one_that_had_it(profile: ProfileMemory) -> None:
    old = await profile.remember("Lives in Berlin", key="home")
    new = await profile.remember("Moved to the sea")
    await profile.edit(new.id, key="home")
    assert [record.id for record in await profile.records()] == [new.id]
    assert [(record.id, record.superseded_by) for record in await profile.history("home")] == [
        (new.id, None),
        (old.id, new.id),
    ]
    assert (await profile.edit(new.id, key="")).key is None
    assert [record.id for record in await profile.history(new.id)] == [new.id, old.id]


async def test_the_message_of_an_edited_fact_does_not_restore_it() -> None:
    policy = RecallPolicy(min_similarity=0.5, kind_min_similarity={})
    memory = PersistentMemory("user-42", store=TemporaryStore(), embedding=words(), policy=policy)
    (fact,) = await memory.extract("I live in Berlin, near the old harbour with the big red lighthouse.")
    await memory.edit(fact.id, content="Drinks green tea daily")
    block = await memory.context("Do I live near the old harbour with the big red lighthouse in Berlin?")
    assert block == ""
    assert await memory.forget(fact.id, everywhere=True) == 2


async def test_edits_are_redacted(profile: ProfileMemory) -> None:
    record = await profile.remember("Has a key")
    edited = await profile.edit(record.id, content="The key is sk-proj-abcdefghijklmnopqrstuvwxyz123456")
    assert "REDACTED" in edited.content
    assert "abcdefghijklmnop" not in edited.content


async def test_captured_messages_cannot_be_edited(memory: PersistentMemory) -> None:
    message = await memory.session.append("user", "Shall we use SQLite for the shop?")
    with pytest.raises(PersistentMemoryError, match="stays as it was said"):
        await memory.edit(message.id, content="Shall we use PostgreSQL?")
    assert (await memory.edit(message.id, tags=["db"])).tags == ("db",)
    assert [record.content for record in await memory.session.messages()] == ["Shall we use SQLite for the shop?"]


async def test_json_stays_json(profile: ProfileMemory) -> None:
    from autogen_core.memory import MemoryContent, MemoryMimeType

    await profile.add(MemoryContent(content={"theme": "dark"}, mime_type=MemoryMimeType.JSON))
    (record,) = await profile.records()
    for bad in ("dark", "[1]"):
        with pytest.raises(PersistentMemoryError, match="JSON object"):
            await profile.edit(record.id, content=bad)
    assert (await profile.edit(record.id, content='{"theme": "light"}')).content == '{"theme": "light"}'


async def test_an_unknown_or_outdated_memory_and_an_edit_of_nothing_are_refused(profile: ProfileMemory) -> None:
    old = await profile.remember("Lives in Berlin", key="home")
    await profile.remember("Lives in Lisbon", key="home")
    for id in ("nothing", old.id):
        with pytest.raises(PersistentMemoryError, match="no current memory"):
            await profile.edit(id, kind="fact")
    with pytest.raises(ValueError, match="needs to know what to change"):
        await profile.edit(old.id)
    for bad in ({"content": " "}, {"kind": ""}, {"tags": "a"}, {"pinned": 1}, {"key": " "}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            await profile.edit(old.id, **bad)  # type: ignore[arg-type]


async def test_edits_of_different_fields_at_once_are_all_kept(profile: ProfileMemory) -> None:
    record = await profile.remember("Lives in Berlin")
    await asyncio.gather(
        profile.edit(record.id, content="Lives in Lisbon"),
        profile.edit(record.id, tags=["home"]),
        profile.edit(record.id, pinned=True),
        profile.edit(record.id, kind="preference"),
    )
    (now,) = await profile.records()
    assert (now.content, now.tags, now.pinned, now.kind) == ("Lives in Lisbon", ("home",), True, "preference")


async def test_a_dry_run_of_forget_counts_and_deletes_nothing(memory: PersistentMemory) -> None:
    await memory.remember_many(["Has two cats", "Has a dog", "Likes tea"])
    assert await memory.forget(containing="Has", dry_run=True) == 2
    assert await memory.count() == 3
    assert await memory.forget(containing="Has") == 2


async def test_redaction_can_be_disabled() -> None:
    policy = RecallPolicy(redact=False)
    profile = ProfileMemory("user-42", store=TemporaryStore(), embedding=words(), policy=policy)
    record = await profile.remember("Has a key")
    key = "The key is sk-proj-abcdefghijklmnopqrstuvwxyz123456"
    assert (await profile.edit(record.id, content=key)).content == key
