"""Work in the background runs once at a time for each event loop, can be prefetched, and can be debounced."""

import asyncio
import gc
from contextlib import aclosing

import pytest

from autogen_persistent_memory.runtime.background_task import BackgroundTask, Debounce, prefetch


class Work:
    """Runs until it is released, and counts how often it was started."""

    def __init__(self) -> None:
        self.started = 0
        self.release = asyncio.Event()

    async def __call__(self) -> str:
        self.started += 1
        await self.release.wait()
        return "done"


async def test_work_that_is_running_is_not_started_again() -> None:
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


async def test_waiting_has_a_timeout_that_does_not_cancel_the_work() -> None:
    work = Work()
    background = BackgroundTask(work)
    assert await background.wait(0)  # nothing was started
    background.start()
    assert not await background.wait(0.01)
    assert background.is_running
    work.release.set()
    assert await background.wait(10)


async def test_stop_waits_until_the_work_has_ended() -> None:
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


def test_each_event_loop_starts_its_own_task() -> None:
    started: list[asyncio.AbstractEventLoop] = []

    async def work() -> None:
        started.append(asyncio.get_running_loop())
        await asyncio.sleep(0)

    background = BackgroundTask(work)

    async def use() -> None:
        assert await background.wait()  # the task of a loop that ended does not count
        await background.start()

    for _ in range(2):
        asyncio.run(use())
    assert len(set(started)) == 2


async def test_an_exception_that_nobody_awaits_is_not_reported_by_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise ValueError("nobody awaits this")

    background = BackgroundTask(work)
    background.start()
    assert await background.wait()
    del background
    gc.collect()
    assert caplog.records == []


async def test_the_next_batch_is_prepared_while_the_caller_uses_one() -> None:
    begun: list[int] = []
    second_begun = asyncio.Event()

    async def prepare(batch: int) -> int:
        begun.append(batch)
        if batch == 2:
            second_begun.set()
        return 10 * batch

    async with aclosing(prefetch(prepare, [1, 2, 3])) as ready:
        assert await anext(ready) == 10
        await asyncio.wait_for(second_begun.wait(), 5)
        assert begun == [1, 2]
        assert [result async for result in ready] == [20, 30]


async def test_preparation_is_cancelled_when_the_generator_is_closed() -> None:
    cancelled = asyncio.Event()

    async def prepare(batch: int) -> int:
        try:
            return batch if batch == 1 else await asyncio.Future()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with aclosing(prefetch(prepare, [1, 2])) as ready:
        assert await anext(ready) == 1
        await asyncio.sleep(0)
    await asyncio.wait_for(cancelled.wait(), 5)


@pytest.fixture
def _short_debounce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autogen_persistent_memory.runtime.background_task._QUIET_SECONDS", 0.1)
    monkeypatch.setattr("autogen_persistent_memory.runtime.background_task._LONGEST_SECONDS", 0.4)


@pytest.mark.usefixtures("_short_debounce")
async def test_debounced_work_runs_once_when_requests_stop() -> None:
    done = asyncio.Queue[float]()
    loop = asyncio.get_running_loop()
    debounce = Debounce(lambda: done.put_nowait(loop.time()))
    started = loop.time()
    for _ in range(3):
        debounce.ask()
        assert debounce.is_pending
        await asyncio.sleep(0.05)
    assert await asyncio.wait_for(done.get(), 5) - started >= 0.2
    assert not debounce.is_pending
    debounce.ask()
    await asyncio.wait_for(done.get(), 5)
    assert done.empty()


@pytest.mark.usefixtures("_short_debounce")
async def test_cancelled_work_runs_only_if_it_is_requested_again() -> None:
    done = asyncio.Queue[None]()
    debounce = Debounce(lambda: done.put_nowait(None))
    debounce.ask()
    debounce.cancel()
    await asyncio.sleep(0.2)
    assert done.empty()
    debounce.ask()
    debounce.cancel()
    debounce.ask()
    await asyncio.wait_for(done.get(), 5)
    await asyncio.sleep(0.2)
    assert done.empty()


@pytest.mark.usefixtures("_short_debounce")
async def test_debounced_work_runs_in_the_end_if_requests_never_stop() -> None:
    done = asyncio.Queue[None]()
    debounce = Debounce(lambda: done.put_nowait(None))
    for _ in range(500):
        debounce.ask()
        if not done.empty():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("It was delayed for ever.")


@pytest.mark.usefixtures("_short_debounce")
def test_debounced_work_that_an_ended_loop_did_not_run_is_run_by_the_next() -> None:
    done = list[asyncio.Event]()
    debounce = Debounce(lambda: done.pop().set())

    async def ask() -> None:
        debounce.ask()

    async def ask_and_wait() -> None:
        event = asyncio.Event()
        done.append(event)
        debounce.ask()
        await asyncio.wait_for(event.wait(), 5)

    asyncio.run(ask())
    asyncio.run(ask_and_wait())
    assert done == []
