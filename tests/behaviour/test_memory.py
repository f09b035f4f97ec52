"""The explicit methods of the memories, in the order of the acceptance list."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken, Image
from autogen_core.memory import MemoryContent, MemoryMimeType
from PIL import Image as Picture
from toys import HandClock, words

from autogen_persistent_memory import (
    CloudStore,
    EmbeddedStore,
    MemoryRecord,
    PersistentMemory,
    ProfileMemory,
    RecallPolicy,
    ServerStore,
    SessionMemory,
    StoreUnavailableError,
    TemporaryStore,
)
from autogen_persistent_memory.core.records import draft


def contents(records: Any) -> list[str]:
    return [getattr(record, "record", record).content for record in records]


async def test_remember_returns_the_stored_record(profile: ProfileMemory) -> None:
    record = await profile.remember("Likes tea", kind="preference", tags=["drink", "drink"], metadata={"a": [1]})
    assert isinstance(record, MemoryRecord)
    assert (record.content, record.kind, record.tags) == ("Likes tea", "preference", ("drink",))
    assert (record.metadata, record.origin, record.uses) == ({"a": [1]}, "application", 0)
    assert record.created_at.tzinfo is timezone.utc
    assert await profile.record(record.id) == record


async def test_the_callers_metadata_is_copied_not_kept(profile: ProfileMemory) -> None:
    mine: dict[str, Any] = {"list": [1]}
    record = await profile.remember("Likes tea", metadata=mine)
    mine["list"].append(2)
    assert record.metadata == {"list": [1]}


BAD_REMEMBER: list[dict[str, Any]] = [
    {"content": ""},
    {"content": " \n\t "},
    {"content": "\ud800"},
    {"content": None},
    {"content": b"bytes"},
    {"content": "x", "kind": ""},
    {"content": "x", "kind": None},
    {"content": "x", "tags": "word"},
    {"content": "x", "tags": [""]},
    {"content": "x", "tags": [1]},
    {"content": "x", "tags": 5},
    {"content": "x", "ttl": 5},
    {"content": "x", "ttl": timedelta(0)},
    {"content": "x", "ttl": timedelta(days=-1)},
    {"content": "x", "ttl": timedelta.max},
    {"content": "x", "at": datetime.max.replace(tzinfo=timezone.utc)},
    {"content": "x", "at": datetime.min.replace(tzinfo=timezone(timedelta(hours=2)))},
    {"content": "x", "pinned": "yes"},
    {"content": "x", "key": " "},
    {"content": "x", "source": ""},
    {"content": "x", "session": "a/"},
    {"content": "x", "metadata": [1]},
    {"content": "x", "metadata": {1: 2}},
    {"content": "x", "metadata": {"a": ...}},
    {"content": "x", "metadata": {"a": "\udfff"}},
    {"content": "x", "at": datetime(2026, 1, 1)},
    {"content": "x", "at": "yesterday"},
]


@pytest.mark.parametrize("arguments", BAD_REMEMBER, ids=str)
async def test_bad_arguments_are_refused_and_nothing_is_stored(arguments: dict[str, Any]) -> None:
    memory = ProfileMemory("user-42", store=TemporaryStore(), embedding=words())
    with pytest.raises(ValueError, match=r"\w"):
        await memory.remember(**arguments)
    with pytest.raises(ValueError, match="Item 1"):
        await memory.remember_many(["good", arguments])
    assert await memory.count() == 0


@pytest.mark.parametrize(
    "items",
    [[{"content": "x", "colour": "red"}], [5], [{"kind": "fact"}], [None]],
    ids=["unknown", "5", "no content", "None"],
)
async def test_remember_many_refuses_unknown_fields(profile: ProfileMemory, items: list[Any]) -> None:
    with pytest.raises(ValueError, match="Item 0"):
        await profile.remember_many(items)


BAD_RECALL: list[dict[str, Any]] = [
    {"query": ""},
    {"query": None},
    {"query": "x", "limit": 0},
    {"query": "x", "limit": -1},
    {"query": "x", "limit": True},
    {"query": "x", "limit": 1.5},
    {"query": "x", "limit": 2**40},
    {"query": "x", "kinds": []},
    {"query": "x", "tags": []},
    {"query": "x", "reinforce": "yes"},
    {"query": "x", "kinds": "fact"},
    {"query": "x", "min_score": 2},
    {"query": "x", "min_score": "high"},
    {"query": "x", "max_tokens": 0},
    {"query": "x", "at": datetime(2026, 1, 1)},
    {"query": "x", "session": ""},
]


@pytest.mark.parametrize("arguments", BAD_RECALL, ids=str)
async def test_bad_recalls_are_refused(profile: ProfileMemory, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        await profile.recall(**arguments)
    if arguments != {"query": ""}:  # an arbitrary one
        with pytest.raises(ValueError, match=r"\w"):
            await profile.query(**arguments)


async def test_unknown_keywords_are_refused(profile: ProfileMemory) -> None:
    with pytest.raises(ValueError, match="does not take colour; it takes limit"):
        await profile.query("x", colour="red")
    with pytest.raises(ValueError, match="does not take colour; it takes limit"):
        await profile.recall_many(["x"], colour="red")
    with pytest.raises(ValueError, match="limit"):
        await profile.records(limit=-1)
    with pytest.raises(ValueError, match="offset"):
        await profile.records(offset=-1)


async def test_recall_is_best_first_with_the_parts_of_each_score(memory: PersistentMemory) -> None:
    await memory.remember_many(["Likes green tea", "Likes green apples", "Lives in Oslo"])
    found = await memory.recall("green tea", limit=2)
    assert contents(found) == ["Likes green tea", "Likes green apples"]
    assert len(found) == 2
    first, second = found.hits
    assert 1 >= first.score > second.score >= 0
    assert first.score == pytest.approx(0.6 * first.similarity + 0.2 * first.recency + 0.2 * first.frequency)


async def test_the_text_of_a_recall_is_a_list(memory: PersistentMemory) -> None:
    assert (await memory.recall("tea")).text == "No relevant memories found."
    await memory.remember("Likes\ngreen tea")
    found = await memory.recall("tea")
    assert found.text == "- Likes green tea"
    assert found.tokens > 0


async def test_remember_many_shows_progress(profile: ProfileMemory) -> None:
    seen: list[tuple[int, int]] = []
    await profile.remember_many((f"fact {number}" for number in range(150)), progress=lambda *at: seen.append(at))
    assert seen == [(64, 150), (128, 150), (150, 150)]


LIFETIMES = [
    ("preference", None),
    ("decision", None),
    ("fact", None),
    ("lesson", None),
    ("interaction", None),
    ("hobby", None),
    ("context", 30),
    ("temporary", 7),
]


@pytest.mark.parametrize(("kind", "days"), LIFETIMES)
async def test_each_kind_has_its_own_ttl(kind: str, days: int | None, clock: HandClock) -> None:
    memory = ProfileMemory("ann", store=TemporaryStore(), embedding=words())
    record = await memory.remember("Likes tea", kind=kind)
    assert record.expires_at == (None if days is None else clock.now + timedelta(days=days))


async def test_expired_memories_are_deleted_automatically(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autogen_persistent_memory.runtime.background_task._QUIET_SECONDS", 0)
    policy = RecallPolicy(sweep_interval=timedelta(minutes=10))
    memory = ProfileMemory("ann", store=TemporaryStore(), embedding=words(), policy=policy)
    await memory.remember("Likes tea", ttl=timedelta(minutes=1))
    clock.move(minutes=11)
    await memory.recall("anything")
    await asyncio.sleep(0.01)
    await asyncio.gather(*memory._engine._tasks)
    assert await memory._engine.data.table("profile").size() == 0


async def test_ttls_are_configurable_and_start_at_the_time_of_writing(clock: HandClock) -> None:
    policy = RecallPolicy(lifetimes={"interaction": timedelta(days=90)})
    memory = PersistentMemory("ann", session="s", store=TemporaryStore(), embedding=words(), policy=policy)
    old = await memory.session.append("Ann", "hello there", at=clock.now - timedelta(days=91))
    assert old.expires_at == clock.now - timedelta(days=1)
    assert await memory.session.messages() == []


async def test_near_duplicates_are_merged_only_if_they_mean_the_same(profile: ProfileMemory) -> None:
    await profile.remember_many(
        ["The user has 2 cats", "the user has 2 cats.", "The user has 3 cats", "The user has no cats"]
    )
    records = await profile.records()
    assert sorted(contents(records)) == ["The user has 2 cats", "The user has 3 cats", "The user has no cats"]
    again = await profile.remember("User has 2 cats!")
    assert (again.content, again.uses) == ("The user has 2 cats", 2)


async def test_recall_does_not_reinforce_by_default(memory: PersistentMemory) -> None:
    record = await memory.remember("Likes tea")
    await memory.recall("tea")
    await memory.query("tea")
    await memory.flush()
    assert (await memory.record(record.id)) == record
    await memory.query("tea", reinforce=True)
    await memory.flush()
    used = await memory.record(record.id)
    assert used is not None
    assert used.uses == 1
    assert (await memory.recall("tea")).hits[0].frequency > 0


async def test_forget_needs_a_selection(memory: PersistentMemory) -> None:
    with pytest.raises(ValueError, match="tags is an empty list"):
        await memory.forget(tags=[])
    for arguments in ({}, {"everywhere": True}):
        with pytest.raises(ValueError, match="needs a selector"):
            await memory.forget(**arguments)
    with pytest.raises(ValueError, match="timezone"):
        await memory.forget(before=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="blank"):
        await memory.forget(containing="")


async def test_set_none_deletes_and_keys_must_be_text(profile: ProfileMemory) -> None:
    await profile.set("a", 1)
    await profile.set("a", None)
    assert await profile.keys() == []
    for bad in ("", None, 5):
        with pytest.raises(ValueError, match="key"):
            await profile.set(bad, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="value"):
        await profile.set("a", {1, 2})


REFUSED = [
    MemoryContent(content=b"bytes", mime_type=MemoryMimeType.BINARY),
    MemoryContent(content=Image(Picture.new("RGB", (2, 2))), mime_type=MemoryMimeType.IMAGE),
    MemoryContent(content=b"bytes", mime_type=MemoryMimeType.TEXT),
    MemoryContent(content="not a dict", mime_type=MemoryMimeType.JSON),
    MemoryContent(content={"a": float("nan")}, mime_type=MemoryMimeType.JSON),
    MemoryContent(content="x", mime_type="text/html"),
    MemoryContent(content=" ", mime_type=MemoryMimeType.TEXT),
]


@pytest.mark.parametrize("content", REFUSED, ids=lambda content: f"{content.mime_type}")
async def test_images_bytes_and_invalid_contents_are_refused(profile: ProfileMemory, content: MemoryContent) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        await profile.add(content)
    assert await profile.count() == 0


async def test_a_cancelled_token_cancels(profile: ProfileMemory) -> None:
    token = CancellationToken()
    token.cancel()
    content = MemoryContent(content="x", mime_type=MemoryMimeType.TEXT)
    with pytest.raises(asyncio.CancelledError):
        await profile.add(content, cancellation_token=token)
    with pytest.raises(asyncio.CancelledError):
        await profile.query("x", cancellation_token=token)
    assert await profile.count() == 0


async def test_contents_added_to_a_session_belong_to_it(memory: PersistentMemory, memory_store: TemporaryStore) -> None:
    session = memory.session
    await session.add(MemoryContent(content="hello there", mime_type=MemoryMimeType.TEXT))
    (message,) = await session.messages()
    assert (message.kind, message.session) == ("interaction", "today")
    with pytest.raises(ValueError, match="of the session 'today' alone"):
        await session.recall("hello there", session="tomorrow")
    other = SessionMemory("user-42", "tomorrow", store=memory_store, embedding=words())
    assert (await other.query("hello there")).results == []
    with pytest.raises(ValueError, match="blank"):
        await session.append("Ann", "")
    with pytest.raises(ValueError, match="source"):
        await session.append("", "hello")


async def test_without_a_name_a_session_is_new() -> None:
    one, other = PersistentMemory("ann"), PersistentMemory("ann")
    assert one.session.session != other.session.session
    assert f"{datetime.now(timezone.utc):%Y}" in one.session.session


def test_constructing_a_memory_does_no_io(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.stat", lambda *a, **k: pytest.fail("looked at the disk"))
    monkeypatch.setattr("os.mkdir", lambda *a, **k: pytest.fail("made a folder"))
    PersistentMemory("user-42")
    ProfileMemory("user-42", store=EmbeddedStore("/nonexistent/folder"))
    monkeypatch.undo()
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [{"store": "folder"}, {"embedding": "minilm"}, {"policy": {"limit": 3}}, {"extractor": "x"}, {"capture": "x"}],
    ids=["store", "embedding", "policy", "extractor", "capture"],
)
def test_a_wrong_constructor_argument_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        PersistentMemory("user-42", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"min_score": 2},
        {"deadline": 0},
        {"placement": "middle"},
        {"colour": "red"},
        {"query": " "},
        {"lifetimes": {"fact": timedelta(-1)}},
        {"guard_words": ("x",)},
    ],
    ids=str,
)
def test_an_invalid_policy_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        RecallPolicy(**options)


async def test_close_twice_and_use_again(tmp_path: Any) -> None:
    memory = PersistentMemory("ann", store=EmbeddedStore(tmp_path / "s"), embedding=words())
    await memory.close()
    await memory.flush()
    await memory.remember("Likes tea")
    await memory.close()
    await memory.close()
    assert await memory.count() == 1
    await memory.close()


def test_one_memory_serves_several_event_loops_one_after_another(tmp_path: Any) -> None:
    memory = PersistentMemory("ann", store=EmbeddedStore(tmp_path / "s"), embedding=words())

    async def use(number: int) -> int:
        await asyncio.gather(*(memory.remember(f"fact {number} {other}") for other in range(3)))
        return await memory.count()

    assert [asyncio.run(use(number)) for number in range(3)] == [3, 6, 9]
    asyncio.run(memory.close())


async def test_memories_of_one_process_share_a_store_and_the_last_one_closes_it(tmp_path: Any) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    one = PersistentMemory("ann", store=EmbeddedStore(tmp_path / "real"), embedding=words())
    other = PersistentMemory("ann", store=EmbeddedStore(tmp_path / "link"), embedding=words())
    await one.remember("Likes tea")
    assert await other.count() == 1
    await one.close()
    await other.remember("Likes jam")
    await other.close()
    async with PersistentMemory("ann", store=EmbeddedStore(tmp_path / "real"), embedding=words()) as again:
        assert await again.count() == 2


async def test_a_store_may_be_closed_and_opened_at_the_same_time(tmp_path: Any) -> None:
    async def use(number: int) -> None:
        for turn in range(5):
            async with PersistentMemory("ann", store=EmbeddedStore(tmp_path / "s"), embedding=words()) as memory:
                await memory.remember(f"fact {number} {turn}")

    await asyncio.gather(*(use(number) for number in range(4)))
    async with PersistentMemory("ann", store=EmbeddedStore(tmp_path / "s"), embedding=words()) as memory:
        assert await memory.count() == 20


async def test_the_default_path_is_in_the_home_or_named_by_the_environment(
    home: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PersistentMemory("ann", embedding=words()) as memory:
        await memory.remember("Likes tea")
    assert (home / ".autogen_memory" / "chroma.sqlite3").is_file()
    monkeypatch.setenv("AUTOGEN_MEMORY_PATH", str(tmp_path / "elsewhere"))
    async with PersistentMemory("ann", embedding=words()) as memory:
        assert await memory.count() == 0
        await memory.remember("Likes tea")
    assert (tmp_path / "elsewhere" / "chroma.sqlite3").is_file()


async def test_a_failing_embedding_loses_nothing_and_reports_the_reason() -> None:
    def fail(texts: list[str]) -> list[list[float]]:
        raise OSError("quota exceeded")

    from autogen_persistent_memory import CallableEmbedding

    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=CallableEmbedding(fail, id="x"))
    with pytest.raises(Exception, match="quota exceeded"):
        await memory.remember("Likes tea")
    assert await memory.count() == 0
    assert not issubclass(StoreUnavailableError, OSError)


@pytest.mark.parametrize("items", ["text", {"content": "x"}, None, 5])
async def test_remember_many_needs_a_list(profile: ProfileMemory, items: Any) -> None:
    with pytest.raises(ValueError, match="list"):
        await profile.remember_many(items)
    with pytest.raises(ValueError, match="list"):
        await profile.recall_many(items)


async def test_wrong_types_of_contents_and_paths_are_refused(profile: ProfileMemory) -> None:
    for bad in ("text", None):
        with pytest.raises(ValueError, match="MemoryContent"):
            await profile.add(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="path"):
        EmbeddedStore(5)  # type: ignore[arg-type]


async def test_a_relative_path_is_resolved_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    memory = PersistentMemory("ann", store=EmbeddedStore("mem"), embedding=words())
    await memory.remember("Likes tea")
    await memory.close()
    monkeypatch.chdir(second)
    assert await memory.count() == 1
    await memory.close()
    async with PersistentMemory("ann", store=EmbeddedStore(first / "mem"), embedding=words()) as again:
        assert await again.count() == 1
    assert os.listdir(second) == []


async def test_two_objects_on_one_session_keep_one_order() -> None:
    store = TemporaryStore()
    one, other = (SessionMemory("ann", "s", store=store, embedding=words()) for _ in range(2))
    for number, memory in enumerate([one, one, other, other, other, one, one]):
        await memory.append("Ann", f"message {number}")
    messages = await one.messages()
    assert contents(messages) == [f"message {number}" for number in range(7)]
    assert [message.sequence for message in messages] == list(range(1, 8))


def test_loops_in_several_threads_do_not_make_duplicates() -> None:
    store = TemporaryStore()

    async def tell() -> None:
        memory = PersistentMemory("ann", store=store, embedding=words())
        for number in range(8):
            await memory.remember(f"fact {number}")

    threads = [threading.Thread(target=lambda: asyncio.run(tell())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert asyncio.run(PersistentMemory("ann", store=store, embedding=words()).count()) == 8


async def test_many_speakers_may_say_the_same_and_restate_it(profile: ProfileMemory) -> None:
    for _ in range(2):
        for number in range(12):
            await profile.remember("I like tea", source=f"speaker {number}")
    assert {record.uses for record in await profile.records()} == {1}
    assert await profile.count() == 12


async def test_a_statement_with_a_future_date_counts_immediately(clock: HandClock) -> None:
    memory = ProfileMemory("ann", store=TemporaryStore(), embedding=words())
    await memory.remember("Lives in Rome", key="home")
    await memory.remember("Lives in Oslo", key="home", at=clock.now + timedelta(seconds=2))
    assert contents(await memory.recall("Lives in")) == ["Lives in Oslo"]
    await memory.remember("Lives in Bonn", key="home", at=clock.now + timedelta(seconds=3))
    clock.move(seconds=5)
    assert contents(await memory.records()) == ["Lives in Bonn"]


async def test_recall_at_a_time_between_two_statements(clock: HandClock) -> None:
    memory = ProfileMemory("ann", store=TemporaryStore(), embedding=words())

    def days_ago(days: float) -> datetime:
        return clock.now - timedelta(days=days)

    for town, days in (("Rome", 5), ("Rome", 1), ("Oslo", 3)):
        await memory.remember(f"Lives in {town}", key="home", at=days_ago(days))
    for days, town in ((4, "Rome"), (2, "Oslo"), (0, "Rome")):
        assert contents(await memory.recall("Lives in", at=days_ago(days))) == [f"Lives in {town}"]
    assert contents(await memory.history("home")) == ["Lives in Rome", "Lives in Oslo"]


async def test_large_values_may_be_set_and_read_at_the_same_time(profile: ProfileMemory) -> None:
    texts = [letter * 2_500_000 for letter in "abcd"]
    await profile.set("big", texts[0])

    async def read() -> None:
        for _ in range(10):
            assert await profile.get("big") in texts

    await asyncio.gather(*(profile.set("big", text) for text in texts), read(), read())
    values = profile._engine.values._table
    assert await values.read(lambda collection: collection.count(), 0) == 3  # type: ignore[attr-defined]
    await profile.clear()
    assert await values.read(lambda collection: collection.count(), 0) == 0  # type: ignore[attr-defined]


async def test_being_cancelled_in_the_middle_leaves_one_current_memory(profile: ProfileMemory) -> None:
    await profile.remember("Lives in town 0", key="home")
    for number in range(1, 15):
        telling = asyncio.ensure_future(profile.remember(f"Lives in town {number}", key="home"))
        await asyncio.sleep(0.002 * number)
        telling.cancel()
        await asyncio.wait({telling})
    await profile.remember("Lives in Oslo", key="home")
    assert contents(await profile.records()) == ["Lives in Oslo"]


async def test_counters_are_kept_until_they_are_written(
    profile: ProfileMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await profile.remember("Likes tea")
    await profile.recall("tea", reinforce=True)
    with monkeypatch.context() as patch:
        amend = "autogen_persistent_memory.storage.chroma.record_rows.ChromaRecordTable.amend"
        patch.setattr(amend, lambda *records, usage_only: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await profile.flush()
    await profile.flush()
    used = await profile.record(record.id)
    assert used is not None
    assert used.uses == 1


async def test_a_new_statement_wins_even_if_the_clock_is_behind(clock: HandClock) -> None:
    memory = ProfileMemory("ann", store=TemporaryStore(), embedding=words())
    await memory.remember("Lives in Rome", key="home")
    clock.move(seconds=-5)
    record = await memory.remember("Lives in Oslo", key="home")
    assert contents(await memory.records()) == ["Lives in Oslo"]
    await memory.remember("Lives in Bonn", key="home", at=clock.now + timedelta(days=1))
    await memory.remember("Lives in Lima", key="home")
    assert contents(await memory.records()) == ["Lives in Lima"]
    assert await memory.forget("home", everywhere=True) == 0
    assert await memory.forget(record.id, everywhere=True) == 4


async def test_closing_twice_at_once_and_while_writes_are_queued(tmp_path: Any) -> None:
    memory = PersistentMemory("ann", store=EmbeddedStore(tmp_path / "s"), embedding=words())
    for turn in range(15):
        writes = [asyncio.ensure_future(memory.set(f"key {number}", turn)) for number in range(4)]
        await asyncio.sleep(0.001 * turn)
        await asyncio.wait_for(asyncio.gather(memory.close(), memory.session.close()), 20)
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            assert outcome is None or "closed while it was still at work" in str(outcome)
    await memory.close()
    code = (
        "import sys; from autogen_persistent_memory.storage.folder_lock import *; FolderLock(Path(sys.argv[1])).take()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s")]
    assert await asyncio.to_thread(subprocess.call, command) == 0  # the lock is free


async def test_closing_waits_for_calls_under_way(tmp_path: Any) -> None:
    memory = PersistentMemory("ann", store=EmbeddedStore(tmp_path / "s"), embedding=words())
    await memory.remember_many(f"fact {number}" for number in range(50))
    recalls = [asyncio.ensure_future(memory.recall("fact")) for _ in range(8)]
    await asyncio.sleep(0.01)
    await memory.close()
    for outcome in await asyncio.gather(*recalls, return_exceptions=True):
        assert not isinstance(outcome, BaseException) or "closed while" in str(outcome)


async def test_clearing_while_a_large_value_is_set_leaves_nothing_broken(memory: PersistentMemory) -> None:
    setting = asyncio.ensure_future(memory.set("big", "v" * 2_000_000))
    await asyncio.sleep(0.02)
    await memory.clear()
    await setting
    assert await memory.get("big") in (None, "v" * 2_000_000)
    assert await memory.keys() in ([], ["big"])


async def test_a_holder_file_that_cannot_be_written_does_not_keep_the_lock(tmp_path: Any) -> None:
    (tmp_path / "s" / "autogen_memory.holder.json").mkdir(parents=True)
    memory = PersistentMemory("ann", store=EmbeddedStore(tmp_path / "s"), embedding=words())
    with pytest.raises(StoreUnavailableError):
        await memory.count()
    (tmp_path / "s" / "autogen_memory.holder.json").rmdir()
    assert await memory.count() == 0
    await memory.close()


async def test_messages_stored_together_are_numbered_in_order(memory: PersistentMemory) -> None:
    items = [{"content": f"message {number}", "kind": "interaction", "session": "s"} for number in range(5)]
    assert [record.sequence for record in await memory.remember_many(items)] == [1, 2, 3, 4, 5]
    assert [record.sequence for record in await memory.remember_many(items)] == [6, 7, 8, 9, 10]


async def test_sequence_numbers_continue_after_another_process_wrote(tmp_path: Any) -> None:
    first = SessionMemory("ann", "s", store=EmbeddedStore(tmp_path / "s"), embedding=words())
    await first.append("Ann", "one")
    await first.close()
    code = """
import asyncio, sys
from autogen_persistent_memory import *
from toys import words
async def main():
    async with SessionMemory("ann", "s", store=EmbeddedStore(sys.argv[1]), embedding=words()) as memory:
        for number in range(3):
            await memory.append("Bob", f"other {number}")
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))}
    command = [sys.executable, "-c", code, str(tmp_path / "s")]
    assert await asyncio.to_thread(subprocess.call, command, env=environment) == 0
    await first.append("Ann", "two")
    assert [message.sequence for message in await first.messages()] == [1, 2, 3, 4, 5]
    await first.close()


async def test_recalling_many_does_not_hold_up_the_loop(profile: ProfileMemory) -> None:
    await profile.remember_many(f"fact number {number} about tea" for number in range(300))
    await profile.remember("<" * 20_000 + " about tea")
    started = asyncio.get_running_loop().time()
    found = await profile.recall("about tea", limit=300, max_tokens=100_000)
    assert len(found) == 300
    assert asyncio.get_running_loop().time() - started < 3


async def test_a_blank_query_gives_the_newest_and_most_used_memories(clock: HandClock) -> None:
    async with PersistentMemory("ann", session="s", store=TemporaryStore(), embedding=words()) as memory:
        assert (await memory.query("")).results == []
        for number in range(4):
            await memory.remember(f"Owns item{number}", tags=["old"] if number < 2 else [])
            clock.move(days=15)
        await memory.remember("Lives in Berlin", key="home")
        await memory.remember("Lives in Lisbon", key="home")
        await memory.extract(["ok"])  # without a fact
        for _ in range(10):
            await memory.recall("Owns item0", limit=1, reinforce=True)
            await memory.flush()
        for blank in ("", " \n", MemoryContent(content="", mime_type=MemoryMimeType.TEXT)):
            found = [str(result.content) for result in (await memory.query(blank)).results]
            assert found[0] == "Owns item0"  # used ten times
            assert found[1:4] == ["Lives in Lisbon", "Owns item3", "Owns item2"]
            assert "Lives in Berlin" not in found
        assert len((await memory.query("", limit=2)).results) == 2
        (first, second) = (await memory.query("", tags=["old"])).results
        assert {first.content, second.content} == {"Owns item0", "Owns item1"}
        assert first.metadata is not None
        assert first.metadata["score"] > 0
        assert (await memory.session.query("")).results == []
        with pytest.raises(ValueError, match="does not take colour"):
            await memory.query("", colour="red")
        with pytest.raises(ValueError, match="limit"):
            await memory.query("", limit=0)
        for blank_query in ("", "  "):
            with pytest.raises(ValueError, match="blank"):
                await memory.recall(blank_query)


async def test_a_blank_query_of_a_session_gives_its_messages(memory: PersistentMemory) -> None:
    await memory.remember("Likes tea")
    await memory.session.append("user", "Shall we meet in the old harbour?")
    assert [result.content for result in (await memory.session.query("")).results] == [
        "Shall we meet in the old harbour?"
    ]
    assert len((await memory.query("")).results) == 2
    await memory.close()


async def test_a_blank_query_at_a_time_in_the_past(clock: HandClock) -> None:
    async with ProfileMemory("ann", store=TemporaryStore(), embedding=words()) as profile:
        await profile.remember("Lives in Berlin", key="home")
        clock.move(days=1)
        then = clock()
        clock.move(days=1)
        await profile.remember("Lives in Lisbon", key="home")
        assert [result.content for result in (await profile.query("", at=then)).results] == ["Lives in Berlin"]


async def test_a_kind_is_trimmed_and_lowercased(memory: PersistentMemory) -> None:
    record = await memory.remember("Likes tea", kind=" Preference\n")
    assert record.kind == "preference"
    assert [hit.content for hit in await memory.recall("tea", kinds=["PREFERENCE", "preference "])] == ["Likes tea"]
    assert contents(await memory.records(kinds=["Preference"])) == ["Likes tea"]
    assert (await memory.edit(record.id, kind="  Lesson")).kind == "lesson"
    with pytest.raises(ValueError, match="kind is empty or blank"):
        await memory.edit(record.id, kind=" ")
    assert await memory.forget(kinds=["LESSON"]) == 1
    await memory.session.append("user", "Shall we meet in the old harbour?")
    assert await memory.forget(kinds=["Interaction"]) == 1
    short = RecallPolicy(
        lifetimes={" Ticket ": timedelta(days=1)}, kind_bonus={"Ticket": 0.5}, kind_min_similarity={"TICKET": 0.9}
    )
    assert (short.lifetimes.keys(), short.kind_bonus.keys()) == ({"ticket"}, {"ticket"})
    assert short.least_similarity("ticket") == 0.9
    brief = ProfileMemory("ann", store=TemporaryStore(), embedding=words(), policy=short)
    assert (await brief.remember("Printer is jammed", kind="Ticket")).expires_at is not None
    await memory.close()
    await brief.close()


@pytest.mark.parametrize("stored", ["Decision", "DECISION", "decision"])
async def test_a_kind_stored_before_kinds_were_normalised_is_found(stored: str) -> None:
    async with ProfileMemory("ann", store=TemporaryStore(), embedding=words()) as profile:
        as_then = replace(draft("Uses PostgreSQL"), kind=stored)
        await profile._engine.remember("profile", [as_then])
        profile._engine.evict()  # so that it is read from the store
        assert [record.kind for record in await profile.records(kinds=["Decision"])] == ["decision"]
        assert [hit.record.kind for hit in await profile.recall("PostgreSQL", kinds=["decision"])] == ["decision"]
        assert await profile.forget(kinds=["decision"]) == 1


async def test_a_hit_has_the_content_of_its_memory(memory: PersistentMemory) -> None:
    await memory.remember("Likes tea")
    (hit,) = await memory.recall("tea")
    assert hit.content == hit.record.content == "Likes tea"
    await memory.close()


def test_memories_and_stores_have_a_repr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    server = ServerStore("chroma.example", 8001, True, token_env="SECRET_TOKEN", database="prod")
    assert repr(server) == "ServerStore('chroma.example', 8001, ssl=True, database='prod')"
    assert repr(ServerStore()) == "ServerStore('localhost', 8000)"
    assert repr(EmbeddedStore(tmp_path)) == f"EmbeddedStore({str(tmp_path)!r})"
    assert repr(EmbeddedStore()) == "EmbeddedStore('~/.autogen_memory')"
    assert repr(CloudStore("acme", api_key_env="SECRET_TOKEN")) == "CloudStore(tenant='acme')"
    assert repr(TemporaryStore("x")) == "TemporaryStore('x')"
    store = TemporaryStore("x")
    memory = PersistentMemory("user-42", session="monday", store=store)
    assert repr(memory) == "PersistentMemory('user-42', session='monday', store=TemporaryStore('x'))"
    assert repr(memory.profile) == "ProfileMemory('user-42', store=TemporaryStore('x'))"
    assert repr(memory.session) == "SessionMemory('user-42', 'monday', store=TemporaryStore('x'))"
    assert "hunter2" not in repr(ProfileMemory("ann", store=server))
    assert not (tmp_path / "chroma.sqlite3").exists()
