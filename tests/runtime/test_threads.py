"""Blocking calls run in a bounded number of threads that never delay exit for long."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from autogen_persistent_memory.runtime.threads import DaemonPool, run_without_loop


def test_a_pool_runs_calls_and_passes_on_errors() -> None:
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


def test_a_call_cancelled_before_it_started_never_runs() -> None:
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
def test_exit_waits_a_moment_for_writes_and_not_for_other_calls(sleeping: float, finishes: bool, printed: str) -> None:
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


def test_a_coroutine_that_waits_for_nothing_runs_without_an_event_loop() -> None:
    async def answer() -> int:
        return 42

    assert run_without_loop(answer()) == 42
    with pytest.raises(RuntimeError, match="event loop"):
        run_without_loop(asyncio.sleep(0.01))
