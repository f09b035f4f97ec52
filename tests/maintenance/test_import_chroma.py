"""Import the memories of AutoGen's own `ChromaDBVectorMemory`."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_ext.memory.chromadb import (
    ChromaDBVectorMemory,
    CustomEmbeddingFunctionConfig,
    PersistentChromaDBVectorMemoryConfig,
)
from autogen_ext.models.replay import ReplayChatCompletionClient
from chromadb.api.shared_system_client import SharedSystemClient
from toys import HandClock, chroma_words, words

from autogen_persistent_memory import (
    EmbeddedStore,
    PersistentMemory,
    ProfileMemory,
    StoreLockedError,
    StoreUnavailableError,
    TemporaryStore,
)
from autogen_persistent_memory.storage.chroma.rows import collection_name

NAME = "prefs"


def theirs(folder: Path, collection: str = NAME) -> ChromaDBVectorMemory:
    config = PersistentChromaDBVectorMemoryConfig(
        collection_name=collection,
        persistence_path=str(folder),
        embedding_function_config=CustomEmbeddingFunctionConfig(function=chroma_words),
    )
    return ChromaDBVectorMemory(config)


def text(content: str, **metadata: Any) -> MemoryContent:
    return MemoryContent(content=content, mime_type=MemoryMimeType.TEXT, metadata=metadata)


async def write(folder: Path, contents: Sequence[MemoryContent], collection: str = NAME) -> None:
    """Write with ChromaDBVectorMemory, and close Chroma, which it does not do itself."""
    memory = theirs(folder, collection)
    for content in contents:
        await memory.add(content)
    memory._ensure_initialized()
    client = memory._client
    await memory.close()
    client.close()  # type: ignore[union-attr]


def files(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def in_folder(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def hold(folder: Path) -> subprocess.Popen[str]:
    """Start another process that has the folder open as its embedded store."""
    code = (
        "import sys; from pathlib import Path; from autogen_persistent_memory.storage.folder_lock import FolderLock;"
        "mine = FolderLock(Path(sys.argv[1])); mine.take(); print('taken', flush=True); sys.stdin.read()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "chroma_db"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, which must be empty afterwards."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


async def test_everything_is_imported_in_order_and_the_source_is_unchanged(
    folder: Path, scratch: Path, profile: ProfileMemory
) -> None:
    given = [
        text("Prefers Celsius", category="preferences", weight=3, share=0.5, sure=True, words=["a", "b"]),
        text("Ünïcode 🙂 שלום\n second line "),
        MemoryContent(content="# Rules\n- be brief", mime_type=MemoryMimeType.MARKDOWN, metadata={"lang": "en"}),
        MemoryContent(content={"City": "Rome", "Zip": [1, 2]}, mime_type=MemoryMimeType.JSON),
    ]
    await write(folder, given)
    before = await asyncio.to_thread(files, folder)
    assert await profile.import_chroma(folder, NAME) == 4
    assert await asyncio.to_thread(files, folder) == before
    assert in_folder(scratch) == []
    records = (await profile.records())[::-1]
    assert [(record.content, record.mime_type, record.metadata) for record in records] == [
        (
            "Prefers Celsius",
            "text/plain",
            {"category": "preferences", "weight": 3, "share": 0.5, "sure": True, "words": ["a", "b"]},
        ),
        ("Ünïcode 🙂 שלום\n second line ", "text/plain", {}),
        ("# Rules\n- be brief", "text/markdown", {"lang": "en"}),
        ("{'city': 'rome', 'zip': [1, 2]}", "text/plain", {}),
    ]
    assert [type(records[0].metadata[name]) for name in ("weight", "share", "sure")] == [int, float, bool]
    assert (await profile.recall("Celsius")).hits[0].record == records[0]


@pytest.mark.parametrize("count", [0, 1, 1200])
async def test_any_number_of_rows_is_imported_once_in_pages_with_progress(folder: Path, count: int) -> None:
    memory = theirs(folder)
    memory._ensure_initialized()
    collection: Any = memory._collection
    for start in range(0, count, 100):
        numbers = range(start, min(start + 100, count))
        collection.add(
            ids=[f"id-{number}" for number in numbers],
            documents=[f"fact number {number}" for number in numbers],
            metadatas=[{"number": number, "mime_type": str(MemoryMimeType.TEXT)} for number in numbers],
        )
    memory._client.close()  # type: ignore[union-attr]
    seen: list[tuple[int, int]] = []
    async with ProfileMemory("ann", store=TemporaryStore(), embedding=words()) as profile:
        assert await profile.import_chroma(folder, NAME, progress=lambda *state: seen.append(state)) == count
        assert await profile.count() == count
        records = await profile.records(limit=2000)
        assert [record.metadata["number"] for record in records] == list(range(count))[::-1]
        assert await profile.import_chroma(folder, NAME, progress=False) == 0
        assert await profile.records(limit=2000) == records
    assert seen[-1:] == ([(count, count)] if count else [])
    assert len(seen) > 3 or count < 1200


async def test_duplicates_become_one_memory_also_when_imported_again(folder: Path, profile: ProfileMemory) -> None:
    await profile.remember("Has a cat")
    await write(folder, [text("Likes tea", a=1), text("Likes tea", b=2), text("Has a cat")])
    assert await profile.import_chroma(folder, NAME) == 3
    records = await profile.records()
    assert sorted(record.content for record in records) == ["Has a cat", "Likes tea"]
    assert {"a": 1, "b": 2} in [record.metadata for record in records]
    assert await profile.import_chroma(folder, NAME) == 0
    assert await profile.records() == records
    await profile.forget(containing="cat")
    assert await profile.import_chroma(folder, NAME) == 1
    assert await profile.count() == 2
    assert await profile.import_chroma(folder, NAME) == 0


async def test_a_moved_folder_is_the_same_collection_and_another_collection_is_not(
    folder: Path, tmp_path: Path, profile: ProfileMemory
) -> None:
    await write(folder, [text("Likes tea")])
    await write(folder, [text("Likes coffee")], "other")
    assert await profile.import_chroma(folder, NAME) == 1
    moved = await asyncio.to_thread(folder.rename, tmp_path / "moved")
    assert await profile.import_chroma(str(moved), NAME) == 0
    assert await profile.import_chroma(moved, "other") == 1


async def test_a_memory_superseded_since_the_import_is_not_revived(folder: Path, profile: ProfileMemory) -> None:
    await write(folder, [text("Lives in Rome")])
    await profile.import_chroma(folder, NAME)
    (rome,) = await profile.records()
    await profile.remember("Lives in Rome", key="home")
    await profile.remember("Lives in Lisbon", key="home")
    assert await profile.import_chroma(folder, NAME) == 0
    assert [record.content for record in await profile.records()] == ["Lives in Lisbon"]
    assert [record.id for record in await profile.history("home")][-1] == rome.id


async def test_times_come_from_the_callers_metadata_or_else_from_chroma(folder: Path, clock: HandClock) -> None:
    told = datetime(2025, 5, 6, 7, 8, 9, tzinfo=timezone.utc)
    given = [
        text("iso", created_at=told.isoformat()),
        text("zulu", created_at="2025-05-06T07:08:09Z"),
        text("naive", timestamp="2025-05-06T07:08:09"),
        text("seconds", timestamp=told.timestamp()),
        text("milliseconds", timestamp=int(told.timestamp() * 1000)),
        text("no time", timestamp="soon"),
        text("no time yet", created_at="2999-01-01"),
        text("no number", created_at=1e300),
        text("none"),
    ]
    await write(folder, given)

    def age() -> None:
        with sqlite3.connect(folder / "chroma.sqlite3") as database:
            database.execute("UPDATE embeddings SET created_at = '2024-01-02 03:04:05'")
        database.close()

    await asyncio.to_thread(age)
    async with ProfileMemory("ann", store=TemporaryStore(), embedding=words()) as profile:
        await profile.import_chroma(folder, NAME)
        times = {record.content: record.created_at for record in await profile.records()}
        assert {times.pop(name) for name in ("iso", "zulu", "naive", "seconds", "milliseconds")} == {told}
        added = datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
        assert all(added <= time < added + timedelta(milliseconds=1) for time in times.values())
        assert sorted(times, key=lambda name: times[name]) == ["no time", "no time yet", "no number", "none"]
        record = next(record for record in await profile.records() if record.content == "seconds")
        assert record.metadata == {"timestamp": told.timestamp()}


async def test_blank_memories_are_left_out_and_counted(
    folder: Path, profile: ProfileMemory, caplog: pytest.LogCaptureFixture
) -> None:
    await write(folder, [text(" \n"), text("Likes tea"), text("")])
    with caplog.at_level(logging.WARNING, logger="autogen_persistent_memory"):
        assert await profile.import_chroma(folder, NAME) == 1
    assert caplog.messages == ["2 memories of the collection 'prefs' are blank and were not imported."]


async def test_an_agent_sees_imported_memories(folder: Path, tmp_path: Path) -> None:
    await write(folder, [text("The user prefers temperatures in Celsius")])
    async with PersistentMemory("ann", store=EmbeddedStore(tmp_path / "ours"), embedding=words()) as memory:
        assert await memory.import_chroma(folder, NAME) == 1
    client = ReplayChatCompletionClient(["20 °C."])
    async with PersistentMemory("ann", store=EmbeddedStore(tmp_path / "ours"), embedding=words()) as memory:
        agent = AssistantAgent("assistant", model_client=client, memory=[memory])
        await agent.run(task="Which temperatures does the user want, Celsius?")
    seen = "\n".join(str(message.content) for message in client.create_calls[0]["messages"])
    assert "The user prefers temperatures in Celsius" in seen


async def test_a_memory_that_the_application_still_uses_keeps_working(
    folder: Path, profile: ProfileMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(
        "tempfile.tempdir", "/nowhere"
    )  # reading the file beside the open database would drop its locks
    memory = theirs(Path(folder.name))
    await memory.add(text("Likes tea"))
    users = SharedSystemClient._identifier_to_refcount[folder.name]
    assert await profile.import_chroma(folder, NAME) == 1
    await memory.add(text("Likes coffee"))
    assert await profile.import_chroma(folder.name, NAME) == 1
    assert SharedSystemClient._identifier_to_refcount[folder.name] == users
    assert {result.content for result in (await memory.query("Likes")).results} == {"Likes tea", "Likes coffee"}
    assert {record.content for record in await profile.records()} == {"Likes tea", "Likes coffee"}
    memory._client.close()  # type: ignore[union-attr]
    monkeypatch.setattr("tempfile.tempdir", str(folder.parent))
    assert await profile.import_chroma(folder, NAME) == 0


async def test_nothing_of_the_source_stays_open(folder: Path, profile: ProfileMemory, scratch: Path) -> None:
    await write(folder, [text("Likes tea")])
    await profile.import_chroma(folder, NAME)

    def still_open() -> list[str]:
        links = []
        for number in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink(f"/proc/self/fd/{number}"))
            except OSError:
                continue
        return [link for link in links if link.startswith((str(folder), str(scratch)))]

    until = time.monotonic() + 10
    while (left := await asyncio.to_thread(still_open)) and time.monotonic() < until:  # noqa: ASYNC110 (Chroma's threads)
        await asyncio.sleep(0.01)
    assert left == []


async def test_a_path_that_is_not_a_chroma_folder_is_refused_and_stays_empty(
    tmp_path: Path, profile: ProfileMemory
) -> None:
    with pytest.raises(ValueError, match=r"no folder .*nowhere.*persistence_path"):
        await profile.import_chroma(tmp_path / "nowhere", NAME)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for place in ("empty", "file"):
        with pytest.raises(ValueError, match=r"not a Chroma folder: it holds no chroma\.sqlite3"):
            await profile.import_chroma(tmp_path / place, NAME)
    assert in_folder(tmp_path / "empty") == []
    for path, collection in [(None, NAME), ("", NAME), ("x", ""), (3, NAME), ("x", None)]:
        with pytest.raises(ValueError, match=r"must be text|is empty"):
            await profile.import_chroma(path, collection)  # type: ignore[arg-type]


async def test_an_unknown_collection_is_refused_with_the_names_of_those_that_are_there(
    folder: Path, scratch: Path, profile: ProfileMemory
) -> None:
    await write(folder, [text("x")])
    await write(folder, [text("x")], "other")
    with pytest.raises(ValueError, match=r"no collection 'Prefs' .*Collections there: 'other', 'prefs'"):
        await profile.import_chroma(folder, "Prefs")
    assert in_folder(scratch) == []


async def test_our_own_collections_are_not_imported(tmp_path: Path, profile: ProfileMemory) -> None:
    async with ProfileMemory("bob", store=EmbeddedStore(tmp_path / "ours"), embedding=words()) as other:
        await other.remember("x")
        for name in (NAME, collection_name("bob", "profile")):
            with pytest.raises(ValueError, match="Collections there: none"):
                await profile.import_chroma(tmp_path / "ours", name)


async def test_the_memorys_own_store_is_refused(tmp_path: Path) -> None:
    await write(tmp_path / "ours", [text("x")])
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    async with ProfileMemory("ann", store=EmbeddedStore(tmp_path / "ours"), embedding=words()) as profile:
        for path in (tmp_path / "ours", tmp_path / "link"):
            with pytest.raises(ValueError, match=r"is the store of this memory itself.*Import from a copy"):
                await profile.import_chroma(path, NAME)


async def test_a_folder_that_another_process_has_as_its_store_is_refused(folder: Path, profile: ProfileMemory) -> None:
    await write(folder, [text("x")])
    other = hold(folder)
    try:
        assert await asyncio.to_thread(other.stdout.readline) == "taken\n"  # type: ignore[union-attr]
        with pytest.raises(StoreLockedError, match=f"in use by process {other.pid}"):
            await profile.import_chroma(folder, NAME)
    finally:
        await asyncio.to_thread(other.communicate)
    assert await profile.import_chroma(folder, NAME) == 1


async def test_a_folder_of_an_incompatible_chroma_is_refused_and_not_touched(
    folder: Path, scratch: Path, profile: ProfileMemory
) -> None:
    await write(folder, [text("x")])

    def spoil(statement: str) -> None:
        with sqlite3.connect(folder / "chroma.sqlite3") as database:
            database.execute(statement)
        database.close()

    await asyncio.to_thread(spoil, "UPDATE migrations SET hash = 'another' WHERE version = 3")
    before = await asyncio.to_thread(files, folder)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match=r"cannot be read: .*hash.*Nothing was changed.*version"):
            await profile.import_chroma(folder, NAME)
    assert await asyncio.to_thread(files, folder) == before
    (folder / "chroma.sqlite3").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreUnavailableError, match=r"cannot be read: .*not a database"):
        await profile.import_chroma(folder, NAME)
    assert in_folder(scratch) == []


async def test_a_folder_that_changes_while_it_is_copied_is_refused(
    folder: Path, profile: ProfileMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(folder, [text("x")])
    copy = shutil.copyfile

    def copy_while_another_process_writes(source: Path, target: Path) -> None:
        copy(source, target)
        with source.open("ab") as file:
            file.write(b"\0")

    monkeypatch.setattr("shutil.copyfile", copy_while_another_process_writes)
    with pytest.raises(StoreUnavailableError, match=r"changed while it was read.*End that process"):
        await profile.import_chroma(folder, NAME)


async def test_a_cancelled_import_leaves_nothing_behind_and_can_be_repeated(
    folder: Path, scratch: Path, profile: ProfileMemory
) -> None:
    await write(folder, [text(f"fact {number}") for number in range(30)])
    at_once = asyncio.create_task(profile.import_chroma(folder, NAME))
    await asyncio.sleep(0)
    at_once.cancel()
    later = asyncio.create_task(profile.import_chroma(folder, NAME, progress=lambda *_: later.cancel() and None))
    for task in (at_once, later):
        with pytest.raises(asyncio.CancelledError):
            await task
    await profile.import_chroma(folder, NAME)
    assert await profile.count() == 30
    assert in_folder(scratch) == []


async def test_a_store_that_could_not_be_opened_opens_after_its_repair(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "chroma.sqlite3").write_bytes(b"no database" * 1000)
    profile = ProfileMemory("ann", store=EmbeddedStore(store), embedding=words())
    with pytest.raises(StoreUnavailableError, match="not a database"):
        await profile.open()
    with pytest.raises(StoreUnavailableError, match="not a database"):
        await profile.count()
    (store / "chroma.sqlite3").unlink()
    await profile.remember("Likes tea")
    assert await profile.count() == 1
    await profile.close()
