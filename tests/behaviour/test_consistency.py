"""The cache of a namespace agrees with the store, even after cancelled and failed calls."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from chromadb.api.models.Collection import Collection
from toys import words

from autogen_persistent_memory import PersistentMemory, ServerStore, StoreUnavailableError, TemporaryStore


def a_memory(store: TemporaryStore | None = None) -> PersistentMemory:
    return PersistentMemory("ann", store=store or TemporaryStore(), embedding=words())


class Brake:
    """Blocks a call to Chroma until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.reached, self.release = threading.Event(), threading.Event()
        call: Callable[..., Any] = getattr(Collection, name)

        def slowly(*arguments: Any, **options: Any) -> Any:
            self.reached.set()
            self.release.wait(10)
            return call(*arguments, **options)

        monkeypatch.setattr(Collection, name, slowly)


async def texts(memory: PersistentMemory, query: str) -> set[str]:
    return {hit.record.content for hit in await memory.recall(query, limit=50)}


async def test_a_cancelled_forget_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_memory() as memory:
        record = await memory.remember("The door code is blue")
        brake = Brake(monkeypatch, "delete")
        forgetting = asyncio.create_task(memory.forget(record.id))
        await asyncio.to_thread(brake.reached.wait, 10)
        forgetting.cancel()
        again = asyncio.create_task(memory.remember("The door code is blue"))
        brake.release.set()
        assert (await again).id != record.id
        assert await texts(memory, "door code") == {"The door code is blue"}
        assert await memory.count() == 1


async def test_a_memory_is_still_found_after_a_failed_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_memory() as memory:
        record = await memory.remember("zebra crossing")

        def fail(*arguments: Any, **options: Any) -> Any:
            raise OSError("disk")

        with monkeypatch.context() as broken:
            broken.setattr(Collection, "delete", fail)
            with pytest.raises(StoreUnavailableError):
                await memory.forget(record.id)
        assert await texts(memory, "zebra") == {"zebra crossing"}


async def test_a_write_that_succeeded_despite_an_error_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_memory() as memory:
        await memory.remember("Favourite drink is tea", key="drink")
        update = Collection.update

        def update_and_fail(*arguments: Any, **options: Any) -> Any:
            update(*arguments, **options)
            raise OSError("disk")

        with monkeypatch.context() as broken:
            broken.setattr(Collection, "update", update_and_fail)
            with pytest.raises(StoreUnavailableError):
                await memory.remember("Favourite drink is coffee", key="drink")
        assert await texts(memory, "favourite drink") == {"Favourite drink is coffee"}


async def test_changing_the_callers_metadata_does_not_change_the_stored_copy() -> None:
    async with a_memory() as memory:
        await memory.remember("Has a cat", metadata={"names": ["Tom"]})
        (found,) = (await memory.query("cat")).results
        assert found.metadata is not None
        found.metadata["names"].append("Max")
        (hit,) = (await memory.recall("cat")).hits
        hit.record.metadata["names"].append("Mia")
        assert (await memory.recall("cat")).hits[0].record.metadata == {"names": ["Tom"]}


async def test_a_reopened_store_is_read_again() -> None:
    store = TemporaryStore()
    memory = a_memory(store)
    await memory.remember("Likes mangos")
    cache = await memory._engine.data.cache()
    await memory.close()
    await memory.remember("Likes tea")
    assert await memory._engine.data.cache() is not cache
    await memory.close()


async def test_memories_that_another_process_deleted_are_not_returned(
    chroma_server: tuple[str, int], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autogen_persistent_memory.retrieval.cache._LOOK_EVERY", 3600)
    here = PersistentMemory(namespace, store=ServerStore(*chroma_server), embedding=words())
    there = PersistentMemory(namespace, store=ServerStore(*chroma_server, timeout=9), embedding=words())
    await here.remember_many({"content": f"old fact number {number}", "key": str(number)} for number in range(40))
    assert len(await texts(here, "old fact")) == 40
    await there.remember_many({"content": f"new thing number {number}", "key": str(number)} for number in range(40))
    for limit in (1, 5, 50):
        found = (await here.recall("old fact number 7", limit=limit)).hits
        assert not any("old fact" in hit.record.content for hit in found)
    await here.close()
    await there.close()


async def test_changes_that_leave_the_count_the_same_are_noticed(
    chroma_server: tuple[str, int], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autogen_persistent_memory.retrieval.cache._LOOK_EVERY", 0)
    monkeypatch.setattr("autogen_persistent_memory.retrieval.cache._CLOSE_LOOK", 1)
    here = PersistentMemory(namespace, store=ServerStore(*chroma_server), embedding=words())
    there = PersistentMemory(namespace, store=ServerStore(*chroma_server, timeout=9), embedding=words())
    old = await here.remember("The code word is Xylophone")
    await here.recall("Xylophone")
    await there.forget(old.id)
    await there.remember("The code word is Trombone")
    (hit,) = (await here.recall("Trombone")).hits
    assert hit.keywords > 0
    await here.close()
    await there.close()
