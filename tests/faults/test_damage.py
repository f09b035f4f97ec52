"""Files that are truncated, missing or read-only are repaired at open, or explained; nothing crashes."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import sqlite3
from pathlib import Path

import chromadb
import pytest
from stocked import damages, open_memory, stock, swap_vectors, told, without_vector
from toys import word_vectors

from autogen_persistent_memory import CallableEmbedding, StoreUnavailableError
from autogen_persistent_memory.storage.repair.hnsw_files import INDEX_FILES
from autogen_persistent_memory.storage.repair.inspect import segment_folders

SAVED_EVERY = 100
ROWS = SAVED_EVERY + 10
TOLD = [told(number) for number in range(ROWS)]
A_FEW = 25
"""A question, and the sample that is embedded to check vectors."""


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a saved index, and ten more memories."""
    path = tmp_path_factory.mktemp("stocked") / "store"
    asyncio.run(stock(path, ROWS, saved_every=SAVED_EVERY))
    return path


@pytest.fixture
def path(stocked: Path, tmp_path: Path) -> Path:
    """A copy of the store, to be damaged."""
    shutil.copytree(stocked, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def index(path: Path) -> Path:
    """Return the folder of the store's index."""
    (folder,) = [folder for folder in segment_folders(path) if (folder / "index_metadata.pickle").exists()]
    return folder


def cut(file: Path, share: float) -> None:
    os.truncate(file, int(file.stat().st_size * share))


def count_embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count the texts that memories embed from now on."""
    embedded: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        embedded.extend(texts)
        return word_vectors(texts)

    monkeypatch.setattr("stocked.words", lambda: CallableEmbedding(embed, id="toy-words"))
    return embedded


async def check_repaired(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Check that every memory has its vector, and that one warning says what was repaired."""
    async with open_memory(path) as memory:
        assert (await memory.recall(TOLD[7], limit=1)).hits[0].record.content == TOLD[7]
        assert await memory.count() == ROWS
        await memory.flush()
        assert await without_vector(memory, TOLD) == []
        await memory.remember("The lid is shut")
        assert (await memory.recall("Is the lid shut?", limit=1)).hits[0].record.content == "The lid is shut"
    assert await asyncio.to_thread(damages, path) == []
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "has been repaired" in warning.getMessage()
    assert "profile of 'ann'" in warning.getMessage()
    caplog.clear()
    async with open_memory(path) as memory:
        assert await memory.count() == ROWS + 1
    assert caplog.records == []


@pytest.mark.parametrize("share", [0, 0.5])
@pytest.mark.parametrize("file", INDEX_FILES)
async def test_a_truncated_index_file_is_repaired(
    file: str, share: float, path: Path, index: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut(index / file, share)
    await check_repaired(path, caplog)


@pytest.mark.parametrize("file", ["length.bin", "link_lists.bin", "header.bin"])
async def test_surviving_vectors_are_restored_without_embedding_again(
    file: str, path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(index / file, 0.5)
    embedded = count_embedded(monkeypatch)
    async with open_memory(path) as memory:
        await memory.recall(TOLD[7])
        await memory.flush()
        assert len(embedded) <= A_FEW
        assert await without_vector(memory, TOLD) == []


async def test_surviving_vectors_of_other_memories_are_recomputed(
    path: Path, index: Path, caplog: pytest.LogCaptureFixture
) -> None:
    swap_vectors(index)
    (index / "length.bin").unlink()
    async with open_memory(path) as memory:
        await memory.recall(TOLD[7])
        await memory.flush()
        assert await without_vector(memory, TOLD) == []
    assert "do not belong to their memories" in caplog.messages[-1]


@pytest.mark.parametrize("what", [*INDEX_FILES, "."])
async def test_a_missing_index_file_or_folder_is_repaired(
    what: str, path: Path, index: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if what == ".":
        shutil.rmtree(index)
    else:
        (index / what).unlink()
    await check_repaired(path, caplog)


async def test_an_index_overwritten_with_garbage_is_repaired(
    path: Path, index: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elements = index / "data_level0.bin"
    elements.write_bytes(b"\xff" * elements.stat().st_size)
    await check_repaired(path, caplog)


async def test_rows_that_lost_their_vectors_to_a_second_process_get_new_ones(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lose() -> None:
        with sqlite3.connect(path / "chroma.sqlite3") as database:
            database.execute("DELETE FROM embeddings_queue WHERE id LIKE 'ann-10%'")
        database.close()

    await asyncio.to_thread(lose)
    await check_repaired(path, caplog)


async def test_an_interrupted_repair_continues_at_the_next_open(
    path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(index / "header.bin", 0.5)

    def interrupted(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr("autogen_persistent_memory.storage.repair.startup_repair.restore", interrupted)
        memory = open_memory(path)
        with pytest.raises(StoreUnavailableError, match="disk"):
            await memory.count()
        await memory.close()
    embedded = count_embedded(monkeypatch)
    async with open_memory(path) as memory:
        assert await memory.count() == ROWS
        await memory.recall(TOLD[7])
        await memory.flush()
        assert await without_vector(memory, TOLD) == []
    assert len(embedded) <= A_FEW, "the vectors that were set aside are put back"


@pytest.mark.parametrize("keep", [0, 0.3, 0.95])
async def test_a_truncated_database_is_refused_and_not_changed(keep: float, path: Path) -> None:
    database = path / "chroma.sqlite3"
    cut(database, keep)
    before = database.stat().st_size
    memory = open_memory(path)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match=r"chroma.sqlite3.*Nothing was changed.*backup"):
            await memory.recall("Where is it?")
    await memory.close()
    assert database.stat().st_size == before


async def test_a_folder_without_its_database_is_not_treated_as_a_new_store(path: Path) -> None:
    (path / "chroma.sqlite3").unlink()
    memory = open_memory(path)
    with pytest.raises(StoreUnavailableError, match=r"gone.*backup"):
        await memory.remember("Likes tea")
    await memory.close()
    assert not (path / "chroma.sqlite3").exists()


async def test_a_cleanly_closed_store_is_not_inspected(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_memory(path) as memory:
        await memory.remember("Likes tea")
    monkeypatch.setattr("autogen_persistent_memory.storage.repair.startup_repair.inspect_folder", None)
    async with open_memory(path) as memory:
        assert await memory.count() == ROWS + 1


async def test_the_applications_own_chroma_on_the_same_folder_is_not_disturbed(path: Path, index: Path) -> None:
    cut(index / "link_lists.bin", 0)
    client = await asyncio.to_thread(
        chromadb.PersistentClient, str(path), settings=chromadb.Settings(anonymized_telemetry=False)
    )
    async with open_memory(path) as memory:
        assert await memory.count() == ROWS
    assert (index / "link_lists.bin").stat().st_size == 0
    await asyncio.to_thread(client.close)


async def test_other_collections_in_the_folder_are_not_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def use(path: Path) -> int:
        client = chromadb.PersistentClient(str(path), settings=chromadb.Settings(anonymized_telemetry=False))
        mine = client.get_or_create_collection("mine", embedding_function=None)
        mine.upsert(ids=["1"], embeddings=[[1.0, 2.0]], documents=["mine"])
        count = int(mine.count())
        client.close()
        return count

    path = tmp_path / "store"
    await asyncio.to_thread(use, path)
    async with open_memory(path) as memory:
        await memory.remember("Likes tea")
    assert await asyncio.to_thread(use, path) == 1
    assert caplog.records == []
