"""Who is measured: this package, AutoGen's own memories, and Chroma alone, on the same memories and the same vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import chromadb
from autogen_agentchat.agents import AssistantAgent
from autogen_core.memory import Memory
from autogen_ext.memory.chromadb import ChromaDBVectorMemory
from autogen_ext.models.replay import ReplayChatCompletionClient
from chromadb.config import Settings

from autogen_persistent_memory import CallableEmbedding, EmbeddedStore, MiniLMEmbedding, PersistentMemory, RecallPolicy
from autogen_persistent_memory.text.minilm import load_minilm
from benchmarks.lib.corpus import word_vectors
from benchmarks.lib.systems import LocalMiniLM, autogen_memory

OURS, CAPTURING, THEIRS, LISTED, NONE = "ours", "ours, capturing", "ChromaDBVectorMemory", "ListMemory", "no memory"
FLOOR = "embedding and one raw query"
RAW = "Chroma alone"

EmbeddingName = Literal["minilm", "words"]
NAMESPACE = "bench"
POLICY = RecallPolicy(min_similarity=0, kind_min_similarity={})
"""Nothing is too far-fetched, so that ours injects as many memories as theirs, which knows no threshold by default."""


def embed(embedding: EmbeddingName, texts: Sequence[str]) -> Any:
    return load_minilm(None).embed(list(texts)) if embedding == "minilm" else word_vectors(texts)


class WordFunction(LocalMiniLM):
    """The cheap embedding in the shape Chroma wants."""

    def __call__(self, input: list[str]) -> list[Any]:
        return list(word_vectors(input))


def ours(
    folder: str,
    embedding: EmbeddingName,
    *,
    namespace: str = NAMESPACE,
    capture: bool = False,
    policy: RecallPolicy = POLICY,
) -> PersistentMemory:
    """This package; each with an embedding of its own, so that no two share remembered queries."""
    vectors = MiniLMEmbedding() if embedding == "minilm" else CallableEmbedding(word_vectors, id="words-384")
    return PersistentMemory(namespace, store=EmbeddedStore(folder), embedding=vectors, capture=capture, policy=policy)


def theirs(folder: str, embedding: EmbeddingName) -> ChromaDBVectorMemory:
    return autogen_memory(folder, POLICY.limit, LocalMiniLM if embedding == "minilm" else WordFunction)


def chroma_on(folder: str) -> Any:
    """Chroma's client of a folder of theirs; within a process the same that `ChromaDBVectorMemory` has there."""
    return chromadb.PersistentClient(folder, settings=Settings(allow_reset=False))


def their_collection(folder: str) -> Any:
    """What `ChromaDBVectorMemory` keeps in a folder."""
    return chroma_on(folder).get_collection("memory_store", embedding_function=None)


def our_largest_collection(folder: str) -> Any:
    """The larger of the collections in which we keep a namespace; with the client that our own memories have there."""
    client = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
    return max(client.list_collections(), key=lambda collection: collection.count())


def raw_query(collection: Any, vectors: Any) -> Any:
    """One query for as much as our own search asks for."""
    return collection.query(query_embeddings=vectors, n_results=POLICY.candidates, include=["distances"])


def scripted(turns: int) -> ReplayChatCompletionClient:
    """A model that answers at once."""
    return ReplayChatCompletionClient(["Understood."] * turns)


def agent_with(
    memory: Memory | None, client: ReplayChatCompletionClient, name: str = "assistant", **options: Any
) -> AssistantAgent:
    return AssistantAgent(name, model_client=client, memory=None if memory is None else [memory], **options)


async def run_task(agent: AssistantAgent, task: str) -> None:
    await agent.run(task=task)
