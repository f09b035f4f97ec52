"""Threads for blocking calls: bounded, so that hung calls cannot pile up, and daemons, so that they cannot delay exit."""

from __future__ import annotations

import asyncio
import atexit
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from typing_extensions import ParamSpec

P = ParamSpec("P")
T = TypeVar("T")

importing = threading.RLock()
"""Held while importing numpy and packages built on it: two threads that import them first at the same time fail."""

_IDLE_SECONDS = 10.0
_EXIT_SECONDS = 5.0
_FEW_CHARACTERS = 50_000
"""Processed within milliseconds, whatever is done with them."""
_Job = tuple["Future[Any]", Callable[[], Any]]


class DaemonPool(Executor):
    """An executor of at most `size` threads, which start when needed and end when idle.

    `concurrent.futures.ThreadPoolExecutor` joins its threads when the interpreter exits, so one call that
    hangs on a dead server would hang the user's program. This pool abandons calls that still run at exit; one that
    `finishes` gives them a few seconds first.
    """

    def __init__(self, size: int, name: str, *, finishes: bool = False) -> None:
        self._size = size
        self._name = name
        self._reset()
        if finishes:
            _finishing.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unfinished = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` on one of the threads."""
        if self._pid != os.getpid():  # a forked child inherits the counts but not the threads
            self._reset()
        future: Future[T] = Future()
        with self._lock:
            self._unfinished += 1
            self._jobs.put((future, lambda: fn(*args, **kwargs)))
            if self._threads < min(self._size, self._unfinished):
                self._threads += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            try:
                future, call = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._threads -= 1
                        return
                continue
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except StopIteration as error:  # which a future cannot carry
                    future.set_exception(RuntimeError(f"The call raised {error!r}."))
                except BaseException as error:  # native code may raise outside Exception; the caller gets it
                    future.set_exception(error)
            del future, call
            with self._lock:
                self._unfinished -= 1

    def is_busy(self) -> bool:
        """Return whether any call is queued or running."""
        return self._pid == os.getpid() and self._unfinished > 0


_finishing: weakref.WeakSet[DaemonPool] = weakref.WeakSet()


@atexit.register
def _finish_calls() -> None:
    """Wait a few seconds for running calls when the program ends.

    A write must not be lost, and native code that returns to an interpreter that has ended crashes the process.
    """
    until = time.monotonic() + _EXIT_SECONDS
    while time.monotonic() < until and any(pool.is_busy() for pool in list(_finishing)):
        time.sleep(0.01)


_work = DaemonPool(4, "autogen-memory-work", finishes=True)


async def in_thread(call: Callable[[], T]) -> T:
    """Run a call that would block the event loop, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_work, call)


async def in_thread_if_long(characters: int, call: Callable[[], T]) -> T:
    """Run a call that would block the event loop if it processes many characters, and return its result."""
    return call() if characters <= _FEW_CHARACTERS else await in_thread(call)


def start_in_thread(call: Callable[[], T]) -> Future[T]:
    """Start a call that would block the event loop, without waiting for it."""
    return _work.submit(call)


def run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits for anything, in any thread; if it does wait, raise a RuntimeError."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    coroutine.close()
    raise RuntimeError("The coroutine waits for something and needs an event loop.")
