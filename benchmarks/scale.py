"""How the costs grow with the number of memories, beside those of the Chroma collection that they are in.

    python benchmarks/scale.py [--sizes 1000 10000 100000] [--json]

Made-up memories in one namespace of an `EmbeddedStore`: half are messages, in sessions of forty with two speakers, half
are facts. They are written with `remember_many`; then a fresh process opens the store and asks, in turns, for a recall and
for the nearest rows straight from Chroma, with the `n_results` and `include` of our own search. A third process opens the
same folder with Chroma alone. The embedding is a cheap one: with MiniLM, writing 100,000 memories would measure MiniLM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import chromadb
import numpy as np
from chromadb.config import Settings
from tqdm import tqdm

from autogen_persistent_memory import CallableEmbedding, EmbeddedStore, PersistentMemory, RecallPolicy

T = TypeVar("T")

DIMENSIONS = 384
VOCABULARY = 4000
SESSION = 40
QUESTIONS = 200
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
PEOPLE = ["Ann", "Bob", "Carla", "Dmitri", "Elif", "Farid", "Grace", "Hiro", "Ines", "Jonas", "Kofi", "Lena"]
MESSAGES = [
    "I was at the {0} with my {1} yesterday, and the {2} was really {3}.",
    "Did you ever try the {0} {1} that {name} told us about?",
    "We want to {0} the {1} before the {2} starts in {month}, so that nobody has to {3}.",
    "Oh, that sounds {0}! My {1} would love such a {2}.",
    "After the {0} I will {1} again; last time it took until {month}.",
    "{name} says the {0} is {1}, but I think a {2} {3} is what we need.",
]
FACTS = [
    "Prefers {0} over {1} for every {2}",
    "{name} works on the {0} {1} in {place}",
    "Decided to {0} the {1} because the {2} was too {3}",
    "Never {0} a {1} on the {2}: it broke the {3} in {month}",
    "The {0} of the {1} is {2} {3}",
    "Is learning to {0} the {1} since {month}",
]
ASKED = [
    "What did {name} say about the {0} {1}?",
    "When will we {0} the {1}?",
    "Which {0} is better for a {1} {2}?",
    "Who works on the {0} {1}?",
]
MONTHS = ["January", "March", "April", "June", "July", "September", "October", "December"]


class Writer:
    """Makes texts up: templates filled with words of which few are frequent and most are rare, always the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        coined = Random(0)
        words = {"".join(coined.choices(SYLLABLES, k=coined.randint(2, 4))): None for _ in range(2 * VOCABULARY)}
        self._words = list(words)[:VOCABULARY]
        self._odds = np.cumsum(1 / np.arange(1, VOCABULARY + 1)).tolist()

    def fill(self, templates: Sequence[str]) -> str:
        words = self._random.choices(self._words, cum_weights=self._odds, k=4)
        return self._random.choice(templates).format(
            *words,
            name=self._random.choice(PEOPLE),
            month=self._random.choice(MONTHS),
            place=self._random.choice(self._words[:300]).capitalize(),
        )

    def memories(self, count: int) -> Iterator[dict[str, Any]]:
        """Sessions of messages over two years, and as many facts in between."""
        begun = datetime(2024, 1, 1, tzinfo=timezone.utc)
        for number in range(count):
            block, place = divmod(number, SESSION)
            at = begun + timedelta(days=700) * number / count
            if block % 2 == 0:
                speakers = PEOPLE[block % 12], PEOPLE[(block + 5) % 12]
                text, said = self.fill(MESSAGES), {"source": speakers[place % 2], "session": f"session-{block}"}
                yield {"content": text, "kind": "interaction", "at": at, **said}
            else:
                kind = self._random.choice(["fact", "preference", "decision", "lesson"])
                yield {"content": self.fill(FACTS), "kind": kind, "at": at}


@cache
def word_vector(word: str) -> Any:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSIONS, dtype=np.float32)


def embed(texts: list[str]) -> Any:
    """The mean of the vectors of a text's longer words, each word's drawn by its checksum."""
    words = [[word for word in text.lower().split() if len(word) > 3] or [text] for text in texts]
    starts = np.cumsum([0, *(len(of_text) for of_text in words[:-1])])
    sums = np.add.reduceat(np.array([word_vector(word) for of_text in words for word in of_text]), starts)
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


def memory_on(folder: str) -> PersistentMemory:
    return PersistentMemory("scale", store=EmbeddedStore(folder), embedding=CallableEmbedding(embed, id="words-384"))


def chroma_on(folder: str) -> tuple[Any, Any]:
    """Chroma's client of the folder, and the collection with the memories."""
    client = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
    return client, max(client.list_collections(), key=lambda collection: collection.count())


def nearest(collection: Any, vectors: Any) -> None:
    """What our search asks of Chroma."""
    collection.query(query_embeddings=vectors, n_results=RecallPolicy().candidates, include=["distances"])


def resident() -> float:
    """What this process holds in RAM, in MB; where the system does not say, the most it ever held."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


@dataclass(frozen=True)
class Opened:
    """A store opened in a process of its own: the seconds until the first answer, and the RAM held at the end."""

    seconds: float
    megabytes: float


def write(folder: str, size: int) -> float:
    """Write memories; the seconds it took."""

    async def writing() -> float:
        async with memory_on(folder) as memory:
            await memory.remember("The first memory opens the store")
            memories = list(Writer(seed=1).memories(size - 1))
            started = time.perf_counter()
            await memory.remember_many(memories, progress=True)
            return time.perf_counter() - started

    return asyncio.run(writing())


def open_ours(folder: str) -> tuple[Opened, list[float], list[float]]:
    """Open the memories; and the seconds of recalls and of raw queries, asked in turns."""

    async def asking() -> tuple[Opened, list[float], list[float]]:
        writer = Writer(seed=2)
        started = time.perf_counter()
        async with memory_on(folder) as memory:
            await memory.recall(writer.fill(ASKED))
            until_answered = time.perf_counter() - started
            client, collection = chroma_on(folder)
            nearest(collection, embed([writer.fill(ASKED)]))
            ours, raw = [], []
            for _ in tqdm(range(QUESTIONS), desc="asking", disable=None):
                question = writer.fill(ASKED)
                started = time.perf_counter()
                await memory.recall(question)
                ours.append(time.perf_counter() - started)
                vectors = embed([question])
                started = time.perf_counter()
                nearest(collection, vectors)
                raw.append(time.perf_counter() - started)
            megabytes = resident()
            client.close()
        return Opened(until_answered, megabytes), ours, raw

    return asyncio.run(asking())


def open_chroma(folder: str) -> Opened:
    """Open the same folder with Chroma alone, and ask as often."""
    writer = Writer(seed=2)
    started = time.perf_counter()
    client, collection = chroma_on(folder)
    nearest(collection, embed([writer.fill(ASKED)]))
    until_answered = time.perf_counter() - started
    for _ in range(QUESTIONS):
        nearest(collection, embed([writer.fill(ASKED)]))
    opened = Opened(until_answered, resident())
    client.close()
    return opened


def in_fresh_process(work: Callable[..., T], *arguments: Any) -> T:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


def measure(size: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        writing = in_fresh_process(write, folder, size)
        ours, recalls, queries = in_fresh_process(open_ours, folder)
        chroma = in_fresh_process(open_chroma, folder)
    return {
        "write 1,000, s": 1000 * writing / size,
        "open to first answer, s": ours.seconds,
        "  Chroma alone, s": chroma.seconds,
        "RAM, MB": ours.megabytes,
        "  Chroma alone, MB": chroma.megabytes,
        "  ours above it, KB each": 1000 * (ours.megabytes - chroma.megabytes) / size,
        "recall p50, ms": 1000 * statistics.median(recalls),
        "  raw query p50, ms": 1000 * statistics.median(queries),
        "recall p95, ms": 1000 * statistics.quantiles(recalls, n=20)[-1],
        "  raw query p95, ms": 1000 * statistics.quantiles(queries, n=20)[-1],
    }


def growth(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """By what factor recalls and raw queries grew from one size to another."""
    return {row: after[row] / before[row] for row in before if "p50" in row or "p95" in row}


def report(figures: dict[int, dict[str, float]], *, as_json: bool) -> None:
    sizes = sorted(figures)
    grown = {
        f"{size:,} to {next_size:,}": growth(figures[size], figures[next_size]) for size, next_size in pairwise(sizes)
    }
    if as_json:
        print(json.dumps({"benchmark": "scale", "sizes": figures, "growth": grown}, indent=2))
        return
    print(f"\n{'memories':<28}" + "".join(f"{size:>12,}" for size in sizes))
    for row in figures[sizes[0]]:
        print(f"{row:<28}" + "".join(f"{figures[size][row]:>12.2f}" for size in sizes))
    for step, factors in grown.items():
        print(f"\ntimes as long, {step}")
        for row, factor in factors.items():
            print(f"{row:<28}{factor:>12.2f}")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000], help="numbers of memories")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    report({size: measure(size) for size in tqdm(arguments.sizes, desc="sizes", disable=None)}, as_json=arguments.json)
