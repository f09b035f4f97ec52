"""Recall by meaning and by keywords together, with the real model."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import chromadb
import pytest
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from chromadb.config import Settings

from autogen_persistent_memory import (
    CallableEmbedding,
    EmbeddedStore,
    PersistentMemory,
    RecallPolicy,
    ServerStore,
    TemporaryStore,
)

DATA = Path(__file__).parents[2] / "benchmarks" / "data"


@pytest.fixture
def memory() -> PersistentMemory:
    return PersistentMemory("ann", store=TemporaryStore())


async def test_a_rare_word_finds_what_meaning_alone_would_miss(memory: PersistentMemory) -> None:
    await memory.remember_many(f"The ticket PROJ-{number} is about billing" for number in range(1000, 1040))
    found = await memory.recall("what was PROJ-1017?", limit=1)
    assert found.hits[0].record.content == "The ticket PROJ-1017 is about billing"
    assert found.hits[0].keywords > 0.3


async def test_an_exact_match_comes_first_even_if_the_vector_index_missed_it() -> None:
    wanted, asked = "w2 wrote n143", list[str]()

    def vector(text: str) -> list[float]:
        if text == wanted:
            return [1.0, 0.0] if asked else [-1.0, 0.0]  # an approximate index reports what it misses as far away
        return [1.0, 0.1 if text == "w0 wrote n143" else 2.0]

    def vectors(texts: list[str]) -> list[list[float]]:
        return [vector(text) for text in texts]

    memory = PersistentMemory(
        "ann",
        store=TemporaryStore(),
        embedding=CallableEmbedding(vectors, id="misses"),
        policy=RecallPolicy(candidates=3),
    )
    await memory.remember_many([*(f"w0 wrote n{number}" for number in range(100, 150)), wanted])
    asked.append(wanted)
    assert (await memory.recall(wanted, limit=1)).hits[0].record.content == wanted


async def test_memories_have_more_neighbours_in_the_index_than_chroma_gives_them(tmp_path: Path) -> None:
    async with PersistentMemory("ann", store=EmbeddedStore(tmp_path / "store")) as memory:
        await memory.remember("Likes green tea")
    client = chromadb.PersistentClient(str(tmp_path / "store"), settings=Settings(anonymized_telemetry=False))
    (profile,) = [found for found in client.list_collections() if found.name.endswith(".profile")]
    assert profile.configuration_json["hnsw"]["max_neighbors"] == 48
    client.close()


async def test_an_answer_is_found_by_the_words_of_its_question(memory: PersistentMemory) -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    lines = ["Where did you spend the summer?", "In a small village near Porto", "Sounds lovely", "Did you swim?"]
    for number, text in enumerate(lines):
        await memory.session.append("Ann" if number % 2 else "Bob", text, at=at + timedelta(minutes=number))
    contents = [hit.record.content for hit in await memory.recall("Where did Ann spend the summer?", limit=2)]
    assert "In a small village near Porto" in contents


async def test_a_hit_explains_itself(memory: PersistentMemory) -> None:
    await memory.session.append("Ann", "I keep bees on the roof")
    (hit,) = (await memory.recall("Does Ann keep bees?")).hits
    text = hit.explain()
    for part in ("similarity", "cosine", "keywords", "speaker", "recency", "frequency", "I keep bees"):
        assert part in text
    parts = (hit.cosine, hit.keywords, hit.session, hit.neighbours, hit.speaker, hit.question)
    assert hit.similarity <= sum(parts)


async def test_forgotten_superseded_and_cleared_memories_leave_the_keyword_index(memory: PersistentMemory) -> None:
    await memory.recall("build the index first")
    record = await memory.remember("The code word is Xylophone")
    await memory.remember("The door opens with Zanzibar", key="door")
    await memory.remember("The door opens with Timbuktu", key="door")
    assert (await memory.recall("Xylophone", limit=1)).hits[0].keywords > 0
    await memory.forget(record.id)
    for word in ("Xylophone", "Zanzibar"):
        assert all(hit.keywords == 0 for hit in await memory.recall(word))
    await memory.clear()
    assert (await memory.recall("Timbuktu")).hits == ()


@pytest.mark.parametrize("language", ["de", "es", "ja"])
async def test_other_languages_work(memory: PersistentMemory, language: str) -> None:
    rows = [json.loads(line) for line in (DATA / f"smoke_{language}.jsonl").read_text("utf-8").splitlines()]
    await memory.remember_many([row["fact"] for row in rows])
    found = [(await memory.recall(row["question"], limit=5)).text for row in rows]
    right = sum(row["fact"] in text for row, text in zip(rows, found, strict=True))
    assert right >= 13, f"{right} of {len(rows)}"


async def test_another_process_writing_to_the_server_is_found_by_its_words(
    chroma_server: tuple[str, int], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process is simulated by another connection: a different timeout makes it separate."""
    monkeypatch.setattr("autogen_persistent_memory.retrieval.cache._LOOK_EVERY", 0)
    here = PersistentMemory(namespace, store=ServerStore(*chroma_server))
    there = PersistentMemory(namespace, store=ServerStore(*chroma_server, timeout=9))
    await here.remember_many(f"plain fact {number}" for number in range(5))
    assert (await here.recall("Xylophone", limit=1)).hits[0].keywords == 0
    record = await there.remember("The code word is Xylophone")
    hit = (await here.recall("Xylophone", limit=1)).hits[0]
    assert hit.record.id == record.id
    assert hit.keywords > 0
    await there.forget(record.id)
    assert (await here.recall("Xylophone", limit=1)).hits[0].keywords == 0
    await here.close()
    await there.close()


async def test_changes_of_another_process_are_visible_immediately(
    chroma_server: tuple[str, int], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autogen_persistent_memory.retrieval.cache._LOOK_EVERY", 3600)
    here = PersistentMemory(namespace, store=ServerStore(*chroma_server))
    there = PersistentMemory(namespace, store=ServerStore(*chroma_server, timeout=9))
    to_delete = await here.remember("Drinks green tea at dawn")
    await here.remember("Lives in Oslo", key="home")
    await here.remember_many(f"plain fact {number}" for number in range(5))
    assert "Lives in Oslo" in (await here.recall("home in Oslo")).text
    await there.forget(to_delete.id)
    await there.remember("Lives in Lisbon", key="home")
    assert "green tea" not in (await here.recall("green tea at dawn", limit=3)).text
    found = (await here.recall("Where is home? Lives in Oslo?", limit=3)).text
    assert "Lisbon" in found
    assert "Oslo" not in found
    await here.close()
    await there.close()


async def test_concurrent_remember_and_recall(memory: PersistentMemory) -> None:
    await memory.remember("Likes green tea")
    telling = asyncio.ensure_future(memory.remember_many(f"green tea number {number}" for number in range(150)))
    while not telling.done():
        assert (await memory.recall("green tea", limit=3)).hits
    assert await memory.count() == 151
    assert len((await memory.recall("green tea", limit=200)).hits) >= 150  # the index is approximate


@pytest.mark.parametrize("kind", ["server", "embedded"])
async def test_an_agent_does_not_wait_for_a_large_namespace_to_be_read(
    kind: str, chroma_server: tuple[str, int], namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autogen_persistent_memory.retrieval.cache import RecordCache

    store = ServerStore(*chroma_server) if kind == "server" else EmbeddedStore(tmp_path / "store")
    monkeypatch.setattr("autogen_persistent_memory.retrieval.namespace._OPENING_PATIENCE", 0.1)
    async with PersistentMemory(namespace, store=store) as before:
        await before.remember("Likes green tea", kind="preference")
    build, release = RecordCache.build, asyncio.Event()

    async def slow_build(self: RecordCache, tables: object) -> None:
        await release.wait()
        await build(self, tables)  # type: ignore[arg-type]

    monkeypatch.setattr(RecordCache, "build", slow_build)
    async with PersistentMemory(namespace, store=store, capture=False) as memory:
        context = UnboundedChatCompletionContext([UserMessage(content="Which green drink?", source="user")])
        found = (await memory.update_context(context)).memories.results
        assert [result.content for result in found] == ["Likes green tea"]
        release.set()
        assert (await memory.recall("green tea")).hits[0].keywords > 0
