"""What writing costs: one memory after the other, and many at once."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from autogen_core.memory import Memory, MemoryContent, MemoryMimeType
from tqdm import tqdm

from benchmarks.lib.report import Bar, Cell, Section, Table
from benchmarks.lib.stores import FACTS, Scale, Stores, Writer, copy_of
from benchmarks.lib.systems import RAW, THEIRS, EmbeddingName, chroma_on, embed, ours, theirs
from benchmarks.lib.timing import ratio, seconds_until, typical

ABOUT = (
    "Short facts, written to disk; seconds for a thousand. `remember_many` waits until all are stored and looks for "
    "restatements; theirs has only `add`, one by one. Chroma alone gets the vectors, the texts and one field. Stores that already "
    "hold memories are copied before they are written to."
)
BULK, SINGLE, THEIR_LOOP = "ours, remember_many", "ours, remember one by one", f"{THEIRS}, add one by one"
RAW_BULK, RAW_SINGLE = f"{RAW}, one add", f"{RAW}, add one by one"
Write = Callable[[Sequence[str]], Awaitable[object]]


async def each(write_one: Callable[[str], Awaitable[object]], texts: Sequence[str]) -> None:
    for text in texts:
        await write_one(text)


async def add_to(memory: Memory, text: str) -> None:
    """Add a memory, and yield to the event loop, which their `add` never does."""
    await memory.add(MemoryContent(content=text, mime_type=MemoryMimeType.TEXT))
    await asyncio.sleep(0)


async def add_rows(collection: Any, embedding: EmbeddingName, texts: Sequence[str]) -> None:
    collection.add(
        ids=[uuid.uuid4().hex for _ in texts],
        embeddings=embed(embedding, texts),
        documents=list(texts),
        metadatas=[{"mime_type": "text/plain"} for _ in texts],
    )


async def measure_round(
    embedding: EmbeddingName, writer: Writer, scale: Scale, holding: Sequence[str]
) -> dict[str, float]:
    """Return the seconds for a thousand memories, for each way to write, into empty stores or copies of filled ones."""
    with ExitStack() as folders:
        if holding:
            our_folder, their_folder = (folders.enter_context(copy_of(folder)) for folder in holding)
        else:
            fresh = folders.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
            our_folder, their_folder = f"{fresh}/ours", f"{fresh}/theirs"
        memory, their_memory = ours(our_folder, embedding), theirs(their_folder, embedding)
        await asyncio.gather(memory.recall("Warm up"), their_memory.query("Warm up"))
        collection = raw_collection(their_folder, is_fresh=not holding)
        ways: dict[str, tuple[Write, int]] = {
            BULK: (memory.remember_many, scale.bulk),
            THEIR_LOOP: (partial(each, partial(add_to, their_memory)), scale.one_by_one if holding else scale.bulk),
            RAW_BULK: (partial(add_rows, collection, embedding), scale.bulk),
        }
        if embedding == "words":
            ways[SINGLE] = (partial(each, memory.remember), scale.one_by_one)
            ways[RAW_SINGLE] = (partial(each, lambda text: add_rows(collection, embedding, [text])), scale.one_by_one)
        taken = {
            name: 1000 / count * await seconds_until(write(writer.texts(FACTS, count)))
            for name, (write, count) in tqdm(ways.items(), desc=f"writing, {embedding}", leave=False, disable=None)
        }
        await asyncio.gather(memory.close(), their_memory.close())
    return taken


def raw_collection(folder: str, *, is_fresh: bool) -> Any:
    """Return a collection for Chroma alone: a new one, or the one that already holds memories."""
    client = chroma_on(folder)
    if is_fresh:
        cosine = {"hnsw": {"space": "cosine"}}
        return client.create_collection("chroma-alone", configuration=cosine, embedding_function=None)
    return client.get_collection("memory_store", embedding_function=None)


def rounds_of(embedding: EmbeddingName, scale: Scale, *holding: str) -> list[dict[str, float]]:
    writer = Writer(seed=4)
    return [asyncio.run(measure_round(embedding, writer, scale, holding)) for _ in range(scale.rounds)]


def measure(scale: Scale, stores: Stores) -> Section:
    held = next(size for size in reversed(scale.word_sizes) if size <= 10_000)
    minilm, words = rounds_of("minilm", scale), rounds_of("words", scale)
    more = rounds_of("words", scale, stores.ours("words", held), stores.theirs("words", held))
    columns = {"MiniLM, empty store": minilm, "cheap, empty store": words, f"cheap, {held:,} there already": more}
    rows: list[list[Cell]] = [
        [way, *(typical(rounds, way) if way in rounds[0] else None for rounds in columns.values())] for way in words[0]
    ]
    for way in (THEIR_LOOP, RAW_BULK):
        rows.append([f"{way} / {BULK}", *(ratio(rounds, way, BULK) for rounds in columns.values())])
    note = f"{scale.bulk:,} at once and with `add`, {scale.one_by_one} one by one otherwise. {ABOUT}"
    at_once = f"{scale.bulk:,} short memories: their add loop / ours in bulk"
    bars = [
        Bar(f"{at_once}, MiniLM", 3, ratio(minilm, THEIR_LOOP, BULK), at_most=False),
        Bar(f"{at_once}, cheap embedding", 10, ratio(words, THEIR_LOOP, BULK), at_most=False),
    ]
    return Section("Write cost", note, [Table(["s for 1,000", *columns], rows)], bars)
