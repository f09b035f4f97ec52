"""The systems that are compared: this package, AutoGen's own memories, Chroma alone, BM25 and cosine alone.

The benchmarks of cost use AutoGen's `Memory` and agents; those of retrieval put every system behind `System`.
"""

from __future__ import annotations

import math
import tempfile
import uuid
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

import chromadb
import numpy as np
from autogen_agentchat.agents import AssistantAgent
from autogen_core.memory import Memory, MemoryContent, MemoryMimeType
from autogen_ext.memory.chromadb import (
    ChromaDBVectorMemory,
    CustomEmbeddingFunctionConfig,
    PersistentChromaDBVectorMemoryConfig,
)
from autogen_ext.models.replay import ReplayChatCompletionClient
from chromadb.config import Settings

from autogen_persistent_memory import (
    CallableEmbedding,
    EmbeddedStore,
    MiniLMEmbedding,
    PersistentMemory,
    RecallPolicy,
    TemporaryStore,
)
from autogen_persistent_memory.text.minilm import load_minilm
from autogen_persistent_memory.text.words import terms

DIMENSIONS = 384
OURS, CAPTURING, THEIRS, LISTED, NONE = "ours", "ours, capturing", "ChromaDBVectorMemory", "ListMemory", "no memory"
FLOOR = "embedding and one raw query"
RAW = "Chroma alone"

EmbeddingName = Literal["minilm", "words"]
NAMESPACE = "bench"
POLICY = RecallPolicy(min_similarity=0, kind_min_similarity={})
"""No threshold of similarity: ours injects as many memories as `ChromaDBVectorMemory`, which has none by default."""


@cache
def word_vector(word: str) -> Any:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSIONS, dtype=np.float32)


def word_vectors(texts: Sequence[str]) -> Any:
    """Embed texts cheaply: the mean of the vectors of their longer words, each random with the word's checksum as seed."""
    words = [[word for word in text.lower().split() if len(word) > 3] or [text] for text in texts]
    starts = np.cumsum([0, *(len(of_text) for of_text in words[:-1])])
    sums = np.add.reduceat(np.array([word_vector(word) for of_text in words for word in of_text]), starts)
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


def embed(embedding: EmbeddingName, texts: Sequence[str]) -> Any:
    return load_minilm(None).embed(list(texts)) if embedding == "minilm" else word_vectors(texts)


class LocalMiniLM:
    """Our MiniLM as Chroma's embedding function, so that all systems compute the same vectors."""

    def __call__(self, input: list[str]) -> list[Any]:
        return list(load_minilm(None).embed(list(input)))

    def embed_query(self, input: list[str]) -> list[Any]:
        return self(input)

    @staticmethod
    def name() -> str:
        return "default"

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> LocalMiniLM:
        return LocalMiniLM()

    def get_config(self) -> dict[str, Any]:
        return {}

    def default_space(self) -> str:
        return "cosine"

    def supported_spaces(self) -> list[str]:
        return ["cosine"]

    def is_legacy(self) -> bool:
        return False


class WordFunction(LocalMiniLM):
    """The cheap embedding as Chroma's embedding function."""

    def __call__(self, input: list[str]) -> list[Any]:
        return list(word_vectors(input))


def ours(
    folder: str, embedding: EmbeddingName, *, namespace: str = NAMESPACE, capture: bool = False
) -> PersistentMemory:
    """Return a memory of this package, with an embedding of its own, so that no two share cached queries."""
    vectors = MiniLMEmbedding() if embedding == "minilm" else CallableEmbedding(word_vectors, id="words-384")
    return PersistentMemory(namespace, store=EmbeddedStore(folder), embedding=vectors, capture=capture, policy=POLICY)


def theirs(folder: str, embedding: EmbeddingName, limit: int = POLICY.limit) -> ChromaDBVectorMemory:
    """Return AutoGen's own Chroma memory, with our vectors."""
    function = LocalMiniLM if embedding == "minilm" else WordFunction
    return ChromaDBVectorMemory(
        PersistentChromaDBVectorMemoryConfig(
            persistence_path=folder,
            k=limit,
            embedding_function_config=CustomEmbeddingFunctionConfig(function=function, params={}),
        )
    )


def chroma_on(folder: str) -> Any:
    """Return the Chroma client that `ChromaDBVectorMemory` uses for a folder in this process."""
    return chromadb.PersistentClient(folder, settings=Settings(allow_reset=False))


def their_collection(folder: str) -> Any:
    """Return the collection of `ChromaDBVectorMemory` in a folder."""
    return chroma_on(folder).get_collection("memory_store", embedding_function=None)


def our_largest_collection(folder: str) -> Any:
    """Return the larger of the collections of our namespace, from the client that our own memories use."""
    client = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
    return max(client.list_collections(), key=lambda collection: collection.count())


def raw_query(collection: Any, vectors: Any) -> Any:
    """Query Chroma for as many results as our own search does."""
    return collection.query(query_embeddings=vectors, n_results=POLICY.candidates, include=["distances"])


def scripted(turns: int, reply: str = "Understood.") -> ReplayChatCompletionClient:
    """Return a model that answers at once."""
    return ReplayChatCompletionClient([reply] * turns)


def agent_with(
    memory: Memory | None, client: ReplayChatCompletionClient, name: str = "assistant", **options: Any
) -> AssistantAgent:
    return AssistantAgent(name, model_client=client, memory=None if memory is None else [memory], **options)


async def run_task(agent: AssistantAgent, task: str) -> None:
    await agent.run(task=task)


@dataclass(frozen=True)
class Item:
    """A memory to store."""

    id: str
    text: str
    kind: str = "fact"
    speaker: str | None = None
    session: str | None = None
    at: datetime | None = None

    @property
    def said(self) -> str:
        return f"{self.speaker}: {self.text}" if self.speaker else self.text


class System(ABC):
    """Stores items, and finds the ids of those that answer a question, best first."""

    @abstractmethod
    async def store(self, items: Sequence[Item]) -> None: ...

    @abstractmethod
    async def find(self, question: str, limit: int) -> list[str]: ...

    async def close(self) -> None:  # noqa: B027
        """Release what it holds."""


class Ours(System):
    """This package, through its public API, with default settings unless others are given.

    The id of an item is stored as metadata, so that another instance on the same store can find it, too.
    """

    def __init__(
        self,
        *,
        policy: RecallPolicy | None = None,
        store: TemporaryStore | None = None,
        embedding: MiniLMEmbedding | CallableEmbedding | None = None,
    ) -> None:
        store = store or TemporaryStore()
        self._memory = PersistentMemory("benchmark", store=store, embedding=embedding, policy=policy)

    async def store(self, items: Sequence[Item]) -> None:
        await self._memory.remember_many(
            [
                {
                    "content": item.text,
                    "kind": item.kind,
                    "source": item.speaker,
                    "session": item.session,
                    "at": item.at,
                    "metadata": {"item": item.id},
                }
                for item in items
            ],
            progress=True,
        )

    async def find(self, question: str, limit: int) -> list[str]:
        return [hit.record.metadata["item"] for hit in await self._memory.recall(question, limit=limit)]

    async def close(self) -> None:
        await self._memory.clear()
        await self._memory.close()


class ByRelevance(Ours):
    """This package, ordered by relevance alone: without age, use and kind."""

    async def find(self, question: str, limit: int) -> list[str]:
        hits = await self._memory.recall(question, limit=RecallPolicy().candidates)
        best = sorted(hits, key=lambda hit: hit.similarity, reverse=True)
        return [hit.record.metadata["item"] for hit in best[:limit]]


class Floor(System):
    """The least that a vector search costs: embedding the question, and one query to Chroma, as large as our own."""

    async def store(self, items: Sequence[Item]) -> None:
        self._client = chromadb.EphemeralClient()
        self._collection = self._client.create_collection(
            f"floor-{uuid.uuid4().hex}", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )
        for start in range(0, len(items), 64):
            batch = items[start : start + 64]
            texts = [item.text for item in batch]
            self._collection.add([item.id for item in batch], load_minilm(None).embed(texts), documents=texts)

    async def find(self, question: str, limit: int) -> list[str]:
        answer = self._collection.query(
            query_embeddings=load_minilm(None).embed([question]),
            n_results=RecallPolicy().candidates,
            include=["distances"],
        )
        return list(answer["ids"][0][:limit])

    async def close(self) -> None:
        self._client.delete_collection(self._collection.name)


class AutoGen(System):
    """AutoGen's own `ChromaDBVectorMemory`. It has no field for the speaker, which is put into the text."""

    def __init__(self, limit: int = 20) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._memory = theirs(str(Path(self._folder.name, "chroma")), "minilm", limit)

    async def store(self, items: Sequence[Item]) -> None:
        for item in items:
            content = MemoryContent(content=item.said, mime_type=MemoryMimeType.TEXT, metadata={"item": item.id})
            await self._memory.add(content)

    async def find(self, question: str, limit: int) -> list[str]:
        results = (await self._memory.query(question)).results
        return [str((result.metadata or {})["item"]) for result in results][:limit]

    async def close(self) -> None:
        await self._memory.close()
        self._folder.cleanup()


class MiniLM(System):
    """Exact cosine similarity of the texts, and nothing else."""

    def __init__(self) -> None:
        self._embedding = MiniLMEmbedding()
        self._items: Sequence[Item] = ()
        self._vectors: Any = None

    async def store(self, items: Sequence[Item]) -> None:
        self._items = items
        self._vectors = np.array(await self._embedding.embed([item.text for item in items]))

    async def find(self, question: str, limit: int) -> list[str]:
        similarity = self._vectors @ np.array(await self._embedding.embed_query(question))
        return [self._items[index].id for index in np.argsort(-similarity)[:limit]]


class BM25(System):
    """Keywords alone, over "date speaker: text", with the terms of our own index."""

    def __init__(self, k1: float = 0.9, b: float = 0.4) -> None:
        self._k1, self._b = k1, b
        self._items: Sequence[Item] = ()
        self._counts: list[Counter[str]] = []

    async def store(self, items: Sequence[Item]) -> None:
        self._items = items
        dated = [f"{item.at:%d %B %Y} {item.said}" if item.at else item.said for item in items]
        self._counts = [Counter(terms(text)) for text in dated]
        self._frequency = Counter(term for counts in self._counts for term in counts)
        self._length = np.array([sum(counts.values()) for counts in self._counts])

    async def find(self, question: str, limit: int) -> list[str]:
        scores = np.zeros(len(self._items))
        relative = 1 - self._b + self._b * self._length / max(1, self._length.mean())
        for term in set(terms(question)):
            frequency = self._frequency[term]
            weight = math.log(1 + (len(self._items) - frequency + 0.5) / (frequency + 0.5))
            counts = np.array([document[term] for document in self._counts])
            scores += weight * counts * (self._k1 + 1) / (counts + self._k1 * relative)
        return [self._items[index].id for index in np.argsort(-scores)[:limit]]


SYSTEMS: dict[str, Callable[[], System]] = {
    "ours": Ours,
    "floor": Floor,
    "autogen": AutoGen,
    "bm25": BM25,
    "minilm": MiniLM,
    "relevance": ByRelevance,
}
COMPARED = ["ours", "floor", "autogen", "bm25", "minilm"]
