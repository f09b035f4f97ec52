"""A queue on this machine's disk for messages whose server cannot be reached.

Each namespace of a server has a folder, and each `put` writes one file in it, which appears and disappears as a whole. So a
process may be killed at any moment, and any other process that uses the namespace can deliver what it left. Everything here
blocks; call it in a thread.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Sequence
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..core.component_configs import DEFAULT_OUTBOX, OUTBOX_VARIABLE
from ..core.records import stable_id
from ..runtime import private_files

if TYPE_CHECKING:
    from filelock import FileLock
    from pydantic import TypeAdapter

logger = logging.getLogger("autogen_persistent_memory")

_MOST = 10_000
_MOST_BYTES = 20_000_000
_ABANDONED_SECONDS = 3600


class QueuedMessage(NamedTuple):
    """A message that is not stored yet. Its id is fixed, so that it is stored once.

    A new field needs a default, so that a file can be read that was written before the field existed.
    """

    id: str
    session: str
    source: str
    text: str
    at: datetime
    by_user: bool = False
    learn: bool = False
    """Whether facts are still to be extracted from it by rules."""
    facts: tuple[str, ...] = ()
    """The ids of the facts that were extracted from it."""
    spans: tuple[tuple[int, int], ...] = ()
    """Where in the text each of them is told."""
    study: bool = False
    """Whether a model is to read it later."""
    if_new: bool = False
    """Whether to store it only if its session does not have the same words of this speaker yet."""


class Parcel(NamedTuple):
    """The messages of one file."""

    path: Path
    messages: tuple[QueuedMessage, ...]


class Outbox:
    """The queue of one namespace. Beyond a limit the oldest messages are dropped.

    Args:
        folder: Its folder, which the first `put` makes.
        most: How many messages it holds.
        most_bytes: How many bytes it holds.
    """

    def __init__(self, folder: str, *, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._given = folder
        self._most = most
        self._most_bytes = most_bytes

    @cached_property
    def folder(self) -> Path:
        """The absolute path, resolved once, so that a later chdir does not change it."""
        return Path(os.path.abspath(os.path.expanduser(self._given)))

    def put(self, messages: Sequence[QueuedMessage]) -> None:
        """Queue messages, all or none.

        Raises:
            OSError: The disk is full, or the folder cannot be written or is a link.
        """
        lines = [json.dumps(message._asdict() | {"at": message.at.isoformat()}) + "\n" for message in messages]
        private_files.refuse_link(self.folder)
        private_files.make_folder(self.folder)
        path = self.folder / f"{time.time_ns():020d}-{len(messages)}-{secrets.token_hex(4)}.jsonl"
        unfinished = path.with_suffix(".tmp")
        try:
            with open(private_files.create(unfinished), "wb") as file:
                file.write("".join(lines).encode())
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        self._keep_within_bounds()

    def waits(self) -> bool:
        """Return whether the queue holds anything."""
        return bool(self._paths())

    def messages(self) -> list[QueuedMessage]:
        """Return everything in the queue, in order."""
        return [message for path in self._paths() for message in self._read(path).messages]

    def next_parcels(self, count: int) -> list[Parcel]:
        """Return the oldest files, with about `count` messages."""
        parcels: list[Parcel] = []
        for path in self._paths():
            if sum(len(parcel.messages) for parcel in parcels) >= count:
                break
            parcels.append(self._read(path))
        return parcels

    def remove(self, parcels: Sequence[Parcel]) -> None:
        """Delete files that were delivered."""
        for parcel in parcels:
            parcel.path.unlink(missing_ok=True)

    def claim(self) -> FileLock | None:
        """Return a lock, to be released, under which only the caller delivers; None if another task or process has it."""
        from filelock import FileLock, Timeout

        private_files.refuse_link(self.folder / "lock")
        lock = FileLock(self.folder / "lock", timeout=0, mode=private_files.FILE, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            return None
        self._delete_abandoned()
        return lock

    def _paths(self) -> list[Path]:
        try:
            return sorted(self.folder / name for name in os.listdir(self.folder) if name.endswith(".jsonl"))
        except FileNotFoundError:
            return []

    def _read(self, path: Path) -> Parcel:
        """Read a file. An invalid one is renamed, so that it does not block those after it."""
        try:
            return Parcel(path, tuple(map(_message, path.read_text("utf-8").splitlines())))
        except FileNotFoundError:  # dropped, or delivered by another process
            return Parcel(path, ())
        except ValueError as error:
            renamed = path.with_suffix(".unreadable")
            logger.warning(
                "The queued messages in %s cannot be read (%r); the file is now %s.", path, error, renamed.name
            )
            path.replace(renamed)
            return Parcel(path, ())

    def _keep_within_bounds(self) -> None:
        dropped, count, size = 0, 0, 0
        for path in reversed(self._paths()):
            held = int(path.name.split("-")[1])
            try:
                size += path.stat().st_size
            except FileNotFoundError:
                continue
            count += held
            if count > held and (count > self._most or size > self._most_bytes):
                path.unlink(missing_ok=True)
                dropped += held
        if dropped:
            logger.warning(
                "More messages are queued in %s than it may hold (%d messages, %d MB): the oldest %d were dropped.",
                self.folder,
                self._most,
                self._most_bytes // 1_000_000,
                dropped,
            )

    def _delete_abandoned(self) -> None:
        """Delete files that a killed process left half written."""
        for path in self.folder.glob("*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    path.unlink()


@cache
def _format() -> TypeAdapter[QueuedMessage]:
    from pydantic import ConfigDict, TypeAdapter

    hidden = ConfigDict(hide_input_in_errors=True)  # errors are logged, messages must not be
    return TypeAdapter(QueuedMessage, config=hidden)


def _message(line: str) -> QueuedMessage:
    """Return the message in a line. Missing fields have their defaults, and those of a newer version are ignored.

    Raises:
        ValueError: It is not a message.
    """
    given = json.loads(line)
    if not isinstance(given, dict):
        raise ValueError(f"it holds {type(given).__name__} instead of a message")
    return _format().validate_python({name: given[name] for name in QueuedMessage._fields if name in given})


def outbox_of(given: str | None, whose: Sequence[str]) -> Outbox | None:
    """Return the outbox of a namespace of a server, in the folder given, or in the environment's; None if that is empty."""
    root = os.environ.get(OUTBOX_VARIABLE, DEFAULT_OUTBOX) if given is None else given
    if not root:
        return None
    name = re.sub(r"[^\w.-]+", "-", whose[-1], flags=re.ASCII)[:40]
    return Outbox(os.path.join(root, f"{name}-{stable_id(*whose)[:16]}"))
