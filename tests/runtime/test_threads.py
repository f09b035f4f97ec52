import asyncio
import subprocess
import sys
import threading
import time
from contextlib import aclosing

import pytest

from autogen_persistent_memory.runtime.background_task import one_ahead
from autogen_persistent_memory.runtime.threads import DaemonPool, run_without_loop


def test_a_pool_runs_what_it_is_given_and_passes_on_errors() -> None:
    pool = DaemonPool(2, "test")
    assert pool.submit(pow, 2, 5).result(5) == 32
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result(5)


def test_a_pool_never_has_more_threads_than_its_size() -> None:
    pool = DaemonPool(3, "bounded-pool")
    release = threading.Event()
    futures = [pool.submit(release.wait, 10) for _ in range(20)]
    assert sum(thread.name == "bounded-pool" for thread in threading.enumerate()) == 3
    release.set()
    assert all(future.result(5) for future in futures)


def test_what_was_cancelled_before_it_began_never_runs() -> None:
    pool = DaemonPool(1, "test")
    release, ran = threading.Event(), threading.Event()
    blocker = pool.submit(release.wait, 10)
    waiting = pool.submit(ran.set)
    assert waiting.cancel()
    release.set()
    blocker.result(5)
    pool.submit(int).result(5)
    assert not ran.is_set()


@pytest.mark.parametrize(
    ("sleeping", "finishes", "printed"), [(0.5, True, "finished\n"), (60, True, ""), (60, False, "")]
)
def test_a_write_under_way_at_exit_gets_a_moment_and_other_calls_none(
    sleeping: float, finishes: bool, printed: str
) -> None:
    code = (
        "import time; from autogen_persistent_memory.runtime.threads import DaemonPool\n"
        f"pool = DaemonPool(1, 'x', finishes={finishes})\n"
        f"pool.submit(lambda: (time.sleep({sleeping}), print('finished', flush=True)))"
    )
    started = time.monotonic()
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (answer.stdout, answer.stderr) == (printed, "")
    assert time.monotonic() - started < (20 if finishes else 10)


def test_a_call_that_raises_stop_iteration_fails_and_does_not_hang() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        DaemonPool(1, "test").submit(next, iter([])).result(5)


def test_a_coroutine_that_waits_for_nothing_needs_no_loop() -> None:
    async def answer() -> int:
        return 42

    assert run_without_loop(answer()) == 42
    with pytest.raises(RuntimeError, match="event loop"):
        run_without_loop(asyncio.sleep(0.01))


async def test_the_next_batch_is_prepared_while_one_is_used() -> None:
    begun: list[int] = []
    second_begun = asyncio.Event()

    async def prepare(batch: int) -> int:
        begun.append(batch)
        if batch == 2:
            second_begun.set()
        return 10 * batch

    async with aclosing(one_ahead(prepare, [1, 2, 3])) as ready:
        assert await anext(ready) == 10
        await asyncio.wait_for(second_begun.wait(), 5)
        assert begun == [1, 2]
        assert [result async for result in ready] == [20, 30]


async def test_what_is_prepared_ahead_is_given_up_when_nobody_wants_it() -> None:
    given_up = asyncio.Event()

    async def prepare(batch: int) -> int:
        try:
            return batch if batch == 1 else await asyncio.Future()
        except asyncio.CancelledError:
            given_up.set()
            raise

    async with aclosing(one_ahead(prepare, [1, 2])) as ready:
        assert await anext(ready) == 1
        await asyncio.sleep(0)
    await asyncio.wait_for(given_up.wait(), 5)
