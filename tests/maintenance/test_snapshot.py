"""A copy of a store in use is a store that holds every acknowledged write."""

import asyncio
import concurrent.futures
import itertools
import os
import sys
from pathlib import Path

import pytest
from toys import words

from autogen_persistent_memory import (
    EmbeddedStore,
    PersistentMemory,
    StoreLockedError,
    StoreUnavailableError,
    TemporaryStore,
    snapshot,
)
from autogen_persistent_memory.core.records import Selection

USERS = ("ann", "bob", "cleo")


def a_memory(store: EmbeddedStore, namespace: str = "ann") -> PersistentMemory:
    return PersistentMemory(namespace, session="today", store=store, embedding=words(), extractor=None)


async def check_that_copies_hold_acknowledged_writes(folder: Path, *, snapshots: int, batch: int, least: int) -> None:
    """Take snapshots one after another while three memories write and read, each after at least this many more writes."""
    store = EmbeddedStore(folder / "store")
    memories = {user: a_memory(store, user) for user in USERS}
    acknowledged: dict[str, dict[str, str]] = {user: {} for user in USERS}
    grown = asyncio.Condition()

    async def write(user: str) -> None:
        for number in itertools.count():
            drafts = [{"content": f"{user} has the thing {number} of {part}"} for part in range(batch)]
            records = await memories[user].remember_many(drafts, progress=False)
            acknowledged[user] |= {record.id: record.content for record in records}
            async with grown:
                grown.notify_all()

    async def read(user: str) -> None:
        while True:
            await memories[user].recall("which thing")
            await memories[user].set("theme", "dark")

    work = [asyncio.create_task(job(user)) for user in USERS for job in (write, read)]
    before: list[dict[str, dict[str, str]]] = []
    for number in range(snapshots):
        async with grown:
            enough = (number + 1) * least
            await grown.wait_for(lambda enough=enough: all(len(ids) >= enough for ids in acknowledged.values()))
        before.append({user: dict(ids) for user, ids in acknowledged.items()})
        await snapshot(store, folder / f"copy-{number}", progress=False)
    for task in work:
        task.cancel()
    await asyncio.wait(work)
    for number, acknowledged_then in enumerate(before):
        copy = EmbeddedStore(folder / f"copy-{number}")
        for user, contents in acknowledged_then.items():
            async with a_memory(copy, user) as memory:
                table = memory._engine.data.table("profile")
                found = {record.id: record.content for record in await table.select(Selection())}
                assert contents.items() <= found.items()
                vectors = await words().embed(list(contents.values()))
                nearest = await table.nearest(vectors, Selection(), fetch=3)
                assert all(id in near for id, near in zip(contents, nearest, strict=True))
                assert (await memory.recall(next(iter(contents.values())), limit=1)).hits[0].keywords > 0
                await memory.remember("The copy is a store of its own")
    for memory in memories.values():
        await memory.close()


async def test_a_copy_made_during_writes_holds_all_acknowledged_writes(tmp_path: Path) -> None:
    await check_that_copies_hold_acknowledged_writes(tmp_path, snapshots=3, batch=5, least=20)


@pytest.mark.soak
async def test_copies_made_while_indexes_are_saved_hold_all_acknowledged_writes(tmp_path: Path) -> None:
    """Chroma saves an index every thousand memories."""
    await check_that_copies_hold_acknowledged_writes(tmp_path, snapshots=20, batch=40, least=120)


async def test_nothing_reaches_the_store_while_it_is_copied(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    async with a_memory(store) as memory:
        await memory.remember("Likes tea")
        loop, waiting = asyncio.get_running_loop(), list[concurrent.futures.Future[object]]()

        def meanwhile(done: int, total: int) -> None:
            if not waiting:
                calls = (memory.remember("Likes cocoa"), memory.count())
                waiting.extend(asyncio.run_coroutine_threadsafe(call, loop) for call in calls)
                assert not concurrent.futures.wait(waiting, timeout=0.5).done

        await snapshot(store, tmp_path / "copy", progress=meanwhile)
        await asyncio.gather(*map(asyncio.wrap_future, waiting))
        assert await memory.count() == 2
    async with a_memory(EmbeddedStore(tmp_path / "copy")) as memory:
        assert [record.content for record in await memory.records()] == ["Likes tea"]


async def test_a_store_that_is_not_open_is_copied_too(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    async with a_memory(store) as memory:
        await memory.remember("Likes tea")
    (tmp_path / "copy").mkdir()
    seen = list[tuple[int, int]]()
    copied = await snapshot(store, tmp_path / "copy", progress=lambda *so_far: seen.append(so_far))
    assert seen[-1] == (copied, copied)
    names = set(os.listdir(tmp_path / "copy"))
    assert "chroma.sqlite3" in names
    assert not any(name.startswith("autogen_memory") for name in names)
    assert sorted(os.listdir(tmp_path)) == ["copy", "home", "store"]
    for folder in ("store", "copy"):
        async with a_memory(EmbeddedStore(tmp_path / folder)) as memory:
            assert await memory.count() == 1


async def test_a_store_of_another_process_is_refused(tmp_path: Path) -> None:
    async with a_memory(EmbeddedStore(tmp_path / "store")) as memory:
        await memory.remember("Likes tea")
        code = (
            "import asyncio, sys; from autogen_persistent_memory import *\n"
            "asyncio.run(snapshot(EmbeddedStore(sys.argv[1]), sys.argv[2], progress=False))"
        )
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            code,
            str(tmp_path / "store"),
            str(tmp_path / "copy"),
            env=environment,
            stderr=asyncio.subprocess.PIPE,
        )
        _, complaint = await program.communicate()
    assert StoreLockedError.__name__ in complaint.decode()
    assert f"in use by process {os.getpid()}" in complaint.decode()
    assert sorted(os.listdir(tmp_path)) == ["home", "store"]


async def test_an_invalid_source_or_target_is_refused(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    with pytest.raises(ValueError, match="no store in"):
        await snapshot(store, tmp_path / "copy", progress=False)
    assert os.listdir(tmp_path) == ["home"]
    async with a_memory(store) as memory:
        await memory.remember("Likes tea")
    with pytest.raises(ValueError, match="not empty"):
        await snapshot(store, tmp_path / "store", progress=False)
    with pytest.raises(ValueError, match="export_memories"):
        await snapshot(TemporaryStore(), tmp_path / "copy", progress=False)  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailableError, match=r"cannot be written.*choose another folder"):
        await snapshot(store, tmp_path / "file" / "copy", progress=False)
    async with a_memory(store) as memory:
        assert await memory.count() == 1
