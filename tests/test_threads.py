import asyncio
import subprocess
import sys
import threading
import time

import pytest

from autogen_persistent_memory._threads import DaemonPool, run_without_loop


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


@pytest.mark.parametrize(("sleeping", "longest"), [(0.5, 4), (60, 15)])
def test_a_call_under_way_at_exit_gets_a_moment_and_no_more(sleeping: float, longest: float) -> None:
    code = (
        "import time; from autogen_persistent_memory._threads import DaemonPool\n"
        f"DaemonPool(1, 'x').submit(lambda: (time.sleep({sleeping}), print('finished', flush=True)))"
    )
    started = time.monotonic()
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout == ("finished\n" if sleeping < 1 else "")
    assert answer.stderr == ""
    assert time.monotonic() - started < longest + 5


def test_a_coroutine_that_waits_for_nothing_needs_no_loop() -> None:
    async def answer() -> int:
        return 42

    assert run_without_loop(answer()) == 42
    with pytest.raises(RuntimeError, match="event loop"):
        run_without_loop(asyncio.sleep(0.01))
