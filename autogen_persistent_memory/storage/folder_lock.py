"""The lock on an embedded store's folder: one process at a time, and the error for a second one names the holder.

Two processes that write one Chroma folder lose vectors for good while every count looks right. The operating system
releases the lock when the holder ends, however it ends, so there are no stale locks.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from ..core.errors import StoreLockedError
from ..core.records import utc_now
from ..runtime import private_files

_LOCK = "autogen_memory.lock"
_HOLDER = "autogen_memory.holder.json"


class FolderLock:
    """A lock on a folder, for this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        from filelock import FileLock

        self._lock = FileLock(folder / _LOCK, timeout=0, mode=private_files.FILE, thread_local=False)

    def take(self) -> FolderLock:
        """Lock the folder, and return the lock.

        Raises:
            StoreLockedError: Another process has locked it.
            OSError: The folder cannot be written, or the lock file is a link.
        """
        from filelock import Timeout

        private_files.refuse_link(self._folder / _LOCK)
        try:
            self._lock.acquire()
        except Timeout:
            raise StoreLockedError(
                f"The store {self._folder} is in use by {holder_of(self._folder) or 'another process'}. An embedded store belongs to one process at "
                "a time, since two would destroy each other's vectors. Either end that process, or let both share a "
                f"server: run `autogen-memory share --path {shlex.quote(str(self._folder))}` after ending it, and pass "
                "store=ServerStore('127.0.0.1', 8000) in each."
            ) from None
        try:
            # without its arguments, which may hold secrets
            self.name_holder(os.getpid(), _program(sys.argv[0] if sys.argv else ""))
        except BaseException:
            self._lock.release()
            raise
        return self

    def name_holder(self, pid: int, program: str) -> None:
        """Note for other processes which one has the lock: this one, or one that it started and that shares the lock."""
        host, since = socket.gethostname(), utc_now().isoformat(timespec="seconds")
        holder = {"pid": pid, "program": program[:100], "host": host, "since": since}
        private_files.write(self._folder / _HOLDER, json.dumps(holder))

    def descriptors(self) -> tuple[int, ...]:
        """Return the file descriptors that a child process must inherit to share the lock until both have ended."""
        number = self._lock._context.lock_file_fd
        return () if number is None or os.name == "nt" else (number,)

    def release(self) -> None:
        """Release the lock."""
        with contextlib.suppress(OSError):
            (self._folder / _HOLDER).unlink()
        self._lock.release()

    @classmethod
    @contextmanager
    def of_existing(cls, folder: Path) -> Iterator[None]:
        """Lock a folder meanwhile if it was ever an embedded store; write nothing into any other.

        Raises:
            StoreLockedError: Another process has locked it.
        """
        with contextlib.ExitStack() as stack:
            if (folder / _LOCK).exists():
                stack.callback(cls(folder).take().release)
            yield


def holder_of(folder: Path) -> str | None:
    """Return the process that has locked a folder, or that ended without releasing it."""
    try:
        holder = json.loads((folder / _HOLDER).read_text(encoding="utf-8"))
        since = datetime.fromisoformat(holder["since"])
        program = holder.get("program") or _program(str(holder.get("command", "")).split(" ")[0])
        return f"process {holder['pid']} ({program}) on {holder['host']} since {since:%Y-%m-%d %H:%M:%S} UTC"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _program(path: str) -> str:
    folder, name = os.path.split(path)
    name = os.path.basename(folder) if name == "__main__.py" else name
    return "python" if name in ("", "-c", "-m", "-") else name
