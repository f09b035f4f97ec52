"""The doctor finds damage in a store, repairs it from the documents, and reports what it did."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chromadb
import pytest
from killing import writers
from stocked import damages, open_memory, stock, swap_vectors, told, without_vector
from test_processes import start
from toys import words

from autogen_persistent_memory import (
    CallableEmbedding,
    EmbeddedStore,
    PersistentMemory,
    ServerStore,
    StoreLockedError,
    TemporaryStore,
)
from autogen_persistent_memory.maintenance.doctor import Finding, diagnose, repair
from autogen_persistent_memory.storage.repair.inspect import segment_folders

SAVED_EVERY = 100
ROWS = SAVED_EVERY + 10
TOLD = [told(number) for number in range(ROWS)]
RUMOURS = [told(number) for number in range(1000, 1000 + SAVED_EVERY)]


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stocked") / "store"
    asyncio.run(stock(path, ROWS, saved_every=SAVED_EVERY))
    return path


@pytest.fixture
def path(stocked: Path, tmp_path: Path) -> Path:
    shutil.copytree(stocked, tmp_path / "store")
    return tmp_path / "store"


def problems(findings: list[Finding] | tuple[Finding, ...]) -> list[str]:
    return [finding.problem for finding in findings]


async def with_chroma(path: Path, use: Callable[[Any], object]) -> None:
    """Let Chroma itself change a closed store."""

    def change() -> None:
        client = chromadb.PersistentClient(str(path), settings=chromadb.Settings(anonymized_telemetry=False))
        use(client)
        client.close()

    await asyncio.to_thread(change)


async def test_a_healthy_store_has_no_findings_and_needs_no_repair(path: Path) -> None:
    async with open_memory(path) as memory:
        await memory.set("colour", "green")
    assert await diagnose(EmbeddedStore(path)) == []
    report = await repair(EmbeddedStore(path), embedding=words(), progress=False)
    assert (report.findings, report.done, report.left, report.backup) == ((), (), (), None)
    assert not [entry for entry in await asyncio.to_thread(os.listdir, path) if "backup" in entry]


async def test_the_doctor_creates_no_store(tmp_path: Path) -> None:
    assert await diagnose(EmbeddedStore(tmp_path / "nowhere")) == []
    assert not (tmp_path / "nowhere").exists()


async def test_an_unreadable_index_is_found_and_repaired_with_a_backup(path: Path) -> None:
    (folder,) = await asyncio.to_thread(segment_folders, path)
    os.truncate(folder / "data_level0.bin", 10_000)
    size = (path / "chroma.sqlite3").stat().st_size
    (finding,) = await diagnose(EmbeddedStore(path))
    assert (finding.problem, finding.repairable, finding.namespace) == ("unreadable index", True, "ann")
    assert "profile of 'ann': data_level0.bin is cut short" in str(finding)
    seen: list[tuple[int, int]] = []
    report = await repair(EmbeddedStore(path), embedding=words(), progress=lambda *done: seen.append(done))
    assert problems(report.findings) == ["unreadable index"]
    assert report.left == ()
    assert "Put back" in report.done[0]
    assert "again" in report.done[1]
    assert seen[-1][0] == seen[-1][1] > 0
    assert report.backup is not None
    assert (report.backup / "chroma.sqlite3").stat().st_size == size
    assert await asyncio.to_thread(damages, path) == []
    async with open_memory(path) as memory:
        assert await without_vector(memory, TOLD) == []


async def test_vectors_on_disk_of_other_memories_are_recomputed(path: Path) -> None:
    (folder,) = await asyncio.to_thread(segment_folders, path)
    swap_vectors(folder)
    os.truncate(folder / "length.bin", 0)
    report = await repair(EmbeddedStore(path), embedding=words(), progress=False)
    assert report.done == (
        f"Put back {SAVED_EVERY} vectors of profile of 'ann' from the files on disk.",
        f"They did not belong to their memories, so all {SAVED_EVERY} were computed again.",
    )
    async with open_memory(path) as memory:
        assert await without_vector(memory, TOLD) == []


async def test_lost_vectors_are_only_recomputed_with_the_same_embedding(path: Path) -> None:
    (folder,) = await asyncio.to_thread(segment_folders, path)
    await asyncio.to_thread(shutil.rmtree, folder)
    other = CallableEmbedding(lambda texts: [[1.0, 0.0] for _ in texts], id="other")
    report = await repair(EmbeddedStore(path), embedding=other, progress=False)
    assert problems(report.left) == ["missing vectors"]
    assert report.done == (
        f"Left {SAVED_EVERY} rows of profile of 'ann' without vectors: pass the embedding 'toy-words'.",
    )
    report = await repair(EmbeddedStore(path), embedding=words(), progress=False)
    assert report.left == ()


async def test_a_store_in_use_in_this_process_is_examined_between_two_calls(path: Path) -> None:
    async with open_memory(path) as memory:
        assert await memory.count() == ROWS
        findings, found, count = await asyncio.gather(
            diagnose(EmbeddedStore(path)), memory.recall(TOLD[5], limit=1), memory.count()
        )
        assert findings == []
        assert found.hits[0].record.content == TOLD[5]
        assert count == ROWS
        await memory.remember("Likes tea")
        assert await memory.count() == ROWS + 1


async def test_a_store_in_use_by_another_process_is_refused(path: Path) -> None:
    code = """
    import sys
    from autogen_persistent_memory import *
    from toys import words
    async def main(path):
        memory = PersistentMemory("ann", store=EmbeddedStore(path), embedding=words())
        await memory.count()
        print("open", flush=True)
        sys.stdin.read()
    """
    process = start(code, path)
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "open\n"
    for attempt in (diagnose(EmbeddedStore(path)), repair(EmbeddedStore(path), progress=False)):
        with pytest.raises(StoreLockedError, match=str(process.pid)):
            await attempt
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.communicate)
    (finding,) = await diagnose(EmbeddedStore(path))
    assert finding.problem == "stale lock"
    assert f"process {process.pid}" in finding.what


async def test_dead_vectors_are_found_and_dropped(path: Path) -> None:
    async with open_memory(path) as memory:
        for _ in range(3):
            await memory.remember_many({"content": text, "kind": "rumour"} for text in RUMOURS)
            await memory.forget(kinds=["rumour"])
    (finding,) = await diagnose(EmbeddedStore(path))
    assert finding.problem == "dead vectors"
    report = await repair(EmbeddedStore(path), embedding=words(), progress=False)
    assert report.done == (f"Compacted the {ROWS} memories of 'ann'.",)
    assert problems(report.left) == ["orphaned index"]  # of the replaced collection
    report = await repair(EmbeddedStore(path), embedding=words(), progress=False)
    assert report.done == ("Deleted 1 indexes that belonged to no collection.",)
    assert report.left == ()
    async with open_memory(path) as memory:
        assert await without_vector(memory, TOLD) == []


async def test_mixed_embeddings_in_a_namespace_are_found_and_unified(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    async with PersistentMemory("ann", session="s", store=store, embedding=words("old")) as memory:
        await memory.session.append("user", "I grow tomatoes on the balcony")
    memory = PersistentMemory("ann", session="s", store=store, embedding=words("new"), capture=False)
    await memory.remember("Likes tea")
    await memory.close()
    (finding,) = await diagnose(store)
    assert finding.problem == "mixed embeddings"
    assert "profile with 'new'" in finding.what
    report = await repair(store, embedding=words("third"), progress=False)
    assert problems(report.left) == ["mixed embeddings"]
    assert "pass one of the embeddings ['new', 'old']" in report.done[0]
    report = await repair(store, embedding=words("new"), progress=False)
    assert "mixed embeddings" not in problems(report.left)
    async with PersistentMemory("ann", session="s", store=store, embedding=words("new")) as memory:
        assert (await memory.recall("tomatoes")).hits[0].record.content == "I grow tomatoes on the balcony"


async def test_orphaned_collections_newer_schemas_and_unfinished_copies_are_distinguished(path: Path) -> None:
    def change(client: Any) -> None:
        client.create_collection("apm.lost.profile", embedding_function=None)
        (ours,) = [found for found in client.list_collections() if found.metadata]
        client.create_collection(
            f"{ours.name}.rebuilt", metadata={**ours.metadata, "apm_unfinished": True}, embedding_function=None
        )
        client.create_collection("mine", embedding_function=None)

    await with_chroma(path, change)
    assert sorted(problems(await diagnose(EmbeddedStore(path)))) == ["orphaned collection", "unfinished rebuild"]
    report = await repair(EmbeddedStore(path), embedding=words(), progress=False)
    assert problems(report.left) == ["orphaned collection"]
    assert report.done == ("Deleted the unfinished copy of profile of 'ann'.",)

    def make_newer(client: Any) -> None:
        (ours,) = [found for found in client.list_collections() if found.metadata]
        client.get_collection(ours.name, embedding_function=None).modify(metadata={**ours.metadata, "apm_schema": 99})

    await with_chroma(path, make_newer)
    assert sorted(problems(await diagnose(EmbeddedStore(path)))) == ["newer schema", "orphaned collection"]


async def test_servers_and_stores_in_ram_are_examined_through_chroma(chroma_server: tuple[str, int]) -> None:
    for store in (TemporaryStore(), ServerStore(*chroma_server)):
        async with PersistentMemory("doctor/ann", store=store, embedding=words()) as memory:
            await memory.remember_many(TOLD[:20])
            await memory.set("colour", "green")
            found = [finding for finding in await diagnose(store) if finding.namespace == "doctor/ann"]
            assert found == []
            assert await memory.count() == 20


async def test_the_doctor_repairs_a_store_after_a_kill(tmp_path: Path) -> None:
    with writers() as writing:
        process = await asyncio.to_thread(writing.start, tmp_path / "store", 1)
        await asyncio.to_thread(writing.acknowledged)
        os.kill(process, signal.SIGKILL)
        while await asyncio.to_thread(writing.acknowledged) is not None:
            pass
    assert problems(await diagnose(EmbeddedStore(tmp_path / "store"))) == ["stale lock"]
