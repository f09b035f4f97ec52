"""Work in the background: once at a time, for each event loop, and never with a lost exception."""

import asyncio
import gc

import pytest

from autogen_persistent_memory.runtime.background_task import BackgroundTask


class Work:
    """Runs until it is released, and counts how often it was started."""

    def __init__(self) -> None:
        self.started = 0
        self.release = asyncio.Event()

    async def __call__(self) -> str:
        self.started += 1
        await self.release.wait()
        return "done"


async def test_work_that_is_under_way_is_not_started_again() -> None:
    work = Work()
    background = BackgroundTask(work)
    assert background.start() is background.start()
    assert background.is_running
    work.release.set()
    assert await background.start() == "done"
    assert work.started == 1
    assert not background.is_running
    background.start()
    assert await background.wait()
    assert work.started == 2


async def test_waiting_ends_without_ending_the_work() -> None:
    work = Work()
    background = BackgroundTask(work)
    assert await background.wait(0)  # nothing was started
    background.start()
    assert not await background.wait(0.01)
    assert background.is_running
    work.release.set()
    assert await background.wait(10)


async def test_stopped_work_has_ended() -> None:
    background = BackgroundTask(Work())
    task = background.start()
    await background.stop()
    assert task.cancelled()
    assert not background.is_running
    await background.stop()


async def test_cancelled_work_is_not_waited_for() -> None:
    background = BackgroundTask(Work())
    background.cancel()  # nothing was started
    task = background.start()
    background.cancel()
    assert not task.done()
    assert await background.wait(10)
    assert task.cancelled()


def test_another_event_loop_starts_its_own() -> None:
    started: list[asyncio.AbstractEventLoop] = []

    async def work() -> None:
        started.append(asyncio.get_running_loop())
        await asyncio.sleep(0)

    background = BackgroundTask(work)

    async def use() -> None:
        assert await background.wait()  # the task of a loop that is gone is nobody's
        await background.start()

    for _ in range(2):
        asyncio.run(use())
    assert len(set(started)) == 2


async def test_an_exception_that_nobody_awaits_is_not_reported_by_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise ValueError("somebody else's business")

    background = BackgroundTask(work)
    background.start()
    assert await background.wait()
    del background
    gc.collect()
    assert caplog.records == []
