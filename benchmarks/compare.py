"""What memory costs an agent, beside AutoGen's own ChromaDBVectorMemory, in one run.

    python benchmarks/compare.py [--memories 500] [--turns 50]

Both get the same embedding (MiniLM) and the same memories; the model is scripted. Figures are for this machine at this
moment; the ratios are what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.memory import Memory, MemoryContent, MemoryMimeType
from autogen_core.models import SystemMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from systems import autogen_memory
from tqdm import tqdm

from autogen_persistent_memory import EmbeddedStore, PersistentMemory
from autogen_persistent_memory._minilm import load_minilm
from autogen_persistent_memory._tokens import count_tokens

SUBJECTS = ["Ann", "Bob", "Carla", "Dmitri", "Elif", "Farid", "Grace", "Hiro"]
FACTS = [
    "prefers tea over coffee",
    "works on the billing service",
    "is allergic to peanuts",
    "moved to Lisbon in spring",
    "learns to play the cello",
    "uses PostgreSQL for everything",
    "reviews code before lunch",
    "wants short answers",
]


async def stalls_during(work: Awaitable[Any]) -> tuple[float, float]:
    """Seconds the work took, and the longest the event loop stood still meanwhile."""
    loop = asyncio.get_running_loop()
    started = last = loop.time()
    longest = 0.0
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0.001)
        longest, last = max(longest, loop.time() - last), loop.time()
    task.result()
    return loop.time() - started, longest


async def measure(name: str, memory: Memory, fill: Callable[[], Awaitable[Any]], turns: int) -> dict[str, float]:
    writing, write_stall = await stalls_during(fill())
    client = ReplayChatCompletionClient(["Understood."] * turns)
    agent = AssistantAgent("assistant", model_client=client, memory=[memory])
    latencies: list[float] = []
    longest = 0.0
    for turn in tqdm(range(turns), desc=f"{name}: turns", disable=None):
        question = f"What do you know of {SUBJECTS[turn % 8]}, turn {turn}?"
        started = time.perf_counter()
        _, stall = await stalls_during(agent.run(task=question))
        latencies.append(time.perf_counter() - started)
        longest = max(longest, stall)
    prompts = [list(call["messages"]) for call in client.create_calls]
    tokens = sum(count_tokens(str(message.content)) for prompt in prompts for message in prompt)
    injected = sum(
        isinstance(message, SystemMessage) or getattr(message, "source", "") == "memory" for message in prompts[-1]
    )
    await memory.close()
    return {
        "seconds to write": writing,
        "longest stall writing, ms": write_stall * 1000,
        "turn p50, ms": statistics.median(latencies) * 1000,
        "longest stall in a turn, ms": longest * 1000,
        "prompt tokens in all": tokens,
        "memory messages in the last prompt": injected - 1,
    }


async def main(memories: int, turns: int) -> None:
    texts = [f"{SUBJECTS[n % 8]} {FACTS[n // 8 % 8]} (note {n})" for n in range(memories)]
    load_minilm(None)
    with tempfile.TemporaryDirectory() as folder:
        ours = PersistentMemory("bench", store=EmbeddedStore(Path(folder, "ours")))
        theirs = autogen_memory(str(Path(folder, "theirs")), k=5)

        async def fill_theirs() -> None:
            for text in tqdm(texts, desc="theirs: writing", disable=None):
                await theirs.add(MemoryContent(content=text, mime_type=MemoryMimeType.TEXT))
                await asyncio.sleep(0)

        results = {
            "ours": await measure("ours", ours, lambda: ours.remember_many(texts, progress=True), turns),
            "theirs": await measure("theirs", theirs, fill_theirs, turns),
        }
    print(f"\n{memories} memories, {turns} turns")
    print(f"{'':<36}{'ours':>10}{'theirs':>10}{'theirs/ours':>13}")
    for row in results["ours"]:
        our, their = results["ours"][row], results["theirs"][row]
        print(f"{row:<36}{our:>10.1f}{their:>10.1f}{their / our if our else float('nan'):>13.1f}")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=500)
    parser.add_argument("--turns", type=int, default=50)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.memories, arguments.turns))
