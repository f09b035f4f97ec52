"""Vector search in RAM: exact, updated with every write, and left to the store for large namespaces."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest
from chromadb.api.models.Collection import Collection
from hypothesis import example, given
from hypothesis import strategies as st
from toys import HandClock, short_vectors, words

from autogen_persistent_memory import (
    CallableEmbedding,
    EmbeddedStore,
    EmbeddingMismatchError,
    PersistentMemory,
    RecallPolicy,
    TemporaryStore,
)
from autogen_persistent_memory.retrieval.vector_index import VectorIndex

SLOTS = st.integers(0, 11)
NUMBERS = st.floats(-1, 1, width=32).map(lambda number: round(number, 3))
VECTORS = st.tuples(NUMBERS, NUMBERS, NUMBERS)
CHANGES = st.lists(st.tuples(SLOTS, VECTORS | st.none()), max_size=60)


def everything(slots: list[int]) -> None:
    return None


def cosine(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(np.dot(one, other)) / lengths if lengths else 0.0


@example(changes=[(0, (1.0, 0.0, 0.0)), (0, None)], asked=[(1.0, 0.0, 0.0)], fetch=1, wanted=frozenset({0}))
@given(changes=CHANGES, asked=st.lists(VECTORS, max_size=3), fetch=st.integers(1, 14), wanted=st.frozensets(SLOTS))
def test_the_nearest_are_those_of_a_plain_comparison(
    changes: list[tuple[int, tuple[float, ...] | None]],
    asked: list[tuple[float, ...]],
    fetch: int,
    wanted: frozenset[int],
) -> None:
    index, there = VectorIndex("toy"), dict[int, tuple[float, ...]]()
    for slot, vector in changes:
        if vector is None:
            index.remove(slot)
            there.pop(slot, None)
        else:
            index.put(slot, vector)
            there[slot] = vector
    assert len(index) == len(there)
    assert all((slot in index) == (slot in there) for slot in range(12))

    def selected(slots: list[int]) -> list[bool]:
        return [slot in wanted for slot in slots]

    for vector, (slots, cosines) in zip(asked, index.nearest(asked, fetch, selected), strict=True):
        expected = sorted((cosine(vector, there[slot]) for slot in there if slot in wanted), reverse=True)[:fetch]
        assert sorted(cosines.tolist(), reverse=True) == pytest.approx(expected, abs=1e-5)
        found = slots.tolist()
        assert len(set(found)) == len(found)
        assert cosines.tolist() == pytest.approx([cosine(vector, there[slot]) for slot in found], abs=1e-5)


def test_vectors_keep_their_memories_when_slots_change() -> None:
    index = VectorIndex("toy")
    for slot, vector in enumerate([(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]):
        index.put(slot, vector)
    renumbered = index.renumbered({0: 7, 2: 3}.get)
    ((slots, cosines),) = renumbered.nearest([(0.0, 2.0)], 5, everything)
    assert dict(zip(slots.tolist(), cosines.tolist())) == {3: pytest.approx(0.7071, abs=1e-4), 7: 0}
    assert len(index) == 3


def test_an_index_says_when_it_is_full_and_starts_over() -> None:
    index = VectorIndex("toy")
    index.put(1, [1.0] * 400)
    assert index.has_room_for(10_000)
    assert not index.has_room_for(10_001)
    index.clear()
    assert 1 not in index
    assert index.dimensions == 400
    index.put(2, [1.0] * 400)
    ((slots, cosines),) = index.nearest([[2.0] * 400], 5, everything)
    assert slots.tolist() == [2]
    assert cosines.tolist() == pytest.approx([1.0])


class Queries:
    """Counts the vector queries that Chroma gets."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Queries:
    counted, query = Queries(), Collection.query

    def counting(*arguments: object, **options: object) -> object:
        counted.count += 1
        return query(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Collection, "query", counting)
    return counted


async def in_ram(memory: PersistentMemory, queries: Queries) -> None:
    """Wait until recalling needs no query of Chroma."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        queries.count = 0
        await memory.recall(f"anything at {time.monotonic()}")
        if queries.count == 0:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("Chroma still gets queries.")


async def found(memory: PersistentMemory, question: str, **options: object) -> list[str]:
    hits = (await memory.recall(question, **options)).hits  # type: ignore[arg-type]
    return [hit.record.content for hit in hits]


def by_meaning(tmp_path: Path, **options: object) -> PersistentMemory:
    """A memory that recalls by vectors alone."""
    policy = RecallPolicy(keyword_weight=0, session_weight=0, neighbour_weight=0, particulars_weight=0)
    options = {"embedding": words(), "policy": policy} | options
    return PersistentMemory("ann", store=EmbeddedStore(tmp_path / "store"), capture=False, **options)  # type: ignore[arg-type]


FACTS = [f"ticket {number} is about topic{number % 7}" for number in range(300)]


async def test_ram_and_store_find_the_same(tmp_path: Path, queries: Queries) -> None:
    async with by_meaning(tmp_path) as memory:
        await memory.remember_many(FACTS)
    async with by_meaning(tmp_path) as memory:
        asked = ["ticket 17 please", "what is topic3 about", "ticket 299"]
        by_store = [await found(memory, question, limit=3) for question in asked[:1]]
        assert queries.count > 0  # the first recall does not wait for the vectors
        await in_ram(memory, queries)
        assert [await found(memory, question, limit=3) for question in asked[:1]] == by_store
        assert (await found(memory, asked[2], limit=1)) == ["ticket 299 is about topic5"]
        assert queries.count == 0


async def test_ram_keeps_up_with_every_change(tmp_path: Path, queries: Queries, clock: HandClock) -> None:
    async with by_meaning(tmp_path) as memory:
        await memory.remember_many(FACTS)
        await in_ram(memory, queries)

        added = await memory.remember("zebra unicorn mermaid")
        assert (await found(memory, "zebra unicorn mermaid", limit=1)) == ["zebra unicorn mermaid"]
        await memory.edit(added.id, content="dragon griffin phoenix")
        assert (await found(memory, "dragon griffin phoenix", limit=1)) == ["dragon griffin phoenix"]
        assert "zebra unicorn mermaid" not in await found(memory, "zebra unicorn mermaid", limit=5)

        await memory.remember("the user lives in Lima", key="home")
        clock.move(days=1)
        believed = clock()
        clock.move(days=1)
        await memory.remember("the user lives in Oslo", key="home")
        assert "the user lives in Lima" not in await found(memory, "the user lives in Lima", limit=5)
        assert (await found(memory, "the user lives in", limit=1)) == ["the user lives in Oslo"]
        assert queries.count == 0
        assert (await found(memory, "the user lives in", limit=1, at=believed)) == ["the user lives in Lima"]
        assert queries.count > 0  # what is no longer current is only in the store
        queries.count = 0

        await memory.forget(added.id)
        assert "dragon griffin phoenix" not in await found(memory, "dragon griffin phoenix", limit=5)
        assert queries.count == 0
        await memory.clear()
        assert await found(memory, "ticket 17", limit=5) == []


async def test_one_session_of_many_is_searched_to_its_end(tmp_path: Path, queries: Queries) -> None:
    async with by_meaning(tmp_path, session="one") as one, by_meaning(tmp_path, session="two") as two:
        for number in range(3):
            await one.session.append("user", f"Mine is number {number} of the plan")
        for number in range(150):
            await two.session.append("user", f"The plan of the team has step {number} and so on")
        await in_ram(two, queries)
        hits = (await one.session.recall("the plan of the team has step", limit=3)).hits
        assert sorted(hit.record.sequence or 0 for hit in hits) == [1, 2, 3]
        assert {hit.record.session for hit in hits} == {"one"}
        assert queries.count == 0


async def test_vectors_of_another_embedding_are_never_compared(tmp_path: Path, queries: Queries) -> None:
    async with by_meaning(tmp_path) as memory, by_meaning(tmp_path, embedding=words("other")) as other:
        await memory.remember_many(FACTS[:20])
        await in_ram(memory, queries)
        with pytest.raises(EmbeddingMismatchError):
            await other.recall("ticket 7")
        await other.reembed()
        assert (await found(other, "ticket 7", limit=1)) == ["ticket 7 is about topic0"]
        with pytest.raises(EmbeddingMismatchError):
            await memory.recall("ticket 7")


async def test_an_embedding_whose_vectors_change_their_length_is_an_error(queries: Queries) -> None:
    store = TemporaryStore()
    memory = PersistentMemory("ann", store=store, embedding=words("toy"), capture=False)
    await memory.remember_many(FACTS[:20])
    await in_ram(memory, queries)
    shorter = PersistentMemory("ann", store=store, embedding=CallableEmbedding(short_vectors, id="toy"), capture=False)
    with pytest.raises(EmbeddingMismatchError):
        await shorter.recall("ticket 7")


async def test_a_namespace_that_grows_too_large_is_searched_in_the_store(
    tmp_path: Path, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with by_meaning(tmp_path) as memory:
        await memory.remember_many(FACTS[:50])
        await in_ram(memory, queries)
        monkeypatch.setattr("autogen_persistent_memory.retrieval.vector_index._MOST_NUMBERS", 60 * 128)
        await memory.remember_many(FACTS[50:70])
        for number in (7, 49, 55, 69):
            assert (await found(memory, f"ticket {number}", limit=1)) == [FACTS[number]]
        assert queries.count > 0
        for record in (await memory.records())[:30]:
            await memory.forget(record.id)
        await in_ram(memory, queries)  # it is small enough again
