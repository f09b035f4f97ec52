"""Stores of earlier versions are migrated, and everything in them is found."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb.api.models.Collection import Collection
from chromadb.config import Settings
from data.stores.make import contents
from toys import words

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, SchemaVersionError, TemporaryStore
from autogen_persistent_memory.maintenance.doctor import repair
from autogen_persistent_memory.storage.chroma import migrations
from autogen_persistent_memory.storage.chroma.migrations import MIGRATIONS, Migration, schema_version

FIXTURES = sorted((Path(__file__).parents[1] / "data" / "stores").glob("*.zip"))
CHANGES = ("modify", "modify") * len(MIGRATIONS) + ("modify", "update", "update", "modify")
"""The changes that Chroma makes to one table: seven rows need one, and five are changed at a time."""


def renamed(row: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    record = json.loads(row["record"])
    return row | {"record": json.dumps({new if name == old else name: value for name, value in record.items()})}


RENAME = Migration(
    name="speaker-is-source",
    tables=("profile", "session"),
    change=lambda row: renamed(row, "speaker", "source"),
)


@pytest.fixture
def rename() -> Iterator[None]:
    """A version with one more migration."""
    MIGRATIONS.append(RENAME)
    yield
    MIGRATIONS.remove(RENAME)


def unpacked(fixture: Path, folder: Path) -> tuple[EmbeddedStore, dict[str, Any]]:
    with zipfile.ZipFile(fixture) as archive:
        archive.extractall(folder)
    return EmbeddedStore(folder / "store"), json.loads((folder / "expected.json").read_text())


def a_memory(namespace: str, store: EmbeddedStore | TemporaryStore) -> PersistentMemory:
    return PersistentMemory(namespace, session="kick-off", store=store, embedding=words(), extractor=None)


async def everything(store: EmbeddedStore, namespaces: Iterable[str]) -> dict[str, Any]:
    found = {}
    for namespace in namespaces:
        async with a_memory(namespace, store) as memory:
            found[namespace] = await contents(memory)
    return found


@pytest.fixture
async def old_store(tmp_path: Path) -> tuple[EmbeddedStore, dict[str, Any]]:
    """A store whose records name a field as no released version does, and what must still be found there."""
    store, expected = unpacked(FIXTURES[0], tmp_path)

    def age() -> None:
        client = chromadb.PersistentClient(str(tmp_path / "store"), settings=Settings(anonymized_telemetry=False))
        for collection in client.list_collections():
            if collection.metadata["apm_shelf"] != "values":
                rows = collection.get()
                old = [renamed(dict(row), "source", "speaker") for row in rows["metadatas"] or []]
                collection.update(ids=rows["ids"], metadatas=old)
        client.close()

    await asyncio.to_thread(age)
    return store, expected


def test_every_schema_that_was_ever_released_has_a_fixture() -> None:
    assert [path.stem for path in FIXTURES] == [f"schema-{number}" for number in range(1, schema_version() + 1)]


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
async def test_a_store_of_every_released_schema_opens_and_everything_is_found(fixture: Path, tmp_path: Path) -> None:
    store, expected = unpacked(fixture, tmp_path)
    assert await everything(store, expected) == expected
    async with a_memory("bob", store) as memory:
        assert (await memory.recall("which drink is the favourite", limit=1)).hits[0].record.content.endswith("cocoa")
        later = await memory.remember("Favourite drink is water", key="drink")
        assert (await memory.history("drink"))[0] == later


@pytest.mark.usefixtures("rename")
async def test_rows_are_changed_before_anything_is_read(old_store: tuple[EmbeddedStore, dict[str, Any]]) -> None:
    store, expected = old_store
    assert await everything(store, expected) == expected


@pytest.mark.usefixtures("rename")
async def test_what_is_recovered_from_a_damaged_store_is_brought_up_to_date(
    old_store: tuple[EmbeddedStore, dict[str, Any]], tmp_path: Path
) -> None:
    store, expected = old_store
    with (tmp_path / "store" / "chroma.sqlite3").open("r+b") as file:
        file.write(bytes(4096))
    report = await repair(store, embedding=words(), progress=False)
    assert (report.missing, [finding.problem for finding in report.left]) == (0, ["open folder"])
    assert await everything(store, expected) == expected


@pytest.mark.usefixtures("rename")
async def test_a_migration_is_made_once(
    old_store: tuple[EmbeddedStore, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, expected = old_store
    await everything(store, expected)
    monkeypatch.setattr(Collection, "modify", pytest.fail)
    assert await everything(store, expected) == expected


@pytest.mark.usefixtures("rename")
async def test_what_is_new_needs_no_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Collection, "modify", pytest.fail)
    store = TemporaryStore()
    async with a_memory("ann", store) as memory:
        await memory.remember("Likes tea")
        await memory.set("theme", "dark")
    async with a_memory("ann", store) as memory:
        assert (await memory.count(), await memory.get("theme")) == (1, "dark")


@pytest.mark.usefixtures("rename")
async def test_memories_that_open_a_store_together_wait_for_its_migration(
    old_store: tuple[EmbeddedStore, dict[str, Any]],
) -> None:
    store, expected = old_store
    memories = [a_memory("bob", store) for _ in range(5)]
    found = await asyncio.gather(*(contents(memory) for memory in memories))
    assert found == [expected["bob"]] * 5
    for memory in memories:
        await memory.close()


async def test_a_version_that_does_not_know_a_migration_refuses_what_it_changed(
    old_store: tuple[EmbeddedStore, dict[str, Any]], rename: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, expected = old_store
    await everything(store, expected)
    other = Migration(name="another-one", tables=(), change=dict)
    monkeypatch.setattr("autogen_persistent_memory.storage.chroma.migrations.MIGRATIONS", [other])
    with pytest.raises(SchemaVersionError, match="pip install --upgrade"):
        await everything(store, expected)


@pytest.mark.parametrize("killed_before", range(len(CHANGES)))
async def test_a_migration_that_was_killed_is_made_again(
    old_store: tuple[EmbeddedStore, dict[str, Any]], tmp_path: Path, killed_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, expected = old_store
    program = [sys.executable, __file__, str(tmp_path / "store"), "prod/acme/user-42", str(killed_before)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(subprocess.run, program, env=environment, capture_output=True, text=True, timeout=120)
        ended = await asyncio.wrap_future(running)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    if killed_before > 0:
        with pytest.raises(SchemaVersionError):
            await everything(store, expected)
    monkeypatch.setattr("autogen_persistent_memory.storage.chroma.migrations.MIGRATIONS", [*MIGRATIONS, RENAME])
    assert await everything(store, expected) == expected


def _kill_before(count: int) -> None:
    """Let this process be killed right before its n-th change of a collection."""
    asked: list[str] = []

    def counted(name: str) -> None:
        call = getattr(Collection, name)

        def change(*arguments: Any, **options: Any) -> Any:
            asked.append(name)
            if len(asked) > count:
                assert tuple(asked) == CHANGES[: count + 1], asked
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        setattr(Collection, name, change)

    for name in ("modify", "update"):
        counted(name)


if __name__ == "__main__":
    MIGRATIONS.append(RENAME)
    migrations._WRITE_CHUNK = 5
    _kill_before(int(sys.argv[3]))
    asyncio.run(a_memory(sys.argv[2], EmbeddedStore(sys.argv[1])).profile.records())
