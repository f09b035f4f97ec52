"""Repairs an embedded store's index when the store is opened, so that no damage reaches the user.

A store that was closed properly and not changed since is recognised by its files. Any other is inspected before Chroma
opens it: an index that Chroma could not load, or that would crash it, is moved to a backup, and the vectors that are left
in it are written back through Chroma. The first memory with the right embedding makes the lost vectors again. Blocks; call
it in a thread, while holding the folder's lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shlex
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import StoreUnavailableError
from ...core.records import utc_now
from ...runtime import private_files
from ..chroma.chroma_compat import DATABASE, bare_collection, is_open_in_process
from ..chroma.values import PLACEHOLDER
from .hnsw_files import INDEX_FILES, read_index
from .inspect import InspectedCollection, Inspection, UnreadableDatabaseError, inspect_folder, segment_folders

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

logger = logging.getLogger("autogen_persistent_memory")

_STATE = "autogen_memory.state.json"
_BACKUP = "autogen_memory.backup-"
_BACKUPS_KEPT = 5
_CHUNK = 50


@dataclass(frozen=True)
class VectorRepair:
    """Which vectors of a damaged store were restored and which were lost: the ids of the rows, by collection."""

    restored: dict[str, set[str]] = field(default_factory=dict)
    """Restored from what was left on disk; they are still to be compared with what their embedding makes."""
    lost: dict[str, set[str]] = field(default_factory=dict)
    """To be made again by their embedding."""


@dataclass(frozen=True)
class Damage:
    """The collections whose vectors are to be restored, and the backup of what Chroma could not load."""

    collections: Sequence[InspectedCollection] = ()
    backup: Path | None = None


def before_opening(folder: Path) -> Damage:
    """Check whether Chroma can open a folder, and move what it could not load to a backup.

    Raises:
        DamagedStoreError: The documents themselves are damaged.
    """
    if is_open_in_process(folder):
        return Damage()
    finish_replacement(folder)
    if _read_state(folder) == _fingerprint(folder):
        return Damage()
    try:
        found = inspect_folder(folder)
    except UnreadableDatabaseError as error:
        raise DamagedStoreError(folder, error) from error
    except (sqlite3.OperationalError, OSError) as error:
        logger.debug("The store %s could not be checked before opening it: %r", folder, error)
        return Damage()
    damaged = [collection for collection in found.collections if is_damaged(collection)]
    return Damage(damaged, _set_aside(folder, damaged))


def after_opening(folder: Path, client: ClientAPI, damage: Damage) -> VectorRepair:
    """Write back the vectors that are left in the backup, and log what was found, what was done, and where the backup is."""
    repair = restore(folder, client, damage.collections)
    if damage.collections:
        restored, lost = (sum(map(len, ids.values())) for ids in (repair.restored, repair.lost))
        logger.warning(
            "The store %s was damaged, for example by a process that was killed, and has been repaired. %s. No memory is "
            "lost; %d vectors were restored%s.%s",
            folder,
            "; ".join(f"{where(collection)}: {_reason(collection)}" for collection in damage.collections),
            restored,
            f", {lost} will be made again by the next memory that uses them" if lost else "",
            f" The damaged files are kept in {damage.backup}." if damage.backup else "",
        )
    return repair


def after_closing(folder: Path, repair: VectorRepair) -> None:
    """Note the state of a folder that is intact, so that it need not be inspected when it is opened again."""
    if any(repair.lost.values()) or is_open_in_process(folder):
        return
    try:
        private_files.write(folder / _STATE, json.dumps(_fingerprint(folder)))
    except OSError as error:
        logger.debug("The state of %s could not be noted; it will be inspected when it is opened: %r", folder, error)


def examine(folder: Path) -> Inspection:
    """Inspect a folder thoroughly, without changing anything.

    Raises:
        DamagedStoreError: Its documents are damaged.
        StoreUnavailableError: The application has a Chroma client open on it.
    """
    check_not_open(folder)
    finish_replacement(folder)
    try:
        return inspect_folder(folder, thorough=True)
    except UnreadableDatabaseError as error:
        raise DamagedStoreError(folder, error) from error


def check_not_open(folder: Path) -> None:
    """Make sure that the application has no Chroma client of its own on the folder: reading it would break its locks.

    Raises:
        StoreUnavailableError: It has one.
    """
    if is_open_in_process(folder):
        raise StoreUnavailableError(
            f"This program has a Chroma client of its own on {folder}, so that it cannot be examined. Close that client first."
        )


def clean(folder: Path, orphans: Iterable[Path]) -> Path:
    """Copy the documents to a new backup, and delete indexes that belong to no collection; return the backup."""
    backup = _new_backup(folder)
    shutil.copy2(folder / DATABASE, backup / DATABASE)
    for path in orphans:
        shutil.rmtree(path)
    return backup


def is_damaged(collection: InspectedCollection) -> bool:
    """Return whether rows of it cannot be found by meaning, or it cannot be read at all."""
    return collection.index.problem is not None or bool(collection.unindexed)


class DamagedStoreError(StoreUnavailableError):
    """The documents of a store are damaged, not only its indexes."""

    needs_developer = True

    def __init__(self, folder: Path, error: UnreadableDatabaseError) -> None:
        self.reason = str(error)
        self.is_recoverable = error.is_recoverable
        remedy = how_to_recover(folder) if self.is_recoverable else "Move it away to start with a new one"
        super().__init__(
            f"The store {folder} cannot be opened: {error}. Nothing was changed. {remedy}, or put a backup of the whole folder "
            "in its place."
        )


def how_to_recover(folder: Path) -> str:
    """Return what to do about damaged documents, for a message."""
    return f"Recover the documents that can still be read with {repair_command(folder)}, which keeps the damaged store"


def repair_command(folder: Path) -> str:
    """Return the command that repairs a store, for a message."""
    return f"`autogen-memory doctor --repair --path {shlex.quote(str(folder))}`"


def _set_aside(folder: Path, collections: Iterable[InspectedCollection]) -> Path | None:
    """Move the files of indexes that cannot be loaded to a backup; return the backup, if there were any."""
    indexes = [collection.index for collection in collections]
    there = [index.folder for index in indexes if index.problem and index.folder.exists()]
    if not there:
        return None
    backup = _new_backup(folder)
    for path in there:
        path.rename(backup / path.name)
    return backup


def _new_backup(folder: Path) -> Path:
    """Make a folder for the files that are about to be changed, and delete the oldest of many backups."""
    name = f"{_BACKUP}{utc_now():%Y%m%d-%H%M%S-%f}"
    (folder / name).mkdir(mode=private_files.FOLDER)
    for old in _backups(folder)[_BACKUPS_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder / name


def _backups(folder: Path) -> list[Path]:
    """Return the backups, newest first."""
    return sorted(folder.glob(f"{_BACKUP}*"), reverse=True)


def restore(folder: Path, client: ClientAPI, collections: Iterable[InspectedCollection]) -> VectorRepair:
    """Write back the vectors of rows, as far as they are left."""
    repair = VectorRepair()
    for collection in collections:
        vectors = _remaining_vectors(folder, collection)
        chroma = bare_collection(client, collection.name)
        items = iter(vectors.items())
        while chunk := dict(islice(items, _CHUNK)):
            chroma.upsert(ids=list(chunk), embeddings=list(chunk.values()))
        repair.restored[collection.name] = set(vectors)
        repair.lost[collection.name] = set(collection.unindexed.difference(vectors))
    return repair


def _remaining_vectors(folder: Path, collection: InspectedCollection) -> dict[str, Any]:
    """Return the vectors of rows that lost theirs, from this backup or an earlier one of a process that was then killed."""
    if collection.table == "values":
        return dict.fromkeys(collection.unindexed, PLACEHOLDER)
    found: dict[str, Any] = {}
    for backup in _backups(folder):
        files = backup / collection.index.folder.name
        missing = collection.unindexed.difference(found)
        if missing and files.exists():
            found |= read_index(files, collection.index.dimensions).vectors(missing)
    return found


def where(collection: InspectedCollection) -> str:
    """Return the name of a collection as a user knows it."""
    return f"{collection.table} of {collection.namespace!r}"


def _reason(collection: InspectedCollection) -> str:
    return collection.index.problem or f"{len(collection.unindexed)} rows have no vector"


def _read_state(folder: Path) -> Any:
    try:
        return json.loads((folder / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _fingerprint(folder: Path) -> dict[str, list[int]]:
    """Return size and time of every file of Chroma."""
    found: dict[str, list[int]] = {}
    for path in [folder / DATABASE, *(segment / name for segment in segment_folders(folder) for name in INDEX_FILES)]:
        with contextlib.suppress(OSError):
            status = path.stat()
            found[str(path.relative_to(folder))] = [status.st_size, status.st_mtime_ns]
    return found


_UNFINISHED = "autogen_memory.recovering-"
_COMPLETE = "autogen_memory.recovered-"
_DAMAGED = "autogen_memory.damaged-"


def workplace(folder: Path, purpose: str) -> Path:
    """Return where to build the new store: the same place for the same damage and purpose, so that work can be resumed."""
    status = (folder / DATABASE).stat()
    damage = f"{status.st_size} {status.st_mtime_ns} {purpose}"
    place = folder / f"{_UNFINISHED}{hashlib.sha256(damage.encode()).hexdigest()[:12]}"
    private_files.refuse_link(place)
    return place


def replace_damaged(folder: Path, new: Path) -> Path:
    """Replace the damaged store by the one in a workplace; return where the damaged one is kept."""
    new.rename(folder / f"{_COMPLETE}{utc_now():%Y%m%d-%H%M%S-%f}")
    (kept,) = finish_replacement(folder)
    return kept


def finish_replacement(folder: Path) -> list[Path]:
    """Finish replacements that were interrupted, if any; return where the damaged stores are kept."""
    kept: list[Path] = []
    for new in sorted(folder.glob(f"{_COMPLETE}*")):
        damaged = folder / new.name.replace(_COMPLETE, _DAMAGED)
        private_files.refuse_link(damaged)
        damaged.mkdir(mode=private_files.FOLDER, exist_ok=True)
        if not (damaged / DATABASE).exists():  # which is moved last
            _move(_files_of_chroma(folder), damaged)
        _move(new.glob("*.jsonl"), damaged)
        _move(_files_of_chroma(new), folder)
        shutil.rmtree(new)
        kept.append(damaged)
        for unfinished in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(unfinished)
    return kept


def _files_of_chroma(folder: Path) -> list[Path]:
    """Return its indexes and files, the database last."""
    beside = [path for path in folder.glob(f"{DATABASE}*") if path.name != DATABASE]
    return [*segment_folders(folder), *beside, *folder.glob(DATABASE)]


def _move(paths: Iterable[Path], to: Path) -> None:
    for path in paths:
        path.rename(to / path.name)
