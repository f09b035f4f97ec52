"""Small stand-ins for what the tests do not test: an embedding by words, a clock set by hand, a hit, a conversation."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from autogen_persistent_memory import CallableEmbedding, MemoryHit, MemoryRecord, register_embedding
from autogen_persistent_memory.extraction.extractor import Message
from autogen_persistent_memory.testing import words as testing_words

DIMENSIONS = 128
NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)


def hit(content: str, score: float = 0.5, *, days: float = 0, **fields: object) -> MemoryHit:
    """A memory of that age, and how similar and sure it is."""
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
    """Messages from lines such as "user: hello"."""
    said = [line.partition(": ") for line in lines]
    return [
        Message(id=str(number), source=source, text=text, by_user=source == "user", at=NOW)
        for number, (source, _, text) in enumerate(said)
    ]


def word_vectors(texts: list[str]) -> list[list[float]]:
    """A vector for each text in which every word has a direction of its own: texts that share words are similar."""
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
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)


def chroma_words() -> object:
    """The same embedding as one of Chroma's, for those who use Chroma themselves."""
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
