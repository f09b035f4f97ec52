"""Many tasks at once are let through one by one, so that the event loop can see to others in between."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

import pytest

from autogen_persistent_memory.runtime.locks import Meanwhile, one_at_a_time


async def test_who_comes_alone_passes_at_once() -> None:
    steps = list[str]()
    asyncio.get_running_loop().call_soon(steps.append, "the loop went on")
    await one_at_a_time()
    assert steps == []


async def test_others_have_their_turn_between_any_two_of_many() -> None:
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


async def test_who_gives_up_does_not_hold_up_those_behind() -> None:
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


def test_each_event_loop_has_its_own() -> None:
    async def work() -> None:
        await asyncio.gather(*(one_at_a_time() for _ in range(3)))

    async def be_interrupted() -> None:
        waiting = [asyncio.ensure_future(one_at_a_time()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not all(task.done() for task in waiting)

    asyncio.run(be_interrupted())
    asyncio.run(asyncio.wait_for(work(), 5))


async def test_work_is_done_while_its_task_waits() -> None:
    begun = asyncio.Event()

    def work() -> str:
        begun.set()
        return "done"

    meanwhile = Meanwhile(work, 0)
    await asyncio.wait_for(begun.wait(), 5)
    begun.clear()
    assert await meanwhile.result() == "done"
    assert not begun.is_set()  # not again


async def test_work_that_had_no_time_is_done_when_its_result_is_needed() -> None:
    assert await Meanwhile(lambda: "done", 100).result() == "done"


async def test_work_waits_where_others_are_at_work() -> None:
    done = list[int]()
    work = [Meanwhile(partial(done.append, number), 0) for number in range(5)]
    await asyncio.sleep(0.01)
    assert done == [0]  # all of them were due in the same iteration
    await asyncio.gather(*(one.result() for one in work))
    assert sorted(done) == [0, 1, 2, 3, 4]


async def test_work_that_is_called_off_is_not_begun() -> None:
    done = list[int]()
    meanwhile = Meanwhile(partial(done.append, 1), 0)
    meanwhile.call_off()
    await asyncio.sleep(0.01)
    assert done == []


async def test_work_that_fails_tells_who_needs_its_result() -> None:
    with pytest.raises(ZeroDivisionError):
        await Meanwhile(lambda: 1 // 0, 100).result()
