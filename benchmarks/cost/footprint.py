"""How much RAM and disk memories take, and how that grows."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence

from autogen_core.model_context import BufferedChatCompletionContext
from autogen_ext.models.replay import ReplayChatCompletionClient
from tqdm import tqdm

from benchmarks.lib.report import Cell, Section, Table
from benchmarks.lib.stores import MESSAGES, QUESTIONS, Scale, Stores, Writer
from benchmarks.lib.systems import (
    OURS,
    RAW,
    THEIRS,
    agent_with,
    embed,
    our_largest_collection,
    ours,
    raw_query,
    run_task,
    theirs,
)
from benchmarks.lib.timing import megabytes_in, resident

ABOUT = (
    "Each store is opened and queried in a process of its own, whose RAM is then read. Cheap embedding. KB a memory are relative to "
    "a process that has imported the same and opened nothing. Chroma alone is another process on our folder."
)


def ram_of(folder: str | None, system: str, questions: int) -> float:
    """Return the MB of a process that queried a store; without a folder, of one that only imported everything."""
    writer = Writer(seed=8)

    async def asking() -> float:
        if folder is None:
            embed("words", [writer.fill(QUESTIONS)])
        elif system == RAW:
            collection = our_largest_collection(folder)
            for _ in range(questions):
                raw_query(collection, embed("words", [writer.fill(QUESTIONS)]))
        else:
            memory = ours(folder, "words") if system == OURS else theirs(folder, "words")
            for _ in range(questions):
                await memory.query(writer.fill(QUESTIONS))
            megabytes = resident()
            await memory.close()
            return megabytes
        return resident()

    return asyncio.run(asking())


async def converse(turns: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each turn of a captured conversation, and the MB on disk after each tenth."""
    seconds: list[float] = []
    sizes: list[float] = []
    said = Writer(seed=9).texts(MESSAGES, turns)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        client = ReplayChatCompletionClient([f"I see, and what about this: {text.lower()}" for text in said])
        async with ours(folder, "minilm", capture=True) as memory:
            context = BufferedChatCompletionContext(buffer_size=20)
            agent = agent_with(memory, client, model_context=context)
            await memory.recall("Warm up")
            for number, text in enumerate(tqdm(said, desc="conversation", leave=False, disable=None), start=1):
                started = time.perf_counter()
                await run_task(agent, text)
                seconds.append(time.perf_counter() - started)
                if number % max(1, turns // 10) == 0:
                    sizes.append(await asyncio.to_thread(megabytes_in, folder))
    return seconds, sizes


def conversation(turns: int) -> tuple[list[float], list[float]]:
    return asyncio.run(converse(turns))


def conversation_table(scale: Scale) -> Table:
    turns = scale.conversation
    seconds, sizes = scale.apart(conversation, turns)
    tenth, half = max(1, turns // 10), len(sizes) // 2
    return Table(
        [f"{turns} turns, captured, MiniLM", "at first", "at last"],
        [
            [
                "p50 of a turn, first and last tenth, ms",
                *(1000 * statistics.median(part) for part in (seconds[:tenth], seconds[-tenth:])),
            ],
            [
                "KB on disk a message, first and second half",
                kilobytes(sizes[: half + 1], tenth),
                kilobytes(sizes[half:], tenth),
            ],
        ],
        "A long conversation",
    )


def kilobytes(sizes: Sequence[float], turns_between: int) -> float:
    """Return the KB a message between the first and the last size; each turn has two messages."""
    return 1000 * (sizes[-1] - sizes[0]) / max(1, (len(sizes) - 1) * turns_between * 2)


def measure(scale: Scale, stores: Stores) -> Section:
    empty = scale.apart(ram_of, None, RAW, 0)
    rows: list[list[Cell]] = []
    ram: dict[str, dict[int, float]] = {name: {} for name in (OURS, RAW, THEIRS)}
    disk: dict[str, dict[int, float]] = {name: {} for name in ram}
    for size in tqdm(scale.word_sizes, desc="footprint", leave=False, disable=None):
        for name in ram:
            folder = stores.theirs("words", size) if name == THEIRS else stores.ours("words", size)
            ram[name][size] = scale.apart(ram_of, folder, name, scale.questions)
            disk[name][size] = megabytes_in(folder)
            rows.append(
                [
                    f"{size:,}",
                    name,
                    ram[name][size],
                    1000 * (ram[name][size] - empty) / size,
                    disk[name][size],
                    1000 * disk[name][size] / size,
                ]
            )
    small, large = scale.word_sizes[0], scale.word_sizes[-1]
    growth: list[list[Cell]] = [
        [name, *(1000 * (of[name][large] - of[name][small]) / (large - small) for of in (ram, disk))] for name in ram
    ]
    tables = [
        Table(["memories", "", "RAM, MB", "KB a memory", "disk, MB", "KB a memory on disk"], rows),
        Table([f"from {small:,} to {large:,}, KB a further memory", "RAM", "disk"], growth, "Growth"),
        conversation_table(scale),
    ]
    return Section("Footprint", ABOUT, tables)
