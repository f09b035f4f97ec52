"""Opens Chroma in this process: on a folder, which the process locks, or in RAM. Everything here blocks; call it in a thread."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...core.component_configs import PATH_VARIABLE
from ...runtime import private_files
from ..folder_lock import FolderLock, holder_of
from .chroma_compat import DATABASE, SEGMENT, is_blocked, keep_every_index, open_folder
from .shared_client import ClientSource

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

    from ..repair.inspect import Inspection
    from ..repair.startup_repair import VectorRepair

T = TypeVar("T")
_OURS = "autogen_memory."
"""Our own files in a store's folder begin with this."""
_OTHER_FILES = 128
"""Open files left to the application and to Chroma's database."""
_FILES_PER_INDEX = 4
_MOST_INDEXES = 600


class Folder(ClientSource):
    """Chroma on a folder, which is locked for this process and repaired when it is opened."""

    def __init__(self, path: str) -> None:
        self.given = path
        self._lock: FolderLock | None = None
        self.repair: VectorRepair | None = None
        """What opening the folder did about damaged indexes, and what is still to be done."""
        self._is_unchanged = False
        """Whether nobody can have changed the folder since a client on it was closed."""

    @cached_property
    def path(self) -> Path:
        """The real path, resolved once, so that a later chdir does not change it."""
        return Path(os.path.realpath(os.path.expanduser(self.given)))

    def identity(self) -> tuple[str, ...]:
        return "embedded", str(self.path)

    def open(self) -> ClientAPI:
        private_files.make_folder(self.path)
        lock = self._lock or FolderLock(self.path).take()
        try:
            client = open_folder(self.path) if self._is_unchanged else self._open_and_repair()
        except BaseException:
            lock.release()
            self._lock, self._is_unchanged = None, False
            raise
        self._lock, self._is_unchanged = lock, False
        return client

    def _open_and_repair(self) -> ClientAPI:
        from ..repair.startup_repair import after_opening, before_opening

        damage = before_opening(self.path)
        client = open_folder(self.path)
        try:
            self.repair = after_opening(self.path, client, damage)
            self._close_to_others()
        except BaseException:
            client.close()
            raise
        return client

    def _close_to_others(self) -> None:
        """Make Chroma's files, which have the modes that the umask leaves, and ours of earlier versions private."""
        with contextlib.suppress(FileNotFoundError):  # somebody deleted the folder
            for path in self.path.iterdir():
                if path.name.startswith((DATABASE, _OURS)) or SEGMENT.fullmatch(path.name):
                    private_files.make_private(path)

    def most_collections(self) -> int:
        try:
            from resource import RLIMIT_NOFILE, getrlimit
        except ImportError:  # on Windows
            return _MOST_INDEXES
        files = getrlimit(RLIMIT_NOFILE)[0]
        return max(8, min(_MOST_INDEXES, (files - _OTHER_FILES) // _FILES_PER_INDEX))

    def pause(self, client: ClientAPI) -> None:
        client.close()
        self._is_unchanged = True

    def close(self, client: ClientAPI) -> None:
        from ..repair.startup_repair import after_closing

        try:
            client.close()
            if self.repair is not None:
                after_closing(self.path, self.repair)
            self._close_to_others()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def examine(self) -> Inspection:
        """Inspect the folder; only while no client is open."""
        from ..repair.inspect import Inspection
        from ..repair.startup_repair import examine

        if not self.path.exists():
            return Inspection()
        last = holder_of(self.path) if self._lock is None else None
        with self._locked():
            open_to_others = private_files.open_to_others(self.path)
            return replace(examine(self.path), abandoned_by=last, open_to_others=open_to_others)

    def work_on(self, work: Callable[[Path], T]) -> T:
        """Do any other work on the folder; only while no client is open."""
        from ..repair.startup_repair import check_not_open

        with self._locked():
            check_not_open(self.path)
            return work(self.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes out, also while no client is open."""
        self._is_unchanged = False
        lock = self._lock or FolderLock(self.path).take()
        try:
            yield
        finally:
            if lock is not self._lock:
                lock.release()

    def describe(self, error: BaseException) -> str:
        from ..repair.startup_repair import how_to_recover, repair_command

        path, number = self.path, getattr(error, "errno", None)
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            return f"The store path {path} is not a folder. Choose a folder, or move that file away."
        if number in (errno.EACCES, errno.EPERM, errno.EROFS) or "readonly database" in str(error):
            return (
                f"The store folder {path} cannot be written ({error}). Make it writable for this user, choose another "
                f"path, or set {PATH_VARIABLE}."
            )
        if number == errno.ENOSPC or "disk is full" in str(error):
            return f"The disk of {path} is full ({error}). Free some space; what was stored before is still there."
        if is_blocked(error):
            return (
                f"Chroma cannot apply what was written last to the store {path} ({error}), for example a record with too many "
                "tags of an earlier version, and cannot read what was there before. Nothing is lost. Close the memories that "
                f"use the store, and run {repair_command(path)}; if the disk is full, free some space instead."
            )
        if "malformed" in str(error) or "not a database" in str(error):
            return (
                f"The documents of the store {path} are damaged ({error}). {how_to_recover(path)}, or put a backup of the whole "
                "folder in its place."
            )
        return (
            f"Chroma cannot use the store folder {path}: {error}. Check that the disk is not full and that nothing else "
            "has changed the folder; copy it before you try to repair it."
        )


class Ram(ClientSource):
    """A database of its own in Chroma's one in-memory instance, which lives as long as the process."""

    def __init__(self, id: str) -> None:
        self._id = id

    def identity(self) -> tuple[str, ...]:
        return "temporary", self._id

    def open(self) -> ClientAPI:
        import chromadb
        from chromadb.api.client import AdminClient
        from chromadb.config import Settings
        from chromadb.errors import NotFoundError

        settings = Settings(is_persistent=False)  # as the user's own EphemeralClient(): Chroma refuses one that differs
        keep_every_index(settings)
        database = f"apm-{self._id.encode().hex()}"
        admin = AdminClient(settings)
        try:
            admin.get_database(database)
        except NotFoundError:
            admin.create_database(database)
        return chromadb.EphemeralClient(settings=settings, database=database)

    def close(self, client: ClientAPI) -> None:
        """Close nothing: closing Chroma's last in-memory client would empty the store."""

    def describe(self, error: BaseException) -> str:
        return f"Chroma cannot use its in-memory store: {error}. Use an EmbeddedStore on a temporary folder instead."
