"""Small test doubles: an embedding by words, a clock set by hand, a hit, a conversation."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from autogen_core.models import LLMMessage, SystemMessage, UserMessage

from autogen_persistent_memory import CallableEmbedding, MemoryHit, MemoryRecord, Message, register_embedding
from autogen_persistent_memory.testing import words as testing_words

DIMENSIONS = 128
NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)


def hit(content: str, score: float = 0.5, *, days: float = 0, **fields: object) -> MemoryHit:
    """Return a hit with an age, a similarity and a confidence."""
    written = NOW - timedelta(days=days)
    record = MemoryRecord(
        id="x",
        namespace="n",
        content=content,
        created_at=written,
        updated_at=written,
        **fields,  # type: ignore[arg-type]
    )
    return MemoryHit(record=record, score=score, similarity=score, recency=1, frequency=0)


def conversation(*lines: str) -> list[Message]:
    """Return messages from lines such as "user: hello"."""
    said = [line.partition(": ") for line in lines]
    return [
        Message(id=str(number), source=source, text=text, by_user=source == "user", at=NOW)
        for number, (source, _, text) in enumerate(said)
    ]


def word_vectors(texts: list[str]) -> list[list[float]]:
    """Embed texts so that each word has its own direction: texts that share words are similar."""
    return testing_words.word_vectors(texts)


async def word_vectors_async(texts: list[str]) -> list[list[float]]:
    return word_vectors(texts)


def short_vectors(texts: list[str]) -> list[list[float]]:
    """Another space, with fewer dimensions."""
    return [vector[:16] for vector in word_vectors(texts)]


register_embedding("toys:word_vectors", word_vectors)


def words(id: str = "toy-words") -> CallableEmbedding:
    return CallableEmbedding(word_vectors, id=id)


class HandClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)


def is_block(message: LLMMessage) -> bool:
    """Return whether a message is a block of memories."""
    is_ours = isinstance(message, SystemMessage) or (isinstance(message, UserMessage) and message.source == "memory")
    return is_ours and str(message.content).startswith('<memory id="')


def make_schema_newer(folder: Path) -> list[int]:
    """Mark all collections of a closed store as written by a future version, and return their sizes."""
    import chromadb

    client = chromadb.PersistentClient(str(folder), settings=chromadb.Settings(anonymized_telemetry=False))
    collections = [found for found in client.list_collections() if found.metadata]
    for found in collections:
        client.get_collection(found.name, embedding_function=None).modify(metadata={**found.metadata, "apm_schema": 99})
    counts = [found.count() for found in collections]
    client.close()
    return counts


def chroma_words() -> object:
    """Return the same embedding as a Chroma embedding function, for tests that use Chroma directly."""
    import numpy as np
    from chromadb import Documents, EmbeddingFunction, Embeddings

    class Words(EmbeddingFunction[Documents]):
        def __init__(self) -> None:
            pass

        def __call__(self, input: Documents) -> Embeddings:
            return [np.asarray(vector, dtype=np.float32) for vector in word_vectors(list(input))]

        @staticmethod
        def name() -> str:
            return "toy-words"

        def get_config(self) -> dict[str, object]:
            return {}

        @staticmethod
        def build_from_config(config: dict[str, object]) -> Words:
            return Words()

    return Words()
