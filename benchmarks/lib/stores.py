"""What the benchmarks of cost run on: how much they measure, made-up memories, and stores that are filled once a run.

The same memories are in our stores and in those of `ChromaDBVectorMemory`. Ours are filled with `import_memories`: half of
the memories are facts, half are messages of conversations, so that both collections of a namespace are searched. A loop of
`ChromaDBVectorMemory.add` would take a quarter of an hour for 100,000, so theirs are filled through Chroma, with the rows
that `add` writes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from autogen_persistent_memory import CallableEmbedding, EmbeddedStore, MiniLMEmbedding, import_memories
from benchmarks.lib.systems import NAMESPACE, EmbeddingName, embed, their_collection, theirs
from benchmarks.lib.timing import in_fresh_process, processes

T = TypeVar("T")
VOCABULARY = 4000
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
PEOPLE = ["Ann", "Bob", "Carla", "Dmitri", "Elif", "Farid", "Grace", "Hiro", "Ines", "Jonas", "Kofi", "Lena"]
MONTHS = ["January", "March", "April", "June", "July", "September", "October", "December"]
MESSAGES = [
    "I was at the {0} with my {1} yesterday, and the {2} was really {3}.",
    "Last week {name} and I tried the {0} {1} that you told us about.",
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
QUESTIONS = [
    "What did {name} say about the {0} {1}?",
    "When will we {0} the {1}?",
    "Which {0} is better for a {1} {2}?",
    "Who works on the {0} {1}?",
]


class Writer:
    """Fills templates with words, few of them frequent and most rare; the same seed writes the same texts."""

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

    def texts(self, templates: Sequence[str], count: int) -> list[str]:
        return [self.fill(templates) for _ in range(count)]


@dataclass(frozen=True)
class Scale:
    """How much a run measures."""

    name: str
    minilm_sizes: tuple[int, ...]
    """Numbers of memories, embedded by MiniLM."""
    word_sizes: tuple[int, ...]
    """Numbers of memories with the cheap embedding: MiniLM makes only about 100 vectors a second."""
    turns: int
    rounds: int
    listed: int
    """The most memories with which `ListMemory` is measured: it injects all of them in every turn."""
    bulk: int
    one_by_one: int
    users: int
    memories_of_user: int
    users_asked: int
    agents: int
    agent_turns: int
    imports: int
    questions: int
    """How many questions a store is asked before its RAM is measured."""
    conversation: int
    """Turns of the long conversation."""
    settling: float
    """Seconds between opening a store and measuring turns, in which ours reads vectors into RAM."""
    isolated: bool
    """Whether parts run in new processes, each of which takes seconds to start."""

    def apart(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run work in a new process, unless this scale is not isolated."""
        return in_fresh_process(work, *arguments) if self.isolated else work(*arguments)


_NUMBERS: Mapping[str, Sequence[Any]] = {
    "name": ("whole", "quick", "tiny"),
    "minilm_sizes": ((100, 1_000, 10_000), (100, 500), (20, 40)),
    "word_sizes": ((1_000, 10_000, 100_000), (500, 2_000), (40, 80)),
    "turns": (50, 20, 2),
    "rounds": (3, 1, 1),
    "listed": (1_000, 100, 20),
    "bulk": (1_000, 200, 20),
    "one_by_one": (100, 30, 3),
    "users": (1_000, 20, 3),
    "memories_of_user": (100, 50, 10),
    "users_asked": (20, 5, 2),
    "agents": (50, 50, 3),
    "agent_turns": (4, 1, 1),
    "imports": (11, 5, 1),
    "questions": (100, 20, 2),
    "conversation": (200, 20, 10),
    "settling": (2, 0, 0),
    "isolated": (True, True, False),
}
WHOLE, QUICK, TINY = (Scale(**dict(zip(_NUMBERS, numbers, strict=True))) for numbers in zip(*_NUMBERS.values()))
SCALES = {scale.name: scale for scale in (WHOLE, QUICK, TINY)}

SESSION = 40
CHUNK = 1000
IN_RAM = Path("/dev/shm")
ROOM = 4e9
Vectors = Callable[[Sequence[str]], Any]


@dataclass(frozen=True)
class Stores:
    """The folders of the stores."""

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
    """Yield a place for the stores that are only read: in RAM, if there is room; or a folder that is kept for the next run."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield Stores(str(kept))
        return
    in_ram = IN_RAM.is_dir() and shutil.disk_usage(IN_RAM).free > ROOM
    with tempfile.TemporaryDirectory(prefix="bench-", dir=IN_RAM if in_ram else None) as folder:
        yield Stores(folder)


@contextmanager
def copy_of(folder: str) -> Iterator[str]:
    """Yield a copy on disk, to write to."""
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


def fill(folder: str, total: int, position: int, write: Callable[[str, tqdm[Any]], Coroutine[Any, Any, None]]) -> None:
    """Fill a folder, unless it exists; it gets its name when it is full."""
    if Path(folder).exists():
        return
    unfinished = f"{folder}-unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    title = f"filling {Path(folder).name}"
    with tqdm(total=total, desc=title, position=position % 2, leave=False, disable=None) as bar:
        asyncio.run(write(unfinished, bar))
    Path(unfinished).rename(folder)


def fill_both(stores: Stores, embedding: EmbeddingName, scale: Scale, position: int) -> None:
    """Fill the stores of an embedding; of the largest cheap one only theirs."""
    vectors = CachedVectors(embedding)
    sizes = scale.minilm_sizes if embedding == "minilm" else scale.word_sizes
    fill_ours(stores, embedding, sizes if embedding == "minilm" else sizes[:-1], position, vectors)
    for size in sizes:
        write = partial(write_theirs, embedding, vectors, size, scale.users)
        fill(stores.theirs(embedding, size), size, position, write)


def fill_ours(
    stores: Stores, embedding: EmbeddingName, sizes: Sequence[int], position: int, vectors: Vectors | None = None
) -> None:
    for size in sizes:
        write = partial(write_ours, embedding, vectors or CachedVectors(embedding), size)
        fill(stores.ours(embedding, size), size, position, write)


def fill_users(stores: Stores, scale: Scale, position: int) -> None:
    fill(stores.users, scale.users * scale.memories_of_user, position, partial(write_users, scale))


class CachedVectors:
    """A cache of vectors, since several stores hold the same texts."""

    def __init__(self, embedding: EmbeddingName) -> None:
        self._embedding = embedding
        self._known: dict[str, Any] = {}

    def __call__(self, texts: Sequence[str]) -> Any:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known |= zip(new, embed(self._embedding, new), strict=True)
        return np.array([self._known[text] for text in texts])


def facts_and_messages(size: int) -> tuple[list[str], list[str]]:
    return Writer(seed=1).texts(FACTS, size - size // 2), Writer(seed=2).texts(MESSAGES, size // 2)


async def import_records(
    folder: str, embedding: CallableEmbedding, records: Sequence[Mapping[str, object]], bar: tqdm[Any]
) -> None:
    """Import records into a store of ours, as lines of an export: `remember_many` would take three times as long."""
    header = {"type": "header", "format": "autogen-persistent-memory", "version": 1, "schema": 1, "count": len(records)}
    at = datetime.now(timezone.utc) - timedelta(days=1)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        file.write(json.dumps(header) + "\n")
        for number, record in enumerate(records):
            time = (at + timedelta(milliseconds=number)).isoformat()
            line = {"type": "record", "id": uuid.UUID(int=number).hex, "created_at": time, "updated_at": time}
            file.write(json.dumps({**line, **record}) + "\n")
        file.write(json.dumps({"type": "end", "count": len(records)}) + "\n")
        file.seek(0)

        def report(now: int, total: int) -> None:
            bar.update(now - bar.n)

        await import_memories(EmbeddedStore(folder), file, embedding=embedding, progress=report)


async def write_ours(embedding: EmbeddingName, vectors: Vectors, size: int, folder: str, bar: tqdm[Any]) -> None:
    id = MiniLMEmbedding.id if embedding == "minilm" else "words-384"
    facts, messages = facts_and_messages(size)
    records: list[Mapping[str, object]] = [
        {"shelf": "profile", "namespace": NAMESPACE, "content": text, "kind": "fact"} for text in facts
    ]
    for number, text in enumerate(messages):
        session, turn = divmod(number, SESSION)
        speaker = PEOPLE[(session + 5 * (turn % 2)) % 12]
        said = {"source": speaker, "session": f"session-{session}", "sequence": turn + 1, "kind": "interaction"}
        records.append({"shelf": "session", "namespace": NAMESPACE, "content": text, **said})
    await import_records(folder, CallableEmbedding(vectors, id=id), records, bar)


async def write_theirs(
    embedding: EmbeddingName, vectors: Vectors, size: int, users: int, folder: str, bar: tqdm[Any]
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
        bar.update(len(chunk))
    await memory.close()


async def write_users(scale: Scale, folder: str, bar: tqdm[Any]) -> None:
    writer = Writer(seed=3)
    records = [
        {"shelf": "profile", "namespace": f"user-{user}", "content": text, "kind": "fact"}
        for user in range(scale.users)
        for text in writer.texts(FACTS, scale.memories_of_user)
    ]
    await import_records(folder, CallableEmbedding(CachedVectors("words"), id="words-384"), records, bar)
