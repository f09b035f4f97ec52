"""A full or read-only disk is explained, no acknowledged memory is lost, and everything works once it is writable."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stocked import damages, open_memory, stock, told, without_vector

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, StoreUnavailableError
from autogen_persistent_memory.maintenance.doctor import diagnose

SAVED_EVERY = 50
ROWS = SAVED_EVERY - 10


def mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A separate disk with a filled store, whose index is saved often."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=100m", "tmpfs", str(folder)):
        pytest.skip("needs the right to mount a disk")
    try:
        asyncio.run(stock(folder / "store", ROWS, saved_every=SAVED_EVERY))
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def make_read_only(disk: Path) -> bool:
    """Remount a disk, which the system refuses until Chroma's threads have closed the last file they wrote."""
    until = time.monotonic() + 30
    while not mount("-o", "remount,ro", str(disk)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


async def fill(memory: PersistentMemory, acknowledged: list[str]) -> None:
    for number in range(len(acknowledged) + 1000, 10_000):
        await memory.remember(told(number))
        acknowledged.append(told(number))


async def test_a_disk_that_fills_up_during_an_index_save_loses_nothing_acknowledged(disk: Path) -> None:
    used = sum(file.stat().st_blocks * 512 for file in disk.rglob("*") if file.is_file())  # noqa: ASYNC240
    acknowledged: list[str] = []
    for spare in (60_000, 120_000, 200_000):
        assert await asyncio.to_thread(mount, "-o", f"remount,size={(used + spare) // 1024}k", str(disk))
        memory = open_memory(disk / "store")
        with pytest.raises(StoreUnavailableError, match=r"(?i)disk|full|space"):
            await fill(memory, acknowledged)
        await memory.close()
    assert await asyncio.to_thread(mount, "-o", "remount,size=100m", str(disk))
    async with open_memory(disk / "store") as memory:
        stored = {record.content for record in await memory.records(limit=10_000)}
        assert stored >= {*acknowledged, *(told(number) for number in range(ROWS))}
        await memory.flush()
        assert await without_vector(memory, sorted(stored)) == []
        await memory.remember("There is room again")
    assert await asyncio.to_thread(damages, disk / "store") == []


async def test_a_damaged_store_on_a_read_only_disk_is_explained_and_not_changed(disk: Path) -> None:
    async with open_memory(disk / "store") as memory:
        await memory.remember_many([told(number) for number in range(100, 100 + SAVED_EVERY)])
    (ids,) = (disk / "store").glob("*/index_metadata.pickle")
    ids.write_bytes(b"")
    assert await asyncio.to_thread(make_read_only, disk)
    memory = open_memory(disk / "store")
    with pytest.raises(StoreUnavailableError, match=r"cannot be written.*AUTOGEN_MEMORY_PATH"):
        await memory.recall("Where is it?")
    await memory.close()
    with pytest.raises(StoreUnavailableError, match="cannot be written"):
        await diagnose(EmbeddedStore(disk / "store"))
    assert ids.exists()
