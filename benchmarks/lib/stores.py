"""The stores that are measured, filled once a run: the same memories in ours and in `ChromaDBVectorMemory`'s.

Ours are filled through `import_memories`: half of the memories are facts, half are messages of conversations, so that both of a
namespace's collections are searched. A loop of their `add` would take a quarter of an hour for 100,000, so theirs are
filled through Chroma, with the rows that `add` writes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from autogen_persistent_memory import CallableEmbedding, EmbeddedStore, MiniLMEmbedding, import_memories
from benchmarks.lib.contestants import NAMESPACE, EmbeddingName, embed, their_collection, theirs
from benchmarks.lib.corpus import FACTS, MESSAGES, PEOPLE, Writer
from benchmarks.lib.measuring import processes
from benchmarks.lib.scales import Scale

SESSION = 40
CHUNK = 1000
IN_RAM = Path("/dev/shm")
ROOM = 4e9
PLAIN = {
    **dict.fromkeys(
        ("key", "source", "session", "sequence", "expires_at", "last_used_at", "superseded_by", "superseded_at")
    ),
    "tags": [],
    "origin": "application",
    "uses": 0,
    "pinned": False,
    "mime_type": "text/plain",
    "metadata": {},
}
"""The fields of a record about which there is nothing to say."""
Vectors = Callable[[Sequence[str]], Any]
Done = Callable[[int], Any]


@dataclass(frozen=True)
class Stores:
    """Where the stores are."""

    root: str

    def ours(self, embedding: EmbeddingName, size: int) -> str:
        return f"{self.root}/{embedding}-{size}-ours"

    def theirs(self, embedding: EmbeddingName, size: int) -> str:
        return f"{self.root}/{embedding}-{size}-theirs"

    @property
    def users(self) -> str:
        """A namespace for each user."""
        return f"{self.root}/users"


@contextmanager
def place(kept: Path | None) -> Iterator[Stores]:
    """A place for the stores that are only read: in RAM, where there is room; or a folder that is kept for the next run."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield Stores(str(kept))
        return
    in_ram = IN_RAM.is_dir() and shutil.disk_usage(IN_RAM).free > ROOM
    with tempfile.TemporaryDirectory(prefix="bench-", dir=IN_RAM if in_ram else None) as folder:
        yield Stores(folder)


@contextmanager
def copy_of(folder: str) -> Iterator[str]:
    """A copy on disk, for who writes."""
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        yield shutil.copytree(folder, f"{place}/copy")


def build(stores: Stores, scale: Scale) -> None:
    """Fill all stores that are not there yet, two at a time."""
    jobs: list[Callable[[int], None]] = [
        partial(fill_ours, stores, "words", scale.word_sizes[-1:]),
        partial(fill_both, stores, "minilm", scale),
        partial(fill_users, stores, scale),
        partial(fill_both, stores, "words", scale),
    ]
    with processes(2) as pool:
        for job in [pool.submit(job, position) for position, job in enumerate(jobs)]:
            job.result()


def fill_both(stores: Stores, embedding: EmbeddingName, scale: Scale, position: int) -> None:
    """Fill the stores of an embedding; of the largest numbers only theirs."""
    vectors = Remembered(embedding)
    sizes = scale.minilm_sizes if embedding == "minilm" else scale.word_sizes
    fill_ours(stores, embedding, sizes if embedding == "minilm" else sizes[:-1], position, vectors)
    for size in sizes:
        with missing(stores.theirs(embedding, size)) as folder, bar_of(size, folder, position) as done:
            if folder:
                asyncio.run(_fill_theirs(folder, embedding, vectors, size, scale.users, done))


def fill_ours(
    stores: Stores, embedding: EmbeddingName, sizes: Sequence[int], position: int, vectors: Vectors | None = None
) -> None:
    for size in sizes:
        with missing(stores.ours(embedding, size)) as folder, bar_of(size, folder, position) as done:
            if folder:
                asyncio.run(_fill_ours(folder, embedding, vectors or Remembered(embedding), size, done))


def fill_users(stores: Stores, scale: Scale, position: int) -> None:
    total = scale.users * scale.memories_of_user
    with missing(stores.users) as folder, bar_of(total, folder, position) as done:
        if folder:
            asyncio.run(_fill_users(folder, scale, done))


class Remembered:
    """Vectors, each computed once, since several stores hold the same texts."""

    def __init__(self, embedding: EmbeddingName) -> None:
        self._embedding = embedding
        self._known: dict[str, Any] = {}

    def __call__(self, texts: Sequence[str]) -> Any:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known |= zip(new, embed(self._embedding, new), strict=True)
        return np.array([self._known[text] for text in texts])


@contextmanager
def missing(folder: str) -> Iterator[str | None]:
    """A folder to fill, unless it is there; it gets its name when it is full."""
    if Path(folder).exists():
        yield None
        return
    unfinished = f"{folder}-unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    yield unfinished
    Path(unfinished).rename(folder)


@contextmanager
def bar_of(total: int, folder: str | None, position: int) -> Iterator[Done]:
    title = "" if folder is None else Path(folder).name.removesuffix("-unfinished")
    hidden = True if folder is None else None
    with tqdm(total=total, desc=f"filling {title}", position=position % 2, leave=False, disable=hidden) as bar:
        yield bar.update


def facts_and_messages(size: int) -> tuple[list[str], list[str]]:
    return Writer(seed=1).texts(FACTS, size - size // 2), Writer(seed=2).texts(MESSAGES, size // 2)


def step_by_step(done: Done) -> Callable[[int, int], None]:
    """What `import_memories` reports its progress to."""
    before = 0

    def report(now: int, total: int) -> None:
        nonlocal before
        done(now - before)
        before = now

    return report


async def _import(
    folder: str, embedding: CallableEmbedding, records: Sequence[Mapping[str, object]], done: Done
) -> None:
    """Fill a store of ours with records, each as a line of an export: to remember them anew would take three times as long."""
    header = {"type": "header", "format": "autogen-persistent-memory", "version": 1, "schema": 1, "count": len(records)}
    at = datetime.now(timezone.utc) - timedelta(days=1)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        file.write(json.dumps(header) + "\n")
        for number, record in enumerate(records):
            time = (at + timedelta(milliseconds=number)).isoformat()
            line = {"type": "record", "id": uuid.UUID(int=number).hex, "created_at": time, "updated_at": time}
            file.write(json.dumps({**PLAIN, **line, **record}) + "\n")
        file.write(json.dumps({"type": "end", "count": len(records)}) + "\n")
        file.seek(0)
        await import_memories(EmbeddedStore(folder), file, embedding=embedding, progress=step_by_step(done))


async def _fill_ours(folder: str, embedding: EmbeddingName, vectors: Vectors, size: int, done: Done) -> None:
    id = MiniLMEmbedding.id if embedding == "minilm" else "words-384"
    facts, messages = facts_and_messages(size)
    records: list[Mapping[str, object]] = [
        {"shelf": "profile", "namespace": NAMESPACE, "content": text, "kind": "fact"} for text in facts
    ]
    for number, text in enumerate(messages):
        session, turn = divmod(number, SESSION)
        said = {
            "source": PEOPLE[(session + 5 * (turn % 2)) % 12],
            "session": f"session-{session}",
            "sequence": turn + 1,
        }
        shared = {"shelf": "session", "namespace": NAMESPACE, "content": text, "kind": "interaction"}
        records.append({**shared, **said})
    await _import(folder, CallableEmbedding(vectors, id=id), records, done)


async def _fill_theirs(
    folder: str, embedding: EmbeddingName, vectors: Vectors, size: int, users: int, done: Done
) -> None:
    memory = theirs(folder, embedding)
    await memory.query("make the collection")
    collection = their_collection(folder)
    facts, messages = facts_and_messages(size)
    texts = facts + messages
    for start in range(0, size, CHUNK):
        chunk = texts[start : start + CHUNK]
        collection.add(
            ids=[str(uuid.uuid4()) for _ in chunk],
            embeddings=vectors(chunk),
            documents=chunk,
            metadatas=[
                {"mime_type": "MemoryMimeType.TEXT", "user": f"user-{number % users}"}
                for number in range(start, start + len(chunk))
            ],
        )
        done(len(chunk))
    await memory.close()


async def _fill_users(folder: str, scale: Scale, done: Done) -> None:
    writer = Writer(seed=3)
    records = [
        {"shelf": "profile", "namespace": f"user-{user}", "content": text, "kind": "fact"}
        for user in range(scale.users)
        for text in writer.texts(FACTS, scale.memories_of_user)
    ]
    await _import(folder, CallableEmbedding(Remembered("words"), id="words-384"), records, done)
