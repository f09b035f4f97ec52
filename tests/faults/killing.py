"""Processes that write memories until they are killed, forked from one that has already imported everything."""

from __future__ import annotations

import asyncio
import hashlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENDED = "ended"
PER_PROCESS = 10_000


class Writers:
    """Starts writers, one after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line.strip())

    def start(self, path: Path, run: int) -> int:
        """Start a process that writes memories of a run, and return its id."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{run} {path}\n")
        self._process.stdin.flush()
        return int(self._lines.get(timeout=60))

    def acknowledged(self) -> int | None:
        """Return the next number that was written, or None if the process has ended."""
        line = self._lines.get(timeout=60)
        return None if line == ENDED else int(line)


@contextmanager
def writers() -> Iterator[Writers]:
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        yield Writers(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()


def fact(run: int, number: int) -> str:
    return f"The parcel {hashlib.sha256(f'{run} {number}'.encode()).hexdigest()[:12]} has arrived"


async def _write(path: str, run: int) -> None:
    from toys import words

    from autogen_persistent_memory import EmbeddedStore, PersistentMemory

    memory = PersistentMemory("ann", store=EmbeddedStore(path), embedding=words())
    for number in range(PER_PROCESS):
        await memory.remember(fact(run, number))
        os.write(1, f"{number}\n".encode())  # in one piece: print may be killed before the end of the line


def _serve() -> None:
    import chromadb  # noqa: F401 (so that its import is paid once)
    import toys  # noqa: F401

    for line in sys.stdin:
        run, path = line.split()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            print(os.getpid(), flush=True)
            try:
                asyncio.run(_write(path, int(run)))
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        print(ENDED, flush=True)


if __name__ == "__main__":
    _serve()
