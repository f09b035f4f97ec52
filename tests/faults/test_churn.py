"""A compacted namespace is as fast as a new one, has lost nothing, and compaction can be interrupted."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import pytest
from stocked import damages, open_memory, stock, told, without_vector
from toys import word_vectors, words

from autogen_persistent_memory import EmbeddingMismatchError, PersistentMemory, TemporaryStore


async def churn(memory: PersistentMemory, times: int, size: int) -> None:
    """Write and delete rows directly in the table: only the index matters."""
    table = memory._engine.data.table("profile")
    records = await table.get([f"ann-{number}" for number in range(size)])
    vectors = await asyncio.to_thread(word_vectors, [record.content for record in records])
    for _ in range(times):
        await table.remove([record.id for record in records])
        await table.put(records, vectors)


async def median_milliseconds(memory: PersistentMemory, questions: list[str]) -> float:
    await memory.recall("anything")
    taken = []
    for question in questions:
        before = time.perf_counter()
        await memory.recall(question)
        taken.append(time.perf_counter() - before)
    return 1000 * statistics.median(taken)


async def compare(tmp_path: Path, live: int, times: int) -> tuple[float, float, float]:
    """Return the median time of a recall in a churned store, in the same after compaction, and in a new one with the live rows."""
    await stock(tmp_path / "churned", live)
    await stock(tmp_path / "new", live)
    questions = [told(number) for number in range(0, live, max(1, live // 100))]
    async with open_memory(tmp_path / "churned") as churned, open_memory(tmp_path / "new") as new:
        await churn(churned, times, live)
        before = await median_milliseconds(churned, questions)
        assert await churned.compact(progress=False) == live
        rounds = [
            (await median_milliseconds(churned, questions), await median_milliseconds(new, questions)) for _ in range(3)
        ]
        assert await without_vector(churned, questions) == []
    after, fresh = sorted(rounds, key=lambda pair: pair[0] / pair[1])[1]  # the median, since the minimum would flatter
    assert await asyncio.to_thread(damages, tmp_path / "churned") == []
    return before, after, fresh


@pytest.mark.soak
async def test_forty_thousand_churned_records_are_as_fast_as_new_after_compaction(tmp_path: Path) -> None:
    before, after, fresh = await compare(tmp_path, live=1000, times=39)
    print(f"recall: {before:.1f} ms churned, {after:.1f} ms compacted, {fresh:.1f} ms in a new store")
    assert after <= 1.3 * fresh


async def test_compaction_keeps_every_memory_with_its_vector_and_reports_progress(tmp_path: Path) -> None:
    path = tmp_path / "store"
    await stock(path, 60, saved_every=50)
    seen: list[tuple[int, int]] = []
    async with open_memory(path) as memory:
        await churn(memory, 3, 60)
        await memory.session.append("user", "I grow tomatoes on the balcony")
        before = await memory.records(limit=100)
        assert await memory.compact(progress=lambda *done: seen.append(done)) == 61
        assert await memory.records(limit=100) == before
        assert await without_vector(memory, [told(number) for number in range(60)]) == []
        assert (await memory.recall("tomatoes", limit=1)).hits[0].record.content == "I grow tomatoes on the balcony"
    assert seen[-1] == (61, 61)


async def test_memories_written_during_compaction_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "store"
    await stock(path, 120)
    async with open_memory(path) as memory, open_memory(path) as other:
        await asyncio.gather(
            memory.compact(progress=False), *(other.remember(f"Bought {fruit}") for fruit in ("plums", "figs", "dates"))
        )
        contents = {record.content for record in await memory.records(limit=1000)}
        assert contents >= {"Bought plums", "Bought figs", "Bought dates"}
        assert len(contents) == 123


async def test_a_cancelled_compaction_changes_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "store"
    await stock(path, 150)
    async with open_memory(path) as memory:
        halfway = asyncio.Event()
        compacting = asyncio.ensure_future(memory.compact(progress=lambda done, total: halfway.set()))
        await halfway.wait()
        compacting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await compacting
        assert await memory.count() == 150
        assert await memory.compact(progress=False) == 150
        assert await memory.count() == 150


async def test_compaction_does_not_mix_embeddings() -> None:
    store = TemporaryStore()
    await PersistentMemory("ann", store=store, embedding=words("old")).remember("Likes tea")
    with pytest.raises(EmbeddingMismatchError):
        await PersistentMemory("ann", store=store, embedding=words("new")).compact(progress=False)
