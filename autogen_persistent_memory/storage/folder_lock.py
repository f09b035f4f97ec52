"""One process at a time: the lock on an embedded store's folder, which names its holder to whoever comes second.

Two processes that write one Chroma folder lose vectors for good while every count looks right. The operating system
drops the lock when the holder ends, however it ends, so there are no stale locks.
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
    """The right of this process to use a folder, once taken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        from filelock import FileLock

        self._lock = FileLock(folder / _LOCK, timeout=0, mode=private_files.FILE, thread_local=False)

    def take(self) -> None:
        """Take the folder for this process.

        Raises:
            StoreLockedError: Another process has it.
            OSError: The folder cannot be written, or a link stands in the place of the lock.
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
            self.name_holder(os.getpid(), _this_program())
        except BaseException:
            self._lock.release()
            raise

    def name_holder(self, pid: int, program: str) -> None:
        """Note for others which process has the folder: this one, or one that it started and that shares the lock."""
        holder = {
            "pid": pid,
            "program": program[:100],
            "host": socket.gethostname(),
            "since": utc_now().isoformat(timespec="seconds"),
        }
        private_files.write(self._folder / _HOLDER, json.dumps(holder))

    def descriptors(self) -> tuple[int, ...]:
        """What a process that is started must inherit to share the lock, so that it lasts as long as either of them."""
        number = self._lock._context.lock_file_fd
        return () if number is None or os.name == "nt" else (number,)

    def release(self) -> None:
        """Give the folder back."""
        with contextlib.suppress(OSError):
            (self._folder / _HOLDER).unlink()
        self._lock.release()

    @classmethod
    @contextmanager
    def of_existing(cls, folder: Path) -> Iterator[None]:
        """Have a folder for a while, if it was ever an embedded store; in any other nothing is written.

        Raises:
            StoreLockedError: Another process has it.
        """
        ownership = cls(folder) if (folder / _LOCK).exists() else None
        if ownership is not None:
            ownership.take()
        try:
            yield
        finally:
            if ownership is not None:
                ownership.release()


def holder_of(folder: Path) -> str | None:
    """The process that has a folder, or that ended without giving it back."""
    try:
        holder = json.loads((folder / _HOLDER).read_text(encoding="utf-8"))
        since = datetime.fromisoformat(holder["since"])
        program = holder.get("program") or _named(str(holder.get("command", "")).split(" ")[0])
        return f"process {holder['pid']} ({program}) on {holder['host']} since {since:%Y-%m-%d %H:%M:%S} UTC"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _this_program() -> str:
    """The name of this program, without its arguments: those may hold secrets."""
    return _named(sys.argv[0] if sys.argv else "")


def _named(path: str) -> str:
    folder, name = os.path.split(path)
    name = os.path.basename(folder) if name == "__main__.py" else name
    return "python" if name in ("", "-c", "-m", "-") else name
