"""Locks exclude across loops and threads, and many tasks at once pass one by one, so that the loop stays responsive."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise

import pytest

from autogen_persistent_memory.runtime.locks import (
    CrossLoopLock,
    IdleWork,
    LockTakenError,
    ReadWriteLock,
    one_at_a_time,
)


async def test_tasks_get_the_lock_in_the_order_they_came() -> None:
    lock, order = CrossLoopLock(), list[int]()

    async def work(number: int) -> None:
        async with lock:
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(work(number) for number in range(5)))
    assert order == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_event_loops_in_several_threads_exclude_each_other() -> None:
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
    second.cancel()  # just when the lock is passed to it
    await asyncio.wait({second})
    await asyncio.wait_for(lock.__aenter__(), 5)


def test_a_task_whose_loop_was_closed_releases_the_lock() -> None:
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


def test_readers_share_the_lock_and_a_writer_has_it_alone() -> None:
    lock = ReadWriteLock()
    together, log = threading.Barrier(3), list[str]()

    def read() -> None:
        with lock.reading():
            together.wait(5)  # returns only if both others hold it as well
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


def test_later_readers_do_not_overtake_a_waiting_writer() -> None:
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


def test_a_reader_that_must_not_wait_gets_an_error_while_the_lock_is_written() -> None:
    lock = ReadWriteLock()
    with lock.writing(), pytest.raises(LockTakenError), lock.reading(wait=False):
        pass
    with lock.reading(), lock.reading(wait=False):  # as by two threads
        pass
    with lock.writing():
        pass


async def test_a_task_alone_passes_at_once() -> None:
    steps = list[str]()
    asyncio.get_running_loop().call_soon(steps.append, "the loop continued")
    await one_at_a_time()
    assert steps == []


async def test_other_tasks_run_between_any_two_turns() -> None:
    steps = list[str]()

    async def work(number: int) -> None:
        await one_at_a_time()
        steps.append(str(number))

    async def tick() -> None:
        while len(steps) < 15:
            steps.append("tick")
            await asyncio.sleep(0)

    await asyncio.gather(*map(work, range(8)), tick())
    assert [step for step in steps if step != "tick"] == [str(number) for number in range(8)]
    assert all("tick" in (one, other) for one, other in pairwise(steps))


async def test_a_cancelled_task_does_not_block_those_behind_it() -> None:
    async def work() -> None:
        await one_at_a_time()

    tasks = [asyncio.create_task(work()) for _ in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[2].cancel()
    ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    assert [type(result) for result in ended] == [
        type(None),
        asyncio.CancelledError,
        asyncio.CancelledError,
        type(None),
    ]
    await asyncio.wait_for(one_at_a_time(), 5)


def test_each_event_loop_has_its_own_turns() -> None:
    async def work() -> None:
        await asyncio.gather(*(one_at_a_time() for _ in range(3)))

    async def be_interrupted() -> None:
        waiting = [asyncio.ensure_future(one_at_a_time()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not all(task.done() for task in waiting)

    asyncio.run(be_interrupted())
    asyncio.run(asyncio.wait_for(work(), 5))


async def test_idle_work_runs_while_its_task_waits() -> None:
    begun = asyncio.Event()

    def work() -> str:
        begun.set()
        return "done"

    meanwhile = IdleWork(work, 0)
    await asyncio.wait_for(begun.wait(), 5)
    begun.clear()
    assert await meanwhile.result() == "done"
    assert not begun.is_set()  # not again


async def test_idle_work_that_had_no_time_runs_when_its_result_is_needed() -> None:
    assert await IdleWork(lambda: "done", 100).result() == "done"


async def test_idle_work_waits_while_other_work_has_the_turn() -> None:
    done = list[int]()
    work = [IdleWork(partial(done.append, number), 0) for number in range(5)]
    await asyncio.sleep(0.01)
    assert done == [0]  # all of them were due in the same iteration
    await asyncio.gather(*(one.result() for one in work))
    assert sorted(done) == [0, 1, 2, 3, 4]


async def test_cancelled_idle_work_does_not_start() -> None:
    done = list[int]()
    meanwhile = IdleWork(partial(done.append, 1), 0)
    meanwhile.cancel()
    await asyncio.sleep(0.01)
    assert done == []


async def test_idle_work_that_fails_raises_where_its_result_is_needed() -> None:
    with pytest.raises(ZeroDivisionError):
        await IdleWork(lambda: 1 // 0, 100).result()
