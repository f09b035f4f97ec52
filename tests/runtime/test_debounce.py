"""Work waits for a quiet moment, but not for ever."""

from __future__ import annotations

import asyncio

import pytest

from autogen_persistent_memory.runtime.background_task import Debounce


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autogen_persistent_memory.runtime.background_task._QUIET_SECONDS", 0.1)
    monkeypatch.setattr("autogen_persistent_memory.runtime.background_task._LONGEST_SECONDS", 0.4)


async def test_it_is_done_once_when_it_is_quiet() -> None:
    done = asyncio.Queue[float]()
    loop = asyncio.get_running_loop()
    lull = Debounce(lambda: done.put_nowait(loop.time()))
    started = loop.time()
    for _ in range(3):
        lull.ask()
        await asyncio.sleep(0.05)
    assert lull.is_awaited
    assert await asyncio.wait_for(done.get(), 5) - started >= 0.2
    assert not lull.is_awaited
    lull.ask()
    await asyncio.wait_for(done.get(), 5)
    assert done.empty()


async def test_what_was_called_off_is_not_done_unless_it_is_asked_for_again() -> None:
    done = asyncio.Queue[None]()
    lull = Debounce(lambda: done.put_nowait(None))
    lull.ask()
    lull.call_off()
    await asyncio.sleep(0.2)
    assert done.empty()
    lull.ask()
    lull.call_off()
    lull.ask()
    await asyncio.wait_for(done.get(), 5)
    await asyncio.sleep(0.2)
    assert done.empty()


async def test_it_is_done_in_the_end_where_it_never_gets_quiet() -> None:
    done = asyncio.Queue[None]()
    lull = Debounce(lambda: done.put_nowait(None))
    for _ in range(500):
        lull.ask()
        if not done.empty():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("It was put off for ever.")


def test_another_event_loop_does_what_one_that_ended_did_not() -> None:
    done = list[asyncio.Event]()
    lull = Debounce(lambda: done.pop().set())

    async def ask() -> None:
        lull.ask()

    async def ask_and_wait() -> None:
        event = asyncio.Event()
        done.append(event)
        lull.ask()
        await asyncio.wait_for(event.wait(), 5)

    asyncio.run(ask())
    asyncio.run(ask_and_wait())
    assert done == []
