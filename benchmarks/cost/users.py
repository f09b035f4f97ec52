"""What one user's recall costs among many users: a namespace of one's own beside one collection, filtered."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from tqdm import tqdm

from benchmarks.lib.contestants import OURS, POLICY, THEIRS, embed, ours, their_collection, theirs
from benchmarks.lib.corpus import QUESTIONS, Writer
from benchmarks.lib.measuring import Ask, in_turns, milliseconds, ratio, typical
from benchmarks.lib.results import Bar, Cell, Section, Table
from benchmarks.lib.scales import Scale
from benchmarks.lib.stores import Stores

ABOUT = (
    "Each user has a namespace. The alternative is one collection with the same number of memories, in which every "
    "memory names its user and the query filters by user: with `ChromaDBVectorMemory.query(where=...)`, and with "
    "Chroma alone. Cheap embedding."
)
QUESTIONS_EACH = 5
FIRST, FILTERED, FILTERED_RAW = "ours, a user's first", f"{THEIRS}, filtered", "Chroma alone, filtered"


async def measure_round(scale: Scale, stores: Stores, number: int) -> tuple[dict[str, float], dict[str, float]]:
    """The p50 and p95 of each, in ms."""
    folder = stores.theirs("words", scale.word_sizes[-1])
    collection, filtered = their_collection(folder), theirs(folder, "words")
    await filtered.query("Warm up")
    writer = Writer(seed=5 + number)
    seconds: dict[str, list[float]] = {FIRST: [], OURS: [], FILTERED: [], FILTERED_RAW: []}
    async with ours(stores.users, "words", namespace="keeps-the-store-open") as keeper:
        await keeper.recall("Warm up")
        step = scale.users // scale.users_asked
        for user in tqdm(range(number % step, scale.users, step), desc="users", leave=False, disable=None):
            name = f"user-{user}"
            async with ours(stores.users, "words", namespace=name) as memory:
                started = time.perf_counter()
                await memory.recall(writer.fill(QUESTIONS))
                seconds[FIRST].append(time.perf_counter() - started)
                asked: dict[str, Ask] = {
                    OURS: memory.recall,
                    FILTERED: partial(filtered.query, where={"user": name}),
                    FILTERED_RAW: partial(query_filtered, collection, name),
                }
                taken = await in_turns(asked, writer.texts(QUESTIONS, QUESTIONS_EACH))
                for way, of_way in taken.items():
                    seconds[way] += of_way
    await filtered.close()
    p50, p95 = partial(milliseconds, share=0.5), partial(milliseconds, share=0.95)
    return {way: p50(taken) for way, taken in seconds.items()}, {way: p95(taken) for way, taken in seconds.items()}


async def query_filtered(collection: Any, user: str, question: str) -> None:
    vectors = embed("words", [question])
    collection.query(query_embeddings=vectors, n_results=POLICY.limit, where={"user": user})


async def measure_rounds(scale: Scale, stores: Stores) -> Section:
    rounds = [await measure_round(scale, stores, number) for number in range(scale.rounds)]
    p50, p95 = [of_round[0] for of_round in rounds], [of_round[1] for of_round in rounds]
    rows: list[list[Cell]] = [[way, typical(p50, way), typical(p95, way), ratio(p50, way, OURS)] for way in p50[0]]
    among = f"{scale.users:,} users × {scale.memories_of_user}"
    bar = Bar(
        f"one user's recall among {among}: filtered collection / ours", 10, ratio(p50, FILTERED, OURS), at_most=False
    )
    in_one = f"{scale.word_sizes[-1]:,} memories in the one collection, {among} in ours."
    return Section("Many users", f"{in_one} {ABOUT}", [Table(["", "p50, ms", "p95, ms", "/ ours"], rows)], [bar])


def measure(scale: Scale, stores: Stores) -> Section:
    return asyncio.run(measure_rounds(scale, stores))
