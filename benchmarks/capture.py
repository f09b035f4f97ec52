"""What capturing a long conversation costs: time per turn, disk, and how long the event loop stands still.

    python benchmarks/capture.py [--turns 1000] [--json]

An `AssistantAgent` with a scripted model and `memory=[PersistentMemory(...)]`, nothing else: every message is captured, every
turn recalls. Beside it, in the same run, the same messages written with `add` of AutoGen's `ChromaDBVectorMemory` on the same
embedding. A ticking task measures the stalls of the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_ext.models.replay import ReplayChatCompletionClient
from systems import autogen_memory
from tqdm import tqdm

from autogen_persistent_memory import EmbeddedStore, PersistentMemory

TICK = 0.005
SUBJECTS = (
    "the garden",
    "our release",
    "the violin",
    "a train to Oslo",
    "the tax form",
    "Bamse the dog",
    "the new flat",
)
VERBS = ("needs", "reminds me of", "was better than", "comes before", "depends on", "has nothing to do with")


def messages(count: int) -> list[str]:
    """Different sentences, the same in every run."""
    chance = random.Random(7)
    return [
        f"Number {number}: {chance.choice(SUBJECTS)} {chance.choice(VERBS)} {chance.choice(SUBJECTS)}, said {number}."
        for number in range(count)
    ]


async def stalls_of(work: Callable[[], Awaitable[None]]) -> list[float]:
    """How much later than asked for a ticking task woke up, tick by tick, while the work was done."""
    stalls: list[float] = []

    async def tick() -> None:
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(TICK)
            stalls.append(time.perf_counter() - asked - TICK)

    ticking = asyncio.create_task(tick())
    await work()
    ticking.cancel()
    return stalls


async def ours(folder: str, said: Sequence[str]) -> tuple[list[float], list[float], list[int]]:
    """Seconds per turn, stalls, and the size of the store after each tenth."""
    seconds: list[float] = []
    sizes: list[int] = []
    async with PersistentMemory("ann", session="long", store=EmbeddedStore(folder)) as memory:
        client = ReplayChatCompletionClient([f"I see, and what about {text.lower()}" for text in said])
        context = BufferedChatCompletionContext(buffer_size=20)
        agent = AssistantAgent("assistant", model_client=client, memory=[memory], model_context=context)

        async def talk() -> None:
            for number, text in enumerate(tqdm(said, desc="ours", disable=None), start=1):
                started = time.perf_counter()
                await agent.run(task=text)
                seconds.append(time.perf_counter() - started)
                if number % max(1, len(said) // 10) == 0:
                    sizes.append(await asyncio.to_thread(size_of, folder))

        await memory.recall("warm up")
        stalls = await stalls_of(talk)
        await memory.flush()
        captured = len(await memory.session.messages())
    assert captured == 2 * len(said), f"{captured} of {2 * len(said)} messages were captured"
    return seconds, stalls, sizes


async def theirs(folder: str, said: Sequence[str]) -> list[float]:
    """The stalls while the same messages are added."""
    memory = autogen_memory(folder, k=5)
    await memory.query("warm up")

    async def add() -> None:
        for text in tqdm(said, desc="ChromaDBVectorMemory", disable=None):
            for content in (text, f"I see, and what about {text.lower()}"):
                await memory.add(MemoryContent(content=content, mime_type=MemoryMimeType.TEXT))
                await asyncio.sleep(0)

    stalls = await stalls_of(add)
    await memory.close()
    return stalls


def size_of(folder: str) -> int:
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def main(turns: int) -> dict[str, float]:
    said = messages(turns)
    with tempfile.TemporaryDirectory() as folder:
        seconds, stalls, sizes = await ours(f"{folder}/ours", said)
        their_stalls = await theirs(f"{folder}/theirs", said)
    tenth = max(1, turns // 10)
    return {
        "turns": turns,
        "p50 ms of a turn, first tenth": 1000 * statistics.median(seconds[:tenth]),
        "p50 ms of a turn, last tenth": 1000 * statistics.median(seconds[-tenth:]),
        "kB a message, first half": (sizes[len(sizes) // 2] - sizes[0]) / max(1, len(sizes) // 2) / tenth / 2000,
        "kB a message, second half": (sizes[-1] - sizes[len(sizes) // 2])
        / max(1, len(sizes) - 1 - len(sizes) // 2)
        / tenth
        / 2000,
        "p99 ms stall, ours": 1000 * percentile(stalls, 0.99),
        "p99 ms stall, ChromaDBVectorMemory.add": 1000 * percentile(their_stalls, 0.99),
        "longest ms stall, ours": 1000 * max(stalls),
        "longest ms stall, ChromaDBVectorMemory.add": 1000 * max(their_stalls),
    }


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1000, help="how long the conversation is")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    figures = asyncio.run(main(arguments.turns))
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:<46}{value:>10.1f}")
