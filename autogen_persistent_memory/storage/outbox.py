"""What was heard while its server could not be reached, on this machine's disk until it can be delivered.

A folder for each namespace of a server, and in it a file for each time something was put by, which appears and goes as a
whole. So a process may be killed at any moment, and any other that uses the namespace can deliver what it left.
Everything here blocks, and is called in threads.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import time
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..core.component_configs import DEFAULT_OUTBOX, OUTBOX_VARIABLE
from ..core.records import stable_id
from ..runtime import private_files

if TYPE_CHECKING:
    from filelock import FileLock

logger = logging.getLogger("autogen_persistent_memory")

_MOST = 10_000
_MOST_BYTES = 20_000_000
_ABANDONED_SECONDS = 3600


class Heard(NamedTuple):
    """A message that was heard and is not stored yet. Its id is fixed, so that it is stored once.

    A new field needs a default: with that a file is read that was written before there was the field.
    """

    id: str
    session: str
    source: str
    text: str
    at: datetime
    by_user: bool = False
    learn: bool = False
    """Whether facts are still to be drawn from it, as far as that can be done at once."""
    facts: tuple[str, ...] = ()
    """The ids of the facts that were drawn from it."""
    spans: tuple[tuple[int, int], ...] = ()
    """Where in the text each of them is told."""
    study: bool = False
    """Whether a model is to read it later."""
    if_new: bool = False
    """Whether it is to be stored only if its session does not know these words of this speaker yet."""


class Parcel(NamedTuple):
    """What was put by at one time."""

    path: Path
    messages: tuple[Heard, ...]


class Outbox:
    """What waits to be delivered to one namespace. Beyond a limit the oldest is dropped.

    Args:
        folder: Its folder; made when something is put by.
        most: How many messages it holds.
        most_bytes: How much it holds.
    """

    def __init__(self, folder: str, *, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._given = folder
        self._most = most
        self._most_bytes = most_bytes

    @cached_property
    def folder(self) -> Path:
        """Where it is, found once, lest a later chdir make it another."""
        return Path(os.path.abspath(os.path.expanduser(self._given)))

    def put(self, messages: Sequence[Heard]) -> None:
        """Put messages by, all or none.

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
        """Whether anything waits to be delivered."""
        return bool(self._paths())

    def messages(self) -> list[Heard]:
        """Everything that waits, in order."""
        return [message for path in self._paths() for message in self._read(path).messages]

    def next_parcels(self, count: int) -> list[Parcel]:
        """What was put by first: about so many messages."""
        parcels: list[Parcel] = []
        for path in self._paths():
            if sum(len(parcel.messages) for parcel in parcels) >= count:
                break
            parcels.append(self._read(path))
        return parcels

    def remove(self, parcels: Sequence[Parcel]) -> None:
        """These were delivered."""
        for parcel in parcels:
            parcel.path.unlink(missing_ok=True)

    def claim(self) -> FileLock | None:
        """A lock, to be released, if it is for this caller to deliver: nobody else in any process does meanwhile."""
        from filelock import FileLock, Timeout

        private_files.refuse_link(self.folder / "lock")
        lock = FileLock(self.folder / "lock", timeout=0, mode=private_files.FILE, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            return None
        self._sweep()
        return lock

    def _paths(self) -> list[Path]:
        try:
            return sorted(self.folder / name for name in os.listdir(self.folder) if name.endswith(".jsonl"))
        except FileNotFoundError:
            return []

    def _read(self, path: Path) -> Parcel:
        """A file; what cannot be read is put aside, so that it does not hold up what comes after it."""
        try:
            messages = tuple(map(_message, path.read_text("utf-8").splitlines()))
        except FileNotFoundError:  # dropped, or delivered by another process
            return Parcel(path, ())
        except (ValueError, KeyError, TypeError) as error:
            aside = path.with_suffix(".unreadable")
            logger.warning("What was put by in %s cannot be read (%r); it is now %s.", path, error, aside.name)
            path.replace(aside)
            return Parcel(path, ())
        return Parcel(path, messages)

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
                "More is waiting in %s for its server than it may hold (%d messages, %d MB): the oldest %d were dropped.",
                self.folder,
                self._most,
                self._most_bytes // 1_000_000,
                dropped,
            )

    def _sweep(self) -> None:
        """Remove what a process was killed in the middle of writing."""
        for path in self.folder.glob("*.tmp"):
            try:
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    path.unlink()
            except FileNotFoundError:
                continue


def _message(line: str) -> Heard:
    """The message in a line. Fields that are missing have their defaults; those of a newer version are passed over."""
    given = Heard._field_defaults | json.loads(line)
    known = {name: given[name] for name in Heard._fields}
    return Heard(
        **known
        | {
            "at": datetime.fromisoformat(given["at"]),
            "facts": tuple(given["facts"]),
            "spans": tuple(map(tuple, given["spans"])),
        }
    )


def outbox_of(given: str | None, whose: Sequence[str]) -> Outbox | None:
    """The outbox of a namespace of a server, in the folder given, or where the environment says; None if that is empty."""
    root = os.environ.get(OUTBOX_VARIABLE, DEFAULT_OUTBOX) if given is None else given
    if not root:
        return None
    name = re.sub(r"[^\w.-]+", "-", whose[-1], flags=re.ASCII)[:40]
    return Outbox(os.path.join(root, f"{name}-{stable_id(*whose)[:16]}"))
