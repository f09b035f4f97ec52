"""A record with more tags than Chroma can write blocks its whole namespace; the doctor finds and repairs it."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import run_chroma
from toys import NOW, word_vectors, words
from typer.testing import CliRunner

from autogen_persistent_memory import (
    EmbeddedStore,
    MemoryRecord,
    PersistentMemory,
    ServerStore,
    StoreUnavailableError,
    TemporaryStore,
    export_memories,
)
from autogen_persistent_memory.cli.app import app
from autogen_persistent_memory.maintenance.doctor import diagnose, repair
from autogen_persistent_memory.storage.chroma.record_rows import ChromaRecordTable
from autogen_persistent_memory.storage.chroma.rows import to_metadata
from autogen_persistent_memory.storage.protocol import MemoryStore

TAGS = tuple(f"tag {number}" for number in range(6000))
BLOCKED = "cannot apply what was written last"


BIG = MemoryRecord(id="big", namespace="ann", content="Has many tags", tags=TAGS, created_at=NOW, updated_at=NOW)


def table_of(memory: PersistentMemory) -> ChromaRecordTable:
    table = memory._engine.data.table("profile")
    assert isinstance(table, ChromaRecordTable)
    return table


def open_memory(store: MemoryStore, namespace: str = "ann") -> PersistentMemory:
    return PersistentMemory(namespace, session="today", store=store, embedding=words())


async def block(store: MemoryStore) -> None:
    """Write a record as 0.1 did, which had no limit, between others before and after it."""

    def write(collection: Any) -> None:
        row = to_metadata(BIG) | {"tags": list(TAGS)}
        collection.upsert(
            ids=[BIG.id], documents=[BIG.content], embeddings=word_vectors([BIG.content]), metadatas=[row]
        )

    async with open_memory(store, "bob") as memory:
        await memory.remember("Likes coffee")
    async with open_memory(store) as memory:
        await memory.remember("Likes tea", tags=["drinks"])
        await memory.session.append("user", "I grow tomatoes on the balcony")
        await memory.set("colour", "green")
        with pytest.raises(StoreUnavailableError):
            await table_of(memory).write(write)
        with pytest.raises(StoreUnavailableError):
            await memory.remember("Likes milk")


USES: dict[str, Callable[[PersistentMemory], Awaitable[object]]] = {
    "recall": lambda memory: memory.recall("Which drinks?"),
    "records": lambda memory: memory.records(),
    "count": lambda memory: memory.count(),
    "remember": lambda memory: memory.remember("Likes cocoa"),
    "forget": lambda memory: memory.forget(tags=["drinks"]),
    "compact": lambda memory: memory.compact(progress=False),
    "export": lambda memory: export_memories(memory._engine.store, io.BytesIO(), progress=False),
}


async def test_a_namespace_blocked_by_one_record_is_found_and_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = EmbeddedStore(tmp_path / "store")
    await block(store)
    for use in USES.values():
        async with open_memory(store) as memory:
            with pytest.raises(StoreUnavailableError, match=rf"{BLOCKED}.*autogen-memory doctor --repair --path"):
                await use(memory)
    (finding,) = await diagnose(store)
    assert (finding.problem, finding.namespace, finding.repairable) == ("blocked log", "ann", True)
    assert "profile of 'ann'" in str(finding)
    assert "6,000 tags" in finding.what

    report = await repair(store, embedding=words(), progress=False)
    assert report.done == ("Cut the tags of the record 'big' of profile of 'ann' from 6,000 to 64.",)
    assert report.left == ()
    assert report.backup is not None
    assert (report.backup / "chroma.sqlite3").exists()
    async with open_memory(store) as memory:
        records = {record.content: record for record in await memory.profile.records()}
        assert set(records) == {"Likes tea", "Has many tags", "Likes milk"}  # later records were in the log, too
        assert records["Has many tags"].tags == TAGS[:64]
        assert records["Has many tags"].created_at == NOW
        assert [record.content for record in await memory.records(tags=[TAGS[63]])] == ["Has many tags"]
        assert (await memory.recall("many tags", limit=1)).hits[0].record.id == "big"
        assert [message.content for message in await memory.session.messages()] == ["I grow tomatoes on the balcony"]
        assert await memory.get("colour") == "green"
        for use in USES.values():
            await use(memory)
    async with open_memory(store, "bob") as memory:
        assert await memory.count() == 1
    assert all(finding.is_harmless for finding in await diagnose(store))


async def test_a_record_with_too_many_tags_in_an_export_blocks_nothing() -> None:
    async with open_memory(TemporaryStore()) as memory:
        await table_of(memory).put([BIG], word_vectors([BIG.content]), new=True)
        assert await memory.record(BIG.id) == BIG
        await memory.remember("Likes tea")
        assert await memory.compact(progress=False) == 2
        assert {record.id for record in await memory.records(tags=[TAGS[5000]])} == {BIG.id}


async def test_an_agent_with_a_blocked_namespace_logs_an_error_with_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from autogen_core.model_context import UnboundedChatCompletionContext
    from autogen_core.models import UserMessage

    store = EmbeddedStore(tmp_path / "store")
    await block(store)
    caplog.clear()
    async with open_memory(store) as memory:
        context = UnboundedChatCompletionContext(initial_messages=[UserMessage(content="Which drinks?", source="user")])
        await memory.update_context(context)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors
    assert "autogen-memory doctor --repair" in errors[0]


def test_the_command_line_shows_and_repairs_it(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    asyncio.run(block(EmbeddedStore(path)))
    runner = CliRunner()
    result = runner.invoke(app, ["list", "-n", "ann", "--path", path])
    assert (result.exit_code, f"doctor --repair --path {path}" in result.stderr) == (1, True)
    result = runner.invoke(app, ["doctor", "--path", path])
    assert (result.exit_code, "6,000 tags" in result.stdout) == (1, True)
    toy = ["--embedding", "toys:word_vectors", "--embedding-id", "toy-words"]
    result = runner.invoke(app, ["doctor", "--repair", "--yes", "--path", path, *toy])
    assert (result.exit_code, "Cut the tags of the record 'big'" in result.stdout) == (0, True)
    assert runner.invoke(app, ["doctor", "--path", path]).stdout == "Nothing is wrong.\n"


async def test_the_doctor_says_what_to_do_if_it_cannot_reach_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "served"
    folder.mkdir(mode=0o700)
    with run_chroma(folder) as address:
        store = ServerStore(*address, outbox="")
        await block(store)
        (finding,) = await diagnose(store)
        assert (finding.problem, finding.namespace, finding.repairable) == ("blocked log", "ann", False)
        assert "Stop the server" in finding.remedy
        assert "autogen-memory doctor --repair --path" in finding.remedy
        report = await repair(store, embedding=words(), progress=False)
        assert report.left == (finding,)
    assert (await repair(EmbeddedStore(folder), embedding=words(), progress=False)).left == ()
    async with open_memory(EmbeddedStore(folder)) as memory:
        contents = {record.content: record.tags for record in await memory.profile.records()}
        assert contents == {"Likes tea": ("drinks",), "Has many tags": TAGS[:64]}
    store_in_ram = TemporaryStore()
    await block(store_in_ram)
    (finding,) = await diagnose(store_in_ram)
    assert (finding.problem, finding.repairable) == ("blocked log", False)
