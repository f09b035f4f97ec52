import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from autogen_persistent_memory.runtime.locks import CrossLoopLock, LockTakenError, ReadWriteLock


async def test_tasks_take_turns_in_the_order_they_came() -> None:
    lock, order = CrossLoopLock(), list[int]()

    async def work(number: int) -> None:
        async with lock:
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(work(number) for number in range(5)))
    assert order == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_loops_in_several_threads_exclude_each_other() -> None:
    lock, inside, most = CrossLoopLock(), 0, 0

    async def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            async with lock:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    async def crowd() -> None:
        await asyncio.gather(*(work() for _ in range(3)))

    threads = [threading.Thread(target=lambda: asyncio.run(crowd())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (inside, most) == (0, 1)


async def test_a_cancelled_waiter_neither_gets_nor_blocks_the_lock() -> None:
    lock = CrossLoopLock()
    await lock.__aenter__()
    waiter = asyncio.ensure_future(lock.__aenter__())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait({waiter})
    second = asyncio.ensure_future(lock.__aenter__())
    await asyncio.sleep(0)
    await lock.__aexit__()
    second.cancel()  # at the very moment at which it is its turn
    await asyncio.wait({second})
    await asyncio.wait_for(lock.__aenter__(), 5)


def test_a_loop_that_was_closed_in_the_middle_gives_the_lock_back() -> None:
    lock = CrossLoopLock()

    async def hold() -> None:
        async with lock:
            await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    coroutine = hold()
    task = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0))
    coroutine.close()
    task.cancel()
    loop.run_until_complete(asyncio.wait({task}))
    loop.close()

    async def again() -> None:
        await asyncio.wait_for(lock.__aenter__(), 5)

    asyncio.run(again())


def test_readers_read_together_and_a_writer_has_it_alone() -> None:
    lock = ReadWriteLock()
    together, log = threading.Barrier(3), list[str]()

    def read() -> None:
        with lock.reading():
            together.wait(5)  # which only ends if both others are in as well
            log.append("read")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()

    def write() -> None:
        with lock.writing():
            log.append("wrote")

    writer = threading.Thread(target=write)
    with lock.reading():
        together.wait(5)
        writer.start()
        for reader in readers:
            reader.join(5)
        assert log == ["read", "read"]
    writer.join(5)
    assert log == ["read", "read", "wrote"]


def test_a_writer_is_not_passed_by_readers_that_come_later() -> None:
    lock = ReadWriteLock()
    log = list[str]()

    def use(name: str, kind: Callable[[], AbstractContextManager[None]]) -> threading.Thread:
        def work() -> None:
            with kind():
                log.append(name)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    with lock.reading():
        writer = use("writer", lock.writing)
        while not lock._entrance.locked():
            time.sleep(0.001)
        late = use("late reader", lock.reading)
    for thread in (writer, late):
        thread.join(5)
    assert log == ["writer", "late reader"]


def test_who_must_not_wait_is_told_that_somebody_writes() -> None:
    lock = ReadWriteLock()
    with lock.writing(), pytest.raises(LockTakenError), lock.reading(wait=False):
        pass
    with lock.reading(), lock.reading(wait=False):  # as by two threads
        pass
    with lock.writing():
        pass
