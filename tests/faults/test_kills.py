"""A process that is killed at any moment loses no acknowledged memory, and the next process works."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from killing import Writers, fact, writers
from stocked import damages, open_memory, stock, told, without_vector

SAVED_EVERY = 1000
"""The number of rows after which Chroma saves its index."""
BEFORE_A_SAVE = 2 * SAVED_EVERY - 10
SAVING_SECONDS = 0.01


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose index was saved once, ten memories before the next save."""
    path = tmp_path_factory.mktemp("stocked") / "store"
    asyncio.run(stock(path, BEFORE_A_SAVE))
    return path


@pytest.fixture
def writing() -> Iterator[Writers]:
    with writers() as started:
        yield started


def write_and_kill(
    writing: Writers, path: Path, run: int, *, seconds: float, after: int = 0, saving: Path | None = None
) -> list[str]:
    """Kill a writing process, and return what it had acknowledged.

    The kill comes some seconds after it acknowledged a number of memories and, if a file is given, began to save it.
    """
    process = writing.start(path, run)
    acknowledged = []
    while (number := writing.acknowledged()) is not None:
        acknowledged.append(fact(run, number))
        if number == after:
            wait_for_change(saving)
            time.sleep(seconds)
            os.kill(process, signal.SIGKILL)
    return acknowledged


def wait_for_change(file: Path | None) -> None:
    until = time.monotonic() + 30
    before = file and file.stat().st_mtime_ns
    while file is not None and file.stat().st_mtime_ns == before:
        assert time.monotonic() < until


async def check(path: Path, acknowledged: list[str], earlier: list[str]) -> None:
    async with open_memory(path) as memory:
        for text in acknowledged:
            assert text in [hit.record.content for hit in (await memory.recall(text, limit=3)).hits]
        assert await without_vector(memory, acknowledged + earlier) == []
    assert await asyncio.to_thread(damages, path) == []


async def killed_while_writing(writing: Writers, path: Path, kills: int, chance: random.Random) -> None:
    """Kill writers of one store repeatedly."""
    everything: list[str] = []
    for run in range(kills):
        after, seconds = chance.randrange(12), chance.random() * 0.05
        acknowledged = await asyncio.to_thread(write_and_kill, writing, path, run, after=after, seconds=seconds)
        assert len(acknowledged) > after
        await check(path, acknowledged, chance.sample(everything, min(10, len(everything))))
        everything += acknowledged
    async with open_memory(path) as memory:
        assert {record.content for record in await memory.records(limit=100_000)} >= set(everything)


async def killed_while_saving(
    writing: Writers, stocked: Path, path: Path, kills: int, chance: random.Random, caplog: pytest.LogCaptureFixture
) -> int:
    """Kill writers repeatedly around an index save, and return how many kills damaged it."""
    damaged = 0
    for run in range(kills):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(stocked, path)
        header = next(iter(path.glob("*/header.bin")))  # noqa: ASYNC240 (nobody waits for this loop)
        seconds = chance.random() * SAVING_SECONDS
        acknowledged = await asyncio.to_thread(write_and_kill, writing, path, run, seconds=seconds, saving=header)
        caplog.clear()
        await check(path, acknowledged, [told(number) for number in chance.sample(range(BEFORE_A_SAVE), 10)])
        damaged += "has been repaired" in caplog.text
    return damaged


async def test_acknowledged_memories_survive_kills_at_random_moments(writing: Writers, tmp_path: Path) -> None:
    await killed_while_writing(writing, tmp_path / "store", 6, random.Random(1))


async def test_acknowledged_memories_survive_kills_during_index_saves(
    writing: Writers, stocked: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await killed_while_saving(writing, stocked, tmp_path / "store", 4, random.Random(2), caplog)


@pytest.mark.soak
async def test_two_hundred_kills(
    writing: Writers, stocked: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    await killed_while_writing(writing, tmp_path / "random", 100, chance)
    damaged = await killed_while_saving(writing, stocked, tmp_path / "saving", 100, chance, caplog)
    print(f"{damaged} of 100 kills around a save damaged the index; all were repaired")
    assert damaged > 0
