"""How a recovered store takes the place of the damaged one: as a whole or not at all, wherever the process is killed.

The new store is made in a folder inside the damaged one. When it is complete that folder is renamed, and from then on
whoever has the store goes on with the exchange before doing anything else. Blocks, and is called in threads, by whoever
owns the folder.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from ...core.records import utc_now
from ...runtime import private_files
from .inspection import DATABASE, segment_folders

_UNFINISHED = "autogen_memory.recovering-"
_COMPLETE = "autogen_memory.recovered-"
_DAMAGED = "autogen_memory.damaged-"


def workplace(folder: Path, purpose: str) -> Path:
    """Where to make the new store. For the same damage and purpose it is the same place, in which work can go on."""
    status = (folder / DATABASE).stat()
    damage = f"{status.st_size} {status.st_mtime_ns} {purpose}"
    place = folder / f"{_UNFINISHED}{hashlib.sha256(damage.encode()).hexdigest()[:12]}"
    private_files.refuse_link(place)
    return place


def replace_damaged(folder: Path, new: Path) -> Path:
    """Let the store in a workplace take the place of the damaged one; where that is kept."""
    new.rename(folder / f"{_COMPLETE}{utc_now():%Y%m%d-%H%M%S-%f}")
    (kept,) = finish_replacement(folder)
    return kept


def finish_replacement(folder: Path) -> list[Path]:
    """Go on with exchanges that were begun, if any; where the damaged stores are kept."""
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
    """Its indexes and files, the database last."""
    beside = [path for path in folder.glob(f"{DATABASE}*") if path.name != DATABASE]
    return [*segment_folders(folder), *beside, *folder.glob(DATABASE)]


def _move(paths: Iterable[Path], to: Path) -> None:
    for path in paths:
        path.rename(to / path.name)
