"""A process with many namespaces keeps few in RAM and in open files, and still finds all of them."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from pathlib import Path

import pytest
from stocked import open_memory
from toys import words

from autogen_persistent_memory import PersistentMemory, TemporaryStore
from autogen_persistent_memory.retrieval.upkeep import _MOST_AWAKE

FILES = 256
TOUR = """
    import asyncio, os, resource, sys
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    from toys import words
    from autogen_persistent_memory import *

    def megabytes():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() // 2**20

    async def main(path, count):
        store, embedding = EmbeddedStore(path) if path else TemporaryStore(), words()
        memories = [
            PersistentMemory(f"user-{number}", session="s", store=store, embedding=embedding)
            for number in range(int(count))
        ]
        files, early = 0, 0
        for number, memory in enumerate(memories):
            await memory.remember(f"The locker of the guest is {number * 7}")
            await memory.session.append("user", f"My room has the number {number * 3} on its door")
            await memory.set("number", number)
            files = max(files, len(os.listdir("/proc/self/fd")))
            if number == len(memories) // 4:
                early = megabytes()
        for number, memory in enumerate(memories):
            found = await memory.recall("Which locker does the guest have?", limit=1)
            assert found.hits[0].record.content == f"The locker of the guest is {number * 7}", number
            assert await memory.get("number") == number
            files = max(files, len(os.listdir("/proc/self/fd")))
        late = megabytes()
        for memory in memories:
            await memory.close()
        print(files, early, late)

    asyncio.run(main(*sys.argv[1:]))
"""


async def tour(path: Path | str, count: int) -> tuple[int, int, int]:
    """Use many namespaces in turn, twice; print the most open files, and the megabytes after an eighth and at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        textwrap.dedent(TOUR),
        str(path),
        str(count),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    files, early, late = map(int, output.split())
    return files, early, late


@pytest.mark.parametrize("place", ["folder", "ram"])
async def test_more_namespaces_are_used_than_files_may_be_open(place: str, tmp_path: Path) -> None:
    """Chroma alone evicts indexes then, and fails or no longer finds unsaved rows."""
    files, _, _ = await tour(tmp_path / "store" if place == "folder" else "", 35)
    assert files < FILES


@pytest.mark.soak
async def test_a_thousand_namespaces_with_256_open_files(tmp_path: Path) -> None:
    files, early, late = await tour(tmp_path / "store", 1000)
    print(f"at most {files} open files; {early} MB after 250 namespaces, {late} MB after 1,000 twice")
    assert files < FILES
    assert late < 1.5 * early


async def test_idle_namespaces_are_evicted_and_reloaded_on_use() -> None:
    store = TemporaryStore()
    memories = [PersistentMemory(f"user-{n}", store=store, embedding=words()) for n in range(_MOST_AWAKE + 40)]
    for number, memory in enumerate(memories):
        await memory.remember(f"The locker is {number}")
        await memory.recall("Which locker?", reinforce=True)
        await memory.flush()
    awake = [memory for memory in memories if memory._engine._data is not None]
    assert _MOST_AWAKE / 2 < len(awake) <= _MOST_AWAKE + 1  # other namespaces may be loaded as well
    assert awake == memories[-len(awake) :]
    (found,) = (await memories[0].recall("Which locker?")).hits
    assert found.record.content == "The locker is 0"
    assert found.record.uses == 1
    for memory in memories:
        await memory.close()


async def test_a_namespace_with_pending_writes_is_not_evicted(tmp_path: Path) -> None:
    async with open_memory(tmp_path / "store") as memory:
        await memory.remember("Likes tea")
        await memory.recall("tea", reinforce=True)
        assert not memory._engine.evict()
        await memory.flush()
        assert memory._engine.evict()
        assert (await memory.recall("tea")).hits[0].record.uses == 1
