"""A store with damaged documents is recovered as far as it can be read; the damaged one is kept."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import chromadb
import pytest
from damaged import DATABASE, NAMESPACES, PAGE, Contents, contents, leaves_of, make_whole, overwrite, root_of, told_in
from stocked import open_memory, told, without_vector
from toys import word_vectors, words

from autogen_persistent_memory import (
    CallableEmbedding,
    EmbeddedStore,
    EmbeddingMismatchError,
    MemoryRecord,
    PersistentMemory,
    SchemaVersionError,
    StoreUnavailableError,
    import_memories,
)
from autogen_persistent_memory.maintenance.doctor import Report, diagnose, repair
from autogen_persistent_memory.storage.repair.inspect import segment_folders
from autogen_persistent_memory.storage.repair.startup_repair import finish_replacement, replace_damaged


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_whole(tmp_path_factory.mktemp("whole") / "store")


@pytest.fixture(scope="module")
def expected(whole: Path) -> Contents:
    return asyncio.run(contents(whole))


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """A copy of the store, to be damaged."""
    shutil.copytree(whole, tmp_path / "store")
    return tmp_path / "store"


def number_of(contents: Contents) -> int:
    return sum(map(len, contents.values()))


def assert_among(found: Contents, expected: Contents) -> None:
    for namespace in NAMESPACES:
        strange = {id: item for id, item in found[namespace].items() if expected[namespace].get(id) != item}
        assert strange == {}, namespace


def cut(path: Path, share: float) -> None:
    os.truncate(path / DATABASE, int((path / DATABASE).stat().st_size * share))


def files_of(path: Path) -> dict[str, bytes]:
    """Return Chroma's files in a folder."""
    files = [path / DATABASE, *(file for folder in segment_folders(path) for file in folder.iterdir())]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


async def recovered(path: Path, embedding: CallableEmbedding | None = None) -> Report:
    return await repair(EmbeddedStore(path), embedding=embedding or words(), progress=False)


@pytest.mark.parametrize(("share", "least"), [(0.3, 0.01), (0.5, 0.4), (0.7, 0.7), (0.9, 0.95), (0.99, 1)])
async def test_a_truncated_store_is_refused_and_then_recovered_as_far_as_possible(
    share: float, least: float, path: Path, expected: Contents
) -> None:
    cut(path, share)
    damaged = await asyncio.to_thread(files_of, path)
    memory = open_memory(path)
    with pytest.raises(StoreUnavailableError, match=f"autogen-memory doctor --repair --path {path}"):
        await memory.recall("Where is it?")
    await memory.close()
    (finding,) = await diagnose(EmbeddedStore(path))
    assert (finding.problem, finding.repairable) == ("damaged documents", True)
    assert await asyncio.to_thread(files_of, path) == damaged
    seen: list[tuple[int, int]] = []
    report = await repair(EmbeddedStore(path), embedding=words(), progress=lambda *done: seen.append(done))
    assert seen[-1] == (report.recovered, report.recovered)
    assert report.left == ()
    assert report.findings == (finding,)
    assert report.done[0].startswith("Recovered ")
    found = await contents(path)
    assert_among(found, expected)
    assert number_of(expected) >= number_of(found) >= least * number_of(expected)
    assert number_of(expected) >= number_of(found) + report.missing >= 0.9 * number_of(expected)
    assert report.backup is not None
    assert await asyncio.to_thread(files_of, report.backup) == damaged
    assert await diagnose(EmbeddedStore(path)) == []
    async with open_memory(path) as memory:
        texts = [item.content for item in found["ann"].values() if isinstance(item, MemoryRecord) and not item.session]
        assert await without_vector(memory, texts) == []
        await memory.remember("The lid is shut")
        assert (await memory.recall("Is the lid shut?", limit=1)).hits[0].record.content == "The lid is shut"


async def test_a_store_without_its_first_page_is_recovered(path: Path, expected: Contents) -> None:
    overwrite(path, 1, os.urandom(PAGE))
    memory = open_memory(path)
    with pytest.raises(StoreUnavailableError, match="doctor --repair"):
        await memory.count()
    await memory.close()
    report = await recovered(path)
    assert (report.recovered, report.missing, report.left) == (number_of(expected), 0, ())
    assert await contents(path) == expected


async def test_a_completely_unreadable_store_is_not_changed(path: Path) -> None:
    await asyncio.to_thread((path / DATABASE).write_bytes, os.urandom(20 * PAGE))
    before = await asyncio.to_thread(files_of, path)
    report = await recovered(path)
    assert (report.recovered, report.backup) == (0, None)
    assert report.left == report.findings
    assert "nothing was changed" in report.done[0]
    assert await asyncio.to_thread(files_of, path) == before


async def test_an_error_about_damage_found_while_reading_names_the_remedy(path: Path, expected: Contents) -> None:
    for page in (await asyncio.to_thread(leaves_of, path, "embedding_metadata"))[3:5]:
        overwrite(path, page)
    memory = open_memory(path)
    with pytest.raises(StoreUnavailableError, match=r"damaged.*doctor --repair"):
        await memory.count()
    await memory.close()
    report = await recovered(path)
    assert report.missing + report.recovered == number_of(expected)
    assert_among(await contents(path), expected)


async def test_another_embedding_is_refused_and_nothing_is_changed(path: Path) -> None:
    cut(path, 0.9)
    before = sorted(await asyncio.to_thread(os.listdir, path)), await asyncio.to_thread(files_of, path)
    with pytest.raises(EmbeddingMismatchError, match=r"'toy-words', not with 'other'. Nothing was changed"):
        await recovered(path, words("other"))
    assert (sorted(await asyncio.to_thread(os.listdir, path)), await asyncio.to_thread(files_of, path)) == before


async def test_memories_of_another_embedding_are_kept_in_a_file_that_can_be_imported(
    path: Path, expected: Contents
) -> None:
    memory = PersistentMemory("team/bob", store=EmbeddedStore(path), embedding=words("other"), capture=False)
    count = await memory.reembed()
    await memory.close()
    overwrite(path, await asyncio.to_thread(root_of, path, "embedding_metadata"))
    report = await recovered(path)
    assert report.backup is not None
    file = report.backup / "other-embeddings.jsonl"
    assert any(str(file) in sentence for sentence in report.done)
    assert await import_memories(EmbeddedStore(path), file, embedding=words("other"), progress=False) == count
    assert await contents(path, ["ann"]) == {"ann": expected["ann"]}
    async with PersistentMemory("team/bob", store=EmbeddedStore(path), embedding=words("other")) as memory:
        assert await memory.count() == len([item for item in expected["team/bob"].values() if _is_current(item)])


async def test_orphaned_and_foreign_rows_are_kept_in_a_file(path: Path) -> None:
    def add() -> None:
        client = chromadb.PersistentClient(str(path), settings=chromadb.Settings(anonymized_telemetry=False))
        mine = client.create_collection("mine", embedding_function=None)
        mine.upsert(ids=["1"], embeddings=[[1.0, 2.0]], documents=["My own text"], metadatas=[{"page": 5}])
        client.close()
        with closing(sqlite3.connect(path / DATABASE)) as database, database:
            database.execute("UPDATE embedding_metadata SET string_value = '{' WHERE id = 1 AND key = 'record'")
        overwrite(path, root_of(path, "max_seq_id"))

    await asyncio.to_thread(add)
    report = await recovered(path)
    assert report.backup is not None
    lines = (report.backup / "leftovers.jsonl").read_text().splitlines()
    ours, mine = sorted(map(json.loads, lines), key=lambda row: str(row["collection"]))
    assert (mine["collection"], mine["id"], mine["metadata"]) == (
        "mine",
        "1",
        {"page": 5, "chroma:document": "My own text"},
    )
    assert (ours["apm_namespace"], ours["id"], ours["metadata"]["chroma:document"]) == ("ann", "ann-0", told(0))
    assert report.missing == 1


async def test_a_store_of_a_newer_version_is_refused(path: Path) -> None:
    def change() -> None:
        with closing(sqlite3.connect(path / DATABASE)) as database, database:
            database.execute("UPDATE collection_metadata SET int_value = 99 WHERE key = 'apm_schema'")
        cut(path, 0.9)

    await asyncio.to_thread(change)
    with pytest.raises(SchemaVersionError, match="pip install --upgrade"):
        await recovered(path)


async def test_an_interrupted_recovery_continues(path: Path, expected: Contents) -> None:
    overwrite(path, await asyncio.to_thread(root_of, path, "embeddings"))
    before = await asyncio.to_thread(files_of, path)
    embedded: list[str] = []

    def until(most: int) -> CallableEmbedding:
        def embed(texts: list[str]) -> list[list[float]]:
            embedded.extend(texts)
            if len(embedded) > most:
                raise OSError("the model is gone")
            return word_vectors(texts)

        return CallableEmbedding(embed, id="toy-words")

    with pytest.raises(Exception, match="the model is gone"):
        await recovered(path, until(100))
    assert await asyncio.to_thread(files_of, path) == before
    first = len(embedded)
    report = await recovered(path, until(100_000))
    assert len(embedded) < first + len(told_in(expected))
    assert report.recovered == number_of(expected)
    assert await contents(path) == expected
    assert not [name for name in await asyncio.to_thread(os.listdir, path) if "recover" in name]


async def test_a_killed_recovery_leaves_the_damaged_store_and_can_be_repeated(path: Path, expected: Contents) -> None:
    overwrite(path, await asyncio.to_thread(root_of, path, "embeddings"))
    before = await asyncio.to_thread(files_of, path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, __file__, str(path), "100"]
    ended = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert await asyncio.to_thread(files_of, path) == before
    report = await recovered(path)
    assert (report.recovered, report.missing, report.left) == (number_of(expected), 0, ())
    assert await contents(path) == expected


@pytest.mark.parametrize("killed_at", range(8))
def test_a_killed_swap_is_finished_by_the_next_process(
    killed_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (f"{number}0000000-0000-0000-0000-000000000000" for number in (1, 2))
    workplace = tmp_path / "autogen_memory.recovering-1"
    for folder, segment in ((tmp_path, old), (workplace, new)):
        (folder / segment).mkdir(parents=True)
        for file in (DATABASE, f"{DATABASE}-journal", f"{segment}/header.bin", "leftovers.jsonl"):
            (folder / file).write_text(segment)
    (tmp_path / "leftovers.jsonl").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", _killed_after(killed_at))
        with pytest.raises(KeyboardInterrupt):
            replace_damaged(tmp_path, workplace)
    if killed_at == 0:
        assert (tmp_path / DATABASE).read_text() == old
        return
    finish_replacement(tmp_path)
    (damaged,) = tmp_path.glob("autogen_memory.damaged-*")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [damaged.name, "home", new, DATABASE, f"{DATABASE}-journal"]
    )
    for folder, segment in ((damaged, old), (tmp_path, new)):
        for file in (DATABASE, f"{DATABASE}-journal", f"{segment}/header.bin"):
            assert (folder / file).read_text() == segment
    assert (damaged / "leftovers.jsonl").read_text() == new


async def test_a_killed_swap_is_finished_at_the_next_open(
    path: Path, expected: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(paths: Sequence[Path], to: Path) -> None:
        paths[0].rename(to / paths[0].name)
        raise OSError("the power is gone")

    overwrite(path, 1)
    with monkeypatch.context() as patch:
        patch.setattr("autogen_persistent_memory.storage.repair.startup_repair._move", interrupted)
        with pytest.raises(StoreUnavailableError, match="the power is gone"):
            await recovered(path)
    assert await contents(path) == expected
    assert await diagnose(EmbeddedStore(path)) == []


async def test_a_store_written_to_during_recovery_is_not_replaced(path: Path) -> None:
    cut(path, 0.9)

    def embed(texts: list[str]) -> list[list[float]]:
        os.utime(path / DATABASE)
        return word_vectors(texts)

    with pytest.raises(StoreUnavailableError, match="was written to"):
        await recovered(path, CallableEmbedding(embed, id="toy-words"))
    assert await diagnose(EmbeddedStore(path)) != []


def _is_current(item: object) -> bool:
    return isinstance(item, MemoryRecord) and item.superseded_by is None


def _killed_after(count: int) -> Callable[[Path, Path], Path]:
    """Move some files, and then simulate the end of the process."""
    moves, rename = iter(range(count)), Path.rename

    def move(path: Path, target: Path) -> Path:
        if next(moves, None) is None:
            raise KeyboardInterrupt
        return rename(path, target)

    return move


if __name__ == "__main__":
    count = 0

    def _embed_and_die(texts: list[str]) -> list[list[float]]:
        global count
        count += len(texts)
        if count > int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return word_vectors(texts)

    asyncio.run(recovered(Path(sys.argv[1]), CallableEmbedding(_embed_and_die, id="toy-words")))
