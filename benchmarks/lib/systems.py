"""The systems that the retrieval benchmarks compare, each behind the same three calls."""

from __future__ import annotations

import math
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import chromadb
import numpy as np
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_ext.memory.chromadb import (
    ChromaDBVectorMemory,
    CustomEmbeddingFunctionConfig,
    PersistentChromaDBVectorMemoryConfig,
)

from autogen_persistent_memory import CallableEmbedding, MiniLMEmbedding, PersistentMemory, RecallPolicy, TemporaryStore
from autogen_persistent_memory.text.minilm import load_minilm
from autogen_persistent_memory.text.words import terms


@dataclass(frozen=True)
class Item:
    """Something to be remembered."""

    id: str
    text: str
    kind: str = "fact"
    speaker: str | None = None
    session: str | None = None
    at: datetime | None = None

    @property
    def said(self) -> str:
        return f"{self.speaker}: {self.text}" if self.speaker else self.text


class System(Protocol):
    """Stores items, then finds the ids of those that answer a question, best first."""

    async def store(self, items: Sequence[Item]) -> None: ...
    async def find(self, question: str, limit: int) -> list[str]: ...
    async def close(self) -> None: ...


class Ours:
    """This package, through its public API, with default settings unless told otherwise.

    The id of an item travels as metadata, so that another one on the same store can ask for what the first has stored.
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
    """This package, but put in order by relevance alone: neither age nor use nor kind counts."""

    async def find(self, question: str, limit: int) -> list[str]:
        hits = await self._memory.recall(question, limit=RecallPolicy().candidates)
        best = sorted(hits, key=lambda hit: hit.similarity, reverse=True)
        return [hit.record.metadata["item"] for hit in best[:limit]]


class Floor:
    """The least a vector search can cost: the question embedded, and one query to Chroma for as much as ours asks for."""

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


class LocalMiniLM:
    """Our MiniLM in the shape Chroma wants, so that all systems compute the same vectors."""

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


def autogen_memory(folder: str, k: int, function: type[LocalMiniLM] = LocalMiniLM) -> ChromaDBVectorMemory:
    """AutoGen's own Chroma memory, on our local MiniLM or another function."""
    return ChromaDBVectorMemory(
        PersistentChromaDBVectorMemoryConfig(
            persistence_path=folder,
            k=k,
            embedding_function_config=CustomEmbeddingFunctionConfig(function=function, params={}),
        )
    )


class AutoGen:
    """AutoGen's own `ChromaDBVectorMemory`. It has no field for the speaker, so that is part of the text."""

    def __init__(self, limit: int = 20) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._memory = autogen_memory(str(Path(self._folder.name, "chroma")), limit)

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


class MiniLM:
    """Cosine similarity alone, exact, over the texts."""

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

    async def close(self) -> None:
        return None


class BM25:
    """Keywords alone, over "date speaker: text", with the terms that our own index has."""

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

    async def close(self) -> None:
        return None


SYSTEMS: dict[str, Callable[[], System]] = {
    "ours": Ours,
    "floor": Floor,
    "autogen": AutoGen,
    "bm25": BM25,
    "minilm": MiniLM,
    "relevance": ByRelevance,
}
COMPARED = ["ours", "floor", "autogen", "bm25", "minilm"]
