"""Opens and closes Chroma on a folder, which this process takes for itself. Everything here blocks; call it in a thread."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...core.component_configs import PATH_VARIABLE
from ...runtime import private_files
from ..availability import CircuitBreaker
from ..folder_lock import FolderLock, holder_of
from .chroma_compat import open_folder
from .write_log import is_blocked

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

    from ..repair.inspect import Inspection
    from ..repair.startup_repair import StartupRepair, VectorRepair

T = TypeVar("T")
_OURS = "autogen_memory."
"""Our own files in a store's folder begin with this."""
_FILES_OF_OTHERS = 128
"""Open files left to the application and to Chroma's database."""
_FILES_PER_INDEX = 4
_MOST_INDEXES = 600


class Folder:
    """Opens Chroma on a folder, which it takes for this process."""

    local = True
    writers = 1

    def __init__(self, path: str) -> None:
        self.given = path
        self._ownership: FolderLock | None = None
        self._mending: StartupRepair | None = None
        self._is_known = False
        self.breaker = CircuitBreaker()

    @property
    def folder(self) -> Folder:
        return self

    @cached_property
    def path(self) -> Path:
        """The folder, found once, lest a later chdir make it another."""
        return Path(os.path.realpath(os.path.expanduser(self.given)))

    def identity(self) -> tuple[str, ...]:
        return "embedded", str(self.path)

    def outbox(self, namespace: str) -> None:
        """What cannot be stored here could not be kept on this machine any better."""

    def open(self) -> ClientAPI:
        private_files.make_folder(self.path)
        ownership = self._ownership or self._own()
        try:
            if self._mending is not None and self._is_known:
                mending, client = self._mending, open_folder(self.path)
            else:
                mending, client = self._open_and_mend()
        except BaseException:
            ownership.release()
            self._ownership = None
            raise
        self._ownership, self._mending, self._is_known = ownership, mending, False
        return client

    def _open_and_mend(self) -> tuple[StartupRepair, ClientAPI]:
        from ..repair.startup_repair import StartupRepair

        mending = StartupRepair(self.path)
        mending.before_opening()
        client = open_folder(self.path)
        try:
            mending.after_opening(client)
            self._close_to_others()
        except BaseException:
            client.close()
            raise
        return mending, client

    def _close_to_others(self) -> None:
        """Close Chroma's files, which have the modes that the umask leaves, and ours of earlier versions."""
        from ..repair.inspect import DATABASE, SEGMENT

        with contextlib.suppress(FileNotFoundError):  # the folder was deleted under us
            for path in self.path.iterdir():
                if path.name.startswith((DATABASE, _OURS)) or SEGMENT.fullmatch(path.name):
                    private_files.close_to_others(path)

    @property
    def most_indexes(self) -> int:
        try:
            from resource import RLIMIT_NOFILE, getrlimit
        except ImportError:  # on Windows
            return _MOST_INDEXES
        files = getrlimit(RLIMIT_NOFILE)[0]
        return max(8, min(_MOST_INDEXES, (files - _FILES_OF_OTHERS) // _FILES_PER_INDEX))

    def _own(self) -> FolderLock:
        ownership = FolderLock(self.path)
        ownership.take()
        return ownership

    def pause(self, client: ClientAPI) -> None:
        client.close()
        self._is_known = True

    def close(self, client: ClientAPI) -> None:
        try:
            client.close()
            if self._mending is not None:
                self._mending.after_closing()
            self._close_to_others()
        finally:
            if self._ownership is not None:
                self._ownership.release()
                self._ownership = None

    def examine(self) -> Inspection:
        from ..repair.inspect import Inspection
        from ..repair.startup_repair import examine

        if not self.path.exists():
            return Inspection()
        self._is_known = False
        last = holder_of(self.path) if self._ownership is None else None
        with self._owned():
            open_to_others = private_files.open_to_others(self.path)
            return replace(examine(self.path), abandoned_by=last, open_to_others=open_to_others)

    def clean(self, orphans: Sequence[Path]) -> Path:
        from ..repair.startup_repair import clean

        with self._owned():
            return clean(self.path, orphans)

    def work_on(self, work: Callable[[Path], T]) -> T:
        from ..repair.startup_repair import check_not_open

        self._is_known = False
        with self._owned():
            check_not_open(self.path)
            return work(self.path)

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Keep other processes out, also while no client is open."""
        if self._ownership is not None:
            yield
            return
        ownership = self._own()
        try:
            yield
        finally:
            ownership.release()

    @property
    def repair(self) -> VectorRepair | None:
        return None if self._mending is None else self._mending.repair

    def describe(self, error: BaseException) -> str:
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
            from ..repair.startup_repair import repair_command

            return (
                f"Chroma cannot take in what was written last to the store {path} ({error}), as a record with too many tags of "
                "an earlier version, nor read what was before. Nothing is lost. Close the memories that use it, and run "
                f"{repair_command(path)}; if the disk is full, free some space instead."
            )
        if "malformed" in str(error) or "not a database" in str(error):
            from ..repair.startup_repair import how_to_recover

            return (
                f"The documents of the store {path} are damaged ({error}). {how_to_recover(path)}, or put a backup of the whole "
                "folder in its place."
            )
        return (
            f"Chroma cannot use the store folder {path}: {error}. Check that the disk is not full and that nothing else "
            "has changed the folder; copy it before you try to repair it."
        )
